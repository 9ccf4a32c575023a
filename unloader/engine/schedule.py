"""Which unit goes to which place, and when a failed one is tried again.

Pure: events and the time go in, attempts come out. No process, no clock, no file, so every race
between workers is a few lines of test. A unit is anything that has an id.

Not every failure is the unit's own, and only what may be is counted against its retries:

    failed      the attempt itself failed: counted
    connecting  no session could be opened: counted, and the place waits as long as the unit
    refused     the source takes no more sessions: not counted while other places have one
    lost        the place's process ended: counted, unless it loses one unit after the other
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeAlias, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from partition_planner.model import WorkUnit
from unloader.engine.backoff import Jitter, delay_seconds, no_jitter
from unloader.engine.capacity import Capacity
from unloader.engine.reliability import Reliability
from unloader.model import AttemptFailure, RetryOptions


class Unit(Protocol):
    """What a schedule hands out."""

    @property
    def id(self) -> str:
        """Tell the unit from all others."""


U = TypeVar("U", bound=Unit)


class Attempt(Struct, Generic[U], frozen=True, kw_only=True):
    """One attempt at one unit."""

    unit: U
    attempt: int
    """1 for the first."""
    failures: int = 0
    """Earlier attempts that count against the retries."""
    lost_at: int | None = None
    """The place whose process ended in the attempt before."""


if TYPE_CHECKING:
    Assignment: TypeAlias = Attempt[WorkUnit]
else:
    # To be called, too, which a frozen class with slots refuses under the name with the parameter.
    Assignment = Attempt
"""An attempt at a work unit, as outputs know it."""


class Verdict(Struct, Generic[U], frozen=True, kw_only=True):
    """What follows from a failed attempt."""

    assignment: Attempt[U]
    retry_in_seconds: float | None
    """None if the unit is given up."""
    counted: bool = True
    """It counts against the unit's retries."""


