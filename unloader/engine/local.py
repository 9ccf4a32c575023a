"""The executor on this machine: one pinned process a place, replaced when it is lost.

`numa.pool` keeps the processes. Their events go to the engine as they are. Here the user gets
a line where a process was replaced, and `Watch` sees where the processes really are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from numa.errors import PoolError
from numa.model import Finished, Lost, ProcessLimits, Ready
from numa.pool import Pool
from unloader.engine.executor import EventQueue, Executor, ExecutorEvent, NoPlaceLeft
from unloader.errors import ConfigError, UnloaderError, failure_of
from unloader.model import AttemptFailure
from unloader.placement.evidence import Evidence, Watch, WorkerEvidence
from unloader.placement.seating import Seating


class LocalExecutor(Executor):
    """A process on each seat. A place has the number of its seat."""

    def __init__(
        self,
        seating: Seating,
        entry: str,
        limits: ProcessLimits | None = None,
        *,
        warm_up: object = None,
        looks: bool = True,
    ) -> None:
        """Take the seats; start nothing yet.

        Args:
            seating: One seat a place, as many as there may ever be.
            entry: The function that does the tasks: see `numa.pool.Pool`. A returned
                `AttemptFailure` counts as a failure.
            limits: When a process is replaced; None is the defaults.
            warm_up: See `numa.pool.Pool`.
            looks: Look where the processes really are.
        """
        self._all_seats = self._seats = seating.seats
        self._looks = looks
        self._pool = Pool(
            seating.seats, entry, limits, memory_policy=seating.memory_policy, warm_up=warm_up
        )
        self.prepare, self.wake = self._pool.prepare, self._pool.wake
        self._started = 0
        """Seats that were asked to have a process."""
        self._events = EventQueue(noted=seating.notices)
        self._watch = Watch(seating.seats, self._events.note, looks=looks)

    def use(self, places: int, of: int) -> None:
        """Keep a process on the first `places` of `of` seats, and end those on the others.

        Observations of the workers count from here on.

        Raises:
            PoolError: The system refuses a process.
        """
        self._seats = self._all_seats[:of]
        self._watch = Watch(self._seats, self._events.note, looks=self._looks)
        self._started = places
        self._pool.keep(seat.worker for seat in self._seats[:places])

    def start(self, places: int) -> None:
        """Keep a process on the first `places` seats, and keep the processes that there are.

        A process that the system refuses is noted, and tried again; the others work on.
        """
        if places > self._started:
            self._started = places
            self._pool.add(seat.worker for seat in self._seats[:places])

    def places(self) -> Collection[int]:
        return self._pool.idle

    def send(self, place: int, task: object) -> None:
        try:
            self._pool.assign(place, task)
        except PoolError as error:
            self._events.append(Finished(worker=place, result=failure_of(error)))

    def tell(self, place: int, payload: object) -> None:
        self._pool.tell(place, payload)

    def events(self, timeout_seconds: float) -> Sequence[ExecutorEvent]:
        for event in self._pool.wait(0.0 if self._events else timeout_seconds):
            self._events.append(event)
            if isinstance(event, Ready):
                self._watch.ready(event, self._pool.pids())
                self._events.note_once(event.bound.note)
            elif isinstance(event, Finished) and not isinstance(event.result, AttemptFailure):
                self._watch.unit_done(event.worker, self._pool.pids())
            elif isinstance(event, Lost):
                cannot = f"worker {event.worker} cannot be started: {event.detail}"
                if event.reason == "refused":
                    self._events.note_once(f"{event.detail} Next: {event.hint}")
                elif event.reason == "too large":
                    limit = self._pool.limits.memory_bytes / 2**20
                    held = event.held_bytes / 2**20
                    self._events.note(
                        f"worker {event.worker} holds {held:.0f} MiB after a work unit, more than "
                        f"--worker-memory {limit:g}MiB: the worker is replaced"
                    )
                elif event.hopeless:
                    self._events.note(cannot)
                if self._pool.exhausted:
                    is_refused = event.reason == "refused"
                    failure = AttemptFailure(
                        error=(ConfigError if is_refused else UnloaderError).__name__,
                        message=event.detail if is_refused else cannot,
                        hint=event.hint or "run again with --numa off, or --debug to see more",
                        retryable=False,
                    )
                    self._events.append(NoPlaceLeft(failure=failure))
        self._watch.tick(self._pool.pids())
        return self._events.take()

    def stop(self, reasons: Mapping[int, AttemptFailure]) -> None:
        # A pool that is closed has ended them already.
        with suppress(PoolError):
            self._pool.stop(reasons)

    def finish(self) -> Sequence[ExecutorEvent]:
        self._watch.finish(self._pool.pids(), self._pool.bindings())
        return self._events.take()

    def worker(self, place: int) -> WorkerEvidence:
        seat = next(seat for seat in self._seats if seat.worker == place)
        return self._watch.worker(seat, self._pool.restarts())

    def evidence(self) -> Evidence:
        return self._watch.evidence(self._pool.restarts())

    def pids(self) -> dict[int, int]:
        return self._pool.pids()

    def close(self) -> None:
        self._pool.close()

    def __enter__(self) -> LocalExecutor:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
