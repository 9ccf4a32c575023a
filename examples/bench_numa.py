#!/usr/bin/env python3
"""What placing workers and looking where they are costs: `--numa off` beside `--numa auto`.

    python examples/bench_numa.py --rows 5000000 --runs 11

The reference table in a DuckDB file is unloaded both ways in each round, every second round in the
opposite order. A ratio is auto / off within one round, of wall time and of the CPU of the whole
process tree. The median over the rounds counts; the quartiles and extremes beside it show the noise
of the machine. To measure the noise, each round also runs `off` a second time, against the first.

On one node there is nothing to gain, and the ratio is the whole cost: binding, memory policy, looks
at the workers' CPUs and pages. On several nodes it has the gain in it, too.

Then the cost of one look at a process with some memory in use, in milliseconds: at its CPUs, and
at its pages, in small pages and, where the kernel gives them, huge pages.
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
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

from progress import say  # noqa: E402

from numa.residence import look  # noqa: E402
from numa.topology import detect  # noqa: E402
from unloader.sources.duckdb.reference import build_reference_table  # noqa: E402

TABLE = "HASH_PART_0160"
PARTITIONS = 32

CONTENDERS = {"off": "off", "auto": "auto", "off_again": "off"}
"""Name to the value of --numa."""

LOOKS = 15
PAGE_BYTES = 4096

HOLDER = """
import mmap, sys
size, kind = int(sys.argv[1]), sys.argv[2]
memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(getattr(mmap, "MADV_" + kind))
for at in range(0, size, 4096):
    memory[at] = 1
print("ready", flush=True)
sys.stdin.read()
"""


def main() -> None:
    """Measure and print."""
    options = parsed()
    report: dict[str, Any] = {"machine": machine(), "options": vars(options)}
    if options.runs:
        with tempfile.TemporaryDirectory(prefix="unloader-bench-", dir=options.dir) as place:
            report |= compared(Path(place), options)
    report["look_ms"] = looks([int(size) for size in options.sizes.split(",") if size])
    print(json.dumps(report, indent=1, default=str) if options.json else shown(report))


def parsed() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=5_000_000, help="default: 5000000")
    parser.add_argument("--runs", type=int, default=11, help="rounds, 0 for none; default: 11")
    parser.add_argument("--parallelism", type=int, default=0, help="default: usable CPUs")
    parser.add_argument(
        "--sizes", default="60,200,2000", help="MB of the processes looked at; default: 60,200,2000"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--dir", type=Path, help="make the working directory here")
    options = parser.parse_args()
    if options.rows < 1 or options.runs < 0:
        parser.error("--rows must be 1 or more, --runs 0 or more")
    options.parallelism = options.parallelism or detect().usable_cpus
    return options


def compared(directory: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Run all contenders in turn, round after round; the round before the first is not counted."""
    database = directory / "reference.duckdb"
    say(f"building {options.rows:,} rows in {database}")
    build_reference_table(database, options.rows, partitions=PARTITIONS, stop=lambda: False)
    names = tuple(CONTENDERS)
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for number in range(options.runs + 1):
        for name in names if number % 2 else names[::-1]:
            figures = one_run(name, database, directory / "out", options)
            say(f"round {number}: {name} {figures['wall']:.3f} s, CPU {figures['cpu']:.3f} s")
            if number:
                taken[name].append(figures)
    return {
        "ratios": {
            f"{quantity}_{label}": spread(taken[ours], taken[theirs], quantity)
            for quantity in ("wall", "cpu")
            for label, ours, theirs in (
                ("auto_vs_off", "auto", "off"),
                ("off_vs_off", "off_again", "off"),
            )
        },
        "medians": {
            name: {
                quantity: round(statistics.median(run[quantity] for run in runs), 4)
                for quantity in ("wall", "cpu")
            }
            for name, runs in taken.items()
        },
        "runs": taken,
    }


