"""Passwords: from the environment, a file or a prompt, and from nowhere that others can see."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import tempfile
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from long_tests import OTHER_ROUTES
from processes.program import Program

Run = Callable[..., "subprocess.CompletedProcess[str]"]

SECRET = "s3cr3t-w0rd"


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", f"postgresql://etl:{SECRET}@db01/x", "--table", "t", "--to", "out"),
        ("run", f"postgresql://db01/x?password={SECRET}", "--table", "t", "--to", "out"),
        ("describe", "postgresql://etl@db01/x", "--password", SECRET),
        ("describe", "postgresql://etl@db01/x", f"--password={SECRET}"),
        ("verify", "out", f"postgresql://etl:{SECRET}@db01/x"),
        ("formats", f"postgresql://etl:{SECRET}@db01/x"),
    ],
)
def test_a_password_on_the_command_line_is_refused_and_not_repeated(
    unloader: Run, arguments: tuple[str, ...]
) -> None:
    """In a URL or as an option, a password ends the command with status 2 and stays unseen."""
    result = unloader(*arguments)
    assert result.returncode == 2
    assert SECRET not in result.stderr + result.stdout


def test_a_password_in_a_job_file_is_refused(unloader: Run, tmp_path: Path) -> None:
    """A job file is kept and shared; it names the place of the password, never the password."""
    (tmp_path / "job.toml").write_text(f'password = "{SECRET}"\n')
    result = unloader("run", "job.toml", "--to", "out")
    assert result.returncode == 2
    assert "password-file" in result.stderr
    assert SECRET not in result.stderr


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that every user may enter; directories of pytest are closed to other users."""
    made = Path(tempfile.mkdtemp(dir="/tmp"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def test_a_password_file_open_to_others_is_refused(
    unloader: Run, open_directory: Path, database: str
) -> None:
    """Status 3, and the command that closes the file; then it is read."""
    path = open_directory / "pw"
    path.write_text(SECRET)
    path.chmod(0o644)
    result = unloader("describe", database, "--password-file", str(path))
    assert result.returncode == 3
    assert f"chmod 600 {path}" in result.stderr
    path.chmod(0o600)
    result = unloader("describe", database, "--password-file", str(path))
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.parametrize(("mode", "status"), [(0o644, 3), (0o600, 4)])
def test_a_job_file_with_a_password_is_a_secret(
    unloader: Run, open_directory: Path, mode: int, status: int
) -> None:
    """A job file whose --session-sql has a password must not be open to others, either."""
    job = open_directory / "job.toml"
    statement = f"SET ROLE READER IDENTIFIED BY {SECRET}"
    job.write_text(f"source = 'oracle://scott@127.0.0.1:1/X'\nsession-sql = ['{statement}']\n")
    job.chmod(mode)
    result = unloader("plan", str(job), "--table", "T", variables={"UNLOADER_PASSWORD": "x"})
    assert result.returncode == status, result.stderr
    assert ("chmod 600" in result.stderr) == (status == 3)
    assert SECRET not in result.stderr + result.stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--password-file", "pw", "--password-keyring", "x/y"), "exclude each other"),
        (("--password-keyring", "x/y", "--password-prompt"), "exclude each other"),
        (("--password-credential", f"../{SECRET}"), "not the name of a credential"),
        (("--password-credential", SECRET), "needs CREDENTIALS_DIRECTORY"),
    ],
)
def test_places_that_cannot_be_are_refused(
    unloader: Run, database: str, options: tuple[str, ...], said: str
) -> None:
    """Two places together, and a missing credential; its name may be the password."""
    result = unloader("describe", database, *options)
    assert result.returncode in (2, 3)
    assert said in result.stderr
    assert SECRET not in result.stderr


def test_a_credential_that_systemd_gives_is_read(
    unloader: Run, tmp_path: Path, database: str
) -> None:
    """It is the password from then on: nothing else may hold it."""
    credentials = tmp_path / "credentials"
    credentials.mkdir(mode=0o700)
    (credentials / "db-password").write_text(f"{SECRET}\n")
    variables = {"CREDENTIALS_DIRECTORY": str(credentials)}
    named = ("describe", database, "--password-credential", "db-password")
    assert unloader(*named, variables=variables).returncode == 0
    told = unloader(*named, "--as-text", SECRET, variables=variables)
    assert (told.returncode, "holds the password" in told.stderr) == (2, True)
    missing = unloader("describe", database, "--password-credential", "x", variables=variables)
    assert missing.returncode == 3
    assert "LoadCredential=" in missing.stderr


def test_a_prompt_asks_on_the_terminal_and_shows_nothing(
    tmp_path: Path, environment: dict[str, str], program: tuple[str, ...], database: str
) -> None:
    """--password-prompt reads the password from the terminal without echo, off stdout."""
    leader, follower = pty.openpty()
    with Program(
        [*program, "describe", database, "--password-prompt"],
        stdin=follower,
        stdout=subprocess.PIPE,
        stderr=follower,
        env=environment,
        cwd=tmp_path,
        start_new_session=True,
    ) as process:
        os.close(follower)
        shown = b""
        while b"Password for" not in shown:
            shown += os.read(leader, 1024)
        # Text that is typed before the echo is off is shown, and then thrown away.
        while termios.tcgetattr(leader)[3] & termios.ECHO:
            time.sleep(0.01)
        os.write(leader, f"{SECRET}\n".encode())
        output, _ = process.communicate(timeout=180)
        while True:
            try:
                shown += os.read(leader, 1024)
            except OSError:
                break
    os.close(leader)
    assert process.returncode == 0
    assert b"orders" in output
    assert SECRET.encode() not in shown + output
