"""Names what limits a sweep on each side of its knee, where the figures of the load show it."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from unloader.tuning.points import LOADS, Load

USED_UP = 0.9
"""From which share of its time on a resource counts as used up."""

WAITED = 0.5
"""From which share of the workers' time on a wait is the limit."""

LITTLE = 0.25
"""Below it a wait shows that something else limits, however busy the resource is."""

WORKING_DATABASE = 0.25
"""A database on the same machine that uses more of the CPUs may be waiting for them, which our
workers see as waiting for rows."""


class Limit(Struct, frozen=True, kw_only=True):
    """What limits the speed at some levels."""

    resources: tuple[str, ...]
    """The used-up ones of disk, source, network, cpu and node. Empty without any, or if none was
    measured."""
    text: str


class Limits(Struct, frozen=True, kw_only=True):
    """What limits the speed on each side of the knee."""

    below_knee: Limit
    above_knee: Limit | None
    """None where no level is there."""


def limits_of(below: Sequence[Load], above: Sequence[Load]) -> Limits:
    """Return what limits the speed up to the knee, and beyond it.

    Args:
        below: The loads of the levels up to the knee.
        above: The loads of the levels beyond it.
    """
    return Limits(
        below_knee=_limit(below, above=False),
        above_knee=_limit(above, above=True) if above else None,
    )


def median_of(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _limit(loads: Sequence[Load], *, above: bool) -> Limit:
    """Return what limits the speed at the levels on one side of the knee, from their loads.

    What workers wait for is the evidence. That something is busy is evidence only where the waits
    are not known, or do not contradict it: a disk may be busy without a worker that waits for
    it, and the CPUs with other programs.
    """
    medians = {name: median_of(getattr(load, name) for load in loads) for name in LOADS}
    known = {
        name: share for name, share in medians.items() if share is not None and name != "queued"
    }
    used = _used_up(known)
    if used:
        return Limit(resources=tuple(used), text="; ".join(used.values()))
    if not known:
        return Limit(resources=(), text="unknown: no load was measured at these levels")
    figures = ", ".join(f"{name} {share:.0%}" for name, share in known.items())
    if above:
        text = (
            f"no measured resource is used up ({figures}), so something that was not measured is "
            "the limit"
        )
    else:
        text = f"the speed of one worker: no measured resource is used up ({figures})"
    return Limit(resources=(), text=text)


def _used_up(known: Mapping[str, float]) -> dict[str, str]:
    """Return the resources that are used up, each with that in words."""
    waits_elsewhere = _waits_elsewhere(known)
    waited, busy = known.get("output"), known.get("disk")
    found = {}
    if waited is not None and waited >= WAITED:
        found["disk"] = f"the disk ({_waited(waited)}{_busy(busy)})"
    elif busy is not None and busy >= USED_UP and (waited is None or waited >= LITTLE):
        found["disk"] = f"the disk ({busy:.0%} busy)"
    if known.get("source", 0.0) >= WAITED:
        found["source"] = f"the source ({_waited(known['source'])})"
    if known.get("network", 0.0) >= USED_UP:
        found["network"] = f"the network ({known['network']:.0%} of the link)"
    if not waits_elsewhere and (text := _cpu(known)):
        found["cpu"] = text
    elif not waits_elsewhere and known.get("node", 0.0) >= USED_UP:
        # If all CPUs are busy, the busiest node is busy, too.
        found["node"] = f"the CPUs of one NUMA node ({known['node']:.0%} busy)"
    return found


def _cpu(known: Mapping[str, float]) -> str:
    delay, busy = known.get("delay"), known.get("cpu")
    throttled = known.get("throttled", 0.0)
    if throttled >= WAITED and (delay is None or delay >= LITTLE):
        used = f"the quota of the control group was used up in {throttled:.0%} of its periods"
        return f"the CPUs ({used}{_busy(busy)})"
    if busy is not None and busy >= USED_UP:
        return f"the CPUs ({busy:.0%} busy)"
    if delay is not None and delay >= WAITED:
        return f"the CPUs (workers were ready but waited for a CPU for {delay:.0%} of their time)"
    return ""


def _waits_elsewhere(known: Mapping[str, float]) -> bool:
    """Return whether workers are known to wait for something else, and not for a CPU."""
    delay = known.get("delay")
    if delay is None or delay >= LITTLE:
        return False
    database_works = known.get("database", 0.0) >= WORKING_DATABASE
    for_source = known.get("source", 0.0) >= WAITED and not database_works
    return for_source or known.get("output", 0.0) >= WAITED


def _waited(share: float) -> str:
    return f"workers waited for it {share:.0%} of their time"


def _busy(share: float | None) -> str:
    return "" if share is None else f"; {share:.0%} busy"
