"""The choices of `random_table_kills.py` for a run, and its counts."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

from kill_figures import KillFigures


@dataclass(frozen=True, kw_only=True)
class Kind:
    """The choices for one run."""

    publish: str
    routes: bool
    overwrite: bool


@dataclass
class Figures(KillFigures):
    """The counts of a series of kills."""

    not_reached: int = 0
    """Processes that came to their end before the moment or the call."""
    tables_published_at_kills: int = 0
    """Tables that were found published after kills, and read."""
    kills_between_tables: int = 0
    """After which some tables were published, and others were not."""
    rows_compared: int = 0


def reported(
    figures: Figures, options: argparse.Namespace, broken: str, transfers: int, seconds: float
) -> dict[str, Any]:
    """Return the figures as one JSON object."""
    return {
        "broken": broken,
        "source": options.source,
        "tables": options.tables,
        "seed": options.seed,
        **figures.told(),
        "not_reached": figures.not_reached,
        "tables_published_at_kills": figures.tables_published_at_kills,
        "kills_between_tables": figures.kills_between_tables,
        "rows_compared": figures.rows_compared,
        "transfers": transfers,
        "seconds": round(seconds, 1),
    }
