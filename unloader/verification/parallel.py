"""Jobs side by side in threads, with their progress told from the thread that waits for them.

Reading files back spends its time in hashing, decompression and parsing, which give the interpreter
up; so does waiting for a database. Threads are enough for both.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import TypeVar

from unloader.errors import Interrupted

T = TypeVar("T")

Advance = Callable[[int], None]
"""Takes the amount of work done since the last call; a job calls it several times a second."""

_POLL_SECONDS = 0.2
_PATIENCE_SECONDS = 0.5


class _Ended(Exception):
    """Ends a job whose result nobody waits for any more."""


class _Meter:
    """What all jobs have done so far, and whether they are to end."""

    def __init__(self) -> None:
        self.done = 0
        self.over = False
        self._lock = threading.Lock()

    def advance(self, amount: int) -> None:
        if self.over:
            raise _Ended
        with self._lock:
            self.done += amount


def in_parallel(
    jobs: Sequence[Callable[[Advance], T]],
    parallelism: int,
    watch: Callable[[int, int], None] = lambda jobs, amount: None,
    cancel: Callable[[], None] = lambda: None,
) -> list[T]:
    """Return the results of jobs in their order; so many of them run at a time.

    Args:
        jobs: Each takes a function that it tells its progress.
        parallelism: Of threads.
        watch: Called several times a second in the calling thread with the number of jobs that
            are done and the amount that they and the others have told. What it raises ends all.
        cancel: Ends what jobs that nobody waits for any more are waiting for themselves.

    Raises:
        BaseException: What the first job that failed raised, or `watch`. No thread is left then,
            unless an interrupt came while one was in a long call.
    """
    meter = _Meter()
    workers = max(1, min(parallelism, len(jobs)))
    pool = ThreadPoolExecutor(workers, thread_name_prefix="verify")
    found: dict[int, T] = {}
    waiting = iter(enumerate(jobs))
    running: dict[Future[T], int] = {}
    try:
        while len(found) < len(jobs):
            # A few are ready for a thread that becomes free; to wait for all would take long.
            for number, job in islice(waiting, 2 * workers - len(running)):
                running[pool.submit(job, meter.advance)] = number
            done, _ = wait(running, timeout=_POLL_SECONDS, return_when=FIRST_COMPLETED)
            for each in done:
                found[running.pop(each)] = each.result()
            watch(len(found), meter.done)
        pool.shutdown()
        return [found[number] for number in range(len(jobs))]
    except BaseException as error:
        meter.over = True
        cancel()
        # A thread may be in a long call of a library. The user who interrupts does not wait for it.
        interrupted = isinstance(error, (KeyboardInterrupt, Interrupted))
        pool.shutdown(wait=not interrupted, cancel_futures=True)
        wait([each for each in running if not each.cancelled()], timeout=_PATIENCE_SECONDS)
        raise
