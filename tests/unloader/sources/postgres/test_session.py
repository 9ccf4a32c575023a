"""A session with a real server: pieces of COPY, readings interrupted, errors in our words."""

from __future__ import annotations

import gc
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
from unloader.sources.postgres.session import Session
from unloader.sources.postgres.statement import CopyDialect
from unloader.sources.registry import password_of

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
    return bool(postgres.run(f"SELECT 1 FROM pg_stat_activity WHERE pid = {pid}"))


def test_a_slow_reader_stops_the_server_not_the_memory(session: Session) -> None:
    """With one piece read of a hundred megabytes, only about a piece is in memory."""
    sql = "SELECT repeat('x', 1000) FROM generate_series(1, 100000) g"
    pieces = session.copied(sql, CopyDialect(), 64 * 1024)
    tracemalloc.start()
    try:
        for _ in range(20):
            next(pieces)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    pieces.close()  # type: ignore[attr-defined]
    assert peak < 8 * 1024 * 1024


@pytest.mark.long("faults of a source")
@pytest.mark.parametrize("taken", [0, 1, 3])
def test_a_copy_broken_off_ends_its_connection_cleanly(
    postgres: Any, session: Session, taken: int
) -> None:
    """After `close` on the generator the server's side ends too, and nothing is warned about."""
    pid = session.value("SELECT pg_backend_pid()")
    pieces = session.copied(SELECT, CopyDialect(), 1000)
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
pieces = session.copied(sql, CopyDialect(), 9)
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
    pieces = session.copied(SELECT, CopyDialect(), 1000)
    next(pieces)
    postgres.run(f"SELECT pg_terminate_backend({pid})")
    with pytest.raises(TransientSourceError, match="PostgreSQL: "):
        list(pieces)
    with pytest.raises(TransientSourceError):
        session.value("SELECT 1")
    assert not session.alive


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
        ((line,),) = session.copied(sql, CopyDialect(), 100)
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
    """From the start, in its own transaction and in one that someone begins."""
    for begun in ("", "BEGIN; "):
        with pytest.raises(SourceError, match="read-only transaction") as caught:
            session.execute(f"{begun}CREATE TABLE written (id int)")
        assert "only reads" in caught.value.hint
        session.execute("ROLLBACK")