class Schedule(Struct, Generic[U]):
    """Hands out units in plan order (largest first); failed ones again after a delay."""

    units: Sequence[U]
    retry: RetryOptions
    in_order: bool = False
    """A unit that waits for another attempt holds up those behind it."""
    before: Mapping[str, int] = field(default_factory=dict)
    """Attempts at units that were made before this schedule, by id; their numbers go on from there.
    """
    parts: Callable[[U], Sequence[U]] = lambda unit: ()
    """What a unit that stands for several consists of: once an attempt at it has failed, each is
    tried by itself, and that attempt is not counted. Nothing for a single one."""
    jitter: Jitter = no_jitter
    ready: Callable[[U], bool] = lambda unit: True
    """Whether a unit may be handed out for the first time; the units behind it wait with it."""
    capacity: Capacity = field(default_factory=Capacity)
    allowed: int | None = None
    """How many attempts may be at work at once, by the run's own choice; None is no limit."""
    held: set[int] = field(default_factory=set)
    """Places whose attempt is held up: it is running, and not at work."""
    _next: int = 0
    _waiting: list[tuple[float, int, Attempt[U]]] = field(default_factory=list)
    _running: dict[int, Attempt[U]] = field(default_factory=dict)
    _put_back: int = 0
    _given_up: dict[str, AttemptFailure] = field(default_factory=dict)
    _stopped: bool = False
    _connected: set[int] = field(default_factory=set)
    """Places that have finished a unit and kept their session."""
    _places: Reliability = field(default_factory=Reliability)
    _rest_until: float = -math.inf
    """Nobody could open a session, so nobody tries before that time."""

    def drop(self, units: Callable[[U], bool]) -> None:
        """Hand out none of these units any more; attempts that run go on."""
        begun, left = self.units[: self._next], self.units[self._next :]
        self.units = [*begun, *(unit for unit in left if not units(unit))]
        self._waiting = [each for each in self._waiting if not units(each[2].unit)]
        heapq.heapify(self._waiting)

    def put_back(self, units: Iterable[U], attempt: int) -> None:
        """Hand units out again, each by itself, of which an attempt has come to nothing."""
        for unit in units:
            self._put(Attempt(unit=unit, attempt=attempt), -math.inf)

    def take(self, place: int, now: float) -> Attempt[U] | None:
        """Return what an idle place does next, None if there is nothing now."""
        if not self._places.may_work(place, now) or not self.gives(now):
            return None
        if not self.capacity.allows(len(self._running), now):
            return None
        assignment = self._due(place, now) or self._fresh()
        if assignment is not None:
            self._running[place] = assignment
        return assignment

    def gives(self, now: float) -> bool:
        """Return whether there is something for an idle place now, whichever it is.

        So nobody need ask for each of thousands that have nothing to do.
        """
        if self._stopped or now < self._rest_until:
            return False
        # What is held up goes on before anything new begins.
        if self.allowed is not None and (self.held or self.at_work >= self.allowed):
            return False
        if not (self._waiting and self._waiting[0][0] <= now) and not self._has_fresh():
            return False
        return self.capacity.has_room(len(self._running), now)

    def preferred(self, places: Iterable[int]) -> list[int]:
        """Return idle places in the order in which they are to be given work.

        Those that have a session come first: where the source takes no more, only they can work.
        Where the run itself lets fewer work, those with the lowest numbers do, whose seats keep the
        nodes balanced.
        """
        if self.allowed is not None and self.capacity.limit is None:
            return sorted(places)
        return sorted(places, key=lambda place: (place not in self._connected, place))

    def finished(self, place: int) -> Attempt[U]:
        """Note that the unit at a place is done; return what it was."""
        self._connected.add(place)
        self._places.worked(place)
        return self._ended(place)

    def failed(
        self, place: int, failure: AttemptFailure, now: float, *, stops: bool = True
    ) -> Verdict[U]:
        """Note a failed attempt: tried again if that may help and attempts are left.

        The delay doubles with each attempt. A failure that no retry can mend stops the schedule.

        Args:
            place: Where it was.
            failure: Why.
            now: As everywhere.
            stops: False lets the schedule go on with other units all the same.
        """
        self._connected.discard(place)
        assignment = self._ended(place)
        if parts := self.parts(assignment.unit):
            self.put_back(parts, assignment.attempt)
            return Verdict(assignment=assignment, retry_in_seconds=0.0, counted=False)
        if not failure.retryable:
            self._stopped = self._stopped or stops
        elif assignment.failures < self.retry.retries:
            delay = self._delay(assignment)
            self._put(replace(assignment, failures=assignment.failures + 1), now + delay)
            return Verdict(assignment=assignment, retry_in_seconds=delay)
        self._given_up[assignment.unit.id] = failure
        return Verdict(assignment=assignment, retry_in_seconds=None)

    def connecting(
        self, place: int, failure: AttemptFailure, now: float, *, stops: bool = True
    ) -> Verdict[U]:
        """Note that an attempt failed as no session could be opened.

        The next unit would fare no better, so the place waits, too: or an outage of some seconds
        would use up the attempts of one unit after the other.
        """
        until = now + self._delay(self._running[place])
        verdict = self.failed(place, failure, now, stops=stops)
        if self._running or self._connected:
            self._places.rest(place, until)
        else:
            self._rest_until = until
        return verdict

    def refused(
        self, place: int, failure: AttemptFailure, now: float, *, stops: bool = True
    ) -> Verdict[U]:
        """Note that the source takes no more sessions: those that have one go on with the units."""
        self._connected.discard(place)
        others = (self._running.keys() | self._connected) - {place}
        if not failure.retryable or not self.capacity.refused(len(others), now):
            return self.connecting(place, failure, now, stops=stops)
        return self._not_counted(place, now)

    def lost(
        self, place: int, failure: AttemptFailure, now: float, *, stops: bool = True
    ) -> Verdict[U]:
        """Note that the process at a place ended in an attempt.

        A place that loses different units in a row, while others do not, is at fault itself: it
        waits longer and longer, and what it loses is not counted. A unit comes back to the place
        that lost it only if there is nothing else to do.
        """
        lost = replace(self._running[place], lost_at=place)
        self._running[place] = lost
        if failure.retryable and self._places.lost(place, lost.unit.id, now, self.retry):
            self._connected.discard(place)
            return self._not_counted(place, now)
        return self.failed(place, failure, now, stops=stops)

    def vacated(self, place: int) -> None:
        """Note that the process at an idle place has ended, and its session with it."""
        self._connected.discard(place)

    def stop(self) -> None:
        """Hand out nothing any more."""
        self._stopped = True

    def running(self, place: int) -> Attempt[U] | None:
        """Return what a place is busy with."""
        return self._running.get(place)

    @property
    def at_work(self) -> int:
        """How many attempts run and are not held up."""
        return len(self._running) - len(self.held & self._running.keys())

    @property
    def running_places(self) -> frozenset[int]:
        """The places that are busy, held up or not."""
        return frozenset(self._running)

    def has_session(self, place: int) -> bool:
        """Return whether an idle place has kept its session."""
        return place in self._connected and place not in self._running

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

    @property
    def fresh(self) -> int:
        """How many units were not handed out yet."""
        return len(self.units) - self._next

    @property
    def waits(self) -> bool:
        """Whether the next unit is not ready yet."""
        return self._next < len(self.units) and not self.ready(self.units[self._next])

    def _delay(self, assignment: Attempt[U]) -> float:
        failures = assignment.failures + 1
        return delay_seconds(self.retry, failures, self.jitter(assignment.unit.id, failures))

    def _put(self, assignment: Attempt[U], due: float) -> None:
        """Keep a unit for its next attempt; of two that are due together the older goes first."""
        self._put_back += 1
        again = replace(assignment, attempt=assignment.attempt + 1)
        heapq.heappush(self._waiting, (due, self._put_back, again))

    def _not_counted(self, place: int, now: float) -> Verdict[U]:
        assignment = self._ended(place)
        self._put(assignment, now)
        return Verdict(assignment=assignment, retry_in_seconds=0.0, counted=False)

    def _ended(self, place: int) -> Attempt[U]:
        self.held.discard(place)
        return self._running.pop(place)

    def _has_fresh(self) -> bool:
        if self._next >= len(self.units) or (self.in_order and self._waiting):
            return False
        return self.ready(self.units[self._next])

    def _due(self, place: int, now: float) -> Attempt[U] | None:
        """Return the oldest due unit, one that this place has just lost only if it must be."""
        mine = []
        found = None
        while found is None and self._waiting and self._waiting[0][0] <= now:
            entry = heapq.heappop(self._waiting)
            if entry[2].lost_at == place:
                mine.append(entry)
            else:
                found = entry[2]
        if found is None and mine and not self._has_fresh():
            found = mine.pop(0)[2]
        for entry in mine:
            heapq.heappush(self._waiting, entry)
        return found

    def _fresh(self) -> Attempt[U] | None:
        if not self._has_fresh():
            return None
        unit = self.units[self._next]
        self._next += 1
        return Attempt(unit=unit, attempt=self.before.get(unit.id, 0) + 1)
