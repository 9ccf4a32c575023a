"""The loop that keeps every seat busy: units to workers, results back, losses made good.

The engine turns the pool's events into those of the pure schedule and its assignments into tasks.
It knows no database and no format; what a task holds and what becomes of a result is the caller's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from numa.errors import PoolError
from numa.model import Event, Finished, Lost, Message, Raised, Ready, Seat
from numa.pool import Pool
from unloader.errors import Interrupted
from unloader.events import (
    Notice,
    Observer,
    Tick,
    UnitAdvanced,
    UnitFailed,
    UnitFinished,
    UnitStarted,
)
from unloader.model import Failure, UnitProgress, UnitResult, UnitTask
from unloader.placement.evidence import kind_of
from unloader.placement.observation import Watch
from unloader.run.schedule import Assignment, Schedule

TICK_SECONDS = 0.2

# Guess: a machine short of processes or memory may have some again after that.
_RESTART_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What the engine is told apart from the schedule."""

    seats: tuple[Seat, ...]
    """Numbered from 0."""
    stall_seconds: float
    """Without a word from a busy worker; 0 is never."""
    worker_memory_bytes: int = 0
    """A worker that holds more after a unit is replaced before its next one; 0 is no limit."""
    told: tuple[str, ...] = ()
    """What was told of the seats already; a binding that says the same is not told again."""
    task: Callable[[Assignment], UnitTask]
    """Makes the task of an attempt."""
    done: Callable[[int, UnitResult], None]
    """Takes the result of a unit from a worker, once a unit."""
    discard: Callable[[Assignment], None]
    """Removes what a broken attempt may have left."""
    fatal: Callable[[Assignment, Failure], Failure | None]
    """Says of a failure that might be retried whether it ends the run all the same, and how."""


