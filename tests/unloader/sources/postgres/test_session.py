"""A session with a real server: pieces of COPY, readings broken off, errors in our words."""

from __future__ import annotations

import csv
import gc
import io
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from unloader.errors import ConfigError, SourceError, TransientSourceError
from unloader.model import SecretReference, SourceSpec
from unloader.sources.password import password_of
from unloader.sources.postgres.session import Session
from unloader.sources.postgres.statement import CopyDialect

ROOT = Path(__file__).resolve().parents[4]
ROWS = 20_000
SELECT = f"SELECT g, repeat(E'x\\n', g % 50) FROM generate_series(1, {ROWS}) g"


@pytest.fixture
def session(postgres: Any) -> Iterator[Session]:
    """An open session, closed after the test; an unraisable error or a warning fails the test."""
    with closing(Session(spec_of(postgres.url))) as opened:
        yield opened
    gc.collect()


def spec_of(url: str) -> SourceSpec:
    """Return the spec of a database."""
    return SourceSpec(kind="postgresql", location=url)


def still_there(postgres: Any, pid: object) -> bool:
    """Say whether the server still has the session that this process of it serves."""
    return bool(postgres.run(f"SELECT 1 FROM pg_stat_activity WHERE pid = {pid}"))


@pytest.mark.parametrize("piece_bytes", [1, 10_000, 1 << 30])
def test_every_chunk_holds_whole_records(session: Session, piece_bytes: int) -> None:
    """Each chunk parses by itself, whatever its size; together they are all rows in order."""
    rows = []
    for piece in session.copy(SELECT, CopyDialect(), piece_bytes):
        assert piece
        for chunk in piece:
            assert bytes(chunk).endswith(b"\n")
            rows += list(csv.reader(io.StringIO(bytes(chunk).decode(), newline=""), strict=True))
    assert [int(row[0]) for row in rows] == list(range(1, ROWS + 1))
    assert all(row[1] == "x\n" * (int(row[0]) % 50) for row in rows)
    assert session.rows_copied == ROWS


def test_pieces_are_about_as_large_as_asked_for(session: Session) -> None:
    """A piece has less than piece_bytes, and room for no further row."""
    sizes = [
        sum(len(chunk) for chunk in piece) for piece in session.copy(SELECT, CopyDialect(), 100_000)
    ]
    assert len(sizes) > 5
    assert all(100_000 - 200 < size < 100_000 for size in sizes[:-1])


def test_a_slow_reader_stops_the_server_not_the_memory(session: Session) -> None:
    """With one piece read of a hundred megabytes, only about a piece is in memory."""
    sql = "SELECT repeat('x', 1000) FROM generate_series(1, 100000) g"
    pieces = session.copy(sql, CopyDialect(), 64 * 1024)
    tracemalloc.start()
    try:
        for _ in range(20):
            next(pieces)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    pieces.close()  # type: ignore[attr-defined]
    assert peak < 8 * 1024 * 1024


def test_the_dialect_is_the_servers(session: Session) -> None:
    """Delimiter, quote, NULL and forced quotes are those of the call."""
    sql = "SELECT 1 AS a, NULL AS b, 'x''y' AS c"
    dialect = CopyDialect(delimiter="|", quote="'", null="NULL", force_quote=("a",))
    assert list(session.copy(sql, dialect, 1)) == [(b"'1'|NULL|'x''y'\n",)]
    everything = CopyDialect(force_quote=True)
    assert list(session.copy(sql, everything, 1)) == [(b'"1",,"x\'y"\n',)]


def test_an_empty_result_has_no_piece(session: Session) -> None:
    """No rows are no chunks, and the count is zero, not that of the copy before."""
    assert list(session.copy("SELECT 1", CopyDialect(), 100)) == [(b"1\n",)]
    assert list(session.copy("SELECT 1 WHERE false", CopyDialect(), 100)) == []
    assert session.rows_copied == 0


@pytest.mark.long("faults of a source")
@pytest.mark.parametrize("taken", [0, 1, 3])
def test_a_copy_broken_off_ends_its_connection_cleanly(
    postgres: Any, session: Session, taken: int
) -> None:
    """After `close` on the generator the server's side ends too, and nothing is warned about."""
    pid = session.value("SELECT pg_backend_pid()")
    pieces = session.copy(SELECT, CopyDialect(), 1000)
    for _ in range(taken):
        next(pieces)
    pieces.close()  # type: ignore[attr-defined]
    assert session.alive == (taken == 0)
    session.close()
    session.close()
    gc.collect()
    for _ in range(100):
        if not still_there(postgres, pid):
            return
    raise AssertionError("the server still has the session")


LEAVING = """
import atexit, sys
from unloader.model import SourceSpec
from unloader.sources.postgres.session import Session
from unloader.sources.postgres.statement import CopyDialect
session = Session(SourceSpec(kind="postgresql", location=sys.argv[1]))
atexit.register(session.close)
sql = "SELECT g, repeat('x', 99) FROM generate_series(1, 99999) g"
pieces = session.copy(sql, CopyDialect(), 9)
next(pieces)
if sys.argv[2] == "error":
    raise SystemExit("disk full")
if sys.argv[2] == "close":
    session.close()
"""


@pytest.mark.parametrize(("how", "said"), [("error", "disk full"), ("close", ""), ("leave", "")])
def test_a_process_that_leaves_in_mid_copy_says_nothing(postgres: Any, how: str, said: str) -> None:
    """A worker that closes its session at exit, a COPY being open, prints no warning at all."""
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", LEAVING, postgres.url, how],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONWARNINGS": "error"},
    )
    assert done.stderr.strip() == said


