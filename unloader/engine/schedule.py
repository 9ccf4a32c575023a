"""Which unit goes to which place, and when a failed one is tried again.

Pure: events and the time go in, attempts come out. No process, no clock, no file, so every race
between workers is a few lines of test. A unit is anything that has an id.

Not every failure is the unit's own, and only what may be is counted against its retries:

    failed      the attempt itself failed: counted
    connecting  no session could be opened: counted, and the place waits as long as the unit
    refused     the source takes no more sessions: not counted while other places have one
    lost        the place's process ended: counted, and another place tries the unit next
"""

from __future__ import annotations

import heapq
import math
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, Literal, Protocol, TypeAlias, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from unloader.model import AttemptFailure, RetryOptions


class Unit(Protocol):
    @property
    def id(self) -> str:
        """Tell the unit from all others."""


U = TypeVar("U", bound=Unit)


class Attempt(Struct, Generic[U], frozen=True, kw_only=True):
    unit: U
    attempt: int
    """1 for the first."""
    failures: int = 0
    """Earlier attempts that count against the retries."""
    lost_at: int | None = None
    """The place whose process ended in the attempt before."""


class Verdict(Struct, Generic[U], frozen=True, kw_only=True):
    """What follows from a failed attempt."""

    assignment: Attempt[U]
    retry_in_seconds: float | None
    """None if the unit is given up."""
    counted: bool = True
    """It counts against the unit's retries."""


Cause: TypeAlias = Literal["failed", "connecting", "refused", "lost"]
"""Why an attempt has failed; see above."""

Jitter: TypeAlias = Callable[[str, int], float]
"""Maps the id of a unit and the number of its failures to a number from 0 to 1."""

# Of a second they make years; a thousand more would be no number any more.
_MOST_DOUBLINGS = 30

_SHARE = 0.5
"""Part of a delay that the jitter may take away. A server that comes back then meets its clients
over the second half of the delay, and none of them comes much too early."""


def spread(seed: str) -> Jitter:
    """Return a jitter that differs between the things that are tried, and between seeds."""

    def jitter(what: str, failures: int) -> float:
        return zlib.crc32(f"{seed}/{what}/{failures}".encode()) / 0xFFFFFFFF

    return jitter


def delay_seconds(retry: RetryOptions, failures: int, share: float = 1.0) -> float:
    """Return the doubled and capped delay; a share of 0 takes half of it away, 1 nothing."""
    longest = max(retry.delay_seconds, retry.delay_max_seconds)
    whole = min(longest, retry.delay_seconds * 2.0 ** min(failures - 1, _MOST_DOUBLINGS))
    return whole * (1.0 - _SHARE + _SHARE * share)


RAISE_SECONDS = 60.0
"""Guess: what took the sessions away, another job for instance, may have ended by then."""

MOST_REFUSALS = 2
"""After this number of refused trials no further place is tried."""

_SETTLE_SECONDS = 1.0
"""Several places are refused within a moment; the new limit is reported once."""


class Capacity(Struct):
    """The number of places that may work together when the source takes no more sessions.

    Nothing is limited until the source refuses a session. Then the places that have one work on,
    and now and then one more is tried.
    """

    limit: int | None = None
    """None is as many as there are."""
    lowest: int | None = None
    """The smallest limit there was; None if there never was one."""
    _raise_at: float | None = None
    _is_trial: bool = False
    """The limit was raised since the last refusal."""
    _refused_trials: int = 0
    _reported: int | None = None
    _changed: float = 0.0

    def may_try(self, limit: int, busy: int, now: float) -> bool:
        """Return whether one place more than the limit may be tried beside busy ones."""
        return self._raise_at is not None and now >= self._raise_at and busy <= limit

    def taken(self, limit: int, busy: int, now: float) -> None:
        """Note that one more place works beside busy ones: a trial if they were at the limit."""
        if busy >= limit:
            self._set(limit + 1, now)
            self._is_trial, self._raise_at = True, now + RAISE_SECONDS

    def refused(self, others: int, now: float) -> bool:
        """Note that the source refused a session; return whether other places have one."""
        if not others:
            return False
        if self._is_trial:
            self._refused_trials += 1
        self._is_trial = False
        again = self._refused_trials < MOST_REFUSALS
        self._raise_at = now + RAISE_SECONDS if again else None
        self._set(others if self.limit is None else min(self.limit, others), now)
        self.lowest = min(self.limit or others, self.lowest or others)
        return True

    def news(self, now: float, *, at_end: bool = False) -> int | None:
        """Return the limit once after each change, when it has settled; None without a change."""
        if self._reported == self.limit or not (at_end or now - self._changed >= _SETTLE_SECONDS):
            return None
        self._reported = self.limit
        return self.limit

    @property
    def raises(self) -> bool:
        return self._raise_at is not None

    def _set(self, limit: int, now: float) -> None:
        if limit != self.limit:
            self.limit, self._changed = limit, now


