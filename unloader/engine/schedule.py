"""Which unit goes to which place, and when a failed one is tried again.

Pure: events and the time go in, attempts come out. No process, no clock, no file, so every race
between workers is a few lines of test. A unit is anything that has an id.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Protocol, TypeAlias, TypeVar

from partition_planner.model import WorkUnit
from unloader.model import AttemptFailure, RetryOptions

# Of a second they make years; a thousand more would be no number any more.
_MOST_DOUBLINGS = 30


class Unit(Protocol):
    """What a schedule hands out."""

    @property
    def id(self) -> str:
        """Tell the unit from all others."""


U = TypeVar("U", bound=Unit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt(Generic[U]):
    """One attempt at one unit."""

    unit: U
    attempt: int
    """1 for the first."""


if TYPE_CHECKING:
    Assignment: TypeAlias = Attempt[WorkUnit]
else:
    # To be called, too, which a frozen class with slots refuses under the name with the parameter.
    Assignment = Attempt
"""An attempt at a work unit, as outputs know it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict(Generic[U]):
    """What follows from a failed attempt."""

    assignment: Attempt[U]
    retry_in_seconds: float | None
    """None if the unit is given up."""


@dataclass(slots=True)
class Schedule(Generic[U]):
    """Hands out units in plan order (largest first); failed ones again after a delay."""

    units: Sequence[U]
    retry: RetryOptions
    in_order: bool = False
    """A unit that waits for another attempt holds up those behind it."""
    before: Mapping[str, int] = field(default_factory=dict)
    """Attempts at units that were made before this schedule, by id; their numbers go on from there.
    """
    _next: int = 0
    _waiting: list[tuple[float, int, Attempt[U]]] = field(default_factory=list)
    _running: dict[int, Attempt[U]] = field(default_factory=dict)
    _failures: int = 0
    _given_up: dict[str, AttemptFailure] = field(default_factory=dict)
    _stopped: bool = False

    def take(self, place: int, now: float) -> Attempt[U] | None:
        """Return what an idle place does next, None if there is nothing now."""
        if self._stopped:
            return None
        assignment = self._due(now) or self._fresh()
        if assignment is not None:
            self._running[place] = assignment
        return assignment

    def finished(self, place: int) -> Attempt[U]:
        """Note that the unit at a place is done; return what it was."""
        return self._running.pop(place)

    def failed(self, place: int, failure: AttemptFailure, now: float) -> Verdict[U]:
        """Note a failed attempt: tried again if that may help and attempts are left.

        The delay doubles with each attempt. A failure that no retry can mend stops the schedule.
        """
        assignment = self._running.pop(place)
        if not failure.retryable:
            self._stopped = True
        elif (made := self._made(assignment)) <= self.retry.retries:
            delay = self.retry.delay_seconds * 2.0 ** min(made - 1, _MOST_DOUBLINGS)
            again = Attempt(unit=assignment.unit, attempt=assignment.attempt + 1)
            self._failures += 1  # of two that are due together the older goes first
            heapq.heappush(self._waiting, (now + delay, self._failures, again))
            return Verdict(assignment=assignment, retry_in_seconds=delay)
        self._given_up[assignment.unit.id] = failure
        return Verdict(assignment=assignment, retry_in_seconds=None)

    def stop(self) -> None:
        """Hand out nothing any more."""
        self._stopped = True

    def running(self, place: int) -> Attempt[U] | None:
        """Return what a place is busy with."""
        return self._running.get(place)

    @property
    def given_up(self) -> dict[str, AttemptFailure]:
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

    def _due(self, now: float) -> Attempt[U] | None:
        if self._waiting and self._waiting[0][0] <= now:
            return heapq.heappop(self._waiting)[2]
        return None

    def _fresh(self) -> Attempt[U] | None:
        if self._next >= len(self.units) or (self.in_order and self._waiting):
            return None
        unit = self.units[self._next]
        self._next += 1
        return Attempt(unit=unit, attempt=self.before.get(unit.id, 0) + 1)

    def _made(self, attempt: Attempt[U]) -> int:
        """Return how many attempts at a unit this schedule has made."""
        return attempt.attempt - self.before.get(attempt.unit.id, 0)
