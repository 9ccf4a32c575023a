#!/usr/bin/env python3
"""A run that tunes itself beside runs with each fixed number of workers, and beside other loads.

    python examples/bench_adaptive.py --only duckdb --rows 30M --json
    python examples/bench_adaptive.py --turns 5
    python examples/bench_adaptive.py --source URL --table T --levels 1,2,4,8
    python examples/bench_adaptive.py --second-load cpu --only duckdb
    python examples/bench_adaptive.py --second-load database --only postgres

Without --source tables are made: in a DuckDB file, in a server of PostgreSQL from its wheel, and in
this repository's test server that speaks Oracle's protocol, one source after the other. The rows of
the first two cost the database some CPU, the third waits before each packet as a network does: see
`adaptive_sources.py`. Each table
is unloaded by whole runs with each fixed number of workers and adaptively, in turns; every other
turn goes the other way about. A run that is not counted warms the caches before.

For each source `ratios` has the seconds of the adaptive run over the seconds of the best fixed
number: paired within a turn, and the median of the turns. The best number has the least median
seconds over the turns. `strictest` compares with the fastest fixed run of that turn. This is the
least of several times, so by chance alone it is less than any single number gives. Seconds are of
whole runs, start and end included. A table should take a minute or more.

With --second-load one adaptive run under a limit meets another load that comes and goes twice: a
program on each CPU under --max-cpu, or busy sessions of others under --max-db-load. Each worker is
stopped by a signal for three quarters of the time, as if it waited for a network: on a small
machine two workers alone would take all CPUs, and a limit would have nothing to decide. The curve
has, for each second, the workers that may work, the busy workers, and the rows that arrived.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

from adaptive_load import under_second_load  # noqa: E402
from adaptive_sources import Source, source_of  # noqa: E402
from adaptive_watching import Watched  # noqa: E402
from progress import say  # noqa: E402

from unloader import api  # noqa: E402
from unloader.model import (  # noqa: E402
    ConcurrencyOptions,
    OutputOptions,
    Request,
    SecretReference,
    Selection,
    SourceSpec,
)
from unloader.request.names import parse_table  # noqa: E402
from unloader.request.settings import parse_count, parse_percent, parse_size  # noqa: E402
from writers.model import TextFormat  # noqa: E402

KINDS = ("duckdb", "postgres", "oracle")

ROWS = {"duckdb": 20_000_000, "postgres": 24_000_000, "oracle": 800_000}
"""About a minute and a half with the best number, on a machine of two CPUs."""

ADAPTIVE = "adaptive"


def main() -> None:
    """Measure, and show the results."""
    options = parsed()
    found: dict[str, Any] = {}
    for kind in options.only or ([""] if options.source else KINDS):
        with (
            tempfile.TemporaryDirectory(prefix="unloader-bench-", dir=options.dir) as made,
            opened(kind, options, Path(made)) as source,
        ):
            request = request_of(source, options, Path(made))
            if options.second_load:
                found[source.name] = under_second_load(request, source, options)
            else:
                found[source.name] = compared(request, options)
    report = {
        "sources": found,
        "machine": {"usable_cpus": len(os.sched_getaffinity(0)), "load": os.getloadavg()},
    }
    if not options.second_load:
        report["ratios"] = {name: each["ratio"] for name, each in found.items()}
    if options.json:
        print(json.dumps(report))
    else:
        show(report)


def parsed() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=KINDS, action="append", help="can be repeated")
    parser.add_argument("--rows", type=parse_count, help="of a table that is created")
    parser.add_argument("--cost", type=int, default=16, help="hashes for each row of such a table")
    parser.add_argument("--levels", default="1,2,3,4", help="fixed numbers of workers")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--unit-bytes", type=parse_size, help="default: by source")
    parser.add_argument("--source", help="a URL, instead of tables that are created here")
    parser.add_argument("--table", default="t", help="of --source")
    parser.add_argument(
        "--dir", type=Path, help="directory for the files; default: a temporary one"
    )
    parser.add_argument("--second-load", choices=("cpu", "database"))
    parser.add_argument(
        "--load-seconds",
        type=float,
        default=25.0,
        help="shortest time with the load, and without it",
    )
    parser.add_argument(
        "--patience", type=float, default=60.0, help="longest wait in seconds for an answer"
    )
    parser.add_argument("--max-cpu", type=parse_percent, default=0.75)
    parser.add_argument("--sessions", type=int, default=3, help="busy sessions of other programs")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


@contextmanager
def opened(kind: str, options: argparse.Namespace, directory: Path) -> Iterator[Source]:
    """Yield the user's own table, or make one."""
    if options.source:
        yield Source(name="source", url=options.source, table=options.table)
        return
    rows = options.rows or ROWS[kind]
    say(f"{kind}: a table of {rows:,} rows")
    with source_of(kind, rows, options.cost, directory) as source:
        yield source


