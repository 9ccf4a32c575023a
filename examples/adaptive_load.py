"""One adaptive run under a limit, beside a load that comes and goes; for `bench_adaptive.py`."""

from __future__ import annotations

import argparse
import math
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from adaptive_sources import Source, burner, load
from adaptive_watching import Watched
from msgspec.structs import replace

from unloader import api
from unloader.errors import Interrupted
from unloader.model import ConcurrencyOptions, Request

TIMES = 2
"""As often the load comes and goes."""

ONE_IN = 4
"""A worker runs in one tick of this number."""

TICK_SECONDS = 0.04

WORKER = "unloader.worker.process"
"""In the command line of each worker."""

ANSWER_SECONDS = 10.0
"""A limit that is passed is to be answered within that."""


def under_second_load(
    request: Request, source: Source, options: argparse.Namespace
) -> dict[str, Any]:
    """Run once, and return the curve under the load.

    Raises:
        SystemExit: This source cannot have other sessions, or the table is too small.
    """
    most = max(int(level) for level in options.levels.split(","))
    is_cpu = options.second_load == "cpu"
    if not is_cpu and source.busy is None:
        sys.exit(f"bench_adaptive: {source.name} has only its own sessions; use --second-load cpu")
    # All workers beside one session of others, one worker beside all of them.
    allowed = most + 1
    limits = ConcurrencyOptions(
        adaptive=True,
        max_sessions=most + 2,
        max_cpu=options.max_cpu if is_cpu else None,
        max_db_load=None if is_cpu else allowed,
    )
    count = (os.cpu_count() or 1) if is_cpu else max(options.sessions, allowed - 1)
    begin = burner if is_cpu else source.busy
    assert begin is not None
    # The caches are warm, so rows come from the beginning.
    api.unload(warming(request, source, most))
    shutil.rmtree(request.output.destination)
    watched = Watched()
    drive = Drive(watched, lambda: load(begin, count), source, options, count)
    with paced(ONE_IN):
        drive.start()
        try:
            with suppress(Interrupted):
                api.unload(
                    replace(request, concurrency=limits), observe=watched, stop=drive.over.is_set
                )
        finally:
            watched.end()
            drive.end()
    shutil.rmtree(request.output.destination, ignore_errors=True)
    if not drive.complete:
        sys.exit(f"bench_adaptive: the run ended after {watched.seconds:.0f} s: give more --rows")
    text = f"--max-cpu {options.max_cpu:.0%}" if is_cpu else f"--max-db-load {allowed}"
    return {"limit": text, "load": count, **reactions(watched), "steps": watched.steps,
            "curve": watched.curve()}  # fmt: skip


def warming(request: Request, source: Source, most: int) -> Request:
    """Return a run that reads the whole table, and of a table made here returns few rows of it."""
    selection = request.selection
    if source.few:
        selection = replace(selection, where=f"{source.few} AND {selection.where}")
    return replace(request, selection=selection, parallelism=most)


class Drive(threading.Thread):
    """Lets the load come and go."""

    def __init__(
        self, watched: Watched, begin: Any, source: Source, options: argparse.Namespace, count: int
    ) -> None:
        """Apply the load twice for at least some seconds, with as many seconds in between.

        Args:
            watched: The run.
            begin: Begins the load.
            source: Where sessions of others are ended.
            options: Have the seconds, and how long an answer may take after them.
            count: How many programs or sessions the load is.
        """
        super().__init__(daemon=True)
        self.over = threading.Event()
        self.complete = False
        self._watched, self._begin, self._source = watched, begin, source
        self._seconds, self._patience = options.load_seconds, options.patience
        self._count = count

    def run(self) -> None:
        """Come and go, and end the run a while after the last time."""
        seen = self._watched
        going = self._lasts(lambda: seen.may_work > 1)
        for _ in range(TIMES):
            if not going:
                return
            with self._begin():
                came = seen.now()
                seen.loads.append((came, self._count))
                going = self._lasts(partial(seen.backed_off, came, math.inf))
            self._source.settle()
            went = seen.now()
            seen.loads.append((went, 0))
            going = going and self._lasts(partial(seen.climbed_again, went, math.inf))
        self.complete = going
        self.over.set()

    def _lasts(self, answered: Callable[[], object]) -> bool:
        """Wait for the seconds that were asked for, and longer for an answer of the run.

        Returns:
            Whether the run has not ended.
        """
        until = self._watched.now() + self._seconds + self._patience
        ended = self.over.wait(self._seconds)
        while not (ended or answered() or self._watched.now() > until):
            ended = self.over.wait(0.2)
        return not ended

    def end(self) -> None:
        """Stop, wherever it is."""
        self.over.set()
        self.join()


def reactions(watched: Watched) -> dict[str, Any]:
    """Return after how many seconds workers were fewer, and more again; None if they never were."""
    times = [*(at for at, _ in watched.loads), watched.seconds]
    backed, climbed = [], []
    for number in range(0, 2 * TIMES, 2):
        came, went, until = times[number : number + 3]
        backed.append(_passed(came, watched.backed_off(came, went)))
        climbed.append(_passed(went, watched.climbed_again(went, until)))
    return {
        "backed_off_seconds": backed,
        "climbed_again_seconds": climbed,
        "within_10_seconds": all(each is not None and each <= ANSWER_SECONDS for each in backed),
    }


def _passed(since: float, moment: float | None) -> float | None:
    return None if moment is None else round(moment - since, 1)


@contextmanager
def paced(one_in: int) -> Iterator[None]:
    """Run each worker in one of `one_in` ticks, and stop it in the others."""
    import psutil

    over = threading.Event()

    def workers() -> list[Any]:
        found = []
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                if any(WORKER in word for word in child.cmdline()):
                    found.append(child)
        return sorted(found, key=lambda each: each.pid)

    def tell(process: Any, number: int) -> None:
        with suppress(psutil.Error):
            process.send_signal(number)

    def turn() -> None:
        tick, known = 0, workers()
        while not over.wait(TICK_SECONDS):
            tick += 1
            if tick % 10 == 0:
                known = workers()
            for place, worker in enumerate(known):
                runs = (tick + place) % one_in == 0
                tell(worker, signal.SIGCONT if runs else signal.SIGSTOP)
        for worker in workers():
            tell(worker, signal.SIGCONT)

    thread = threading.Thread(target=turn, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
