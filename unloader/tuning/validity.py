"""Which levels count: the rules that published benchmarks hold their own results against.

A level where a stage waited more than a second for want of a consumer is not valid, as its speed
lasts only as long as the queue grows. A level with busier CPUs than the limit is valid, but cannot
be sustained beside other work. A discount is taken off the figure that is recommended for
production. All levels are kept, each with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from unloader.tuning.points import Level

NO_CPU = "CPU not measured"
"""The reason where it is not known whether a level can be sustained."""


class Rules(Struct, frozen=True, kw_only=True):
    """The rules, with the limits of the record as defaults."""

    spread: float = 0.03
    """Two levels that differ by less than this share are equally fast. Only where no level was
    repeated; else the repeats say it."""
    widest_spread: float = 0.1
    """A level is unsteady if the speeds of its repeats differ by more, as a share of the median."""
    queue_seconds: float = 1.0
    cpu_limit: float = 0.75
    discount: float = 0.2


class Verdict(Struct, frozen=True, kw_only=True):
    """What the rules say of a level."""

    parallelism: int
    valid: bool
    sustained: bool | None
    """Whether it is valid and its CPUs are below the limit; None where nobody measured that."""
    reasons: tuple[str, ...]
    """Why it is not valid, cannot be sustained, or is unknown to be."""


def verdict(level: Level, rules: Rules) -> Verdict:
    """Return what the rules say of a level; a figure that nobody measured breaks no rule."""
    reasons = []
    queued, cpu = level.load.queued, level.load.cpu
    valid = queued is None or queued <= rules.queue_seconds
    if not valid:
        reasons.append(
            f"a stage waited {queued:.3g} s for its consumer (limit {rules.queue_seconds:g} s)"
        )
    sustained: bool | None = valid
    if cpu is None:
        sustained = None if valid else False
        reasons.append(NO_CPU)
    elif cpu > rules.cpu_limit:
        sustained = False
        reasons.append(f"CPU {cpu:.0%}, above the limit of {rules.cpu_limit:.0%}")
    return Verdict(
        parallelism=level.parallelism, valid=valid, sustained=sustained, reasons=tuple(reasons)
    )


def smallest_of_the_fastest(levels: Iterable[Level], spread: float) -> Level | None:
    """Return the level with the fewest workers that none is faster than by more than the spread."""
    known = sorted(levels, key=lambda level: level.parallelism)
    fastest = min((level.seconds for level in known), default=0.0)
    return next((level for level in known if level.seconds <= fastest * (1 + spread)), None)


def sustained(levels: Sequence[Level], verdicts: Sequence[Verdict]) -> tuple[Level, ...]:
    """Return the levels that are known to be sustained."""
    return tuple(
        level for level, each in zip(levels, verdicts, strict=True) if each.sustained is True
    )
