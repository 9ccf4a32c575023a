#!/usr/bin/env python3
"""Thousands of workers in simulated time: the cost of a run's schedule, and its limits.

    python examples/simulate_scale.py --json
    python examples/simulate_scale.py --hosts 100 --sessions 800 --lost-hosts 2

The engine and the schedule are the same as in a run. The places are simulated: a unit takes as long
as its rows do at `--rows-per-second`, give or take a fifth, and the script never waits for a clock.
Attempts fail by chance, worker processes die, and whole hosts are lost and come back after
`--host-back` seconds. With `--sessions` the database refuses more sessions than this number, as a
listener would. Each task is pickled as it would be sent, and each result unpickled.

Every unit must be done exactly once and by an attempt that was not lost; the script fails if not.

`ratios` has `wall_vs_ideal`: the simulated time over the time of all rows at the full rate of all
workers that may have a session. `parent` has the CPU of the engine, the schedule and the pickling,
in microseconds a unit and as a share of one processor for the time of the run. It also has the
memory of plan and schedule. The cost of the simulation itself is measured and subtracted.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import pickle
import random
import resource
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from numa.model import BindReport, Finished, Lost, Message, Ready
from partition_planner.model import ColumnInfo, Plan, PlanLimits, RowExtent, TableInfo, WorkUnit
from partition_planner.planner import plan
from unloader.engine.engine import Engine, Work
from unloader.engine.executor import ExecutorEvent
from unloader.engine.schedule import Attempt, Schedule, Verdict
from unloader.errors import SessionsRefused, TransientSourceError
from unloader.model import AttemptFailure, RetryOptions

BYTES_PER_ROW = 150
BLOCK_BYTES = 8192
HOST_LOST = "host"
UNBOUND = BindReport(cpus=None, memory_policy=None, note=None)


def failure(error: type[Exception], message: str) -> AttemptFailure:
    """Return a failure that may pass."""
    return AttemptFailure(error=error.__name__, message=message, hint="", retryable=True)


@dataclass(order=True, slots=True)
class Due:
    """An event of the simulation."""

    at: float
    number: int
    kind: str = field(compare=False)
    place: int = field(compare=False)
    epoch: int = field(compare=False, default=0)
    """The epoch of the place: events that were due before it was lost do not happen."""
    attempt: Any = field(compare=False, default=None)


class SimulatedPlaces:
    """An executor of many hosts; time passes in `events` alone."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Begin at second 0 with all hosts up."""
        self.options = options
        self.chance = random.Random(options.seed)
        self.now = 0.0
        self.own_seconds = 0.0
        """CPU of the simulation itself."""
        self.pickled_bytes = 0
        self.sessions_refused = 0
        self._due: list[Due] = []
        self._number = 0
        self._epochs = [0] * self.count
        self._busy: dict[int, bytes] = {}
        self._down: set[int] = set()
        self._idle = dict.fromkeys(range(self.count))
        self._stopped: list[ExecutorEvent] = []
        ideal = options.rows / (options.rows_per_second * self.count)
        for _ in range(options.lost_hosts):
            host = self.chance.randrange(options.hosts)
            self._put(ideal * self.chance.uniform(0.1, 0.9), HOST_LOST, host)

    @property
    def count(self) -> int:
        """All places."""
        return int(self.options.hosts * self.options.workers)

    def places(self) -> Mapping[int, None]:
        """The places that are up and have no task."""
        return self._idle

    def send(self, place: int, task: object) -> None:
        """Begin a task: its end is due at a time that is known here alone."""
        began = time.thread_time()
        assert isinstance(task, tuple)
        data, unit = task
        self.pickled_bytes += len(data)
        del self._idle[place]
        options = self.options
        if options.sessions and len(self._busy) >= options.sessions:
            self.sessions_refused += 1
            self._put(0.05, "refused", place)
        else:
            self._busy[place] = data
            seconds = unit.rows / options.rows_per_second * self.chance.uniform(0.8, 1.2)
            draw = self.chance.random()
            if draw < options.failing:
                self._put(seconds * self.chance.random(), "failed", place)
            elif draw < options.failing + options.dying:
                self._put(seconds * self.chance.random(), "died", place)
            else:
                self._put(seconds, "done", place)
            if options.progress_seconds:
                self._put(options.progress_seconds, "progress", place)
        self.own_seconds += time.thread_time() - began

    def events(self, timeout_seconds: float) -> list[ExecutorEvent]:
        """Let the time pass until an event is due, or until the timeout."""
        began = time.thread_time()
        found, self._stopped = self._stopped, []
        until = self.now + timeout_seconds
        if found:
            until = self.now
        elif self._due and self._due[0].at < until:
            # The parent finds several events when it comes back from other work.
            until = self._due[0].at + 0.001
        while self._due and self._due[0].at <= until:
            each = heapq.heappop(self._due)
            found += self._happen(each)
        self.now = until
        self.own_seconds += time.thread_time() - began
        return found

    def _happen(self, due: Due) -> list[ExecutorEvent]:
        place = due.place
        if due.kind == HOST_LOST:
            return self._lose_host(place)
        if due.epoch != self._epochs[place]:
            return []
        if due.kind == "progress":
            self._put(self.options.progress_seconds, "progress", place)
            return [Message(worker=place, payload=None)]
        if due.kind == "ready":
            self._down.discard(place)
            self._idle[place] = None
            return [Ready(worker=place, pid=0, bound=UNBOUND)]
        self._epochs[place] += 1
        data = self._busy.pop(place, b"")
        if due.kind == "done":
            self._idle[place] = None
            return [Finished(worker=place, result=data)]
        if due.kind == "died":
            self._put(2.0, "ready", place)
            return [Lost(worker=place, detail="its process ended")]
        self._idle[place] = None
        error = SessionsRefused if due.kind == "refused" else TransientSourceError
        return [Finished(worker=place, result=failure(error, due.kind))]

    def _lose_host(self, host: int) -> list[ExecutorEvent]:
        lost: list[ExecutorEvent] = []
        first = host * self.options.workers
        for place in range(first, first + self.options.workers):
            self._epochs[place] += 1
            self._busy.pop(place, None)
            self._idle.pop(place, None)
            self._down.add(place)
            lost.append(Lost(worker=place, detail="its host is lost"))
            self._put(self.options.host_back, "ready", place)
        return lost

    def _put(self, seconds: float, kind: str, place: int) -> None:
        self._number += 1
        epoch = 0 if kind == HOST_LOST else self._epochs[place]
        heapq.heappush(self._due, Due(self.now + seconds, self._number, kind, place, epoch))

    def stop(self, reasons: Mapping[int, AttemptFailure]) -> None:
        """End tasks immediately."""
        for place, reason in reasons.items():
            if self._busy.pop(place, None) is not None:
                self._epochs[place] += 1
                self._put(2.0, "ready", place)
                self._stopped.append(Lost(worker=place, detail="stopped", cause=reason))

    def finish(self) -> tuple[ExecutorEvent, ...]:
        """Nothing to look at."""
        return ()


