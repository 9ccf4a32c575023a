"""Names what limits a sweep on each side of its knee, where the figures of the load tell it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from unloader.tuning.model import Limit
from unloader.tuning.points import Level

USED_UP = {"cpu": 0.9, "node": 0.9, "disk": 0.9, "network": 0.9, "source": 0.5}
"""From which share on a resource counts as used up. Workers that wait for rows half of their time
wait for the source."""

_NAMES = {
    "cpu": "the CPUs",
    "node": "the CPUs of one NUMA node",
    "disk": "the disk",
    "network": "the network",
    "source": "the source",
}


def limit_of(levels: Sequence[Level], *, above: bool) -> Limit:
    """Return what limits the speed at some levels, which lie on one side of the knee."""
    known = {
        name: statistics.median(values)
        for name in USED_UP
        if (values := [v for level in levels if (v := getattr(level.load, name)) is not None])
    }
    used = tuple(name for name, share in known.items() if share >= USED_UP[name])
    if "cpu" in used:
        # Where all CPUs are busy, those of the busiest node are, too.
        used = tuple(name for name in used if name != "node")
    if used:
        shares = ", ".join(f"{_NAMES[name]} ({known[name]:.0%})" for name in used)
        return Limit(resources=used, text=shares)
    if not known:
        return Limit(resources=(), text="unknown: no load was measured at these levels")
    figures = ", ".join(f"{name} {share:.0%}" for name, share in known.items())
    if above:
        text = f"nothing that was measured is used up ({figures}): what was not measured limits"
    else:
        text = f"the speed of one worker: nothing that was measured is used up ({figures})"
    return Limit(resources=(), text=text)
