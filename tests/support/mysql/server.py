"""A server of MariaDB or MySQL in a temporary directory, started without rights of root."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from processes.command import wait_for
from processes.program import Program

PLACES = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/mysql/bin"))


def found(*names: str) -> str | None:
    """Return the path of the first program that is installed."""
    return next((path for each in names if (path := shutil.which(each, path=PLACES))), None)


def missing() -> str:
    """Return why no server can be started; empty if one can."""
    needed = (found("mariadbd", "mysqld"), found("mariadb", "mysql"))
    return "" if all(needed) else "no server of MariaDB or MySQL is installed (mariadb-server)"


class MySQLServer:
    """A running server and its own command-line client, which is an independent reader."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.client = found("mariadb", "mysql") or ""

    def run(self, sql: str, database: str = "") -> str:
        """Run SQL through the client, stop at the first error, return the output."""
        done = self.start_client(database).communicate(sql)
        assert not done[1], done[1]
        return done[0].strip("\n")

    def start_client(self, database: str = "") -> subprocess.Popen[str]:
        """Start the client, which reads SQL from its standard input."""
        return subprocess.Popen(
            [
                *(self.client, "--no-defaults", "-N", "-r", "-B", "--unbuffered", "-u", "root"),
                *("--default-character-set=utf8mb4", f"--socket={self.socket}", database),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def database(self, name: str) -> str:
        """Create an empty database and return its URL."""
        self.run(
            f"DROP DATABASE IF EXISTS `{name}`; CREATE DATABASE `{name}` CHARACTER SET utf8mb4"
        )
        return self.url(name)

    def url(self, database: str, user: str = "root") -> str:
        return f"mysql://{user}@/{quote(database)}?socket={self.socket}"

    def sessions(self) -> set[str]:
        """Return the numbers of all sessions except the asking one."""
        return set(
            self.run(
                "SELECT id FROM information_schema.processlist WHERE id <> connection_id() "
                "AND user = 'root'"
            ).split()
        )


@contextmanager
def started(*options: str) -> Iterator[MySQLServer]:
    """Run a server in a new directory until the end; options are the server's."""
    directory = Path(tempfile.mkdtemp(prefix="unloader-my-", dir="/tmp"))
    user = "nobody" if os.geteuid() == 0 else None
    if user is not None:
        os.chown(directory, pwd.getpwnam(user).pw_uid, -1)
    directory.chmod(0o755)
    server, socket, data = found("mariadbd", "mysqld"), directory / "socket", directory / "data"
    assert server is not None
    install = found("mariadb-install-db")
    making = [server, "--no-defaults", "--initialize-insecure"]
    if install is not None:
        making = [install, "--no-defaults", "--auth-root-authentication-method=normal"]
        making.append("--skip-test-db")
    subprocess.run(
        [*making, f"--datadir={data}", "--innodb-log-file-size=16M"],
        check=True,
        capture_output=True,
        user=user,
    )
    try:
        with Program(
            [server, "--no-defaults", f"--datadir={data}", f"--socket={socket}"]
            + [f"--pid-file={directory / 'pid'}", f"--log-error={directory / 'log'}"]
            # The data of this server need not survive a power cut.
            + ["--innodb-flush-log-at-trx-commit=0", "--skip-log-bin", "--max-allowed-packet=64M"]
            + (list(options) or ["--skip-networking"]),
            user=user,
        ) as program:
            wait_for(
                lambda: socket.exists() or program.poll() is not None, "the socket of the server"
            )
            log = directory / "log"
            assert program.poll() is None, log.read_text() if log.exists() else "no log"
            yield MySQLServer(socket)
            program.terminate()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