def request_of(source: Source, options: argparse.Namespace, directory: Path) -> Request:
    """Return what all runs have in common; the cut into units is the same for all."""
    kind = source.url.partition(":")[0].partition("+")[0]
    secret = SecretReference()
    if "UNLOADER_PASSWORD" in os.environ:
        secret = SecretReference(kind="environment", name="UNLOADER_PASSWORD")
    return Request(
        source=SourceSpec(
            kind={"postgres": "postgresql"}.get(kind, kind), location=source.url, secret=secret
        ),
        selection=Selection(table=parse_table(source.table), where=source.where),
        output=OutputOptions(destination=str(directory / "out"), format=TextFormat()),
        split="range",
        unit_bytes=options.unit_bytes or source.unit_bytes,
        verify="none",
    )


def compared(request: Request, options: argparse.Namespace) -> dict[str, Any]:
    """Return the seconds of all runs of one source, and the ratios of the adaptive ones."""
    levels = [int(level) for level in options.levels.split(",")]
    names = [*map(str, levels), ADAPTIVE]
    seconds: dict[str, list[float]] = {name: [] for name in names}
    curves, steps, rows = [], [], 0
    say(f"warm-up: {one_run(request, str(max(levels)), max(levels)).seconds:.1f} s")
    for turn in range(options.turns):
        for name in names if turn % 2 == 0 else names[::-1]:
            watched = one_run(request, name, max(levels))
            say(f"turn {turn + 1}: {name} {watched.seconds:.1f} s")
            seconds[name].append(watched.seconds)
            rows = watched.rows
            if name == ADAPTIVE:
                curves.append(watched.curve())
                steps.append(watched.steps)
    medians = {name: statistics.median(of) for name, of in seconds.items()}
    best = min(map(str, levels), key=medians.__getitem__)
    paired = [seconds[ADAPTIVE][turn] / seconds[best][turn] for turn in range(options.turns)]
    strict = [
        seconds[ADAPTIVE][turn] / min(seconds[str(level)][turn] for level in levels)
        for turn in range(options.turns)
    ]
    return {
        "ratio": round(statistics.median(paired), 4),
        "ratios_of_turns": [round(each, 4) for each in paired],
        "strictest": round(statistics.median(strict), 4),
        "best_fixed": int(best),
        "rows": rows,
        "median_seconds": {name: round(value, 2) for name, value in medians.items()},
        "seconds": {name: [round(each, 3) for each in of] for name, of in seconds.items()},
        "steps": steps,
        "curves": curves,
    }


def one_run(request: Request, name: str, most: int) -> Watched:
    """Unload once, and return the watched run."""
    if name == ADAPTIVE:
        # The seats of the largest fixed run, so that both may use the same.
        tuned = ConcurrencyOptions(adaptive=True, max_sessions=most + 1)
        request = replace(request, concurrency=tuned)
    else:
        request = replace(request, parallelism=int(name))
    # This run must not wait for data that the run before has not yet written to the disk.
    os.sync()
    watched = Watched()
    api.unload(request, observe=watched)
    watched.end()
    shutil.rmtree(request.output.destination)
    return watched


def show(report: dict[str, Any]) -> None:
    """Write the figures as tables."""
    for name, found in report["sources"].items():
        print(f"\n{name}")
        if "median_seconds" in found:
            for workers, seconds in found["median_seconds"].items():
                print(f"  {workers:>8}  {seconds:8.2f} s  {found['rows'] / seconds:12,.0f} rows/s")
            print(
                f"  adaptive against the best fixed ({found['best_fixed']}): {found['ratio']:.3f}; "
                f"strictest {found['strictest']:.3f}"
            )
            for steps in found["steps"]:
                print(
                    "  " + ", ".join(f"{step['seconds']:g} s {step['workers']}" for step in steps)
                )
            show_curve(found["curves"][-1])
        else:
            show_curve(found["curve"])
            for key in ("limit", "backed_off_seconds", "climbed_again_seconds"):
                print(f"  {key.replace('_', ' ')}: {found[key]}")


def show_curve(curve: list[dict[str, Any]]) -> None:
    """Write one line a second, with a bar for the rows."""
    most = max((each["rows_per_second"] for each in curve), default=0) or 1
    print(f"  {'second':>6} {'may':>4} {'work':>5} {'rows/s':>12}  load")
    for each in curve:
        bar = "#" * round(30 * each["rows_per_second"] / most)
        print(
            f"  {each['second']:6} {each['may_work']:4} {each['at_work']:5} "
            f"{each['rows_per_second']:12,}  {each.get('load', 0) or '':4} {bar}"
        )


if __name__ == "__main__":
    main()
