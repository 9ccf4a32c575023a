"""The protocol between the engine and the executors of its tasks, and the executor on this machine.

An executor has places. Each takes one task at a time and answers with events of its worker. Where a
place is (a process on this machine, one elsewhere, this very process), how a task gets there and
how the end of a process is noticed is the executor's alone. It never repeats a task: that is for
the engine.

The events of a task are the objects that its process sent, as `numa.model` declares them. For each
task sent, one of `Finished`, `Raised` or `Lost` comes for its place, after all the messages of the
task. A place that was lost takes no task until it is `Ready` again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol, TypeAlias

from msgspec import Struct

from numa.model import Finished, Lost, PoolError, ProcessLimits, Raised, Ready, WorkerEvent
from numa.pool import Pool
from unloader.errors import ConfigError, UnloaderError, WorkerLost, failure_of, internal_failure
from unloader.events import Notice
from unloader.model import AttemptFailure
from unloader.placement.evidence import Evidence, Watch, WorkerEvidence, without_numbers
from unloader.placement.seating import Seating


class NoPlaceLeft(Struct, frozen=True, kw_only=True):
    """No place will ever be ready again."""

    failure: AttemptFailure


ExecutorEvent: TypeAlias = WorkerEvent | Notice | NoPlaceLeft


def failure_in(event: Finished | Raised | Lost) -> AttemptFailure | None:
    """Return why an attempt has failed, None if it has not; a task may return its failure."""
    if isinstance(event, Raised):
        return internal_failure(event.kind, event.message, event.traceback)
    found = event.result if isinstance(event, Finished) else event.cause
    if isinstance(found, AttemptFailure):
        return found
    if isinstance(event, Finished):
        return None
    return failure_of(WorkerLost(f"worker {event.worker} was lost: {event.detail}"))


class Executor(Protocol):
    """Carries out tasks, one a place. Used from one thread."""

    _events: list[ExecutorEvent]
    """Those that the engine has not taken yet, in order."""
    _noted: set[str]
    """The lines that the user has read already, without their numbers."""

    def _note(self, text: str) -> None:
        self._events.append(Notice(text=text))

    def _note_once(self, text: str | None) -> None:
        """Note a line, if there is one and no line before differs from it in numbers alone."""
        if text and without_numbers(text) not in self._noted:
            self._noted.add(without_numbers(text))
            self._note(text)

    def _taken(self) -> Sequence[ExecutorEvent]:
        found, self._events = self._events, []
        return found

    def use(self, places: int, of: int) -> None:
        """Make the first `places` ready, and be prepared for `of` places; see `start`.

        A refusal of the system is a `ConfigError` or `PoolError`.
        """

    def start(self, places: int) -> None:
        """Make the first `places` ready if they are not; none is given up for that."""

    def places(self) -> Collection[int]:
        """Return the places that can take a task now."""

    def send(self, place: int, task: object) -> None:
        """Give one of `places` a task; returns immediately. All that goes wrong is an event."""

    def tell(self, place: int, payload: object) -> None:
        """Send a payload to the task at a place, which may have ended or not listen."""

    def events(self, timeout_seconds: float) -> Sequence[ExecutorEvent]:
        """Return the events that have come; wait for the first one up to `timeout_seconds`."""

    def stop(self, reasons: Mapping[int, AttemptFailure]) -> None:
        """End the tasks at these places by force, with the given failures as their events."""

    def finish(self) -> Sequence[ExecutorEvent]:
        """Look at the places a last time, when all work is done; return the last notes."""

    def pids(self) -> Mapping[int, int]:
        """Return the process of each place that has one on this machine."""
        return {}

    def worker(self, place: int) -> WorkerEvidence:
        """Return the evidence about the worker at a place."""

    def evidence(self) -> Evidence:
        """Return the evidence about all places."""

    def close(self) -> None:
        """End everything and give all back. May be called again."""


class LocalExecutor(Executor):
    """A pinned process on each seat of this machine; a place has the number of its seat.

    `numa.pool` keeps the processes, whose events go to the engine as they are. Here the user gets a
    line where a process was replaced, and `Watch` sees where the processes really are.
    """

    def __init__(
        self,
        seating: Seating,
        entry: str,
        limits: ProcessLimits | None = None,
        *,
        warm_up: object = None,
        looks: bool = True,
    ) -> None:
        """Take the seats, one a place, for all workers that may be wanted; start nothing yet.

        Arguments as for `numa.pool.Pool`. A task may return an `AttemptFailure`. With `looks` it is
        observed where the processes really are.
        """
        self._all_seats = self._seats = seating.seats
        self._looks = looks
        self._pool = Pool(
            seating.seats, entry, limits, memory_policy=seating.memory_policy, warm_up=warm_up
        )
        self.prepare, self.wake = self._pool.prepare, self._pool.wake
        self._started = 0
        """Seats that were asked to have a process."""
        self._events, self._noted = [], set(map(without_numbers, seating.notices))
        self._watch = Watch(seating.seats, self._note, looks=looks)

    def use(self, places: int, of: int) -> None:
        """Keep a process on the first `places` of `of` seats, and end those on the others.

        Observations of the workers count from here on.
        """
        self._seats = self._all_seats[:of]
        self._watch = Watch(self._seats, self._note, looks=self._looks)
        self._started = places
        self._pool.keep(seat.worker for seat in self._seats[:places])

    def start(self, places: int) -> None:
        """Keep a process on the first `places` seats; one that is refused is tried again."""
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
                self._note_once(event.bound.note)
            elif isinstance(event, Finished) and not isinstance(event.result, AttemptFailure):
                self._watch.unit_done(event.worker, self._pool.pids())
            elif isinstance(event, Lost):
                cannot = f"worker {event.worker} cannot be started: {event.detail}"
                if event.reason == "refused":
                    self._note_once(f"{event.detail} Next: {event.hint}")
                elif event.reason == "too large":
                    limit = self._pool.limits.memory_bytes / 2**20
                    held = event.held_bytes / 2**20
                    self._note(
                        f"worker {event.worker} holds {held:.0f} MiB after a work unit, more than "
                        f"--worker-memory {limit:g}MiB: the worker is replaced"
                    )
                elif event.hopeless:
                    self._note(cannot)
                if self._pool.exhausted:
                    is_refused = event.reason == "refused"
                    hint = event.hint or "run again with --numa off, or --debug to see more"
                    error = UnloaderError(cannot, hint)
                    if is_refused:
                        error = ConfigError(event.detail, hint)
                    self._events.append(NoPlaceLeft(failure=failure_of(error)))
        self._watch.tick(self._pool.pids())
        return self._taken()

    def stop(self, reasons: Mapping[int, AttemptFailure]) -> None:
        self._pool.stop(reasons)

    def finish(self) -> Sequence[ExecutorEvent]:
        self._watch.finish(self._pool.pids(), self._pool.bindings())
        return self._taken()

    def worker(self, place: int) -> WorkerEvidence:
        seat = next(seat for seat in self._seats if seat.worker == place)
        return self._watch.worker(seat, self._pool.restarts())

    def evidence(self) -> Evidence:
        return self._watch.evidence(self._pool.restarts())

    def pids(self) -> dict[int, int]:
        return self._pool.pids()

    def close(self) -> None:
        self._pool.close()
