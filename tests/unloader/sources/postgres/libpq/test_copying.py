"""Rows of COPY through the native loop and the plain one: the same chunks, the same ends."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unloader.sources.postgres.errors import Broken, ServerError
from unloader.sources.postgres.libpq import connection as copying
from unloader.sources.postgres.libpq.connection import Connection

LOOPS = ("native", "plain")


@pytest.fixture
def loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """One of the two loops, chosen as a user would."""
    if request.param == "plain":
        monkeypatch.setenv(copying.OVERRIDE, "")
    copying.native.cache_clear()
    assert (copying.native() is not None) == (request.param == "native")
    yield request.param
    copying.native.cache_clear()


@pytest.fixture
def connection(postgres: Any) -> Iterator[Connection]:
    """An open session."""
    with closing(Connection(postgres.url)) as opened:
        yield opened


def all_chunks(connection: Connection, select: str, chunk_bytes: int) -> tuple[list[bytes], int]:
    """Return the chunks of a query's COPY in CSV, and the number of rows that it returned."""
    rows = connection.copy(f"COPY ({select}) TO STDOUT (FORMAT csv)", chunk_bytes)
    chunks: list[bytes] = []
    while True:
        try:
            chunks.append(bytes(next(rows)))
        except StopIteration as end:
            return chunks, end.value


@pytest.mark.parametrize("loop", LOOPS, indirect=True)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lengths=st.lists(st.integers(0, 400), max_size=60), chunk_bytes=st.integers(1, 1000))
def test_chunks_are_whole_rows(
    loop: str, connection: Connection, lengths: list[int], chunk_bytes: int
) -> None:
    """Each has less than asked for, or is one row; the next row would not have gone in."""
    select = f"SELECT repeat('x', n) FROM unnest('{{{','.join(map(str, lengths))}}}'::int[]) AS n"
    texts = [b'""\n' if n == 0 else b"x" * n + b"\n" for n in lengths]
    expected: list[bytes] = []
    for text in texts:
        if expected and len(expected[-1]) + len(text) < chunk_bytes:
            expected[-1] += text
        else:
            expected.append(text)
    assert all_chunks(connection, select, chunk_bytes) == (expected, len(lengths))


@pytest.mark.parametrize("loop", LOOPS, indirect=True)
@pytest.mark.parametrize("held", [1, 3, 30])
def test_memory_is_given_back_once_nobody_sees_it(
    loop: str, connection: Connection, held: int
) -> None:
    """Held memory, also a view of a view, keeps its bytes while other chunks come."""
    select = "SELECT g, repeat('x', g % 90) FROM generate_series(1, 60000) AS g"
    rows = connection.copy(f"COPY ({select}) TO STDOUT (FORMAT csv)", 100_000)
    parts: list[tuple[memoryview, bytes]] = []
    before_all = pa.total_allocated_bytes()
    count = at = most = 0
    for chunk in rows:
        part = chunk[: len(chunk) // 2].cast("B")[1:]
        parts.append((part, bytes(part)))
        most = max(most, pa.total_allocated_bytes() - before_all)
        count, at = count + 1, at + bytes(chunk).count(b"\n")
        del chunk, part
        assert all(bytes(view) == before for view, before in parts)
        del parts[: len(parts) - held]
    assert at == 60_000
    assert count > 30
    # One is filled while the others are held.
    assert most <= (held + 3) * 100_000


@pytest.mark.parametrize("loop", LOOPS, indirect=True)
def test_a_large_row_lives_as_long_as_its_view(loop: str, connection: Connection) -> None:
    """Its memory is libpq's: it is not freed under a reader, though the session is closed."""
    rows = connection.copy("COPY (SELECT repeat('y', 3000000)) TO STDOUT", 1000)
    chunk = next(rows)
    rows.close()
    connection.close()
    assert bytes(chunk) == b"y" * 3_000_000 + b"\n"
    assert chunk.readonly


@pytest.mark.parametrize("loop", LOOPS, indirect=True)
def test_an_error_behind_rows(loop: str, connection: Connection) -> None:
    """The rows before it come; then the server's error, and the session continues."""
    sql = "COPY (SELECT 1 / (g - 500) FROM generate_series(1, 999) g) TO STDOUT"
    came = []
    with pytest.raises(ServerError, match="division by zero"):
        came.extend(map(bytes, connection.copy(sql, 10)))
    assert b"".join(came).count(b"\n") == 499
    assert connection.query("SELECT 1")[0][0] == 1


@pytest.mark.parametrize("loop", LOOPS, indirect=True)
def test_a_signal_is_handled_while_waiting(
    loop: str, postgres: Any, connection: Connection
) -> None:
    """Its handler runs immediately, not when the next row comes; then the rows continue."""
    handled = threading.Event()
    before = signal.signal(signal.SIGUSR1, lambda *_: handled.set())
    pid = os.getpid()

    def send() -> None:
        active = "SELECT 1 FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'PgSleep'"
        with closing(Connection(postgres.url)) as other:
            # Nothing can be cancelled before it has begun.
            while not other.query(active, [backend]):
                pass
            os.kill(pid, signal.SIGUSR1)
            assert handled.wait(60)
            other.query("SELECT pg_cancel_backend($1::int)", [backend])

    backend = connection.query("SELECT pg_backend_pid()")[0][0]
    sender = threading.Thread(target=send)
    rows = connection.copy(
        "COPY (SELECT g, CASE WHEN g > 1 THEN pg_sleep(3000)::text END FROM generate_series(1, 2)"
        " g) TO STDOUT",
        1_000,
    )
    sender.start()
    try:
        with pytest.raises(ServerError, match="canceling statement"):
            list(rows)
    finally:
        sender.join()
        signal.signal(signal.SIGUSR1, before)
    assert handled.is_set()


def test_a_count_that_differs_is_a_lost_connection(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are counted as they come; the fault is planted, as no server can be had that lies."""
    plain = copying.Rows.next

    def one_more(rows: copying.Rows) -> memoryview | None:
        rows.count += 1
        return plain(rows)

    monkeypatch.setattr(copying.Rows, "next", one_more)
    with pytest.raises(Broken, match="rows arrived, but the server reports that it sent 5"):
        list(connection.copy("COPY (SELECT generate_series(1, 5)) TO STDOUT", 1000))


def test_a_library_of_another_version_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """Another kind of file is not used either; the plain loop serves both cases."""
    (tmp_path / "loop.so").write_text("nothing")
    monkeypatch.setenv(copying.OVERRIDE, str(tmp_path / "loop.so"))
    copying.native.cache_clear()
    assert copying.native() is None
    monkeypatch.delenv(copying.OVERRIDE)
    monkeypatch.setattr(copying, "ABI_VERSION", 99)
    copying.native.cache_clear()
    assert copying.native() is None
    monkeypatch.undo()
    copying.native.cache_clear()
    assert isinstance(copying.native(), ctypes.CDLL)