class RowCount(Struct):
    """Rows that have come so far, failed attempts included: they were work as well."""

    rows: int = 0
    reports: int = 0
    """How often some came."""
    heard: set[int] = field(default_factory=set)
    """Places that reported rows since the set was last emptied."""
    _by_place: dict[int, int] = field(default_factory=dict)
    """Rows of the attempt at a place."""

    def reached(self, place: int, rows: int, *, ends: bool = False) -> None:
        """Take the rows of the attempt at a place so far; the attempt may end with them."""
        # A unit that is read again reports rows again; only new rows count.
        new = rows - self._by_place.get(place, 0)
        if new > 0:
            self.rows += new
            self.reports += 1
            self.heard.add(place)
            self._by_place[place] = rows
        if ends:
            self._by_place.pop(place, None)


class Schedule(Struct, Generic[U]):
    """Hands out units in plan order (largest first); failed ones again after a delay."""

    units: Sequence[U]
    retry: RetryOptions
    in_order: bool = False
    """A unit that waits for another attempt holds up the units after it."""
    before: Mapping[str, int] = field(default_factory=dict)
    """Attempts at units that were made before this schedule, by id; their numbers go on from there.
    """
    parts: Callable[[U], Sequence[U]] = lambda unit: ()
    """The parts of a unit that is several units: once an attempt at it has failed, each part is
    tried alone, and that attempt is not counted. Empty for a single unit."""
    jitter: Jitter = lambda what, failures: 1.0
    capacity: Capacity = field(default_factory=Capacity)
    allowed: int | None = None
    """How many attempts may be at work together, as the run has chosen; None = unlimited."""
    held: set[int] = field(default_factory=set)
    """Places whose attempt is held up: it is running, and not at work."""
    _next: int = 0
    _waiting: list[tuple[float, int, Attempt[U]]] = field(default_factory=list)
    _running: dict[int, Attempt[U]] = field(default_factory=dict)
    _put_back: int = 0
    given_up: dict[str, AttemptFailure] = field(default_factory=dict)
    """Units without a further attempt, with the failure of their last one."""
    stopped: bool = False
    """No attempt begins any more."""
    _connected: set[int] = field(default_factory=set)
    """Places that have finished a unit and kept their session."""
    _rests: dict[int, float] = field(default_factory=dict)
    """By place that could open no session: when it may work again."""
    _rest_until: float = -math.inf
    """No place could open a session, so none tries before that time."""

    def drop(self, units: Callable[[U], bool]) -> None:
        """Hand out none of these units any more; attempts that run go on."""
        begun, left = self.units[: self._next], self.units[self._next :]
        self.units = [*begun, *(unit for unit in left if not units(unit))]
        self._waiting = [each for each in self._waiting if not units(each[2].unit)]
        heapq.heapify(self._waiting)

    def put_back(self, units: Iterable[U], attempt: int) -> None:
        """Hand units out again, each alone, after an attempt at them together has failed."""
        for unit in units:
            self._put(Attempt(unit=unit, attempt=attempt), -math.inf)

    def take(self, place: int, now: float) -> Attempt[U] | None:
        """Return what an idle place does next, None if there is nothing now."""
        if now < self._rests.get(place, now) or not self.gives(now):
            return None
        assignment = self._due(place, now) if self._waiting else None
        if assignment is None and self._has_fresh():
            unit = self.units[self._next]
            self._next += 1
            assignment = Attempt(unit=unit, attempt=self.before.get(unit.id, 0) + 1)
        if assignment is not None:
            if self.capacity.limit is not None:
                self.capacity.taken(self.capacity.limit, len(self._running), now)
            self._running[place] = assignment
        return assignment

    def gives(self, now: float) -> bool:
        """Return whether any idle place can get work now, so that each need not be asked for."""
        if self.stopped or now < self._rest_until:
            return False
        # Attempts that are held up continue before anything new begins.
        if self.allowed is not None and (self.held or self.at_work >= self.allowed):
            return False
        if not (self._waiting and self._waiting[0][0] <= now) and not self._has_fresh():
            return False
        busy, limit = len(self._running), self.capacity.limit
        return limit is None or busy < limit or self.capacity.may_try(limit, busy, now)

    def preferred(self, places: Iterable[int]) -> list[int]:
        """Return idle places in order: those with a session first, as only they may get work."""
        if self.allowed is not None and self.capacity.limit is None:
            return sorted(places)
        return sorted(places, key=lambda place: (place not in self._connected, place))

    def finished(self, place: int) -> Attempt[U]:
        """Record that the unit at a place is done; return the unit."""
        self._connected.add(place)
        self._rests.pop(place, None)
        self.held.discard(place)
        return self._running.pop(place)

    def failed(
        self,
        place: int,
        failure: AttemptFailure,
        now: float,
        cause: Cause = "failed",
        *,
        stops: bool = True,
    ) -> Verdict[U]:
        """Note a failed attempt, which is tried again if that may help and attempts are left."""
        self._connected.discard(place)
        self.held.discard(place)
        attempt = self._running.pop(place)
        is_counted = True
        if cause == "lost":
            # The unit comes back to the place that lost it only if there is nothing else to do.
            attempt = replace(attempt, lost_at=place)
        elif cause == "refused" and failure.retryable:
            # Places that have a session do the units.
            others = len(self._running.keys() | self._connected)
            is_counted = not self.capacity.refused(others, now)
        if not is_counted:
            self._put(attempt, now)
            return Verdict(assignment=attempt, retry_in_seconds=0.0, counted=False)
        if cause in ("refused", "connecting"):
            # The next unit would fare no better, so the place waits, too: or an outage of some
            # seconds would use up the attempts of one unit after the other.
            until = now + self._delay(attempt)
            if self._running or self._connected:
                self._rests[place] = until
            else:
                self._rest_until = until
        if parts := self.parts(attempt.unit):
            self.put_back(parts, attempt.attempt)
            return Verdict(assignment=attempt, retry_in_seconds=0.0, counted=False)
        if not failure.retryable:
            self.stopped = self.stopped or stops
        elif attempt.failures < self.retry.retries:
            delay = self._delay(attempt)
            self._put(replace(attempt, failures=attempt.failures + 1), now + delay)
            return Verdict(assignment=attempt, retry_in_seconds=delay)
        self.given_up[attempt.unit.id] = failure
        return Verdict(assignment=attempt, retry_in_seconds=None)

    def vacated(self, place: int) -> None:
        """Note that the process at an idle place has ended, and its session with it."""
        self._connected.discard(place)

    def running(self, place: int) -> Attempt[U] | None:
        return self._running.get(place)

    @property
    def at_work(self) -> int:
        """How many attempts run and are not held up."""
        return len(self._running) - len(self.held & self._running.keys())

    @property
    def running_places(self) -> frozenset[int]:
        return frozenset(self._running)

    def has_session(self, place: int) -> bool:
        return place in self._connected and place not in self._running

    @property
    def over(self) -> bool:
        """Whether no unit is running and none will be handed out any more."""
        left = self._next < len(self.units) or bool(self._waiting)
        return not self._running and (self.stopped or not left)

    @property
    def fresh(self) -> int:
        return len(self.units) - self._next

    def _delay(self, assignment: Attempt[U]) -> float:
        failures = assignment.failures + 1
        return delay_seconds(self.retry, failures, self.jitter(assignment.unit.id, failures))

    def _put(self, assignment: Attempt[U], due: float) -> None:
        """Keep a unit for its next attempt; of two that are due together the older goes first."""
        self._put_back += 1
        again = replace(assignment, attempt=assignment.attempt + 1)
        heapq.heappush(self._waiting, (due, self._put_back, again))

    def _has_fresh(self) -> bool:
        return self._next < len(self.units) and not (self.in_order and self._waiting)

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
