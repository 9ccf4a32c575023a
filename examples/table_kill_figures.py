"""What `random_table_kills.py` chooses for a run, and what it counts."""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What is chosen for one run."""

    publish: str
    routes: bool
    overwrite: bool


@dataclass
class Figures:
    """What is counted."""

    kills: Counter[str] = field(default_factory=Counter)
    """By who was killed, how, and in what kind of run."""
    rounds: int = 0
    starts: int = 0
    """Of `unloader run`, the first of each round left out: nothing was on record yet."""
    resumes: int = 0
    resumed_after_partial: int = 0
    """Resumes that ended with status 7, resumable, as all attempts at a unit were killed."""
    not_reached: int = 0
    """Processes that came to their end before the moment or the call."""
    tables_published_at_kills: int = 0
    """Tables that were found published after kills, and read."""
    kills_between_tables: int = 0
    """After which some tables were published, and others were not."""
    finished_units_kept: int = 0
    rows_compared: int = 0

    @property
    def killed(self) -> int:
        """How many kills there were."""
        return sum(count for name, count in self.kills.items() if name.startswith("who: "))


def reported(
    figures: Figures, options: argparse.Namespace, broken: str, transfers: int, seconds: float
) -> dict[str, Any]:
    """Return the figures as one JSON object."""
    return {
        "broken": broken,
        "source": options.source,
        "tables": options.tables,
        "seed": options.seed,
        "kills": figures.killed,
        "kills_by": dict(sorted(figures.kills.items())),
        "not_reached": figures.not_reached,
        "runs": figures.rounds,
        "starts_again": figures.starts,
        "resumes": figures.resumes,
        "resumes_after_partial": figures.resumed_after_partial,
        "tables_published_at_kills": figures.tables_published_at_kills,
        "kills_between_tables": figures.kills_between_tables,
        "finished_units_kept": figures.finished_units_kept,
        "rows_compared": figures.rows_compared,
        "transfers": transfers,
        "seconds": round(seconds, 1),
    }
