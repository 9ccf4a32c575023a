#!/usr/bin/env python3
"""One long unload of Oracle: do its rates and its memory stay as they were at the start?

    python examples/long_oracle_run.py --rows 200M --json
    python examples/long_oracle_run.py --rows 20M --fetch native --format parquet

The rows of the reference table (2 million, again and again) come from the test server of this
repository, which keeps them in memory in the form of the wire. Network and database are not real;
the driver and all of `unloader` are. The output is dropped (`--to null:`), so that no disk holds it
up; a checksum of every byte is made first. Client and server have separate CPUs.

The run's own log has the rows every `--interval` seconds; at each line this script adds up the
memory (PSS) of its processes. For the time from the first line to the last it reports

  rows_per_second       in ten parts of equal time
  slowest_vs_median     the slowest of these parts over their median
  last_vs_first         the last quarter's rate over the first quarter's
  memory_growth_bytes   for each million rows, without the first quarter of the time: the median of
                        the slopes between all pairs of lines (Theil and Sen)
  stages                seconds of all work units in each stage, and which one was the longest

It ends with status 1 if the number of rows differs from `--rows`, if the last quarter has less than
0.9 of the first one's rate, or if memory grows by more than a byte for each ten rows.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

from cpus import cpus, kept_to
from oracle_test_server import oracle_test_server
from progress import say

CHECKOUT = Path(__file__).resolve().parent.parent
TABLE = "HASH_PART_0160"
DISTINCT = 2_000_000
"""Rows that the server keeps; about 1.2 GB, and a minute to make them."""
PARTS = 10
LEAST_RATE = 0.9
MOST_GROWTH = 100_000
"""Bytes for each million rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Rows, time and memory at a line of the log."""

    seconds: float
    rows: int
    memory: int
    """Bytes of the process tree, shared ones in parts."""


def main() -> None:
    """Run, and show the results."""
    options = parsed()
    # An installed program has its bytecode and does not compile it at each start.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    distinct = min(options.distinct, options.rows)
    turns = options.rows // distinct
    given = cpus()
    named = ("--reference", str(distinct), "--turns", str(turns), "--mode", options.mode)
    with ExitStack() as ended:
        with kept_to(given.server):
            told = ended.enter_context(oracle_test_server(*named))
        with kept_to(given.clients):
            looks, manifest, cpu = unloaded(told["url"], options)
    report = {
        **figures(looks),
        "rows": manifest["totals"]["rows"],
        "bytes": manifest["totals"]["bytes"],
        "seconds": manifest["totals"]["seconds"],
        "cpu_s_per_million_rows": round(cpu * 1e6 / manifest["totals"]["rows"], 4),
        "stages": stages(manifest),
        "looks": len(looks),
        "ratios": ratios(looks),
    }
    problems = judged(report, distinct * turns)
    report["problems"] = problems
    print(json.dumps(report, indent=1) if options.json else table(report))
    if problems:
        sys.exit(1)


def parsed() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=count, default=200_000_000, help="default: 200M")
    parser.add_argument("--distinct", type=count, default=DISTINCT, help="default: 2M")
    parser.add_argument("--parallelism", type=int, default=1, help="default: 1")
    parser.add_argument("--format", default="csv", help="csv or parquet; default: csv")
    parser.add_argument("--fetch", default="auto", help="as of `unloader run`; default: auto")
    parser.add_argument("--mode", default="23ai", help="19c, 21c or 23ai; default: 23ai")
    parser.add_argument("--interval", type=float, default=2, help="seconds; default: 2")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser.parse_args()


def count(text: str) -> int:
    """Return a number of rows such as `500`, `20k` or `10M`."""
    found = re.fullmatch(r"(\d+)([kM]?)", text)
    if found is None or not int(found[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number such as 500, 20k or 10M")
    return int(found[1]) * {"": 1, "k": 1_000, "M": 1_000_000}[found[2]]


def unloaded(url: str, options: argparse.Namespace) -> tuple[list[Look], dict[str, Any], float]:
    """Return the looks at a run, its manifest, and its CPU seconds."""
    command = [sys.executable, "-m", "unloader", "run", url, "--table", TABLE, "--to", "null:"]
    command += ["--format", options.format, "--fetch", options.fetch, "--json"]
    command += ["--parallelism", str(options.parallelism), "--progress", "log"]
    command += ["--log-format", "json", "--log-interval", str(options.interval)]
    looks: list[Look] = []
    with subprocess.Popen(
        command, cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stderr:
            event = json.loads(line) if line.startswith("{") else {}
            # At first the server makes the form that it keeps of each row.
            if event.get("event") != "progress" or not event["rows"]:
                continue
            look = Look(
                seconds=event["seconds"], rows=event["rows"], memory=tree_memory(process.pid)
            )
            looks.append(look)
            say(f"{look.seconds:.0f} s, {look.rows:,} rows, {look.memory / 1e6:.0f} MB")
        manifest = json.load(process.stdout)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"the run ended with status {process.returncode}")
    return looks, manifest, usage.ru_utime + usage.ru_stime


def tree_memory(pid: int) -> int:
    """Return the bytes that a process and its descendants have in memory."""
    total, waiting = 0, [pid]
    while waiting:
        each = waiting.pop()
        try:
            text = Path(f"/proc/{each}/smaps_rollup").read_text("ascii")
            for task in Path(f"/proc/{each}/task").iterdir():
                waiting += map(int, (task / "children").read_text("ascii").split())
        except (FileNotFoundError, ProcessLookupError):
            continue  # It has ended.
        found = re.search(r"^Pss:\s+(\d+) kB", text, re.M)
        total += int(found[1]) * 1024 if found else 0
    return total


def figures(looks: Sequence[Look]) -> dict[str, Any]:
    """Return rates and memory over the time of the run."""
    if len(looks) < 2 * PARTS:
        sys.exit(
            f"the log has {len(looks)} lines with rows, too few. Next: give more --rows, or a "
            "shorter --interval"
        )
    first, last = looks[0], looks[-1]
    step = (last.seconds - first.seconds) / PARTS
    edges = [rows_at(looks, first.seconds + step * number) for number in range(PARTS + 1)]
    grown = [look for look in looks if look.seconds >= first.seconds + step * PARTS / 4]
    slopes = [
        (b.memory - a.memory) * 1e6 / (b.rows - a.rows)
        for a, b in combinations(grown, 2)
        if b.rows > a.rows
    ]
    return {
        "rows_per_second": [round((b - a) / step) for a, b in pairwise(edges)],
        "most_memory_bytes": max(look.memory for look in looks),
        "memory_growth_bytes": round(statistics.median(slopes)),
    }


def rows_at(looks: Sequence[Look], seconds: float) -> float:
    """Return the rows at a moment, on a line between the looks around it."""
    for a, b in pairwise(looks):
        if a.seconds <= seconds <= b.seconds and b.seconds > a.seconds:
            return a.rows + (b.rows - a.rows) * (seconds - a.seconds) / (b.seconds - a.seconds)
    return looks[-1].rows


def ratios(looks: Sequence[Look]) -> dict[str, float]:
    """Return how even the rates are."""
    rates = figures(looks)["rows_per_second"]
    first, last = looks[0].seconds, looks[-1].seconds
    quarter = (last - first) / 4
    begun = rows_at(looks, first + quarter) - looks[0].rows
    ended = looks[-1].rows - rows_at(looks, last - quarter)
    return {
        "slowest_vs_median": round(min(rates) / statistics.median(rates), 3),
        "last_vs_first": round(ended / begun, 3),
    }


def stages(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the seconds of all units in each stage, and the longest of them."""
    names = ("fetch_s", "encode_s", "compress_s", "write_s")
    found = {
        name: round(sum(unit["stages"][name] for unit in manifest["units"]), 1) for name in names
    }
    return {**found, "longest": max(found, key=lambda name: found[name])}


def judged(report: dict[str, Any], wanted: int) -> list[str]:
    """Return the problems of a run."""
    problems = []
    if report["rows"] != wanted:
        problems.append(f"{report['rows']:,} rows were written instead of {wanted:,}")
    if report["ratios"]["last_vs_first"] < LEAST_RATE:
        problems.append(f"the rate fell to {report['ratios']['last_vs_first']} of the first")
    if report["memory_growth_bytes"] > MOST_GROWTH:
        growth = report["memory_growth_bytes"]
        problems.append(f"memory grew by {growth:,} bytes for each million rows")
    return problems


def table(report: dict[str, Any]) -> str:
    """Return the report as text."""
    return "\n".join(f"{name:<26}{value}" for name, value in report.items())


if __name__ == "__main__":
    main()
