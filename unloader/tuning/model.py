"""What an analysis of a sweep answers. The live sweep and the replay of a file answer the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, to_builtins

from unloader.tuning.points import Level, Work
from unloader.tuning.validity import Verdict

Seconds = float
Share = float

CONFIDENCE = 0.95
"""Of all intervals."""


class Outlier(Struct, frozen=True, kw_only=True):
    """A level that is left out of the fits."""

    parallelism: int
    reason: str


class Curve(Struct, frozen=True, kw_only=True):
    """A law of scaling, fitted to the levels."""

    law: str
    """linear, amdahl, usl or two-lines."""
    parameters: Mapping[str, float]
    one_worker_seconds: Seconds
    deviation: Share
    """By how much a level typically deviates from it."""


class Knee(Struct, frozen=True, kw_only=True):
    """Beyond it another worker brings less than half of what the first one brings."""

    parallelism: float | None
    """None where the levels do not reach it, or are too few."""
    low: float | None
    high: float | None
    """Its interval; None is no bound."""
    method: str
    """law: that of the fitted curve; levels: read off the levels, as no law describes them; none:
    there is no telling, and the note says why."""
    note: str = ""


class Prediction(Struct, frozen=True, kw_only=True):
    """The seconds that one more measurement would take."""

    parallelism: int
    seconds: Seconds | None
    """None where they cannot be predicted."""
    low: Seconds | None
    high: Seconds | None
    """The interval; of what cannot be predicted, all that the levels are compatible with."""
    reason: str = ""
    """Why they cannot be predicted."""


class Extrapolation(Struct, frozen=True, kw_only=True):
    """A trial: the largest level, predicted from those up to half of it alone."""

    up_to: int
    prediction: Prediction
    measured_seconds: Seconds

    @property
    def inside(self) -> bool | None:
        """Whether the measured seconds are in the interval; None where nothing was predicted."""
        if self.prediction.seconds is None:
            return None
        low, high = self.prediction.low or 0.0, self.prediction.high
        return low <= self.measured_seconds and (high is None or self.measured_seconds <= high)


class Limit(Struct, frozen=True, kw_only=True):
    """What limits the speed at some levels."""

    resources: tuple[str, ...]
    """Those that are used up: disk, source, network, cpu, node. Empty where none of them is, or
    where none was measured."""
    text: str


class Choice(Struct, frozen=True, kw_only=True):
    """A level to use, and the seconds to expect there."""

    parallelism: int
    seconds: Seconds
    text: str = ""


class Spread(Struct, frozen=True, kw_only=True):
    """By which share equally fast levels may differ."""

    share: Share
    measured: bool
    """By repeats; else it is assumed."""


class Analysis(Struct, frozen=True, kw_only=True):
    """All that the levels of a sweep say."""

    levels: tuple[Level, ...]
    verdicts: tuple[Verdict, ...]
    """One for each level, in the same order."""
    work: Work
    spread: Spread
    outliers: tuple[Outlier, ...]
    curves: tuple[Curve, ...]
    """One for each law that there are enough levels for."""
    chosen: Curve | None
    deviation: Share | None
    """By how much a level typically deviates from the chosen curve, or is known to by repeats."""
    described: bool
    """Whether the chosen curve describes the levels, so that it holds between and beyond them."""
    knee: Knee
    below_knee: Limit
    above_knee: Limit | None
    predictions: tuple[Prediction, ...]
    extrapolation: Extrapolation | None
    recommended: Choice | None
    sustained: Choice | None
    production: Choice | None
    doubts: tuple[str, ...]
    """Why the choices may be wrong; empty where nothing speaks against them."""
    notices: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return all of it as plain values; what is unknown is None."""
        knee, left_out = self.knee, {each.parallelism: each.reason for each in self.outliers}
        return {
            "knee": _short(knee.parallelism),
            "knee_interval": {
                "low": _short(knee.low),
                "high": _short(knee.high),
                "confidence": CONFIDENCE,
                "method": knee.method,
                "note": knee.note,
            },
            "outliers": list(left_out),
            "outlier_reasons": [to_builtins(each) for each in self.outliers],
            "recommended": self.recommended.parallelism if self.recommended else None,
            "sustained": _choice(self.sustained),
            "production": _choice(self.production),
            "doubts": list(self.doubts),
            "model": {**_curve(self.chosen), "describes_levels": self.described}
            if self.chosen
            else None,
            "models": [_curve(each) for each in self.curves],
            "predictions": [_prediction(each) for each in self.predictions],
            "extrapolation": _extrapolation(self.extrapolation),
            "limits": {
                "below_knee": to_builtins(self.below_knee),
                "above_knee": to_builtins(self.above_knee) if self.above_knee else None,
            },
            "spread": {"share": _short(self.spread.share), "measured": self.spread.measured},
            "work": {"unit": self.work.unit, "amount": self.work.of},
            "levels": [
                _level(level, verdict, self.work, left_out)
                for level, verdict in zip(self.levels, self.verdicts, strict=True)
            ],
            "notices": list(self.notices),
        }


def _short(value: float | None) -> float | None:
    """Return a figure with four digits of it, whole where it is."""
    if value is None:
        return None
    short = float(f"{value:.4g}")
    return int(short) if short.is_integer() else short


def _choice(choice: Choice | None) -> dict[str, Any] | None:
    return {**to_builtins(choice), "seconds": _short(choice.seconds)} if choice else None


def _curve(curve: Curve | None) -> dict[str, Any]:
    if curve is None:
        return {}
    return {
        "name": curve.law,
        "parameters": {name: _short(value) for name, value in curve.parameters.items()},
        "one_worker_seconds": _short(curve.one_worker_seconds),
        "deviation": _short(curve.deviation),
    }


def _prediction(each: Prediction) -> dict[str, Any]:
    figures = {name: _short(getattr(each, name)) for name in ("seconds", "low", "high")}
    return {"parallelism": each.parallelism, **figures, "reason": each.reason}


def _extrapolation(trial: Extrapolation | None) -> dict[str, Any] | None:
    if trial is None:
        return None
    return {
        "from_levels_up_to": trial.up_to,
        **_prediction(trial.prediction),
        "measured_seconds": trial.measured_seconds,
        "inside": trial.inside,
    }


def _level(
    level: Level, verdict: Verdict, work: Work, left_out: Mapping[int, str]
) -> dict[str, Any]:
    reasons = [*verdict.reasons]
    if level.parallelism in left_out:
        reasons.append(f"outlier: {left_out[level.parallelism]}")
    return {
        "parallelism": level.parallelism,
        "seconds": level.seconds,
        "repeats": level.repeats,
        "fastest_seconds": level.low,
        "slowest_seconds": level.high,
        "work_per_second": work.of / level.seconds,
        "valid": verdict.valid,
        "sustained": verdict.sustained,
        "outlier": level.parallelism in left_out,
        "reasons": reasons,
        "load": to_builtins(level.load),
    }
