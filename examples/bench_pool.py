#!/usr/bin/env python3
"""What a task costs beside its own work, in our pool and in the standard library's pools.

    python examples/bench_pool.py --tasks 5000 --workers 2 --runs 5

Each contender runs `--tasks` tasks that only double a number, in processes that have already run a
few:

  supervisor         the engine of a run over numa.pool.Pool, with retries and losses
  supervisor_limits  the same with a limit on silence, time and memory, checked all the while
  pool               numa.pool.Pool, a task assigned at each result
  executor           concurrent.futures.ProcessPoolExecutor.map, processes spawned
  multiprocessing    multiprocessing.Pool.imap_unordered, processes spawned

The figures are microseconds a task: wall, and CPU of the parent and of all workers together. The
two of the standard library give out tasks ahead of need, with their default chunk of one; ours
gives a worker one task at a time, so that the death of a process costs one task and no more.

Start-up: seconds in which the parent is held up, and until all workers are ready, for one worker
and for --start-workers of them.

A round runs all of them in turn, every other round the other way about; the median over the rounds
counts.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from numa.model import Finished, ProcessLimits, Ready
from numa.placement import place
from numa.pool import Pool
from numa.topology import detect
from unloader.engine.engine import Engine, Work
from unloader.engine.executor import LocalExecutor
from unloader.engine.schedule import Attempt, Schedule
from unloader.model import RetryOptions
from unloader.placement.seating import Seating

ENTRY = "bench_pool:double"
WARM_TASKS = 50
FAR, HUGE = 3600.0, 1 << 50

Run = Callable[[int], Iterable[Any]]


def double(task: int, report: Callable[[object], None] | None = None) -> int:
    """Do next to nothing."""
    return task * 2


@dataclass(frozen=True, slots=True)
class Number:
    """One unit of a schedule."""

    id: str
    number: int


class Doubling(Work[Number]):
    """Keeps the results."""

    def __init__(self) -> None:
        self.results: list[Any] = []

    def task(self, attempt: Attempt[Number]) -> int:
        """Return the number itself."""
        return attempt.unit.number

    def record(self, place: int, attempt: Attempt[Number], result: object) -> None:
        """Keep a result."""
        self.results.append(result)


@contextmanager
def supervisor(
    workers: int, limits: ProcessLimits, seconds: float
) -> Iterator[tuple[Run, list[int]]]:
    """Yield a function that runs a number of tasks, and the processes that do them."""
    seating = Seating(seats=place(detect(), workers), memory_policy="preferred")
    with closing(LocalExecutor(seating, ENTRY, limits, looks=False)) as ours:

        def run(count: int) -> list[Any]:
            units = tuple(Number(str(number), number) for number in range(count))
            work = Doubling()
            schedule = Schedule(units=units, retry=RetryOptions())
            Engine(
                schedule=schedule, work=work, stall_seconds=seconds, attempt_seconds=seconds
            ).run(ours)
            return work.results

        ours.use(workers, workers)
        run(WARM_TASKS)
        while len(ours.places()) < workers:
            ours.events(1.0)
        yield run, list(ours.pids().values())


@contextmanager
def pool(workers: int) -> Iterator[tuple[Run, list[int]]]:
    """Yield the same for the pool without an engine."""
    with Pool(place(detect(), workers), ENTRY) as ours:

        def run(count: int) -> Iterator[Any]:
            tasks = iter(range(count))
            for worker, task in zip(range(workers), tasks, strict=False):
                ours.assign(worker, task)
            ended = 0
            while ended < count:
                for event in ours.wait(60.0):
                    if isinstance(event, Finished):
                        ended += 1
                        yield event.result
                        for task in islice(tasks, 1):
                            ours.assign(event.worker, task)

        for worker in range(workers):
            ours.start(worker)
        all(True for _ in run(WARM_TASKS))
        yield run, list(ours.pids().values())


@contextmanager
def executor(workers: int) -> Iterator[tuple[Run, list[int]]]:
    """Yield the same for the executor of the standard library."""
    with ProcessPoolExecutor(workers, mp_context=spawning()) as theirs:
        run: Run = lambda count: theirs.map(double, range(count))  # noqa: E731
        all(True for _ in run(WARM_TASKS))
        yield run, list(theirs._processes)


@contextmanager
def multiprocess(workers: int) -> Iterator[tuple[Run, list[int]]]:
    """Yield the same for the older pool of the standard library."""
    before = {process.pid for process in multiprocessing.active_children()}
    with spawning().Pool(workers) as theirs:
        run: Run = lambda count: theirs.imap_unordered(double, range(count))  # noqa: E731
        all(True for _ in run(WARM_TASKS))
        now = {process.pid for process in multiprocessing.active_children()}
        yield run, [pid for pid in now - before if pid is not None]


def spawning() -> Any:
    """Return the start method that, as ours, shares nothing with the parent."""
    return multiprocessing.get_context("spawn")


def contenders(workers: int) -> dict[str, Callable[[], Any]]:
    """Return the contenders by name."""
    limits = ProcessLimits(memory_bytes=HUGE, task_memory_bytes=HUGE)
    return {
        "supervisor": lambda: supervisor(workers, ProcessLimits(), 0.0),
        "supervisor_limits": lambda: supervisor(workers, limits, FAR),
        "pool": lambda: pool(workers),
        "executor": lambda: executor(workers),
        "multiprocessing": lambda: multiprocess(workers),
    }


def cost(contender: Callable[[], Any], tasks: int) -> dict[str, float]:
    """Return the microseconds of one task."""
    with contender() as (run, pids):
        cpu = time.process_time() + cpu_seconds(pids)
        started = time.perf_counter()
        total = sum(run(tasks))
        wall = time.perf_counter() - started
        cpu = time.process_time() + cpu_seconds(pids) - cpu
    if total != tasks * (tasks - 1):
        raise SystemExit(f"the sum of the results is {total} instead of {tasks * (tasks - 1)}")
    return {"wall_us": wall / tasks * 1e6, "cpu_us": cpu / tasks * 1e6}


def cpu_seconds(pids: list[int]) -> float:
    """Return the CPU time that processes have had, from fields 14 and 15 of /proc/PID/stat."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def start_up(workers: int) -> dict[str, float]:
    """Return the seconds in which the parent is held up, and those until all workers are ready."""
    seats = place(detect(), workers)
    started = time.perf_counter()
    with Pool(seats, ENTRY) as ours:
        for worker in range(workers):
            ours.start(worker)
        held_up = time.perf_counter() - started
        ready = 0
        while ready < workers:
            ready += sum(isinstance(event, Ready) for event in ours.wait(60.0))
        return {"parent_s": held_up, "ready_s": time.perf_counter() - started}


