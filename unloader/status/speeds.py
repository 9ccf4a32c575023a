"""How the speed of a run went on: a few dozen means over equal times, whatever the run's length."""

from __future__ import annotations

from itertools import pairwise

from msgspec import Struct, field

MOST = 60
"""As many as a line of a terminal can show beside their name."""


class Speeds(Struct):
    """Rows per second since a run began, one mean after the other."""

    _samples: list[tuple[float, int]] = field(default_factory=list)
    """Seconds of any clock that only goes forward, and the rows until then."""
    _step: float = 0.0
    """Seconds between two samples that are kept; 0 keeps all."""

    def add(self, now: float, rows: int) -> None:
        """Take how far the run is now."""
        if self._samples and now - self._samples[-1][0] < self._step:
            return
        self._samples.append((now, rows))
        if len(self._samples) > MOST + 1:
            # The first and the last one stay, as their number is even then.
            # A little less than twice the former step, as looks come at whole seconds.
            self._step = 1.9 * (now - self._samples[0][0]) / MOST
            self._samples = [*self._samples[:-1:2], self._samples[-1]]

    def values(self) -> tuple[float, ...]:
        """Return the means, the oldest first; a failed attempt takes rows back, which is 0."""
        return tuple(
            round(max(0.0, (now_rows - rows) / max(now - then, 1e-3)), 1)
            for (then, rows), (now, now_rows) in pairwise(self._samples)
        )
