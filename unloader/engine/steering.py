"""How many places work at a time: limits, and the control that follows them.

Limits and control are pure: measurements, the rows and the time go in, a number and the steps to it
come out. Each limit returns how many places it allows, and why. One place works under any limit, so
that a run ends and its snapshot does not grow old for nothing. `unloader stop` ends the run. Where
a source refuses sessions, the schedule counts them itself, and the lower number wins; here that
only bounds the search.

Usually a surplus place ends its unit and gets no further one. A unit may take an hour, though, and
a limit holds within seconds: then the fetch of the places with the highest numbers is held up until
there is room for them again. Work that has begun continues before anything new begins. Idle places
give their sessions back after a while, so that a database sees as many as there are at work.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Mapping
from typing import Literal, TypeAlias

from msgspec import Struct, field

from unloader.engine.schedule import RowCount
from unloader.events import ParallelismChanged
from unloader.model import Cause
from unloader.nouns import counted

WINDOW_SECONDS = 0.5
"""Shortest time over which a rate is taken. Workers report several times a second."""

REPORTS_A_PLACE = 2
"""Each place has reported rows this number of times in a window, on average. Where a batch takes
seconds, a window with one and a window without say nothing."""

MOST_WINDOWS = 30
"""As many are kept; older ones were of another table, or of another load."""

_LONGEST_WINDOW_SECONDS = 30.0


class Measurement(Struct, frozen=True, kw_only=True):
    """A rate, and its standard error by the spread of the windows that it is the mean of."""

    rows_per_second: float
    error: float
    windows: int

    @property
    def relative_error(self) -> float:
        return self.error / self.rows_per_second if self.rows_per_second > 0 else math.inf


class Windows:
    """Rates one after the other, with the same number of places at work."""

    def __init__(self) -> None:
        self._rates: deque[float] = deque(maxlen=MOST_WINDOWS)
        self._began: tuple[float, int, int] | None = None

    def restart(self) -> None:
        self._rates.clear()
        self._began = None

    def interrupt(self) -> None:
        """Drop the window that is open; those before it count."""
        self._began = None

    def look(self, count: RowCount, at_work: int, now: float) -> bool:
        """Close the window if it says enough; return whether it did."""
        if self._began is None:
            self._began = (now, count.rows, count.reports)
            return False
        began, rows, reports = self._began
        seconds = now - began
        enough = count.reports - reports >= REPORTS_A_PLACE * at_work
        if seconds < WINDOW_SECONDS or not (enough or seconds >= _LONGEST_WINDOW_SECONDS):
            return False
        self._rates.append((count.rows - rows) / seconds)
        self._began = (now, count.rows, count.reports)
        return True

    def measured(self) -> Measurement | None:
        """Return the mean and its error; None before there are two windows."""
        number = len(self._rates)
        if number < 2:
            return None
        mean = sum(self._rates) / number
        variance = sum((rate - mean) ** 2 for rate in self._rates) / (number - 1)
        # The spread of a few windows is often too small by chance, about as Student's t has it.
        error = math.sqrt(variance / number) * (number + 1) / (number - 1)
        return Measurement(rows_per_second=mean, error=error, windows=number)


TOLERANCE = 0.02
"""Of the rate. A user who shares the database gladly trades this small loss for fewer places."""

FEW = 2
"""The first number of places, if the user sets none."""

HOLD_SECONDS, LONGEST_HOLD_SECONDS = 60.0, 960.0
"""Between two searches in which nothing changed. A search costs a few seconds at a slower number:
at most one in twenty at first, and less than one in a hundred soon after."""

CHANGED = 0.15
"""Part of the rate by which it changes itself before that is a reason to search again."""

_FEWEST_WINDOWS = 3
_CLEAR = 0.10
"""A difference so far beyond its error needs no third window."""
_ERRORS = 2.0
_BASE_ERROR, _FIRST_ERROR = 0.03, 0.15
"""The rate that others are compared with is known as well as this, or has had time to be. The first
steps double the number: differences are larger, and time with too few places costs most."""
_HOPELESS = 0.10
"""A number that was this much worse is not tried again until the rate itself has changed."""
_SHORTEST_HOLD_SECONDS = 15.0

Verdict = Literal["better", "worse", "same"]


Move: TypeAlias = tuple[Literal["trial", "faster", "not faster"], str]
"""The cause of another number of places, and its reason in words."""


def compare(base: Measurement, other: Measurement) -> Verdict | None:
    """Return how another rate compares with a first one; None while that is not known."""
    if base.rows_per_second <= 0:
        return "better" if other.rows_per_second > 0 else "same"
    gain = other.rows_per_second / base.rows_per_second - 1
    error = math.hypot(base.error, other.error) / base.rows_per_second
    verdict: Verdict = "same"
    if abs(gain) > TOLERANCE:
        verdict = "better" if gain > 0 else "worse"
    if other.windows < _FEWEST_WINDOWS:
        return verdict if abs(gain) > _CLEAR + _ERRORS * error else None
    if abs(gain) > TOLERANCE and abs(gain) > _ERRORS * error:
        return verdict
    if abs(gain) + _ERRORS * error < 2 * TOLERANCE:
        return "same"
    return None if other.windows < MOST_WINDOWS else verdict


class Climber(Struct):
    """The search for the number of places with which rows come fastest.

    It assumes a curve that rises to a top and may fall after it, as queues have it. Numbers are
    compared as they follow each other in time: a load that comes and goes slowly decides nothing.

    1. From few places the number is doubled as long as that gains.
    2. Then the step is halved and tried upwards and downwards from the best number. Numbers beyond
       one without gain are not tried, nor numbers that could not keep up in proportion to a smaller
       one. Where nothing is known beyond a number that was better, the step is doubled again.
    3. The best number stays. It is tried again after a while, which doubles each time nothing was
       gained, and immediately if the rate has changed without it.

    A number of more places is better if its rate is higher by more than `TOLERANCE`, a number of
    fewer if it is not lower by more: a session that gains nothing is one too many. Two rates differ
    by twice the error of their difference, or as they are after `MOST_WINDOWS` windows.
    """

    most: int
    level: int = 0
    """How many places ought to work; 0 until the first call."""
    base: int = 0
    """The best number so far."""
    _found: Measurement | None = None
    """The measurement at this number; None if it is not certain enough."""
    _step: int = 0
    _doubling: bool = True
    _seen: dict[int, Measurement] = field(default_factory=dict)
    """All measurements of this search."""
    _hopeless: set[int] = field(default_factory=set)
    """Numbers that were much worse at the current rate."""
    _unreached: set[int] = field(default_factory=set)
    """Numbers that never were at work in this search."""
    _settled: float | None = None
    """When the search ended; None during the search."""
    _hold: float = HOLD_SECONDS
    _moved: bool = False
    """This search has found another number."""

    def __post_init__(self) -> None:
        self.level = self.base = min(self.level or FEW, self.most)
        self._step = self.base

    @property
    def settled(self) -> bool:
        return self._settled is not None

    def begin_at(self, level: int) -> None:
        """Continue from another number, set by the user."""
        self.level = self.base = max(1, min(level, self.most))
        self._search_again()

    def give_up_trial(self, *, is_out_of_reach: bool = False) -> None:
        """Go back to the best number: the one that was tried cannot be measured."""
        if is_out_of_reach:
            self._unreached.add(self.level)
        self.level = self.base

    def consider(self, here: Measurement, most: int, now: float) -> Move | None:
        """Take the measurement at `level`, below a limit of `most`; return the move, if any."""
        if self.level != self.base:
            return self._judged(here)
        if self._settled is not None:
            if not self._is_to_search(here, now):
                return None
            self._search_again()
        if self._found is None:
            if not self._is_known(here):
                return None
            self._found = self._seen[self.level] = here
        return self._try_next(most, now)

    def _judged(self, here: Measurement) -> Move | None:
        found = self._found
        assert found is not None
        if self.level < self.base:
            # Several steps down may not lose more together than one may.
            found = max(self._seen.values(), key=lambda each: each.rows_per_second)
        verdict = compare(found, here)
        if verdict is None:
            return None
        tried, before = self.level, self.base
        self._seen[tried] = here
        gain = here.rows_per_second / max(found.rows_per_second, 1e-9) - 1
        told = (
            f"{counted(tried, 'worker')}: {here.rows_per_second:,.0f} rows/s, {gain:+.1%} "
            f"against {before}"
        )
        upwards = tried > before
        if verdict == "better" or (not upwards and verdict == "same"):
            self.base, self._moved = tried, True
            self._found = here if self._is_known(here) else None
            self._hopeless.clear()
            beyond = any((each > tried) == upwards for each in self._seen if each != tried)
            if self._doubling:
                self._step = tried
            elif not beyond:
                self._step *= 2
            return "faster", told if upwards else f"{told}, so fewer workers are enough"
        if gain < -_HOPELESS and gain < -_ERRORS * here.relative_error:
            self._hopeless.add(tried)
        self._doubling = False
        self.level = before
        return "not faster", f"{told}, so the run returns to {before}"

    def _is_known(self, here: Measurement) -> bool:
        if here.windows < _FEWEST_WINDOWS:
            return False
        enough = _FIRST_ERROR if self._doubling else _BASE_ERROR
        return here.relative_error <= enough or here.windows >= MOST_WINDOWS

    def _try_next(self, most: int, now: float) -> Move | None:
        while self._step >= 1:
            for level in (min(self.base + self._step, most), self.base - self._step):
                if self._may_gain(level):
                    self.level = level
                    return "trial", f"to measure the speed of {counted(level, 'worker')}"
            self._step //= 2
            self._doubling = False
        self._settled = now
        longer = min(2 * self._hold, LONGEST_HOLD_SECONDS)
        self._hold = HOLD_SECONDS if self._moved else longer
        return None

    def _may_gain(self, level: int) -> bool:
        known = self._seen.keys() | self._hopeless
        if level < 1 or level == self.base or level in known | self._unreached:
            return False
        assert self._found is not None
        wanted = self._found.rows_per_second * (1 - TOLERANCE)
        for number, seen in self._seen.items():
            # Also in proportion it would not keep up.
            if number < level and seen.rows_per_second * level / number < wanted:
                return False
        # Numbers beyond a number without gain bring no gain, either.
        if level > self.base:
            return all(level < each for each in known if each > self.base)
        return all(level > each for each in known if each < self.base)

    def _is_to_search(self, here: Measurement, now: float) -> bool:
        assert self._settled is not None
        assert self._found is not None
        held = now - self._settled
        before = self._found.rows_per_second
        change = abs(here.rows_per_second / max(before, 1e-9) - 1)
        known = here.windows >= _FEWEST_WINDOWS and here.relative_error * _ERRORS < change
        if change > CHANGED and known and held >= _SHORTEST_HOLD_SECONDS:
            self._hopeless.clear()
            self._hold = HOLD_SECONDS
            return True
        return held >= self._hold

    def _search_again(self) -> None:
        self._settled = self._found = None
        self._seen.clear()
        self._unreached.clear()
        self._step, self._doubling, self._moved = 1, False, False


_CUT_EVERY_SECONDS = 4.0
"""What a cut does is seen after that: attempts are held up within two seconds of it."""

_RAISE_SECONDS, _LONGEST_RAISE_SECONDS = 5.0, 300.0
"""Before one more place is allowed. Doubled each time that one had to be taken back."""


class Held(Struct, frozen=True, kw_only=True):
    places: int
    reason: str


class CpuLimit(Struct):
    """Allows as many places as keep the CPUs of the host below a share.

    How much one place takes is measured; of the processes of a database on the same host it is not
    known, so a cut that was not enough is followed by another one.
    """

    share: float
    most: int
    held: Held | None = None
    _busy: deque[float] = field(default_factory=lambda: deque(maxlen=3))
    _changed: float = -math.inf
    _wait: float = _RAISE_SECONDS
    _raised: float | None = None
    """When a place was allowed again, until it has proved to be no mistake."""

    def take(self, busy: float, own: float, at_work: int, now: float) -> None:
        """Take a measurement of about a second, in which `at_work` places were at work.

        Both shares are from 0 to 1: of busy CPUs, and of CPUs that the run's processes used.
        """
        self._busy.append(busy)
        if len(self._busy) < (self._busy.maxlen or 0):
            return
        mean = sum(self._busy) / len(self._busy)
        allowed = self.held.places if self.held else self.most
        one = max(own / max(at_work, 1), 0.01)
        if mean > self.share and now - self._changed >= _CUT_EVERY_SECONDS:
            fewer = max(1, math.ceil((mean - self.share) / one))
            places = max(1, min(allowed, at_work) - fewer)
            if places < allowed:
                if self._raised is not None and now - self._raised < 2 * _RAISE_SECONDS:
                    self._wait = min(2 * self._wait, _LONGEST_RAISE_SECONDS)
                self._set(places, mean, now)
                self._raised = None
        elif self.held and now - self._changed >= self._wait and mean + 1.1 * one < self.share:
            self._set(allowed + 1, mean, now)
            self._raised = now

    def _set(self, places: int, busy: float, now: float) -> None:
        self._changed = now
        self._busy.clear()
        if places >= self.most:
            self.held, self._wait = None, _RAISE_SECONDS
            return
        text = f"the CPUs of this host are {busy:.0%} busy (--max-cpu {self.share:.0%})"
        self.held = Held(places=places, reason=text)


class LoadLimit(Struct):
    """Allows as many places as the active sessions of others leave room for in the database."""

    sessions: int
    most: int
    held: Held | None = None
    _others: deque[int] = field(default_factory=lambda: deque(maxlen=5))
    _is_blind: bool = False
    """The limit was last set without a count."""

    def take(self, others: int) -> None:
        """Take a count of the active sessions that are not the run's, about one a second.

        Fewer places follow the mean of the last three counts, more the highest of the last five:
        short statements come and go.
        """
        self._others.append(others)
        last = list(self._others)[-3:]
        if len(last) < 3:
            return
        now = self.held.places if self.held else self.most
        low = self._room(round(sum(last) / len(last)))
        high = self._room(max(self._others))
        if low < now or (high > now and len(self._others) == self._others.maxlen):
            self._set(low if low < now else high, last[-1])
        elif self._is_blind:
            self._set(now, last[-1])

    def unknown(self) -> None:
        """Note that the count cannot be had any more: as little as possible is done until then."""
        self._others.clear()
        self._is_blind = True
        text = f"the active sessions cannot be counted (--max-db-load {self.sessions})"
        self.held = Held(places=1, reason=text)

    def _room(self, others: int) -> int:
        return max(1, min(self.most, self.sessions - others))

    def _set(self, places: int, others: int) -> None:
        self._is_blind = False
        if places >= self.most:
            self.held = None
            return
        text = f"other programs have {others} active sessions (--max-db-load {self.sessions})"
        self.held = Held(places=places, reason=text)


def is_between(minute: int, begin: int, end: int) -> bool:
    """Return whether a minute of the day is in a part of it, which may go over midnight."""
    if begin < end:
        return begin <= minute < end
    return minute >= begin or minute < end


GRACE_SECONDS = 2.0
"""Units that end within this time make room without a pause."""

_QUIET_SECONDS = 1.0
"""After a change, until the rate belongs to the new number: buffers fill."""

_PATIENCE_SECONDS = 30.0
"""For the first rows of each place after a change, whose session must open and whose query begin;
and for as many places to be at work as are tried."""


class Concurrency(Struct, kw_only=True):
    most: int
    """Places that have a seat."""
    wanted: int | None
    """How many are to work; None finds the best number."""
    began: float
    """By the clock of the calls: when the first unit was handed out."""
    first: int = FEW
    """How many work at first where the best number is to be found."""
    count: RowCount = field(default_factory=RowCount)
    steps: list[ParallelismChanged] = field(default_factory=list)
    """Those not told yet; the caller takes them away."""
    limit: Held | None = None
    """The lowest limit, where it is below what would work without."""
    _climber: Climber | None = None
    _windows: Windows = field(default_factory=Windows)
    _measured_at: int = 0
    """Places that the windows are of."""
    _quiet_until: float = 0.0
    _short_since: float | None = None
    """Since when fewer are at work than are tried."""
    places: int = 0
    """How many are to work now."""
    _told_limit: Held | None = None
    _too_many_since: float | None = None

    def __post_init__(self) -> None:
        if self.wanted is None:
            self._climber = Climber(self.most, self.first)
        text = "the run begins with this number"
        if self._climber is not None:
            text += f", to find the best number up to {self.most}"
        self._step(self._asked, "start", text, self.began)

    @property
    def is_adaptive(self) -> bool:
        return self._climber is not None

    def ask(self, wanted: int | None, now: float, by: str) -> None:
        """Take another number by hand; None is to find it."""
        before, self.wanted = self.places, wanted
        if wanted is None:
            if self._climber is None:
                self._climber = Climber(self.most)
                self._climber.begin_at(before)
            text = f"{by} asks for the best number; the search starts from here"
        else:
            self._climber = None
            text = f"{by} asks for {wanted}"
        self._step(min(self._asked, self._bound), "asked", text, now)

    def note_asked(self, text: str, now: float) -> None:
        """Put on record that limits were changed by hand; what follows of them comes later."""
        self._step(self.places, "asked", text, now)

    def decide(
        self, limits: Mapping[str, Held], at_work: int, sessions: int | None, now: float
    ) -> None:
        """Decide again, with `at_work` places at work; the source allows `sessions` places."""
        self.limit = min(limits.values(), key=lambda each: each.places, default=None)
        if self.limit is not None and self.limit.places >= self._asked:
            self.limit = None
        places = min(self._asked, self._bound)
        if places != self.places:
            before, self._told_limit = self._told_limit, self.limit
            why = f"no longer: {before.reason}" if before else "no limit applies any more"
            self._step(places, "limit", self.limit.reason if self.limit else why, now)
        if self._climber is not None:
            self._climb(self._climber, limits, at_work, sessions, now)

    @property
    def _asked(self) -> int:
        return self._climber.level if self._climber is not None else self.wanted or self.most

    @property
    def _bound(self) -> int:
        return self.most if self.limit is None else self.limit.places

    def pauses(self, running: Collection[int], held: set[int], now: float) -> dict[int, bool]:
        """Return which places are held up (True) or continue (False); `held` is updated."""
        working = sorted(set(running) - held)
        surplus = len(working) - self.places
        is_urgent = self.limit is not None or self._climber is None
        if surplus <= 0 or not is_urgent:
            self._too_many_since = None
        elif self._too_many_since is None:
            self._too_many_since = now
        if surplus < 0:
            back = sorted(held)[:-surplus]
            held.difference_update(back)
            return dict.fromkeys(back, False)
        if self._too_many_since is None or now - self._too_many_since < GRACE_SECONDS:
            return {}
        held.update(working[-surplus:])
        return dict.fromkeys(working[-surplus:], True)

    def _climb(
        self,
        climber: Climber,
        limits: Mapping[str, Held],
        at_work: int,
        sessions: int | None,
        now: float,
    ) -> None:
        allowed = min((each.places for each in limits.values()), default=self.most)
        if sessions is not None:
            allowed = min(allowed, max(sessions, 1))
        is_trial = climber.level > climber.base
        text = "a limit allows fewer workers than the trial had" if climber.level > allowed else ""
        if at_work < climber.level and is_trial and not text and self.limit is None:
            # There are too few places for it, or too few units.
            self._short_since = now if self._short_since is None else self._short_since
            if now - self._short_since >= _PATIENCE_SECONDS:
                self._short_since = None
                text = (
                    f"{counted(climber.level, 'worker was', 'workers were')} not at work for "
                    f"{_PATIENCE_SECONDS:g} s"
                )
        if is_trial and text:
            climber.give_up_trial(is_out_of_reach=climber.level <= allowed)
            places = min(climber.level, self._bound)
            if places != self.places:
                self._step(places, "not faster", text, now)
        if self.limit is not None:
            # Some places may still work; rows that arrive meanwhile do not measure the new number.
            self._windows.interrupt()
            self._measured_at = 0
            return
        if at_work != climber.level:
            # While a unit ends, a session opens, or nothing is left to be done.
            self._windows.interrupt()
            return
        self._short_since = None
        if self._measured_at != climber.level:
            self._measured_at = climber.level
            self._windows.restart()
            self._quiet_until = now + _QUIET_SECONDS
            self.count.heard.clear()
        # New rows come from exactly the working places, or some are not heard of for long.
        patience = 0.0 if len(self.count.heard) >= at_work else _PATIENCE_SECONDS
        if now < self._quiet_until + patience:
            return
        if not self._windows.look(self.count, at_work, now):
            return
        here = self._windows.measured()
        move = None if here is None else climber.consider(here, allowed, now)
        if move is not None and here is not None:
            cause, reason = move
            places = min(climber.level, self._bound)
            self._step(places, cause, reason, now, here.rows_per_second)

    def _step(
        self, places: int, cause: Cause, reason: str, now: float, rate: float | None = None
    ) -> None:
        if rate is None:
            here = self._windows.measured()
            rate = 0.0 if here is None else here.rows_per_second
        self.places = places
        self.steps.append(
            ParallelismChanged(
                seconds=round(max(0.0, now - self.began), 1),
                workers=places,
                of=self.most,
                rows_per_second=round(rate, 1),
                cause=cause,
                reason=reason,
            )
        )
