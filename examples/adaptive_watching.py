"""Workers and rows over time, by the events of one run; for `bench_adaptive.py`."""

from __future__ import annotations

import time
from typing import Any

from unloader.events import (
    Event,
    ParallelismChanged,
    RunStarted,
    UnitAdvanced,
    UnitFailed,
    UnitFinished,
    UnitStarted,
)


class Watched:
    """What one run did; called in its thread."""

    def __init__(self) -> None:
        """Begin now: start-up counts."""
        self.began = time.perf_counter()
        self.seconds = 0.0
        """Of the whole run, once it has ended."""
        self.steps: list[dict[str, Any]] = []
        self.rows = 0
        """Of finished units."""
        self.may_work = 0
        self.loads: list[tuple[float, int]] = []
        """Times at which a second load changed, with its number of programs; 0 when it ended."""
        self._running: dict[str, int] = {}
        self._held: set[str] = set()
        self._looks: list[tuple[float, int, int, int]] = []
        """Seconds, rows, workers that may work, workers at work."""

    def __call__(self, event: Event) -> None:
        """Take an event."""
        if isinstance(event, RunStarted):
            self.may_work = self.may_work or event.workers
        elif isinstance(event, UnitStarted):
            self._running[event.unit] = 0
        elif isinstance(event, UnitAdvanced):
            self._running[event.unit] = event.rows
            (self._held.add if event.waits_for == "limit" else self._held.discard)(event.unit)
        elif isinstance(event, UnitFinished | UnitFailed):
            self._running.pop(event.unit, None)
            self._held.discard(event.unit)
            self.rows += event.rows if isinstance(event, UnitFinished) else 0
        elif isinstance(event, ParallelismChanged):
            self.may_work = event.workers
            self.steps.append(
                {
                    "seconds": round(self.now(), 1),
                    "workers": event.workers,
                    "cause": event.cause,
                    "reason": event.reason,
                }
            )
        else:
            return
        rows = self.rows + sum(self._running.values())
        self._looks.append((self.now(), rows, self.may_work, self.at_work))

    @property
    def at_work(self) -> int:
        """Workers with a unit that are not held up."""
        return len(self._running) - len(self._held)

    def now(self) -> float:
        """Return the seconds since the beginning."""
        return time.perf_counter() - self.began

    def end(self) -> None:
        """Note that the run has ended."""
        self.seconds = self.now()

    def curve(self) -> list[dict[str, Any]]:
        """Return one entry for each second of the run; the numbers are those at its end."""
        found, before, place = [], 0, 0
        last = (0.0, 0, 0, 0)
        for second in range(1, int(self.seconds) + 2):
            while place < len(self._looks) and self._looks[place][0] <= second:
                last = self._looks[place]
                place += 1
            found.append(
                {
                    "second": second,
                    "may_work": last[2],
                    "at_work": last[3],
                    "rows_per_second": max(0, last[1] - before),
                    "load": next((size for at, size in self.loads[::-1] if at <= second), 0),
                }
            )
            before = last[1]
        return found

    def backed_off(self, since: float, until: float) -> float | None:
        """Return when fewer were allowed than before, and no more than those were at work."""
        before = self.allowed_at(since)
        for at, _, may_work, at_work in self._looks:
            if since <= at <= until and may_work < before and at_work <= may_work:
                return at
        return None

    def climbed_again(self, since: float, until: float) -> float | None:
        """Return when more were at work than were allowed before."""
        before = self.allowed_at(since)
        for at, _, _, at_work in self._looks:
            if since <= at <= until and at_work > before:
                return at
        return None

    def allowed_at(self, moment: float) -> int:
        """Return how many were allowed to work then."""
        return next((look[2] for look in self._looks[::-1] if look[0] <= moment), 0)