class Counted(Work[WorkUnit]):
    """Pickles tasks as they are sent, and keeps who did what."""

    def __init__(self) -> None:
        """Begin with nothing done."""
        self.done: dict[str, int] = {}
        self.twice: list[str] = []
        self.attempts_lost = 0

    def task(self, attempt: Attempt[WorkUnit]) -> object:
        """Return the task as bytes, and its unit for the simulation."""
        return pickle.dumps((attempt.unit, attempt.attempt), protocol=-1), attempt.unit

    def finished(self, place: int, attempt: Attempt[WorkUnit], result: object) -> None:
        """Count the unit that came back."""
        assert isinstance(result, bytes)
        unit, number = pickle.loads(result)
        if unit.id in self.done or (unit.id, number) != (attempt.unit.id, attempt.attempt):
            self.twice.append(unit.id)
        self.done[unit.id] = number

    def judge(
        self, attempt: Attempt[WorkUnit], failure: AttemptFailure
    ) -> tuple[AttemptFailure, bool]:
        """Go on: units that are given up are reported."""
        return failure, False

    def failed(self, place: int, verdict: Verdict[WorkUnit], reason: AttemptFailure) -> None:
        """Count an attempt that was lost."""
        self.attempts_lost += 1


def table_of(rows: int) -> TableInfo:
    """Return a table whose blocks can be read in ranges."""
    size = rows * BYTES_PER_ROW
    return TableInfo(
        schema="SALES",
        name="ORDERS",
        columns=(ColumnInfo(name="ID", native_type="NUMBER(18)", nullable=False),),
        rows=rows,
        bytes=size,
        extents=(RowExtent(first=0, last=size // BLOCK_BYTES),),
        named_partitions=False,
        row_ranges=True,
    )


def megabytes() -> float:
    """Return the peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def simulated(options: argparse.Namespace) -> dict[str, Any]:
    """Run one simulation; return its figures."""
    began, before = time.process_time(), megabytes()
    limits = PlanLimits(
        parallelism=options.hosts * options.workers,
        split="range",
        unit_bytes=options.unit_rows * BYTES_PER_ROW,
    )
    made: Plan = plan(table_of(options.rows), limits)
    planned, memory = time.process_time() - began, megabytes() - before
    places, work = SimulatedPlaces(options), Counted()
    schedule = Schedule(units=made.units, retry=RetryOptions(retries=options.retries))
    engine = Engine(schedule=schedule, work=work, stall_seconds=300.0, clock=lambda: places.now)
    began = time.process_time()
    engine.run(places)  # type: ignore[arg-type]
    spent = time.process_time() - began - places.own_seconds
    missing = {unit.id for unit in made.units} - work.done.keys()
    if work.twice or missing or schedule.given_up:
        raise SystemExit(
            f"wrong: {len(work.twice)} units came twice, {len(missing)} never came, "
            f"{len(schedule.given_up)} failed"
        )
    able = min(places.count, options.sessions or places.count)
    ideal = options.rows / (options.rows_per_second * able)
    units = len(made.units)
    return {
        "ratios": {"wall_vs_ideal": round(places.now / ideal, 4)},
        "run": {
            "rows": options.rows,
            "workers": places.count,
            "units": units,
            "simulated_s": round(places.now, 1),
            "attempts_lost": work.attempts_lost,
            "sessions_refused": places.sessions_refused,
            "units_per_s": round(units / places.now, 1),
        },
        "parent": {
            "plan_cpu_s": round(planned, 2),
            "plan_mb": round(memory, 1),
            "cpu_us_per_unit": round(spent / units * 1e6, 1),
            "cpu_share": round(spent / places.now, 4),
            "task_bytes": places.pickled_bytes // max(1, units + work.attempts_lost),
            "peak_mb": round(megabytes(), 1),
        },
    }


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=lambda text: int(float(text)), default=10**12)
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=16, help="of each host")
    parser.add_argument("--unit-rows", type=int, default=5_000_000)
    parser.add_argument("--rows-per-second", type=float, default=179_000.0, help="of a worker")
    parser.add_argument("--sessions", type=int, default=0, help="that the database accepts; 0: all")
    parser.add_argument("--failing", type=float, default=0.001, help="share of attempts that fail")
    parser.add_argument("--dying", type=float, default=0.0005, help="share that loses its process")
    parser.add_argument("--lost-hosts", type=int, default=5)
    parser.add_argument("--host-back", type=float, default=60.0, help="seconds")
    parser.add_argument("--progress-seconds", type=float, default=0.0, help="0: no reports")
    parser.add_argument("--retries", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    if math.ceil(options.rows / options.unit_rows) > 5_000_000:
        parser.error("more than 5 million units: raise --unit-rows")
    return options


def main() -> None:
    """Simulate, and print what came of it."""
    options = parsed()
    found = simulated(options)
    if options.json:
        print(json.dumps(found, indent=1))
        return
    for part, figures in found.items():
        for name, value in figures.items():
            print(f"{part:8} {name:18} {value:,}")


if __name__ == "__main__":
    main()
