"""The answer of a sweep as tables: its levels, its knee, and what to use."""

from __future__ import annotations

from collections.abc import Iterator

from unloader.cli.display import render
from unloader.nouns import counted
from unloader.tuning.analysis import CONFIDENCE, NO_CPU, Analysis, LevelChoice, MeasuredLevel, Work

_HEADS = (
    ">workers",
    ">seconds",
    ">repeats",
    ">speed",
    ">of linear",
    ">CPU",
    "sustained",
    "remarks",
)


def shown(found: Analysis) -> str:
    """Return the answer as text."""
    return "\n\n".join((render.table(_HEADS, _levels(found)), render.facts(_facts(found))))


def _levels(found: Analysis) -> Iterator[tuple[str, ...]]:
    outliers = {each.parallelism: each.reason for each in found.outlier_reasons}
    # What one worker would bring, as the smallest level that is in order has it.
    first = next(level for level in found.levels if not level.outlier)
    unmeasured = all(level.load.cpu is None for level in found.levels)
    for level in found.levels:
        hidden = (f"outlier: {outliers.get(level.parallelism)}", NO_CPU if unmeasured else "")
        remarks = [each for each in level.reasons if each not in hidden]
        if level.outlier:
            remarks.insert(0, f"OUTLIER: {outliers[level.parallelism]}")
        if not level.valid:
            remarks.insert(0, "NOT VALID")
        linear = first.seconds * first.parallelism / (level.seconds * level.parallelism)
        yield (
            f"{level.parallelism:,}",
            f"{level.seconds:,.6g}",
            str(level.repeats),
            _speed(level, found.work),
            f"{linear:.0%}",
            render.UNKNOWN if level.load.cpu is None else f"{level.load.cpu:.0%}",
            {True: "yes", False: "no", None: render.UNKNOWN}[level.sustained],
            "; ".join(remarks),
        )


def _speed(level: MeasuredLevel, work: Work) -> str:
    rate = level.work_per_second
    if work.unit == "bytes":
        return render.megabytes_per_second(rate)
    return render.rows_per_second(rate) if work.unit == "rows" else f"{rate * 3600:.4g} per hour"


def _facts(found: Analysis) -> Iterator[tuple[str, str]]:
    yield "knee", _knee(found)
    yield "outliers", ", ".join(map(str, found.outliers)) or "none"
    yield "recommended", _recommended(found)
    for doubt in found.doubts:
        yield "DOUBTFUL", doubt
    yield "sustained", _choice(found.sustained, "no level was measured below the CPU limit")
    yield "production", _choice(found.production, "no level is below the CPU limit")
    yield "limit below knee", found.limits.below_knee.text
    if found.limits.above_knee is not None:
        yield "limit above knee", found.limits.above_knee.text
    spread = (
        "from the repeats" if found.spread.measured else "assumed, because no level was repeated"
    )
    yield "spread", f"{_share(found)}, {spread}"


def _knee(found: Analysis) -> str:
    interval = found.knee_interval
    if found.knee is None:
        return interval.note
    high = "no upper bound" if interval.high is None else f"{interval.high:,}"
    return f"{counted(found.knee, 'worker')} ({CONFIDENCE:.0%} interval {interval.low:,} to {high})"


def _recommended(found: Analysis) -> str:
    level = found.level(found.recommended)
    if level is None:
        return "no level is valid"
    return (
        f"{counted(level.parallelism, 'worker')}, {level.seconds:,.4g} s (the fewest workers that "
        f"take at most {_share(found)} longer than the fastest level)"
    )


def _share(found: Analysis) -> str:
    return f"{found.spread.share:.1%}"


def _choice(choice: LevelChoice | None, otherwise: str) -> str:
    if choice is None:
        return otherwise
    return f"{counted(choice.parallelism, 'worker')}, {choice.seconds:,.4g} s ({choice.text})"
