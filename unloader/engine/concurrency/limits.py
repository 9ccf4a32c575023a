"""The limits on the number of places at work that are looked at again and again.

Pure: what was measured goes in with the time. Each limit tells how many places it allows, and why.
One place goes on under any limit, so that a run comes to its end and its snapshot does not grow old
for nothing; to end it there is `unloader stop`.
"""

from __future__ import annotations

import math
from collections import deque

from msgspec import Struct, field

_CUT_EVERY_SECONDS = 4.0
"""What a cut does is seen after that: attempts are held up within two seconds of it."""

_RAISE_SECONDS, _LONGEST_RAISE_SECONDS = 5.0, 300.0
"""Before one more place is allowed. Doubled each time that one had to be taken back."""


class Held(Struct, frozen=True, kw_only=True):
    """What a limit allows."""

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
        """Take a measurement of about a second.

        Args:
            busy: Share of the CPUs that were busy, 0 to 1.
            own: The same for the run's own processes.
            at_work: Places at work.
            now: As everywhere.
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
    """There was no count when the limit was last set."""

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
    """Return whether a minute of the day is in a part of it, which may go over midnight.

    Args:
        minute: From midnight.
        begin: The first minute of the part.
        end: The first one after it; not the same.
    """
    if begin < end:
        return begin <= minute < end
    return minute >= begin or minute < end
