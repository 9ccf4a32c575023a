"""The loop that keeps every place busy: units to places, results back, lost attempts repeated.

The engine passes the events of an executor to the pure schedule, and turns the schedule's attempts
into tasks. It is the only such loop. It knows no database, no format and no process: what
a task holds and what becomes of a result is the caller's `Work`, where it is done the executor's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic

from msgspec import Struct, field

from numa.model import Finished, Lost, Message, Raised
from unloader.engine.executor import Executor, ExecutorEvent, NoPlaceLeft, failure_in
from unloader.engine.schedule import Attempt, Cause, Schedule, U, Verdict
from unloader.errors import ConnectFailed, Interrupted, SessionsRefused, failure_of, is_a
from unloader.events import Notice
from unloader.model import AttemptFailure

TICK_SECONDS = 0.2


class Work(Generic[U]):
    """The units that the engine works on. All methods are called in the engine's thread."""

    def task(self, attempt: Attempt[U]) -> object:
        """Return the task of an attempt. Called only when a place can take it."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise the error that is to end the run, if any; called several times a second."""

    def steer(self, executor: Executor, now: float) -> bool:
        """Hold the schedule to a number of places; return whether there is one. At each turn."""
        return False

    def is_released(self, event: Finished | Raised | Lost) -> bool:
        """Take the event of a place that has given its session back; return whether it was one."""
        return False

    def may_start(self) -> bool:
        """Return whether an attempt may be started now; asked before each one."""
        return True

    def note(self, text: str) -> None:
        """Take one line for the user."""

    def limited(self, places: int, *, raises: bool) -> None:
        """Note that the source lets only a number of places work from now on."""

    def started(self, place: int, attempt: Attempt[U]) -> None:
        """Note that an attempt has been sent to a place."""

    def reported(self, place: int, attempt: Attempt[U], payload: object) -> None:
        """Take a report of the task of an attempt."""

    def finished(self, place: int, attempt: Attempt[U], result: object) -> None:
        """Note that an attempt has succeeded. Its place waits meanwhile."""

    def record(self, place: int, attempt: Attempt[U], result: object) -> None:
        """Put a result on record, once a unit. Its place has its next task already."""

    def overdue(self, place: int, attempt: Attempt[U], seconds: float) -> AttemptFailure:
        """Return the failure of an attempt that is stopped as it has passed a limit in seconds."""
        raise NotImplementedError

    def judge(self, attempt: Attempt[U], failure: AttemptFailure) -> tuple[AttemptFailure, bool]:
        """Return the failure, or one that is final; and whether a final one ends the run."""
        return failure, True

    def failed(self, place: int, verdict: Verdict[U], failure: AttemptFailure) -> None:
        """Note that an attempt has failed, and what follows."""

    def discard(self, attempt: Attempt[U]) -> None:
        """Remove what a failed attempt may have left."""


