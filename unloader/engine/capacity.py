"""How many places may work at once when the source takes no more sessions.

Pure, as the schedule is: events and the time go in. Nothing is limited until the source refuses a
session. Then as many places go on as have one, and now and then one more is tried.
"""

from __future__ import annotations

from msgspec import Struct

RAISE_SECONDS = 60.0
"""Guess: what took the sessions away, another job for instance, may have ended by then."""

MOST_REFUSALS = 2
"""One more is tried no further once so many trials were refused."""

_SETTLE_SECONDS = 1.0
"""Several places are refused within a moment; what came of it is told once."""


class Capacity(Struct):
    """The number of places that may work at once."""

    limit: int | None = None
    """None is as many as there are."""
    lowest: int | None = None
    """The smallest limit there was; None if there never was one."""
    _raise_at: float | None = None
    _is_trial: bool = False
    """The limit was raised since the last refusal."""
    _refused_trials: int = 0
    _told: int | None = None
    _changed: float = 0.0

    def allows(self, busy: int, now: float) -> bool:
        """Return whether one more place may work beside so many; may raise the limit for it."""
        if not self.has_room(busy, now):
            return False
        if self.limit is None or busy < self.limit:
            return True
        self._set(self.limit + 1, now)
        self._is_trial, self._raise_at = True, now + RAISE_SECONDS
        return True

    def has_room(self, busy: int, now: float) -> bool:
        """Return what `allows` would, and change nothing."""
        if self.limit is None or busy < self.limit:
            return True
        return self._raise_at is not None and now >= self._raise_at and busy <= self.limit

    def refused(self, others: int, now: float) -> bool:
        """Note that the source refused a session, while so many others stand.

        Returns:
            Whether the run goes on with those; if there are none, it is a failure like others.
        """
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

    def news(self, now: float, *, at_once: bool = False) -> int | None:
        """Return the limit once after each change, when it has settled; None if there is no news.

        Args:
            now: As everywhere.
            at_once: Do not wait until it has settled.
        """
        if self._told == self.limit or not (at_once or now - self._changed >= _SETTLE_SECONDS):
            return None
        self._told = self.limit
        return self.limit

    @property
    def raises(self) -> bool:
        """Whether one more place will be tried."""
        return self._raise_at is not None

    def _set(self, limit: int, now: float) -> None:
        if limit != self.limit:
            self.limit, self._changed = limit, now
