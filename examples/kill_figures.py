"""What `random_kills.py` and `random_table_kills.py` both count."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass
class KillFigures:
    """Kills, and what came behind them."""

    kills: Counter[str] = field(default_factory=Counter)
    """By who was killed, and how, when, or in what kind of run."""
    rounds: int = 0
    starts: int = 0
    """Of `unloader run`, the first of each round left out: nothing was on record yet."""
    resumes: int = 0
    resumed_after_partial: int = 0
    """Resumes that ended with status 7, resumable, as all attempts at a unit were killed."""
    finished_units_kept: int = 0

    @property
    def killed(self) -> int:
        """How many kills there were."""
        return sum(count for name, count in self.kills.items() if name.startswith("who: "))

    def told(self) -> dict[str, Any]:
        """Return the figures as a report has them."""
        return {
            "kills": self.killed,
            "kills_by": dict(sorted(self.kills.items())),
            "runs": self.rounds,
            "starts_again": self.starts,
            "resumes": self.resumes,
            "resumes_after_partial": self.resumed_after_partial,
            "finished_units_kept": self.finished_units_kept,
        }
