"""Rows a second with a given number of places at work, and how far to believe it.

Pure: the time goes in. Rows are counted as attempts report them, not as units end: units may differ
in size by any factor, and what counts is how fast rows come, whichever unit they are of.
"""

from __future__ import annotations

import math
from collections import deque

from msgspec import Struct, field

WINDOW_SECONDS = 0.5
"""Shortest time over which a rate is taken. Workers report several times a second."""

REPORTS_A_PLACE = 2
"""Each place has come with rows so often in a window, on average: where a batch takes seconds, a
window with one and a window without say nothing."""

MOST_WINDOWS = 30
"""As many are kept; older ones were of another table, or of another load."""

_LONGEST_WINDOW_SECONDS = 30.0


class RowCount(Struct):
    """Rows that have come so far, failed attempts included: they were work as well."""

    rows: int = 0
    reports: int = 0
    """How often some came."""
    heard: set[int] = field(default_factory=set)
    """Places from which some came since somebody emptied it."""
    _by_place: dict[int, int] = field(default_factory=dict)
    """Rows of the attempt at a place."""

    def started(self, place: int) -> None:
        """Note a new attempt."""
        self._by_place[place] = 0

    def reached(self, place: int, rows: int) -> None:
        """Note how many rows the attempt at a place has now."""
        # A unit that is read anew reports rows once more; they count when they are new.
        new = rows - self._by_place.get(place, 0)
        if new > 0:
            self.rows += new
            self.reports += 1
            self.heard.add(place)
            self._by_place[place] = rows

    def ended(self, place: int) -> None:
        """Note the end of an attempt."""
        self._by_place.pop(place, None)


class Measurement(Struct, frozen=True, kw_only=True):
    """A rate, and its standard error by the spread of the windows that it is the mean of."""

    rows_per_second: float
    error: float
    windows: int

    @property
    def relative_error(self) -> float:
        """The error as a part of the rate."""
        return self.error / self.rows_per_second if self.rows_per_second > 0 else math.inf


class Windows:
    """Rates one after the other, with the same number of places at work."""

    def __init__(self) -> None:
        """Begin without any."""
        self._rates: deque[float] = deque(maxlen=MOST_WINDOWS)
        self._began: tuple[float, int, int] | None = None

    def restart(self) -> None:
        """Forget all: another number of places is at work."""
        self._rates.clear()
        self._began = None

    def interrupt(self) -> None:
        """Drop the window that is open; those before it count."""
        self._began = None

    def look(self, count: RowCount, at_work: int, now: float) -> bool:
        """Close the window if it says enough; return whether it did.

        Args:
            count: The rows so far.
            at_work: Places at work, the same since `restart`.
            now: As everywhere.
        """
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
