"""The answer of a sweep as tables: its levels, its knee, what to use, and what is predicted."""

from __future__ import annotations

from collections.abc import Iterator

from unloader.cli.display import render
from unloader.nouns import counted
from unloader.tuning.model import CONFIDENCE, Analysis, Choice, Curve, Knee, Prediction
from unloader.tuning.points import Level, Work
from unloader.tuning.validity import NO_CPU

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
    parts = [render.table(_HEADS, _levels(found)), render.facts(_facts(found))]
    if found.predictions:
        heads = (">workers", ">predicted s", ">low", ">high", "remarks")
        parts.append(render.table(heads, map(_prediction, found.predictions)))
    return "\n\n".join(parts)


def _levels(found: Analysis) -> Iterator[tuple[str, ...]]:
    outliers = {each.parallelism: each.reason for each in found.outliers}
    # What one worker would bring, as the smallest level that is in order has it.
    first = next(level for level in found.levels if level.parallelism not in outliers)
    unmeasured = all(level.load.cpu is None for level in found.levels)
    for level, verdict in zip(found.levels, found.verdicts, strict=True):
        remarks = [each for each in verdict.reasons if not (unmeasured and each == NO_CPU)]
        if level.parallelism in outliers:
            remarks.insert(0, f"OUTLIER: {outliers[level.parallelism]}")
        if not verdict.valid:
            remarks.insert(0, "NOT VALID")
        linear = first.seconds * first.parallelism / (level.seconds * level.parallelism)
        yield (
            f"{level.parallelism:,}",
            f"{level.seconds:,.6g}",
            str(level.repeats),
            _speed(level, found.work),
            f"{linear:.0%}",
            render.UNKNOWN if level.load.cpu is None else f"{level.load.cpu:.0%}",
            {True: "yes", False: "no", None: render.UNKNOWN}[verdict.sustained],
            "; ".join(remarks),
        )


def _speed(level: Level, work: Work) -> str:
    rate = work.of / level.seconds
    if work.unit == "bytes":
        return render.megabytes_per_second(rate)
    return render.rows_per_second(rate) if work.unit == "rows" else f"{rate * 3600:.4g} per hour"


def _facts(found: Analysis) -> Iterator[tuple[str, str]]:
    yield "knee", _knee(found.knee)
    yield "outliers", ", ".join(str(each.parallelism) for each in found.outliers) or "none"
    yield "recommended", _choice(found.recommended, "no level is valid")
    for doubt in found.doubts:
        yield "DOUBTFUL", doubt
    yield "sustained", _choice(found.sustained, "no level was measured below the CPU limit")
    yield "production", _choice(found.production, "no level is below the CPU limit")
    yield "limit below knee", found.below_knee.text
    if found.above_knee is not None:
        yield "limit above knee", found.above_knee.text
    yield "model", _model(found)
    others = (each for each in found.curves if each != found.chosen)
    yield "other models", "; ".join(map(_curve, others)) or "none: too few levels"
    spread = (
        "from the repeats" if found.spread.measured else "assumed, because no level was repeated"
    )
    yield "spread", f"{found.spread.share:.1%}, {spread}"
    if found.extrapolation is not None:
        yield "trial", _trial(found)


def _knee(knee: Knee) -> str:
    if knee.parallelism is None:
        return knee.note
    high = "no upper bound" if knee.high is None else f"{knee.high:.3g}"
    how = {
        "law": "from the curve of the model",
        "levels": "from the levels, because no model fits them",
    }[knee.method]
    interval = f"{CONFIDENCE:.0%} interval {knee.low:.3g} to {high}"
    return f"{knee.parallelism:.3g} workers ({interval}), {how}"


def _choice(choice: Choice | None, otherwise: str) -> str:
    if choice is None:
        return otherwise
    return f"{counted(choice.parallelism, 'worker')}, {choice.seconds:,.4g} s ({choice.text})"


def _model(found: Analysis) -> str:
    if found.chosen is None:
        return "none: too few levels"
    holds = "" if found.described else "; DOES NOT FIT the levels"
    return _curve(found.chosen) + holds


def _curve(curve: Curve) -> str:
    figures = "".join(f", {name} {value:.3g}" for name, value in curve.parameters.items())
    return f"{curve.law}{figures} (the levels differ from it by {curve.deviation:.1%})"


def _prediction(each: Prediction) -> tuple[str, ...]:
    def cell(value: float | None) -> str:
        return render.UNKNOWN if value is None else f"{value:,.4g}"

    remark = f"cannot be predicted: {each.reason}" if each.reason else ""
    return (
        f"{each.parallelism:,}",
        cell(each.seconds),
        cell(None if each.reason else each.low),
        cell(None if each.reason else each.high),
        remark,
    )


def _trial(found: Analysis) -> str:
    trial = found.extrapolation
    assert trial is not None
    each = trial.prediction
    what = f"{counted(each.parallelism, 'worker')}, predicted from the levels up to {trial.up_to}"
    measured = f"measured {trial.measured_seconds:,.4g} s"
    if each.seconds is None:
        return f"{what}: not possible ({each.reason}); {measured}"
    verdict = "in the interval" if trial.inside else "NOT in the interval"
    return f"{what}: {each.low:,.4g} to {each.high:,.4g} s; {measured}, {verdict}"
