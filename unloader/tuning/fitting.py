"""Fits the laws of scaling to levels, and says how far they can be trusted. Knows scipy.

Errors are relative, so all is done with logarithms of seconds. What is compatible with the levels
is kept as a set of curves: all those, of any law, whose squared deviations are not significantly
larger than the best fit's (profile likelihood). The interval of a knee or of a predicted time is
that of its values over the set, so no law has to be right for it to hold; one of them has to be.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from scipy.optimize import least_squares, nnls
from scipy.special import fdtrc, fdtri, stdtrit

from unloader.tuning.curves import KNEE_SHARE, LAWS, Law
from unloader.tuning.model import CONFIDENCE, Curve

_MADE_FOR = 0.975
"""Of intervals, so that they cover the truth as often as CONFIDENCE says: the law is chosen by the
same levels that it is fitted to, and outliers are left out, which makes levels look steadier than
they are. Made for 0.95 they covered 0.89 to 0.93 of simulated sweeps."""

_RARELY = 0.99
"""Many pairs of levels are compared in a sweep."""

LEAST_DEVIATION = 0.005
"""Nothing repeats better than half a percent, however well a curve goes through a few points."""

_LARGEST_POWER = 600.0

_GRID, _ROUGH = 41, 21
"""Values of each parameter that are tried at a time."""
_ZOOMS = 4


class Fit(Struct, frozen=True, kw_only=True):
    """The best curve of a law."""

    law: Law
    parameters: Any
    offset: float
    """Logarithm of the seconds of one worker."""
    squares: float
    """Sum of the squared deviations of log seconds."""
    freedom: int
    """Levels less fitted numbers."""

    def log_seconds(self, levels: Any) -> Any:
        """Return the logarithm of the seconds at some levels."""
        return self.law.form(self.parameters, np.asarray(levels, float)) + self.offset

    def curve(self) -> Curve:
        """Return it as plain figures."""
        return Curve(
            law=self.law.name,
            parameters=self.law.shown(self.parameters),
            one_worker_seconds=float(np.exp(self.log_seconds([1.0])[0])),
            deviation=float(np.sqrt(self.squares / self.freedom)),
        )


class Deletion(Struct, frozen=True, kw_only=True):
    """How well one level fits the law that all others follow."""

    probability: float
    """Of a level as far off, or farther; corrected for the number of levels."""
    deviation: float
    """Its seconds relative to those of the others' law, less 1."""
    rest: float
    """By how much the others typically deviate from their law."""


class Fitted(Struct, frozen=True, kw_only=True):
    """What the laws make of some levels."""

    best: Fit
    """Of the law that is chosen."""
    fits: tuple[Fit, ...]
    """Of each law that there are enough levels for."""
    deviation: float
    """Typical deviation of a level from the best curve."""
    freedom: int
    curves: tuple[tuple[Law, Any, Any], ...]
    """Laws, parameters and offsets of all curves that are compatible with the levels."""

    def knee(self) -> tuple[float, float, float]:
        """Return the knee of the best curve, and the least and largest of the compatible ones."""
        values = np.concatenate([law.knee(each) for law, each, _ in self.curves])
        best = float(self.best.law.knee(self.best.parameters[None])[0])
        return best, min(best, float(values.min())), max(best, float(values.max()))

    def seconds(self, level: float) -> tuple[float, float, float]:
        """Return the predicted seconds of one measurement at a level, and its interval."""
        at = np.array([level], float)
        values = np.concatenate([law.form(p, at)[:, 0] + o for law, p, o in self.curves])
        best = float(self.best.log_seconds(at)[0])
        noise = float(stdtrit(self.freedom, (1 + _MADE_FOR) / 2)) * self.deviation
        below = np.hypot(max(0.0, best - float(values.min())), noise)
        above = np.hypot(max(0.0, float(values.max()) - best), noise)
        return _exp(best), _exp(best - below), _exp(best + above)


