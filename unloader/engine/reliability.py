"""Which places lose their processes whatever they work on, and so had better wait.

Pure. A unit that ends each process it meets is lost at different places, one attempt each; a place
that ends each process, such as one whose memory is bad, loses different units. Only the second kind
is seen here, and only while another place, which has finished units, is better.
"""

from __future__ import annotations

from msgspec import Struct, field

from unloader.engine.backoff import delay_seconds
from unloader.model import RetryOptions

_SUSPECT_LOSSES = 2
"""Different units that a place loses in a row until it is thought to be at fault itself."""

_MOST_FORGIVEN = 10
"""From so many on every loss counts again: a run must end, whatever is at fault."""


class Reliability(Struct):
    """What places have lost since they last finished a unit."""

    _lost: dict[int, dict[str, None]] = field(default_factory=dict)
    """By place: the different units, in the order of their loss."""
    _proven: set[int] = field(default_factory=set)
    """Places that have finished a unit."""
    _rests: dict[int, float] = field(default_factory=dict)
    """By place: when it may work again."""

    def may_work(self, place: int, now: float) -> bool:
        """Return whether a place may be given a unit."""
        return now >= self._rests.get(place, now)

    def worked(self, place: int) -> None:
        """Note that a place has finished a unit."""
        self._proven.add(place)
        self._lost.pop(place, None)
        self._rests.pop(place, None)

    def rest(self, place: int, until: float) -> None:
        """Let a place wait."""
        self._rests[place] = until

    def lost(self, place: int, unit: str, now: float, retry: RetryOptions) -> bool:
        """Note that a place has lost a unit with its process.

        Returns:
            Whether the place is thought to be at fault, and not the unit; then it waits.
        """
        units = self._lost.setdefault(place, {})
        units[unit] = None
        is_suspect = _SUSPECT_LOSSES <= len(units) <= _MOST_FORGIVEN
        better = (each for each in self._proven if each != place)
        if not is_suspect or all(self._is_suspect(each) for each in better):
            return False
        # A delay of 0 is for who wants no pause between attempts, not a loop of dying processes.
        patient = RetryOptions(
            delay_seconds=max(retry.delay_seconds, 1.0), delay_max_seconds=retry.delay_max_seconds
        )
        self.rest(place, now + delay_seconds(patient, len(units) - _SUSPECT_LOSSES + 1))
        return True

    def _is_suspect(self, place: int) -> bool:
        return len(self._lost.get(place, ())) >= _SUSPECT_LOSSES