def one_run(
    name: str, database: Path, output: Path, options: argparse.Namespace
) -> dict[str, float]:
    """Unload the table into an empty directory and return what that took, in seconds."""
    shutil.rmtree(output, ignore_errors=True)
    os.sync()  # no run writes the dirty pages of the run before it
    command = [
        *(sys.executable, "-m", "unloader", "run", f"duckdb://{database}", "--table", TABLE),
        *("--to", str(output), "--numa", CONTENDERS[name], "--verify", "none", "--quiet"),
        *("--parallelism", str(options.parallelism), "--progress", "none"),
    ]
    started = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=CHECKOUT, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    # wait4 counts every descendant that was waited for in turn: the whole tree.
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"ended with status {process.returncode}: {' '.join(command)}")
    manifest = json.loads((output / "_manifest.json").read_text(encoding="utf-8"))
    if manifest["totals"]["rows"] != options.rows:
        raise SystemExit(
            f"{name} wrote {manifest['totals']['rows']} rows instead of {options.rows}"
        )
    return {"wall": round(wall, 4), "cpu": round(usage.ru_utime + usage.ru_stime, 4)}


def spread(
    ours: list[dict[str, float]], theirs: list[dict[str, float]], quantity: str
) -> dict[str, float]:
    """Return ours / theirs over the rounds: median, quartiles and extremes."""
    found = sorted(
        mine[quantity] / max(other[quantity], 0.01)
        for mine, other in zip(ours, theirs, strict=True)
    )
    low, _, high = statistics.quantiles(found, n=4) if len(found) > 1 else (found[0],) * 3
    named = {
        "median": statistics.median(found),
        "quartile_1": low,
        "quartile_3": high,
        "least": found[0],
        "most": found[-1],
    }
    return {name: round(value, 4) for name, value in named.items()}


def looks(megabytes: list[int]) -> list[dict[str, Any]]:
    """Return the median times of one look at a process, for each amount of memory in use."""
    found = []
    for size in megabytes:
        for kind in ("NOHUGEPAGE", "HUGEPAGE"):
            with holder(size, kind) as pid:
                seen = look(pid, pages=True)
                found.append(
                    {
                        "megabytes": size,
                        "pages": "huge" if kind == "HUGEPAGE" else "small",
                        "cpus": timed(look, pid),
                        "pages_and_cpus": timed(partial(look, pages=True), pid),
                        "note": seen.note,
                    }
                )
    return found


@contextmanager
def holder(megabytes: int, kind: str) -> Iterator[int]:
    """Run a process with `megabytes` of memory in use; yield its id."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(megabytes * 1_000_000 // PAGE_BYTES * PAGE_BYTES), kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        try:
            if process.stdout.readline() != b"ready\n":
                raise SystemExit(f"cannot start a process with {megabytes} MB")
            yield process.pid
        finally:
            process.kill()


def timed(look: Callable[[int], object], pid: int) -> float:
    """Return the median of how long a look at a process takes, in milliseconds."""
    taken = []
    for _ in range(LOOKS):
        started = time.perf_counter()
        look(pid)
        taken.append(time.perf_counter() - started)
    return round(statistics.median(taken) * 1000, 4)


def machine() -> dict[str, Any]:
    """Return the versions and hardware that the figures depend on."""
    topology = detect()
    return {
        "system": platform.platform(),
        "python": platform.python_version(),
        "nodes": len(topology.nodes),
        "usable_cpus": topology.usable_cpus,
        "load_average": round(os.getloadavg()[0], 2),
    }


def shown(report: dict[str, Any]) -> str:
    """Return the report as text."""
    lines = []
    for name, each in report.get("ratios", {}).items():
        lines.append(
            f"{name:<20}{each['median']:>8.3f}   quartiles {each['quartile_1']:.3f} to "
            f"{each['quartile_3']:.3f}, extremes {each['least']:.3f} to {each['most']:.3f}"
        )
    for name, each in report.get("medians", {}).items():
        lines.append(f"{name:<20}{each['wall']:>8.3f} s, CPU {each['cpu']:.3f} s")
    for each in report["look_ms"]:
        lines.append(
            f"{each['megabytes']:>6} MB, {each['pages']:<5} pages: CPUs {each['cpus']:.3f} ms, "
            f"with pages {each['pages_and_cpus']:.2f} ms"
            + (f" ({each['note']})" if each["note"] else "")
        )
    return "\n".join([*lines, str(report["machine"])])


if __name__ == "__main__":
    main()