@dataclass(slots=True)
class Engine:
    """One run of a schedule over a pool."""

    schedule: Schedule
    orders: Orders
    observe: Observer
    stop: Callable[[], bool]
    watch: Watch = field(default_factory=lambda: Watch((), looks=False))
    """Sees where the workers are, and keeps what their bindings came to."""
    failure: Failure | None = None
    """The failure that stopped the schedule, if one did."""
    restarts: dict[int, int] = field(default_factory=dict)
    """How many processes each worker that was started has had beyond the first."""
    _stalled: dict[int, float] = field(default_factory=dict)
    """Workers that are being killed because they made no progress, and for how many seconds."""
    _vacant: dict[int, float] = field(default_factory=dict)
    """Workers that the system refused a new process, and when it is asked again."""
    _told: set[str] = field(default_factory=set)
    _preloading: set[int] = field(default_factory=set)

    def run(self, pool: Pool) -> None:
        """Run until every unit is done, given up, or the schedule is stopped by a failure.

        Args:
            pool: An open pool with our seats, and maybe more. Workers that run already are
                preloading; those without a seat of ours are ended.

        Raises:
            Interrupted: `stop` returned True; running attempts are ended and discarded.
            PoolError: A process cannot be started, or no lost one replaced.
        """
        self._told.update(map(kind_of, self.orders.told))
        try:
            self._man(pool)
            while not self.schedule.over and self.failure is None:
                self._step(pool)
            self.watch.finish(pool.pids(), pool.bindings())
        finally:
            # A busy worker may not finish a file after we have cleaned up behind it.
            held = {worker: self.schedule.running(worker) for worker in pool.pids()}
            pool.kill(*(worker for worker, assignment in held.items() if assignment is not None))
            for assignment in filter(None, held.values()):
                self.orders.discard(assignment)

    def _man(self, pool: Pool) -> None:
        ours = {seat.worker for seat in self.orders.seats}
        self._preloading = set(pool.pids()) & ours
        pool.kill(*pool.pids().keys() - ours)
        for worker in sorted(ours - self._preloading):
            pool.start(worker)
        for worker in sorted(ours - self._preloading):
            self._feed(pool, worker)

    def _step(self, pool: Pool) -> None:
        for event in pool.wait(TICK_SECONDS):
            self._handle(pool, event)
        self.watch.tick(pool.pids())
        if self.stop():
            self.schedule.stop()
            raise Interrupted("stopped by a signal before all work units were done")
        if self.failure is not None:
            return  # what still runs is ended: the run cannot become whole any more
        self._kill_stalled(pool)
        for worker in [worker for worker, due in self._vacant.items() if due <= time.monotonic()]:
            self._replace(pool, worker)
        for worker in list(pool.pids()):
            if self.schedule.running(worker) is None and worker not in self._preloading:
                self._give(pool, worker)
        self.observe(Tick())

    def _handle(self, pool: Pool, event: Event) -> None:
        if event.worker >= len(self.orders.seats):
            return  # one that was started too many
        if isinstance(event, Ready):
            self.watch.ready(event, pool.pids())
            self._tell_once(event.bound.note)
        elif isinstance(event, Message) and isinstance(event.payload, UnitProgress):
            progress = event.payload
            self.observe(
                UnitAdvanced(
                    worker=event.worker,
                    unit=progress.unit,
                    rows=progress.rows,
                    bytes=progress.bytes,
                    waiting_for=progress.waiting_for,
                )
            )
        elif isinstance(event, Finished):
            self._finished(pool, event)
        elif isinstance(event, Raised):
            message = f"internal error in worker {event.worker}: {event.kind}: {event.message}"
            self._failed(
                event.worker,
                Failure(
                    kind="UnloaderError",
                    message=message,
                    hint="run again with --debug and report it",
                    retryable=False,
                    traceback=event.traceback,
                ),
            )
        elif isinstance(event, Lost):
            self._lost(pool, event)

    def _finished(self, pool: Pool, event: Finished) -> None:
        if isinstance(event.result, Failure):
            self._failed(event.worker, event.result)
            return
        if event.result is None:
            self._preloading.discard(event.worker)
            self._feed(pool, event.worker)
            return
        assert isinstance(event.result, UnitResult)
        result = event.result
        self.schedule.finished(event.worker)
        self.observe(
            UnitFinished(
                worker=event.worker,
                unit=result.unit,
                rows=result.rows,
                bytes=sum(file.bytes for file in result.files),
                seconds=result.seconds,
            )
        )
        outgrown = self._has_outgrown(pool, event.worker, result.unit)
        if not outgrown:
            # The worker goes on while its result is put on record.
            self._feed(pool, event.worker)
        self.orders.done(event.worker, result)
        self.watch.unit_done(event.worker, pool.pids())
        if outgrown:
            pool.kill(event.worker)

    def _failed(self, worker: int, failure: Failure) -> None:
        running = self.schedule.running(worker)
        if failure.retryable and running is not None:
            failure = self.orders.fatal(running, failure) or failure
        verdict = self.schedule.failed(worker, failure, time.monotonic())
        self.orders.discard(verdict.assignment)
        self.observe(
            UnitFailed(
                worker=worker,
                unit=verdict.assignment.unit.id,
                attempt=verdict.assignment.attempt,
                message=failure.message,
                retry_in_seconds=verdict.retry_in_seconds,
            )
        )
        if not failure.retryable and self.failure is None:
            self.failure = failure

    def _lost(self, pool: Pool, event: Lost) -> None:
        if self.schedule.running(event.worker) is not None:
            self._failed(event.worker, self._why_lost(event))
        else:
            self._preloading.discard(event.worker)
            if pool.is_hopeless(event.worker):
                self._give_up_worker(pool, event)
                return
        self._stalled.pop(event.worker, None)
        if not self.schedule.over:
            self._replace(pool, event.worker)

    def _replace(self, pool: Pool, worker: int) -> None:
        """Put a new process on a seat. Where the system refuses one the others go on without it."""
        self._vacant.pop(worker, None)
        try:
            pool.start(worker)
        except PoolError as error:
            if not pool.is_hopeless(worker):
                self._vacant[worker] = time.monotonic() + _RESTART_SECONDS
            elif not (self._vacant or pool.pids()):
                raise
            self._tell_once(str(error))
        else:
            self.restarts = pool.restarts()

    def _why_lost(self, event: Lost) -> Failure:
        message = f"worker {event.worker} was lost: {event.detail.strip()}"
        hint = "see the system log for what ended it (out of memory, a kill)"
        if event.worker in self._stalled:
            seconds = f"{self._stalled[event.worker]:g} s (--stall-timeout)"
            message = f"worker {event.worker} made no progress for {seconds}"
            hint = "check what the source, or the reader of the output, is waiting for"
        return Failure(kind="PartialUnload", message=message, hint=hint, retryable=True)

    def _give_up_worker(self, pool: Pool, event: Lost) -> None:
        text = f"worker {event.worker} cannot be started: {event.detail.strip()}"
        self.observe(Notice(text=text))
        if not pool.pids():
            self.schedule.stop()
            self.failure = Failure(
                kind="UnloaderError",
                message=text,
                hint="run again with --numa off, or --debug to see more",
                retryable=False,
            )

    def _feed(self, pool: Pool, worker: int) -> None:
        if worker in pool.pids():  # or it finished and died since: its loss is the next event
            self._give(pool, worker)

    def _give(self, pool: Pool, worker: int) -> None:
        assignment = self.schedule.take(worker, time.monotonic())
        if assignment is None:
            return
        pool.assign(worker, self.orders.task(assignment))
        self.observe(
            UnitStarted(
                worker=worker,
                unit=assignment.unit.id,
                partition=assignment.unit.partition,
                attempt=assignment.attempt,
                rows=assignment.unit.rows,
            )
        )

    def _kill_stalled(self, pool: Pool) -> None:
        if not self.orders.stall_seconds:
            return
        stalled = []
        for worker in pool.pids():
            busy = self.schedule.running(worker)
            limit = pool.clocks(worker).overdue(self.orders.stall_seconds)
            if busy is not None and limit is not None:
                text = f"worker {worker} made no progress with unit {busy.unit.id} for {limit:g} s"
                self.observe(Notice(text=f"{text}: it is replaced"))
                self._stalled[worker] = limit
                stalled.append(worker)
        pool.kill(*stalled)

    def _has_outgrown(self, pool: Pool, worker: int, unit: str) -> bool:
        """Whether a worker has kept more memory after its unit than it may, which is told."""
        limit = self.orders.worker_memory_bytes
        held = pool.memory_bytes(worker) if limit else None
        if held is None or held <= limit or self.schedule.over:
            return False
        text = f"worker {worker} holds {held / 2**20:.0f} MiB after unit {unit}, more than"
        text += f" --worker-memory {limit / 2**20:g}MiB: it is replaced"
        self.observe(Notice(text=text))
        return True

    def _tell_once(self, note: str | None) -> None:
        """Tell a worker's note, unless another one's was the same but for its numbers."""
        if note and kind_of(note) not in self._told:
            self._told.add(kind_of(note))
            self.observe(Notice(text=note))
