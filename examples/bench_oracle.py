#!/usr/bin/env python3
"""CPU of an Oracle table's way to CSV, beside fetching it for nothing and beside a plain script.

    python examples/bench_oracle.py --rows 1000000 --runs 5

The table is the reference table (32 hash partitions). Without `--url` it is served by the test
server of this repository, which speaks Oracle's wire protocol to the real python-oracledb. The
client's costs are real; network and database are not. With `--url` and `--table` it is a table of
the same ten columns in your database. Side by side, one process each:

  discard     python-oracledb's data frames with exact types, every batch dropped
  csv         `unloader run --parallelism 1 --verify none`, dialect `sqlldr-var`, checksum included
  rfc4180     the same in the default dialect
  parquet     the same with `--format parquet`
  native      as csv, with `--fetch native`, which compares no rows with the driver's
  ordinary    as csv, with the driver's own fetch (`--fetch arrow`) in place of `--fetch`
  script      what people write: a cursor, `fetchmany(5000)`, `csv.writer` (it changes values)

Start-up is left out, in the same way for all: each runs once over all partitions and once over two,
and the difference of the two CPU times counts, for the difference of the rows. CPU is user and
system time of the client's process tree; the test server has a separate processor. A round runs all
of them in turn, every second round in the opposite order. Ratios are taken within a round, and the
median over the rounds counts. Rounds continue, up to three times `--runs`, until the middle half of
each contender's times is within 10 % of its median.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cpus import cpus, kept_to
from oracle_test_server import oracle_test_server
from progress import say

CHECKOUT = Path(__file__).resolve().parent.parent
TABLE = "HASH_PART_0160"
CONTENDERS = ("discard", "csv", "rfc4180", "parquet", "native", "ordinary", "script")
FETCHES = {"native": "native", "ordinary": "arrow"}
"""Contenders whose fetch is not the one of the option."""
FEW = 2
"""Partitions of the small run, whose time counts as the start-up."""
STEADY = 0.10
"""Most that the middle half of the times may be apart, of their median."""
MOST_TIMES = 3
"""Factor of the number of rounds, after which unsteady rounds end."""


def main() -> None:
    """Measure and print, or be one of the contenders."""
    options = parsed()
    if options.contender:
        run_contender(options)
        return
    # As installed packages are: else each process would compile them again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with served(options) as url, tempfile.TemporaryDirectory(prefix="unloader-bench-") as place:
        report = measure(options, url, Path(place))
    print(json.dumps(report, indent=1) if options.json else table(report))


def parsed() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000, help="default: 1000000")
    parser.add_argument("--runs", type=int, default=5, help="rounds; default: 5")
    parser.add_argument("--mode", default="23ai", help="19c, 21c or 23ai; default: 23ai")
    parser.add_argument("--url", help="a database of your own; its password in UNLOADER_PASSWORD")
    parser.add_argument("--table", default=TABLE, help=f"default: {TABLE}")
    parser.add_argument(
        "--fetch",
        choices=("auto", "native", "arrow"),
        default="auto",
        help="of csv, rfc4180 and parquet; default: auto",
    )
    parser.add_argument("--only", choices=CONTENDERS, action="append", help="can be repeated")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--contender", help=argparse.SUPPRESS)
    parser.add_argument("--partitions", help=argparse.SUPPRESS)
    parser.add_argument("--to", help=argparse.SUPPRESS)
    return parser.parse_args()


@contextmanager
def served(options: argparse.Namespace) -> Iterator[str]:
    """Yield the URL of the database: the user's own, or the test server with the table in it."""
    if options.url:
        yield options.url
        return
    server = ("--reference", str(options.rows), "--partitions", "32", "--mode", options.mode)
    found = cpus()
    with ExitStack() as ended:
        with kept_to(found.server):
            told = ended.enter_context(oracle_test_server(*server))
        ended.enter_context(kept_to(found.clients))
        yield told["url"]


def measure(options: argparse.Namespace, url: str, place: Path) -> dict[str, Any]:
    """Run all contenders round after round; the round before the first is not counted."""
    names = options.only or list(CONTENDERS)
    partitions = partitions_of(options, url)
    rows = {len(some): count(url, options.table, some) for some in (partitions, partitions[:FEW])}
    spread = rows[len(partitions)] - rows[FEW]
    taken: dict[str, list[float]] = {name: [] for name in names}
    for number in range(MOST_TIMES * options.runs + 1):
        if number > options.runs and is_steady(taken):
            break
        for name in names if number % 2 else names[::-1]:
            all_cpu = cpu_of(options, url, name, partitions, place)
            few_cpu = cpu_of(options, url, name, partitions[:FEW], place)
            per_million = (all_cpu - few_cpu) * 1e6 / spread
            say(f"{'warm-up' if not number else f'round {number}'}: {name} {per_million:.3f}")
            if number:
                taken[name].append(per_million)
    return {
        "ratios": ratios(taken),
        "cpu_s_per_million_rows": {
            name: round(statistics.median(each), 3) for name, each in taken.items()
        },
        "spread": {name: round(apart(each), 3) for name, each in taken.items()},
        "runs": {name: [round(value, 3) for value in each] for name, each in taken.items()},
        "rows": rows[len(partitions)],
        "database": "own" if options.url else f"test server, mode {options.mode}",
        "machine": {"system": platform.platform(), "usable_cpus": len(os.sched_getaffinity(0))},
        "versions": versions(),
    }


def is_steady(taken: dict[str, list[float]]) -> bool:
    """Return whether the times of each contender are close together."""
    return all(apart(each) <= STEADY for each in taken.values())


