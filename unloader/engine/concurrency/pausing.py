"""Which attempts are held up where fewer places are to work at once than are at work.

Pure. Usually a place that is too many ends its unit and gets no other. A unit may take an hour,
though, and a limit holds within seconds: then the fetch of the places with the highest numbers is
held up until there is room for them again. What is begun goes on before anything new begins.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct, field

GRACE_SECONDS = 2.0
"""Units that end within that time make room by themselves."""


class Orders(Struct, frozen=True, kw_only=True):
    """What is to be told to places."""

    pause: tuple[int, ...] = ()
    resume: tuple[int, ...] = ()


class Pauses(Struct):
    """The places whose attempts are held up."""

    held: set[int] = field(default_factory=set)
    _too_many_since: float | None = None

    def orders(self, running: Collection[int], allowed: int, now: float, *, urgent: bool) -> Orders:
        """Return which places are to be held up or let go on; they count as told.

        Args:
            running: Places with an attempt.
            allowed: How many may be at work.
            now: As everywhere.
            urgent: A limit says so, and not only the search for the best number.
        """
        self.held &= set(running)
        working = sorted(set(running) - self.held)
        surplus = len(working) - allowed
        if surplus <= 0:
            self._too_many_since = None
            back = tuple(sorted(self.held)[:-surplus]) if surplus else ()
            self.held -= set(back)
            return Orders(resume=back)
        if not urgent:
            self._too_many_since = None
            return Orders()
        if self._too_many_since is None:
            self._too_many_since = now
        if now - self._too_many_since < GRACE_SECONDS:
            return Orders()
        chosen = tuple(working[-surplus:])
        self.held.update(chosen)
        return Orders(pause=chosen)

    def ended(self, place: int) -> None:
        """Note that the attempt at a place is over, held up or not."""
        self.held.discard(place)