class Engine(Struct, Generic[U]):
    """One run of a schedule over an executor."""

    schedule: Schedule[U]
    work: Work[U]
    stall_seconds: float = 0.0
    """Longest time without a message of an attempt; 0 = unlimited."""
    attempt_seconds: float = 0.0
    """Longest time for an attempt; 0 = unlimited."""
    clock: Callable[[], float] = time.monotonic
    failure: AttemptFailure | None = None
    """The failure that stopped the schedule, if one did."""
    _listened: float = 0.0
    """Seconds spent waiting for events. Limits are in these: a caller who takes long to put a
    result on record makes no attempt late. Nor does a machine that was asleep or paused, because
    its workers were, too."""
    _next_look: float = 0.0
    """When limits are looked at again, in seconds listened."""
    _sent: dict[int, float] = field(default_factory=dict)
    """By place: when its attempt was sent, in seconds listened."""
    _last_message: dict[int, float] = field(default_factory=dict)
    """By place: when its attempt last sent anything, in seconds listened."""
    _is_steered: bool = False

    def run(self, executor: Executor) -> None:
        """Run until every unit has ended or a failure stops all; no attempt runs on then."""
        try:
            while not self.schedule.over and self.failure is None:
                self._is_steered = self.work.steer(executor, self.clock())
                self._give_all(executor)
                began = self.clock()
                events = executor.events(TICK_SECONDS)
                self._listened += min(self.clock() - began, TICK_SECONDS)
                for event in events:
                    self._handle(executor, event)
                if self.schedule.capacity.limit is not None:
                    self._tell_capacity()
                self.work.check()
                # What still runs after a failure is ended: the run cannot become whole any more.
                if self.failure is None and self._listened >= self._next_look:
                    self._next_look = self._listened + TICK_SECONDS
                    overdue: dict[int, AttemptFailure] = {}
                    for place, sent in self._sent.items():
                        attempt = self.schedule.running(place)
                        if place in self.schedule.held:
                            # It is silent by order, and has all its time when it continues.
                            self._last_message[place] = self._listened
                            continue
                        silent = self._listened - self._last_message[place]
                        took = self._listened - sent
                        for limit, seconds in (
                            (self.stall_seconds, silent),
                            (self.attempt_seconds, took),
                        ):
                            passed = limit and seconds > limit and place not in overdue
                            if passed and attempt is not None:
                                overdue[place] = self.work.overdue(place, attempt, limit)
                    if overdue:
                        executor.stop(overdue)
            if self.schedule.capacity.limit is not None:
                self._tell_capacity(at_end=True)
            for event in executor.finish():
                self._handle(executor, event)
        finally:
            # A busy place must not finish a file after its attempt has been discarded.
            held = {place: self.schedule.running(place) for place in self._sent}
            executor.stop(dict.fromkeys(held, _STOPPED))
            for attempt in filter(None, held.values()):
                self.work.discard(attempt)

    def _handle(self, executor: Executor, event: ExecutorEvent) -> None:
        if isinstance(event, Message):
            attempt = self.schedule.running(event.worker)
            if attempt is not None:
                self._last_message[event.worker] = self._listened
                self.work.reported(event.worker, attempt, event.payload)
        elif isinstance(event, Finished | Raised | Lost):
            if self._is_steered and self.work.is_released(event):
                return
            failure = failure_in(event)
            if failure is not None:
                self._failed(event, failure)
            elif isinstance(event, Finished):
                place, result = event.worker, event.result
                done = self.schedule.finished(place)
                del self._sent[place]
                self.work.finished(place, done, result)
                if self._is_steered:
                    self._give_all(executor)
                elif place in executor.places():
                    self._give(executor, place)
                self.work.record(place, done, result)
        elif isinstance(event, NoPlaceLeft):
            self.schedule.stopped = True
            self.failure = self.failure or event.failure
        elif isinstance(event, Notice):
            self.work.note(event.text)

    def _failed(self, event: Finished | Raised | Lost, failure: AttemptFailure) -> None:
        """Let the schedule judge a failure by its cause."""
        place = event.worker
        attempt = self.schedule.running(place)
        if attempt is None:
            self.schedule.vacated(place)
            return
        del self._sent[place]
        failure, ends = self.work.judge(attempt, failure)
        cause: Cause = "failed"
        if isinstance(event, Lost):
            cause = "lost"
        elif is_a(failure, SessionsRefused):
            cause = "refused"
        elif is_a(failure, ConnectFailed):
            cause = "connecting"
        verdict = self.schedule.failed(place, failure, self.clock(), cause, stops=ends)
        self.work.discard(attempt)
        self.work.failed(place, verdict, failure)
        if ends and not failure.retryable and self.failure is None:
            self.failure = failure

    def _tell_capacity(self, *, at_end: bool = False) -> None:
        capacity = self.schedule.capacity
        limit = capacity.news(self.clock(), at_end=at_end)
        if limit is not None:
            self.work.limited(limit, raises=capacity.raises)

    def _give_all(self, executor: Executor) -> None:
        # Near its end, or where the source takes few sessions, most places of a run are idle.
        if not self.schedule.gives(self.clock()):
            return
        for place in self.schedule.preferred(executor.places()):
            if not self.schedule.gives(self.clock()):
                return
            # One that could not be sent its task is free again before its failure is read.
            if self.schedule.running(place) is None:
                self._give(executor, place)

    def _give(self, executor: Executor, place: int) -> None:
        attempt = self.schedule.take(place, self.clock()) if self.work.may_start() else None
        if attempt is None:
            return
        self._sent[place] = self._last_message[place] = self._listened
        executor.send(place, self.work.task(attempt))
        self.work.started(place, attempt)


_STOPPED = failure_of(Interrupted("the run has ended"))
"""The reason for an executor at the end of a run; its event is not read."""