def apart(times: list[float]) -> float:
    """Return how far the middle half of some times reaches, as a share of their median."""
    if len(times) < MOST_TIMES:
        return 0.0
    first, _, last = statistics.quantiles(times, n=4)
    return (last - first) / statistics.median(times)


def ratios(taken: dict[str, list[float]]) -> dict[str, float]:
    """Return the medians of the ratios within each round."""
    pairs = [
        (f"{name}_cpu_vs_discard", name, "discard")
        for name in ("csv", "rfc4180", "parquet", "native", "ordinary")
    ]
    pairs += [
        ("csv_cpu_vs_native", "csv", "native"),
        ("script_cpu_vs_csv", "script", "csv"),
        ("script_cpu_vs_discard", "script", "discard"),
    ]
    return {
        label: round(
            statistics.median(a / b for a, b in zip(taken[mine], taken[theirs], strict=True)), 3
        )
        for label, mine, theirs in pairs
        if mine in taken and theirs in taken
    }


def cpu_of(
    options: argparse.Namespace, url: str, name: str, partitions: list[str], place: Path
) -> float:
    """Run one contender over some partitions; return the CPU seconds of its process tree."""
    out = place / "out"
    shutil.rmtree(out, ignore_errors=True)
    if name in ("discard", "script"):
        out.mkdir()
        command = [__file__, "--contender", name, "--url", url, "--table", options.table]
        command += ["--partitions", ",".join(partitions), "--to", str(out)]
    else:
        command = ["-m", "unloader", "run", url, "--table", options.table, "--to", str(out)]
        command += ["--parallelism", "1", "--verify", "none", "--quiet"]
        command += ["--partition", ",".join(partitions)]
        command += ["--fetch", FETCHES.get(name, options.fetch)]
        command += {
            "csv": ["--dialect", "sqlldr-var"],
            "native": ["--dialect", "sqlldr-var"],
            "ordinary": ["--dialect", "sqlldr-var"],
            "rfc4180": [],
            "parquet": ["--format", "parquet"],
        }[name]
    os.sync()
    process = subprocess.Popen([sys.executable, *command], cwd=CHECKOUT, stdin=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{name} ended with status {process.returncode}: {command}")
    return usage.ru_utime + usage.ru_stime


def connected(url: str) -> Any:
    """Connect as the contenders without unloader do."""
    import oracledb

    parts = urlsplit(url)
    dsn = f"{parts.hostname}:{parts.port or 1521}{parts.path}"
    return oracledb.connect(user=parts.username, password=os.environ["UNLOADER_PASSWORD"], dsn=dsn)


def partitions_of(options: argparse.Namespace, url: str) -> list[str]:
    """Return the names of the table's partitions in order."""
    with connected(url) as connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT partition_name FROM user_tab_partitions WHERE table_name = :1 "
            "ORDER BY partition_position",
            [options.table],
        )
        names = [name for (name,) in cursor]
    if len(names) <= FEW:
        raise SystemExit(f"{options.table} has {len(names)} partitions; the benchmark needs more")
    return names


def count(url: str, name: str, partitions: list[str]) -> int:
    """Return the rows of some partitions."""
    total = 0
    with connected(url) as connection, connection.cursor() as cursor:
        for partition in partitions:
            cursor.execute(f'SELECT COUNT(*) FROM "{name}" PARTITION ("{partition}")')
            total += cursor.fetchone()[0]
    return total


def run_contender(options: argparse.Namespace) -> None:
    """Be `discard` or `script` over the partitions given."""
    with connected(options.url) as connection:
        for partition in options.partitions.split(","):
            sql = f'SELECT * FROM "{options.table}" PARTITION ("{partition}")'
            if options.contender == "discard":
                discard(connection, sql)
            else:
                write_script(connection, sql, Path(options.to) / f"{partition}.csv")


def discard(connection: Any, sql: str) -> None:
    """Fetch with types that hold every value exactly, and drop the batches."""
    import pyarrow as pa

    text, moment = pa.string(), pa.timestamp("s")
    kinds = [text, moment, pa.int64(), text, pa.decimal128(12, 2), moment, text, text]
    kinds += [pa.int64(), text]
    with connection.cursor() as cursor:
        cursor.parse(sql)
        names = [column[0] for column in cursor.description]
    schema = pa.schema(list(zip(names, kinds, strict=True)))
    rows = 0
    for frame in connection.fetch_df_batches(sql, size=20_000, requested_schema=schema):
        rows += frame.num_rows()


def write_script(connection: Any, sql: str, path: Path) -> None:
    """Do what people do today."""
    import csv

    with path.open("w", newline="") as file, connection.cursor() as cursor:
        cursor.arraysize = 5000
        writer = csv.writer(file)
        cursor.execute(sql)
        while rows := cursor.fetchmany(5000):
            writer.writerows(rows)


def versions() -> dict[str, str]:
    """Return the versions of what took part."""
    from importlib.metadata import version

    return {"python": platform.python_version()} | {
        name: version(name) for name in ("oracledb", "pyarrow")
    }


def table(report: dict[str, Any]) -> str:
    """Return the report as text."""
    lines = [f"{'by':<12}{'CPU s per million rows':>24}"]
    lines += [f"{name:<12}{cpu:>24.3f}" for name, cpu in report["cpu_s_per_million_rows"].items()]
    lines.append("\nmedian of the rounds:")
    lines += [f"{name:<32}{ratio:>8.3f}" for name, ratio in report["ratios"].items()]
    lines.append(f"\n{report['database']}\n{report['machine']}\n{report['versions']}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
