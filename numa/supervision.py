"""One run of the supervisor: attempts to idle workers, outcomes back, processes judged."""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from numa.backlog import Attempt, Backlog
from numa.errors import PoolError
from numa.model import (
    Event,
    Finished,
    Lost,
    Message,
    Outcome,
    Raised,
    Ready,
    SupervisorOptions,
    TaskFailure,
)
from numa.pool import Pool

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 0.2

# Guess: a machine short of processes or memory may have some again after that.
_RESTART_SECONDS = 0.5


class Supervision:
    """What is known of the workers and their tasks while one run goes on."""

    def __init__(
        self,
        pool: Pool,
        workers: Sequence[int],
        options: SupervisorOptions,
        backlog: Backlog,
        heard: Callable[[int, object], None] | None,
    ) -> None:
        """Take over the pool as the last run left it."""
        self._pool = pool
        self._options = options
        self._backlog = backlog
        self._heard = heard
        pool.wait(0.0)  # what the last run did not wait for
        there = pool.pids()
        self._vacant = {
            worker: 0.0
            for worker in workers
            if worker not in there and not pool.is_hopeless(worker)
        }
        """Seats without a process, and when one may be started there."""
        self._idle = {worker for worker in there if pool.clocks(worker).up}
        self._running: dict[int, tuple[Attempt, float]] = {}
        self._reasons: dict[int, TaskFailure] = {}
        """Why processes are being ended by us, until their `Lost` is here."""
        self._outcomes: deque[Outcome] = deque()
        self._next_look = 0.0
        self._last_words = "none was started"

    def step(self, most_workers: int) -> None:
        """Start what is missing, give out tasks, wait for events or a fifth of a second.

        Raises:
            PoolError: No process can be had on any seat.
        """
        self._man(most_workers)
        self._feed()
        if self._outcomes or self._backlog.over:
            return
        timeout = _LOOK_SECONDS
        if self._idle and self._backlog.due is not None:
            timeout = min(timeout, max(0.0, self._backlog.due - time.monotonic()))
        for event in self._pool.wait(timeout):
            self._handle(event)
        # Only here, where all that workers had sent is read: a consumer may have held us up.
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + _LOOK_SECONDS
            self._look()

    def settled(self) -> Iterator[Outcome]:
        """Yield the outcomes that have come."""
        while self._outcomes:
            outcome = self._outcomes.popleft()
            yield outcome
            self._backlog.settle()

    def cancel(self) -> None:
        """End the busy processes; every task that was taken gets its outcome."""
        why = TaskFailure(kind="cancelled", message="cancelled before it had ended")
        for attempt in self._backlog.stop():
            self._outcomes.append(_outcome(attempt, failure=why))
        self._end(dict.fromkeys(self._running, why))
        for event in self._pool.wait(0.0):
            self._handle(event)

    def abandon(self) -> None:
        """End the busy processes; a pool that is closed has ended them already."""
        with suppress(PoolError):
            self._pool.kill(*self._running)

    def _man(self, most_workers: int) -> None:
        """Start processes on vacant seats while there may be tasks for them."""
        there = len(self._pool.pids())
        if self._vacant and self._backlog.wanting and there < most_workers:
            now = time.monotonic()
            due = [worker for worker, after in self._vacant.items() if after <= now]
            for worker in due[: most_workers - there]:
                try:
                    self._pool.start(worker)
                except PoolError as error:
                    self._vacate(worker, str(error))
                else:
                    del self._vacant[worker]
        elif not (self._vacant or there or self._reasons):
            raise PoolError(
                f"no worker can be started: {self._last_words}.",
                "see that the function's "
                "module can be imported, and whether the machine is short of processes or memory.",
            )

    def _feed(self) -> None:
        while self._idle:
            now = time.monotonic()
            attempt = self._backlog.take(now)
            if attempt is None:
                return
            worker = self._idle.pop()
            try:
                self._pool.assign(worker, attempt.task)
            except PoolError as error:
                self._idle.add(worker)
                why = TaskFailure(kind="unsendable", message=str(error))
                unbegun = replace(attempt, number=attempt.number - 1)
                self._outcomes.append(_outcome(unbegun, failure=why))
            else:
                self._running[worker] = attempt, now

    def _handle(self, event: Event) -> None:
        worker = event.worker
        if isinstance(event, Finished | Raised):
            self._ended(event)
        elif isinstance(event, Message):
            if self._heard is not None and worker in self._running:
                self._heard(self._running[worker][0].index, event.payload)
        elif isinstance(event, Ready):
            self._idle.add(worker)
        else:
            self._lost(event)

    def _ended(self, event: Finished | Raised) -> None:
        worker = event.worker
        attempt, given = self._running.pop(worker)
        seconds = time.monotonic() - given
        if isinstance(event, Finished):
            self._outcomes.append(
                _outcome(attempt, worker=worker, seconds=seconds, result=event.result)
            )
        elif not (self._options.retry_raised and self._again(attempt)):
            why = TaskFailure(
                kind="raised", message=f"{event.kind}: {event.message}", traceback=event.traceback
            )
            self._outcomes.append(_outcome(attempt, worker=worker, seconds=seconds, failure=why))
        self._idle.add(worker)
        held = self._pool.memory_bytes(worker) if self._options.memory_bytes else None
        if held is not None and held > self._options.memory_bytes:
            self._idle.discard(worker)
            self._end({worker: self._too_large(held, self._options.memory_bytes)})

    def _lost(self, event: Lost) -> None:
        worker = event.worker
        self._idle.discard(worker)
        why = self._reasons.pop(worker, None)
        words = why.message if why else event.detail.strip()
        if worker not in self._running:
            # One that we ended after its task has shown that it can start.
            pause = _RESTART_SECONDS if why is None or why.kind == "silent" else 0.0
            self._vacate(worker, words, pause)
            return
        attempt, given = self._running.pop(worker)
        self._vacant[worker] = 0.0
        if why is None:
            why = TaskFailure(kind="lost", message=f"worker {worker} was lost: {words}")
            logger.info("task %d: %s", attempt.index, why.message.partition("\n")[0])
        if not self._again(attempt):
            seconds = time.monotonic() - given
            self._outcomes.append(_outcome(attempt, worker=worker, seconds=seconds, failure=why))

    def _vacate(self, worker: int, words: str, pause_seconds: float = _RESTART_SECONDS) -> None:
        """Leave a seat whose process ended without a task, for a while or for good."""
        self._last_words = words
        if self._pool.is_hopeless(worker):
            self._vacant.pop(worker, None)
            logger.warning("worker %d cannot be started and is given up: %s", worker, words)
        else:
            self._vacant[worker] = time.monotonic() + pause_seconds

    def _look(self) -> None:
        """End the processes that have passed a limit."""
        judged = {
            worker: self._verdict(worker)
            for worker in self._pool.pids()
            if worker in self._running or not self._pool.clocks(worker).up
        }
        self._end({worker: why for worker, why in judged.items() if why is not None})

    def _verdict(self, worker: int) -> TaskFailure | None:
        options, clocks = self._options, self._pool.clocks(worker)
        silent = clocks.overdue(options.silence_seconds, options.start_seconds)
        if silent is not None:
            doing = "sent nothing" if clocks.up else "was not up"
            return TaskFailure(kind="silent", message=f"worker {worker} {doing} for {silent:g} s")
        longest = options.task_timeout_seconds
        late = clocks.up and longest and clocks.busy_seconds() > longest
        if late and not self._pool.answering(worker):
            return TaskFailure(
                kind="timeout", message=f"worker {worker} had the task for {longest:g} s"
            )
        held = self._pool.memory_bytes(worker) if options.task_memory_bytes else None
        if held is not None and held > options.task_memory_bytes:
            return self._too_large(held, options.task_memory_bytes)
        return None

    def _too_large(self, held: int, limit: int) -> TaskFailure:
        return TaskFailure(kind="memory", message=f"held {held} bytes, the limit is {limit}")

    def _again(self, attempt: Attempt) -> bool:
        return self._backlog.again(attempt, time.monotonic())

    def _end(self, reasons: Mapping[int, TaskFailure]) -> None:
        for worker, why in reasons.items():
            logger.info("worker %d is ended: %s", worker, why.message)
        self._reasons.update(reasons)
        self._pool.kill(*reasons)


def _outcome(
    attempt: Attempt,
    *,
    worker: int | None = None,
    seconds: float = 0.0,
    result: object = None,
    failure: TaskFailure | None = None,
) -> Outcome:
    return Outcome(
        index=attempt.index,
        task=attempt.task,
        result=result,
        failure=failure,
        attempts=attempt.number,
        worker=worker,
        seconds=seconds,
    )