def fit(levels: Sequence[int], seconds: Sequence[float], known: float = 0.0) -> Fitted | None:
    """Fit all laws, and choose one.

    A law with more parameters is chosen only if it is significantly better than each simpler one
    (F test at 5 %).

    Args:
        levels: Different ones, at least two for an answer.
        seconds: Of each of them.
        known: Deviation of a level's seconds as its repeats tell it; 0 is unknown.

    Returns:
        None where there are too few levels for any law.
    """
    at, logs = np.asarray(levels, float), np.log(np.asarray(seconds, float))
    floor = max(LEAST_DEVIATION, known)
    fits = tuple(_polished(_best(law, at, logs), at, logs) for law in LAWS if _enough(law, at))
    if not fits:
        return None
    best = fits[0]
    for each in fits[1:]:
        if _is_better(each, best, len(at), floor):
            best = each
    freedom = len(at) - best.law.freedom
    variance = max(best.squares / freedom, floor**2)
    limit = best.squares + variance * float(fdtri(1, freedom, _MADE_FOR))
    return Fitted(
        best=best,
        fits=fits,
        deviation=float(np.sqrt(variance)),
        freedom=freedom,
        curves=tuple(
            (each.law, *_compatible(each, at, logs, limit))
            for each in fits
            if each.squares <= limit
        ),
    )


def deletions(levels: Sequence[int], seconds: Sequence[float]) -> list[Deletion]:
    """Return, for each level, how well it fits the law that all others follow.

    The law with the most parameters stands for the others, so that a level has the benefit of the
    doubt. Empty where there are too few levels to tell.
    """
    at, logs = np.asarray(levels, float), np.log(np.asarray(seconds, float))
    most = max(law.freedom for law in LAWS)
    # The others are special cases of these.
    laws = [law for law in LAWS if law.freedom == most]
    freedom = len(at) - 1 - most
    if freedom < 2:
        return []
    whole = min(_best(law, at, logs, _ROUGH).squares for law in laws)
    found = []
    for each in range(len(at)):
        others = np.arange(len(at)) != each
        rest = min(
            (_best(law, at[others], logs[others], _ROUGH) for law in laws),
            key=lambda found: found.squares,
        )
        variance = max(rest.squares / freedom, LEAST_DEVIATION**2)
        ratio = max(0.0, whole - rest.squares) / variance
        found.append(
            Deletion(
                probability=min(1.0, float(fdtrc(1, freedom, ratio)) * len(at)),
                deviation=float(np.exp(logs[each] - rest.log_seconds([levels[each]])[0])) - 1,
                rest=float(np.sqrt(variance)),
            )
        )
    return found


def spread_of(deviation: float, freedom: int, repeats: int) -> float:
    """Return the share by which the medians of two equally fast levels rarely differ.

    Args:
        deviation: Of the logarithm of one measurement.
        freedom: Degrees of freedom of that figure.
        repeats: Measurements of each level.
    """
    rarely = float(stdtrit(freedom, 1 - (1 - _RARELY) / 2))
    return max(2 * LEAST_DEVIATION, float(np.expm1(rarely * deviation * np.sqrt(2 / repeats))))


def concave_knee(
    levels: Sequence[int], seconds: Sequence[float], *, draws: int
) -> tuple[int | None, list[int | None]]:
    """Return the knee of the best concave curve, and the knees of resampled ones.

    The curve is the one of any concave form through zero workers that deviates least, in relative
    terms. It bends at measured levels alone. Its knee is the last level up to which each worker
    brought at least `KNEE_SHARE` of the first one; None where all of them did.
    """
    at, rates = np.asarray(levels, float), 1 / np.asarray(seconds, float)
    fitted, knee = _concave(at, rates)
    residuals = np.log(rates / fitted)
    # Bends and their heights are fitted: about as many as there are linear pieces.
    freedom = max(1, len(at) - 3)
    deviation = max(LEAST_DEVIATION, float(np.sqrt((residuals**2).sum() / freedom)))
    random = np.random.default_rng(0)
    noise = random.normal(0.0, deviation, (draws, len(at)))
    return knee, [_concave(at, fitted * np.exp(each))[1] for each in noise]


def _concave(levels: Any, rates: Any) -> tuple[Any, int | None]:
    bends = np.maximum(levels[:, None] - levels[None, :-1], 0.0)
    basis = np.column_stack([levels, -bends])
    weights = 1 / rates
    fitted = rates
    for _ in range(3):
        amounts, _ = nnls(basis * weights[:, None], rates * weights)
        fitted = np.maximum(basis @ amounts, rates.min() * 1e-3)
        weights = 1 / fitted
    slopes = amounts[0] - np.concatenate([[0.0], np.cumsum(amounts[1:])])
    # The slope after level i is that of piece i + 1; past the last level there is none.
    falls = np.flatnonzero(slopes[1:] < KNEE_SHARE * slopes[0])
    return fitted, int(levels[falls[0]]) if len(falls) else None


