"""Which unit goes to which worker, and when a failed one is tried again.

Pure: events and the time go in, assignments come out. No process, no clock, no file, so every race
between workers is a few lines of test.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from partition_planner.model import WorkUnit
from unloader.model import Failure, RetryOptions

# Of a second they make years; a thousand more would be no number any more.
_MOST_DOUBLINGS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One attempt at one unit."""

    unit: WorkUnit
    attempt: int
    """1 for the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What follows from a failed attempt."""

    assignment: Assignment
    retry_in_seconds: float | None
    """None if the unit is given up."""


@dataclass(slots=True)
class Schedule:
    """Hands out units in plan order (largest first); failed ones again after a delay."""

    units: Sequence[WorkUnit]
    retry: RetryOptions
    in_order: bool = False
    """A unit that waits for another attempt holds up those behind it."""
    _next: int = 0
    _waiting: list[tuple[float, int, Assignment]] = field(default_factory=list)
    _running: dict[int, Assignment] = field(default_factory=dict)
    _failures: int = 0
    _given_up: dict[str, Failure] = field(default_factory=dict)
    _stopped: bool = False

    def take(self, worker: int, now: float) -> Assignment | None:
        """Return what an idle worker does next, None if there is nothing at the moment."""
        if self._stopped:
            return None
        assignment = self._due(now) or self._fresh()
        if assignment is not None:
            self._running[worker] = assignment
        return assignment

    def finished(self, worker: int) -> Assignment:
        """Note that a worker's unit is done; return what it was."""
        return self._running.pop(worker)

    def failed(self, worker: int, failure: Failure, now: float) -> Verdict:
        """Note a failed attempt: tried again if that may help and attempts are left.

        The delay doubles with each attempt. A failure that no retry can mend stops the schedule.
        """
        assignment = self._running.pop(worker)
        if not failure.retryable:
            self._stopped = True
        elif assignment.attempt <= self.retry.retries:
            delay = self.retry.delay_seconds * 2.0 ** min(assignment.attempt - 1, _MOST_DOUBLINGS)
            again = Assignment(unit=assignment.unit, attempt=assignment.attempt + 1)
            self._failures += 1  # of two that are due together the older goes first
            heapq.heappush(self._waiting, (now + delay, self._failures, again))
            return Verdict(assignment=assignment, retry_in_seconds=delay)
        self._given_up[assignment.unit.id] = failure
        return Verdict(assignment=assignment, retry_in_seconds=None)

    def stop(self) -> None:
        """Hand out nothing any more."""
        self._stopped = True

    def running(self, worker: int) -> Assignment | None:
        """Return what a worker is busy with."""
        return self._running.get(worker)

    @property
    def given_up(self) -> dict[str, Failure]:
        """Units without a further attempt, with the failure of their last one."""
        return dict(self._given_up)

    @property
    def stopped(self) -> bool:
        """Whether nothing is handed out any more, by `stop` or by a failure beyond retry."""
        return self._stopped

    @property
    def over(self) -> bool:
        """Whether no unit is running and none will be handed out any more."""
        left = self._next < len(self.units) or bool(self._waiting)
        return not self._running and (self._stopped or not left)

    def _due(self, now: float) -> Assignment | None:
        if self._waiting and self._waiting[0][0] <= now:
            return heapq.heappop(self._waiting)[2]
        return None

    def _fresh(self) -> Assignment | None:
        if self._next >= len(self.units) or (self.in_order and self._waiting):
            return None
        unit = self.units[self._next]
        self._next += 1
        return Assignment(unit=unit, attempt=1)