def test_a_terminated_backend_is_worth_a_retry(postgres: Any, session: Session) -> None:
    """A session that the administrator ends in mid-copy raises what may be tried again."""
    pid = session.value("SELECT pg_backend_pid()")
    pieces = session.copy(SELECT, CopyDialect(), 1000)
    next(pieces)
    postgres.run(f"SELECT pg_terminate_backend({pid})")
    with pytest.raises(TransientSourceError, match="PostgreSQL: "):
        list(pieces)
    with pytest.raises(TransientSourceError):
        session.value("SELECT 1")
    assert not session.alive


def test_bad_sql_is_not_worth_a_retry(session: Session) -> None:
    """The server's own words and its code; the session goes on."""
    for ask in (
        lambda: session.value("SELECT nope"),
        lambda: session.execute("SELECT nope"),
        lambda: session.column_names("SELECT nope"),
        lambda: list(session.copy("SELECT nope", CopyDialect(), 100)),
    ):
        with pytest.raises(SourceError, match=r'"nope" does not exist.*42703') as caught:
            ask()
        assert not isinstance(caught.value, TransientSourceError)
        assert session.value("SELECT 1") == 1


def test_an_error_among_the_rows_comes_after_them(session: Session) -> None:
    """A row that fails on the server ends the copy with its error, never with a short count."""
    sql = "SELECT 1 / (g - 5000) FROM generate_series(1, 9999) g"
    with pytest.raises(SourceError, match=r"division by zero.*22012"):
        list(session.copy(sql, CopyDialect(), 1000))


@pytest.mark.parametrize(
    ("state", "transient"),
    [("40001", True), ("40P01", True), ("57P01", True), ("53300", True), ("53100", False)],
)
def test_states_that_pass_are_worth_a_retry(session: Session, state: str, transient: bool) -> None:
    """Serialization failures, deadlocks and shutdowns pass; a full disk of the server does not."""
    sql = f"DO $$ BEGIN RAISE EXCEPTION 'it happens' USING ERRCODE = '{state}'; END $$"
    with pytest.raises(SourceError, match=f"it happens .SQLSTATE {state}") as caught:
        session.execute(sql)
    assert caught.value.retryable == transient


@pytest.mark.parametrize(
    ("location", "transient", "said"),
    [
        ("postgresql://postgres@127.0.0.1:1/none", True, "Connection refused"),
        ("postgresql://postgres@/postgres?host=/nowhere", True, "No such file"),
        ("NO SUCH DATABASE", False, "3D000"),
        ("NO SUCH ROLE", False, "28000"),
    ],
)
def test_a_server_that_cannot_be_had(
    postgres: Any, location: str, transient: bool, said: str
) -> None:
    """Nobody listening may pass; a database or a user that is not there will not."""
    if location == "NO SUCH DATABASE":
        location = postgres.url.replace("/postgres?", "/no-such?")
    elif location == "NO SUCH ROLE":
        location = postgres.url.replace("postgres@", "nobody@")
    with pytest.raises(SourceError, match=said) as caught:
        Session(spec_of(location))
    assert caught.value.retryable == transient
    gc.collect()


def test_values_are_printed_one_way_whatever_the_servers_settings(postgres: Any) -> None:
    """Zone, date style, floats, bytea and intervals do not follow the database's defaults."""
    url = postgres.database("odd defaults")
    postgres.run(
        "ALTER DATABASE \"odd defaults\" SET TimeZone = 'Asia/Kolkata';"
        "ALTER DATABASE \"odd defaults\" SET DateStyle = 'German, DMY';"
        "ALTER DATABASE \"odd defaults\" SET IntervalStyle = 'iso_8601';"
        "ALTER DATABASE \"odd defaults\" SET bytea_output = 'escape';"
        'ALTER DATABASE "odd defaults" SET extra_float_digits = 0;'
        'ALTER DATABASE "odd defaults" SET statement_timeout = 1;',
        url=url,
    )
    sql = (
        "SELECT timestamptz '2024-01-31 00:00:00+00', date '2024-01-31', interval '1 day 2:00',"
        " '\\x00ff'::bytea, 0.1::float8 + 0.2::float8"
    )
    with closing(Session(spec_of(url))) as session:
        ((line,),) = session.copy(sql, CopyDialect(), 100)
    text = "2024-01-31 00:00:00+00,2024-01-31,1 day 02:00:00,\\x00ff,0.30000000000000004\n"
    assert bytes(line).decode() == text


def test_the_password_is_read_where_the_reference_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file without its end of line, a variable, or nowhere; a file that is gone is named."""
    file = tmp_path / "secret"
    file.write_text(" pass word \r\n")
    monkeypatch.setenv("SOME_SECRET", "from the environment")

    def found(kind: Any, name: str = "") -> str | None:
        secret = SecretReference(kind=kind, name=name)
        return password_of(SourceSpec(kind="postgresql", location="", secret=secret))

    assert found("file", str(file)) == " pass word "
    assert found("environment", "SOME_SECRET") == "from the environment"
    assert found("none") is None
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        found("file", str(tmp_path / "gone"))


def test_a_session_only_reads(session: Session) -> None:
    """From the start, in a transaction of its own and in one that somebody begins."""
    for begun in ("", "BEGIN; "):
        with pytest.raises(SourceError, match="read-only transaction") as caught:
            session.execute(f"{begun}CREATE TABLE written (id int)")
        assert "only reads" in caught.value.hint
        session.execute("ROLLBACK")