def _exp(value: float) -> float:
    """Return e to the power of a value, at most of one that a float can hold."""
    return float(np.exp(np.clip(value, -_LARGEST_POWER, _LARGEST_POWER)))


def _enough(law: Law, levels: Any) -> bool:
    return len(levels) > law.freedom


def _is_better(more: Fit, less: Fit, count: int, floor: float) -> bool:
    """Return whether a law's gain over one that was chosen before pays for its parameters."""
    freedom, extra = count - more.law.freedom, more.law.freedom - less.law.freedom
    if extra <= 0:
        return more.squares < less.squares
    variance = max(more.squares / freedom, floor**2)
    ratio = (less.squares - more.squares) / extra / variance
    return bool(ratio > fdtri(extra, freedom, CONFIDENCE))


def _squares(law: Law, parameters: Any, levels: Any, logs: Any) -> tuple[Any, Any]:
    """Return the squared deviations and the best offset of many curves."""
    rest = logs - law.form(parameters, levels)
    offsets = rest.mean(axis=-1)
    return ((rest - offsets[..., None]) ** 2).sum(axis=-1), offsets


def _grid(box: Sequence[tuple[float, float]], count: int = _GRID) -> Any:
    axes = [np.linspace(low, high, count) for low, high in box]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(box))


def _best(law: Law, levels: Any, logs: Any, count: int = _GRID) -> Fit:
    """Return the best curve of a law, by a grid that closes in on it."""
    if not law.parameters:
        parameters = np.zeros(0)
        squares, offsets = _squares(law, parameters[None], levels, logs)
        return _fit(law, parameters, offsets[0], squares[0], len(levels))
    box = whole = law.box(levels)
    for _ in range(_ZOOMS):
        grid = _grid(box, count)
        squares, offsets = _squares(law, grid, levels, logs)
        at = int(squares.argmin())
        box = _around(grid[at : at + 1], box, whole, count)
    return _fit(law, grid[at], offsets[at], squares[at], len(levels))


def _fit(law: Law, parameters: Any, offset: Any, squares: Any, count: int) -> Fit:
    return Fit(
        law=law,
        parameters=parameters,
        offset=float(offset),
        squares=float(squares),
        freedom=count - law.freedom,
    )


def _around(
    points: Any,
    box: Sequence[tuple[float, float]],
    whole: Sequence[tuple[float, float]],
    count: int = _GRID,
) -> tuple[tuple[float, float], ...]:
    """Return the box of some points of a grid, with two more of its steps on each side."""
    found = []
    for axis, ((low, high), (least, most)) in enumerate(zip(box, whole, strict=True)):
        margin = 2 * (high - low) / (count - 1)
        values = points[:, axis]
        found.append((max(least, values.min() - margin), min(most, values.max() + margin)))
    return tuple(found)


def _polished(found: Fit, levels: Any, logs: Any) -> Fit:
    law = found.law
    if not law.parameters:
        return found
    lower, upper = np.array(law.box(levels)).T

    def deviations(parameters: Any) -> Any:
        rest = logs - law.form(parameters, levels)
        return rest - rest.mean()

    if not (lower < upper).all():
        return found
    start = np.clip(found.parameters, lower + 1e-9, upper - 1e-9)
    better = least_squares(deviations, start, bounds=(lower, upper)).x
    squares, offsets = _squares(law, better[None], levels, logs)
    if squares[0] >= found.squares:
        return found
    return _fit(law, better, offsets[0], squares[0], len(levels))


def _compatible(found: Fit, levels: Any, logs: Any, limit: float) -> tuple[Any, Any]:
    """Return parameters and offsets of curves of a law whose squares are within the limit."""
    law, kept = found.law, [found.parameters[None]]
    box = whole = law.box(levels)
    for _ in range(_ZOOMS if law.parameters else 0):
        grid = _grid(box)
        squares, _ = _squares(law, grid, levels, logs)
        inside = np.concatenate([grid[squares <= limit], found.parameters[None]])
        kept.append(inside)
        box = _around(inside, box, whole)
    parameters = np.concatenate(kept)
    # A prediction of the curve needs its offset's uncertainty, too: both ends of what is allowed.
    squares, offsets = _squares(law, parameters, levels, logs)
    slack = np.sqrt(np.maximum(0.0, limit - squares) / len(levels))
    return (
        np.concatenate([parameters, parameters]),
        np.concatenate([offsets - slack, offsets + slack]),
    )
