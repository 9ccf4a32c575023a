"""A value of any size is unloaded in bounded memory, or refused by name: every source and format.

UNLOADER_TEST_WIDE_BYTES    bytes of the wide value (12000000, in a run of everything 48000000); CSV only
                            is tried above 64 MiB
"""

from __future__ import annotations

import csv
import hashlib
import json
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from amounts import amount
from long_tests import OTHER_ROUTES, also
from processes import command

if TYPE_CHECKING:
    from conftest import PostgresServer

UNIT = 'Zoë,"q" \\ tab\t line\n'
WIDE_BYTES = amount("UNLOADER_TEST_WIDE_BYTES", 12_000_000, 48_000_000)
TIMES = WIDE_BYTES // len(UNIT.encode())
ALLOWANCE = 190_000_000
"""Of a worker with all that it loads, measured 60 to 135 MB, its buffers and its fetch memory."""
COPIES = {"postgresql": 1, "duckdb": 3, "sqlite": 2}
"""How often the source's library has a value in memory; DuckDB while its buffer for it grows."""
PARQUET_COPIES = 8
"""How often a row group is in memory while it is encoded or read back."""

LARGE = "memory and large rows"
"""The kind of the long tests."""

Wide = Callable[[str, int], str]


@pytest.fixture
def wide(postgres: PostgresServer, tmp_path: Path) -> Wide:
    """Make a table of a narrow, a wide and an empty row; return the URL."""

    def postgresql(times: int) -> str:
        url = postgres.database("wide")
        postgres.run("CREATE TABLE w (id int, t text)", url=url)
        unit = UNIT.replace("'", "''")
        rows = f"(1, 'narrow'), (2, repeat('{unit}', {times})), (3, NULL)"
        postgres.run(f"SET standard_conforming_strings = on; INSERT INTO w VALUES {rows}", url=url)
        return url

    def embedded(kind: str, times: int) -> str:
        path = tmp_path / f"w.{kind}"
        connect: Any = duckdb.connect if kind == "duckdb" else sqlite3.connect
        with closing(connect(str(path))) as connection:
            connection.execute("CREATE TABLE w (id INTEGER, t TEXT)")
            rows = [(1, "narrow"), (2, UNIT * times), (3, None)]
            connection.executemany("INSERT INTO w VALUES (?, ?)", rows)
            connection.commit()
        return f"{kind}://{path}"

    return lambda kind, times: postgresql(times) if kind == "postgresql" else embedded(kind, times)


def unload(url: str, to: Path, *options: str) -> tuple[int, str, int]:
    """Run the command; return status, log and the peak of its worker in bytes."""
    chosen = ("run", url, "--table", "w", "--to", str(to), "--parallelism", "1")
    # Not a fork of a program that has loaded more, whose pages would count as the worker's.
    status, _, log = command.Running(*chosen, *options).finish()
    if status:
        return status, log, 0
    found = json.loads((to / "_manifest.json").read_text())
    return 0, log, int(found["totals"]["peak_worker_rss_bytes"])


def digest(text: str) -> str:
    """Return what two texts are compared by."""
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.parametrize(
    ("kind", "dialect"),
    [
        ("postgresql", "tsv"),
        ("sqlite", "rfc4180"),
        *also(LARGE, ("postgresql", "rfc4180"), ("duckdb", "tsv")),
    ],
)
def test_a_wide_value_takes_little_more_than_its_library_holds(
    wide: Wide, tmp_path: Path, kind: str, dialect: str
) -> None:
    """The value is whole in the file, and was held by the source's library alone."""
    to = tmp_path / "out"
    status, log, peak = unload(wide(kind, TIMES), to, "--dialect", dialect)
    assert status == 0, log
    print(f"{kind} {dialect}: {peak:,} bytes")
    (path,) = (each for each in to.iterdir() if each.suffix in (".csv", ".tsv"))
    if dialect == "rfc4180":
        csv.field_size_limit(2**31 - 1)
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file))[1:]
    else:
        lines = path.read_text(encoding="utf-8").split("\n")
        rows = [line.split("\t") for line in lines if line.startswith(("1", "2", "3"))]
        for old, new in (("\\\\", "\0"), ("\\t", "\t"), ("\\n", "\n"), ("\0", "\\")):
            rows[1][1] = rows[1][1].replace(old, new)
    assert rows[0] == ["1", "narrow"]
    assert digest(rows[1][1]) == digest(UNIT * TIMES)
    assert peak <= ALLOWANCE + COPIES[kind] * WIDE_BYTES * 1.1


@pytest.mark.long(OTHER_ROUTES)
def test_wide_rows_behind_narrow_ones_are_read_with_fewer_at_a_time(tmp_path: Path) -> None:
    """SQLite's rows come whole and in order where their width changes, in bounded memory."""
    path, to = tmp_path / "late.sqlite", tmp_path / "out"
    rows = [(key, str(key) * (200_000 if 3000 <= key < 3060 else 1)) for key in range(1, 9001)]
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE w (id INTEGER PRIMARY KEY, t TEXT)")
        connection.executemany("INSERT INTO w VALUES (?, ?)", rows)
        connection.commit()
    for name in ("table", "view"):
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE VIEW IF NOT EXISTS v AS SELECT id, t FROM w")
            connection.commit()
        more = () if name == "table" else ("--query", "SELECT * FROM v")
        chosen = more or ("--table", "w")
        out = to / name
        done = command.ended(
            "run", f"sqlite://{path}", *chosen, "--to", str(out), "--parallelism", "1"
        )
        assert done.returncode == 0, done.stderr
        (found,) = (each for each in out.iterdir() if each.suffix in (".csv", ".tsv"))
        csv.field_size_limit(2**31 - 1)
        with found.open(newline="") as file:
            assert [(int(a), b) for a, b in list(csv.reader(file))[1:]] == rows
        totals = json.loads((out / "_manifest.json").read_text())["totals"]
        assert totals["peak_worker_rss_bytes"] < 200_000_000


@pytest.mark.parametrize(
    "options",
    [
        "--dialect rfc4180",
        "--format parquet --encoder plain",
        *also(OTHER_ROUTES, "--dialect tsv", "--dialect mysql"),
    ],
)
def test_many_wide_rows_take_no_more_than_a_few(tmp_path: Path, options: str) -> None:
    """SQLite: 40 rows of 5 MB are never in memory together, neither written nor verified."""
    path, to = tmp_path / "many.sqlite", tmp_path / "out"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE w (id INTEGER PRIMARY KEY, t TEXT)")
        rows = [(hashlib.shake_256(bytes([row])).hexdigest(2_500_000),) for row in range(40)]
        connection.executemany("INSERT INTO w (t) VALUES (?)", rows)
        connection.commit()
    chosen = ("run", f"sqlite://{path}", "--table", "w", "--to", str(to), "--parallelism", "1")
    running = command.Running(*chosen, *options.split(), "--verify", "full")
    highest = 0
    while running.process.poll() is None:
        highest = max(highest, peak_of(running.process.pid))
        time.sleep(0.01)
    status, _, log = running.finish()
    assert status == 0, log
    found = json.loads((to / "_manifest.json").read_text())
    groups = PARQUET_COPIES * (32 << 20) if "parquet" in options else 0
    assert found["totals"]["peak_worker_rss_bytes"] < ALLOWANCE + groups
    assert 0 < highest < ALLOWANCE + groups


def peak_of(pid: int) -> int:
    """Return the most memory that a process had, in bytes; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
