"""The search for the number of places with which rows come fastest, by measured rates.

Pure, and of no more than one number of places at a time. The time goes in. Rows are counted as
attempts report them, not as units end: units may differ in size by any factor.

The search assumes a curve that rises to a top and may fall after it, as queues have it. Numbers are
compared as they follow each other in time, so that a load which comes and goes slowly does not
decide.

    1. From few places the number is doubled as long as that gains.
    2. Then the step is halved and tried upwards and downwards from the best number, down to one
       place. Numbers beyond a number without gain are not tried. Numbers that could not keep up
       even if the rate grew in proportion from a smaller number are not tried, either. Where
       nothing is known beyond a number that was better the step is doubled again.
    3. The best number stays. It is tried again after a while, which doubles each time nothing
       was gained, and immediately if the rate has changed without it: by then another load has come
       or gone, or the rows are others.

A number of more places is better if its rate is higher by more than `TOLERANCE`, and a number of
fewer places if it is not lower by more than that: a session that gains nothing is one too many. Two
rates differ if they do so by twice the error of their difference. What that leaves undecided after
`MOST_WINDOWS` windows is decided by the rates as they are: near the top it makes little difference.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Literal, TypeAlias

from msgspec import Struct, field

from unloader.nouns import counted

WINDOW_SECONDS = 0.5
"""Shortest time over which a rate is taken. Workers report several times a second."""

REPORTS_A_PLACE = 2
"""Each place has reported rows this number of times in a window, on average. Where a batch takes
seconds, a window with one and a window without say nothing."""

MOST_WINDOWS = 30
"""As many are kept; older ones were of another table, or of another load."""

_LONGEST_WINDOW_SECONDS = 30.0


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
    """The number that is tried now, and the measurements of others."""

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