def main() -> None:
    """Measure and print."""
    options = parsed()
    report = measure(options)
    if options.json:
        print(json.dumps(report, indent=1))
        return
    for name, figures in report["tasks"].items():
        print(f"{name:20} {figures['wall_us']:8.1f} us wall {figures['cpu_us']:8.1f} us CPU a task")
    for name, figures in report["start"].items():
        print(
            f"start of {name:>3} workers {figures['ready_s'] * 1e3:8.1f} ms until ready, "
            f"{figures['parent_s'] * 1e3:.1f} ms of the parent"
        )


def parsed() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=5000, help="of a run; default: 5000")
    parser.add_argument("--workers", type=int, default=2, help="default: 2")
    parser.add_argument("--start-workers", type=int, default=8, help="default: 8")
    parser.add_argument("--runs", type=int, default=5, help="rounds; default: 5")
    parser.add_argument("--only", action="append", help="only this contender; can be repeated")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser.parse_args()


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run the contenders round after round."""
    every = contenders(options.workers)
    names = [name for name in every if not options.only or name in options.only]
    counts = (1, options.start_workers)
    tasks: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    starts: dict[str, list[dict[str, float]]] = {str(count): [] for count in counts}
    for number in range(options.runs):
        for name in names if number % 2 else names[::-1]:
            tasks[name].append(cost(every[name], options.tasks))
            print(f"round {number}: {name} {tasks[name][-1]}", file=sys.stderr)
        for count in counts:
            starts[str(count)].append(start_up(count))
    return {
        "tasks": {name: medians(runs, 1) for name, runs in tasks.items()},
        "start": {count: medians(runs, 4) for count, runs in starts.items()},
        "runs": tasks,
        "machine": {
            "system": platform.platform(),
            "python": platform.python_version(),
            "cpus": len(os.sched_getaffinity(0)),
        },
    }


def medians(runs: list[dict[str, float]], digits: int) -> dict[str, float]:
    """Return the median of each figure."""
    return {name: round(statistics.median(run[name] for run in runs), digits) for name in runs[0]}


if __name__ == "__main__":
    main()
