"""The analysis of the points of a sweep: valid levels, the knee, and the workers to use.

Everything is read off the measured levels; no law of scaling is fitted. No file and no clock.

- Outliers: throughput rises with the workers and may fall from some point on, but does not rise
  again after a fall. The levels that have to be left out so that this holds were disturbed. Of two
  candidates it is the slower one: a disturbance slows a run, and nothing makes it faster than the
  machine is.
- The knee: beyond it another worker adds less than half of the first worker's speed. It is the
  level with the most throughput above the line on which each worker adds just that half.
- The rules come from published benchmarks. A level where a stage waited more than a second for
  its consumer is not valid: its speed lasts only as long as the queue grows. A level with busier
  CPUs than the limit is valid, but cannot be sustained beside other work. A discount is taken off
  the speed that is recommended for production.
"""

from __future__ import annotations

import math
import random
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Annotated

from msgspec import Meta, Struct

from unloader.errors import ConfigError
from unloader.nouns import are, counted
from unloader.tuning.points import LOADS, Load, Point
from unloader.tuning.resource_limits import Limits, limits_of, median_of

Number = int | float
"""A figure with four digits of it, whole where it is."""

Positive = Annotated[int, Meta(gt=0)] | Annotated[float, Meta(gt=0)]

MOST_LEVELS = 256
FEWEST_FOR_KNEE = 3
FEWEST_FOR_OUTLIERS = 4
"""Below that, one level out of order may as well be the only one that is right."""

MOST_OUT_OF_ORDER = 1 / 3
"""Of the levels. Where more are out of order, the points scatter, and none of them stands out."""

CONFIDENCE = 0.95
"""Of the interval of the knee."""
_DRAWS = 400
"""Resampled sweeps; their tails of 2.5 % are ten each."""

LEAST_DEVIATION = 0.005
"""Nothing repeats better than half a percent, however near to each other a few repeats are."""
_RARELY = 0.99
"""Many pairs of levels are compared in a sweep."""
_SMOOTH = 0.05
"""Levels that scatter by more around a smooth curve do not follow it (a guess)."""

NO_CPU = "CPU not measured"
"""The reason where it is not known whether a level can be sustained."""

SCATTER = (
    "the points scatter: more than a third of the levels are out of order, so a knee and "
    "outliers cannot be found; repeat the measurements"
)


class Rules(Struct, frozen=True, kw_only=True):
    """The rules, with the limits of the published record as defaults."""

    spread: float = 0.03
    """Two levels that differ by less than this share are equally fast. It is used if no level was
    repeated; otherwise the repeats determine the spread."""
    widest_spread: float = 0.1
    """A level is unsteady if the speeds of its repeats differ by more, as a share of the median."""
    queue_seconds: float = 1.0
    cpu_limit: float = 0.75
    discount: float = 0.2


class KneeInterval(Struct, frozen=True, kw_only=True):
    """The levels between which the knee is."""

    low: int | None
    high: int | None
    """None means without a bound."""
    confidence: float
    note: str
    """Why the knee is missing."""


class Outlier(Struct, frozen=True, kw_only=True):
    """A level that is left out."""

    parallelism: int
    reason: str


class LevelChoice(Struct, frozen=True, kw_only=True):
    """A level to use, and the seconds to expect there."""

    parallelism: int
    seconds: Number
    text: str


class Spread(Struct, frozen=True, kw_only=True):
    """By which share equally fast levels may differ."""

    share: Number
    measured: bool
    """By repeats; else it is assumed."""


class Work(Struct, frozen=True, kw_only=True):
    """How much was done in the seconds of a level, so that rates can be computed."""

    unit: str
    """bytes, rows, or table where neither is known of every point."""
    amount: Positive


class MeasuredLevel(Struct, frozen=True, kw_only=True):
    """All measurements at one parallelism, and the results of the rules."""

    parallelism: Annotated[int, Meta(gt=0)]
    seconds: Positive
    """The median, for the work in `Work.amount`; of an even number, the slower middle one."""
    repeats: int
    fastest_seconds: Positive
    slowest_seconds: Positive
    work_per_second: float
    valid: bool
    sustained: bool | None
    """Whether it is valid and its CPUs are below the limit; None without a measurement."""
    outlier: bool
    reasons: tuple[str, ...]
    """Why it is not valid, cannot be sustained, or is an outlier."""
    load: Load

    @property
    def spread(self) -> float:
        """By how much the speeds of the repeats differ, as a share of their median."""
        return (1 / self.fastest_seconds - 1 / self.slowest_seconds) * self.seconds


class Analysis(Struct, frozen=True, kw_only=True):
    """All that the levels of a sweep show, as `--json` prints it."""

    knee: int | None
    """None where the levels do not reach it, or are too few."""
    knee_interval: KneeInterval
    outliers: tuple[int, ...]
    outlier_reasons: tuple[Outlier, ...]
    recommended: int | None
    sustained: LevelChoice | None
    production: LevelChoice | None
    doubts: tuple[str, ...]
    """Why the choices may be wrong; empty where nothing speaks against them."""
    limits: Limits
    spread: Spread
    work: Work
    levels: tuple[MeasuredLevel, ...]
    notices: tuple[str, ...]

    def level(self, parallelism: int | None) -> MeasuredLevel | None:
        """Return the level of a parallelism; None without one."""
        return next((each for each in self.levels if each.parallelism == parallelism), None)


def analyse(points: Iterable[Point], rules: Rules) -> Analysis:
    """Return all that measured points show.

    Args:
        points: In any order; points of the same parallelism are repeats. Seconds of points with
            less work, such as samples of a table, are scaled to the largest amount of work.
        rules: The rules of valid levels, and the discount for production.

    Raises:
        ConfigError: The points are missing, or of too many levels.
    """
    work, seconds, loads = _grouped(list(points))
    if not seconds:
        raise ConfigError("a sweep without points has no result", "measure some levels")
    if len(seconds) > MOST_LEVELS:
        what = f"the points are of {counted(len(seconds), 'level')} of parallelism"
        raise ConfigError(what, f"give at most {MOST_LEVELS}")
    deviation = _deviation_of_repeats(seconds.values())
    share = rules.spread if deviation is None else _spread_of(*deviation, seconds.values())
    at = sorted(seconds)
    medians = [statistics.median_high(seconds[each]) for each in at]
    found = _out_of_order(medians, share)
    outliers = _outliers(at, medians, found or ())
    left_out = {each.parallelism: each.reason for each in outliers}
    levels = tuple(_level(each, seconds[each], loads[each], work, rules, left_out) for each in at)
    kept = tuple(level for level in levels if not level.outlier)
    known = 0.0
    if deviation is not None:
        known = deviation[0] / min(map(len, seconds.values())) ** 0.5
    scatter = _scatter(kept)
    if found is None:
        knee, interval = None, _no_knee(SCATTER)
    else:
        knee, interval = _knee(kept, share, max(LEAST_DEVIATION, known, scatter))
    recommended = _fastest(kept, share, lambda level: level.valid)
    lasting = _fastest(kept, share, lambda level: level.sustained is True)
    return Analysis(
        knee=knee,
        knee_interval=interval,
        outliers=tuple(left_out),
        outlier_reasons=outliers,
        recommended=recommended.parallelism if recommended else None,
        sustained=lasting,
        production=_production(recommended, lasting, levels, rules),
        doubts=tuple(_doubts(levels, scatter, max(_SMOOTH, 2 * known), rules)),
        limits=limits_of(
            [each.load for each in levels if knee is None or each.parallelism <= knee],
            [each.load for each in levels if knee is not None and each.parallelism > knee],
        ),
        spread=Spread(share=short(share), measured=deviation is not None),
        work=work,
        levels=levels,
        notices=(SCATTER,) if found is None else (),
    )


def short(value: float) -> Number:
    """Return a figure with four digits of it, whole where it is."""
    found = float(f"{value:.4g}")
    return int(found) if found.is_integer() else found


def _grouped(
    points: Sequence[Point],
) -> tuple[Work, dict[int, list[float]], dict[int, list[Load]]]:
    """Return the work of all levels, and the seconds and loads of the measurements of each."""
    work, amounts = Work(unit="table", amount=1.0), [1.0] * len(points)
    for unit in ("bytes", "rows"):
        known = [getattr(point, unit) for point in points]
        if known and all(known):
            work, amounts = Work(unit=unit, amount=max(known)), known
            break
    seconds: dict[int, list[float]] = defaultdict(list)
    loads: dict[int, list[Load]] = defaultdict(list)
    for point, amount in zip(points, amounts, strict=True):
        seconds[point.parallelism].append(point.seconds * work.amount / amount)
        loads[point.parallelism].append(point.load)
    return work, seconds, loads


def _level(
    parallelism: int,
    seconds: Sequence[float],
    loads: Sequence[Load],
    work: Work,
    rules: Rules,
    left_out: Mapping[int, str],
) -> MeasuredLevel:
    """Return a level with the verdict of the rules; a figure that is not known breaks no rule."""
    load = Load(**{name: median_of(getattr(each, name) for each in loads) for name in LOADS})
    reasons = []
    valid = load.queued is None or load.queued <= rules.queue_seconds
    if not valid:
        reasons.append(
            f"a stage waited {load.queued:.3g} s for its consumer (limit {rules.queue_seconds:g} s)"
        )
    sustained: bool | None = valid
    if load.cpu is None:
        sustained = None if valid else False
        reasons.append(NO_CPU)
    elif load.cpu > rules.cpu_limit:
        sustained = False
        reasons.append(f"CPU {load.cpu:.0%}, above the limit of {rules.cpu_limit:.0%}")
    if parallelism in left_out:
        reasons.append(f"outlier: {left_out[parallelism]}")
    median = statistics.median_high(seconds)
    return MeasuredLevel(
        parallelism=parallelism,
        seconds=median,
        repeats=len(seconds),
        fastest_seconds=min(seconds),
        slowest_seconds=max(seconds),
        work_per_second=work.amount / median,
        valid=valid,
        sustained=sustained,
        outlier=parallelism in left_out,
        reasons=tuple(reasons),
        load=load,
    )


def _deviation_of_repeats(levels: Iterable[Sequence[float]]) -> tuple[float, int] | None:
    """Return the pooled deviation of one repeated measurement, and its degrees of freedom.

    It is the deviation of the logarithm, so 0.02 is about 2 %. None where no level was repeated.
    """
    repeated = [each for each in levels if len(each) > 1]
    freedom = sum(len(each) - 1 for each in repeated)
    if not freedom:
        return None
    squares = sum((len(each) - 1) * statistics.stdev(map(math.log, each)) ** 2 for each in repeated)
    return math.sqrt(squares / freedom), freedom


def _spread_of(deviation: float, freedom: int, levels: Iterable[Sequence[float]]) -> float:
    """Return the share by which the medians of two equally fast levels rarely differ."""
    repeats = min(map(len, levels))
    rarely = _student(freedom, _RARELY)
    return max(2 * LEAST_DEVIATION, math.expm1(rarely * deviation * math.sqrt(2 / repeats)))


def _student(freedom: int, share: float) -> float:
    """Return below which absolute value Student's t is for a share of the cases.

    The sums come from Abramowitz and Stegun, 26.7.3 and 26.7.4, by the angle whose tangent is
    t over the root of the degrees of freedom.
    """
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        angle = (low + high) / 2
        term = math.cos(angle) if freedom % 2 else 1.0
        total = term if freedom > 1 else 0.0
        for each in range(3 if freedom % 2 else 2, freedom - 1, 2):
            term *= math.cos(angle) ** 2 * (each - 1) / each
            total += term
        covered = math.sin(angle) * total
        if freedom % 2:
            covered = (angle + covered) * 2 / math.pi
        low, high = (angle, high) if covered < share else (low, angle)
    return math.tan(low) * math.sqrt(freedom)


def _out_of_order(seconds: Sequence[float], spread: float) -> tuple[int, ...] | None:
    """Return the places of the fewest levels without which the others are in order.

    Args:
        seconds: Of each level, in ascending order of parallelism.
        spread: Levels that differ by no more than this share are equally fast.

    Returns:
        None if more levels than `MOST_OUT_OF_ORDER` are out of order.
    """
    if len(seconds) < FEWEST_FOR_OUTLIERS:
        return ()
    rates = [-math.log(each) for each in seconds]
    tolerance = math.log1p(spread)
    rising = _best_until(rates, tolerance)
    falling = _best_until(rates[::-1], tolerance)[::-1]
    # Peaks with the most levels kept, then with the fastest ones: the peak itself is in both.
    _, peak = max(
        ((up[0][0] + down[0][0], up[0][1] + down[0][1] - rates[at]), at)
        for at, (up, down) in enumerate(zip(rising, falling, strict=True))
    )
    down = {len(rates) - 1 - at for at in falling[peak][1]}
    kept = {*rising[peak][1], *down}
    left_out = tuple(at for at in range(len(rates)) if at not in kept)
    return left_out if len(left_out) <= MOST_OUT_OF_ORDER * len(rates) else None


_Chain = tuple[tuple[int, float], tuple[int, ...]]
"""How many levels are kept and the sum of their rates, and which levels these are."""


def _best_until(rates: Sequence[float], tolerance: float) -> list[_Chain]:
    """Return, for each level as the fastest of a rise that ends there, the best such rise."""
    found: list[_Chain] = []
    for at, rate in enumerate(rates):
        best: _Chain = ((1, rate), (at,))
        for before in range(at):
            if rates[before] <= rate:
                (count, total), kept = found[before]
                # Levels between them that are as fast as the first, within the tolerance.
                equal = [
                    each
                    for each in range(before + 1, at)
                    if rates[before] - tolerance <= rates[each] <= rates[before]
                ]
                value = (count + len(equal) + 1, total + sum(rates[e] for e in equal) + rate)
                if value > best[0]:
                    best = (value, (*kept, *equal, at))
        found.append(best)
    return found


def _outliers(
    levels: Sequence[int], seconds: Sequence[float], found: Sequence[int]
) -> tuple[Outlier, ...]:
    outliers = []
    for at in found:
        kept = [each for each in range(at) if each not in found]
        fewer = min(kept, key=lambda each: seconds[each], default=None)
        if fewer is None or seconds[fewer] > seconds[at]:
            reason = f"{seconds[at]:,.6g} s is faster than levels with more workers that scale"
        else:
            reason = (
                f"{seconds[at]:,.6g} s is slower than {counted(levels[fewer], 'worker')} "
                f"({seconds[fewer]:,.6g} s), while more workers are faster again"
            )
        outliers.append(Outlier(parallelism=levels[at], reason=reason))
    return tuple(outliers)


def _knee(
    levels: Sequence[MeasuredLevel], spread: float, deviation: float
) -> tuple[int | None, KneeInterval]:
    """Return the knee and its interval.

    The interval covers the knees of resampled sweeps, widened by one level on each side, as
    nothing is known between two levels.

    Args:
        levels: Without outliers, in ascending order.
        spread: Levels that differ by no more than this share are equally fast.
        deviation: Of the logarithm of a level's speed.
    """
    if len(levels) < FEWEST_FOR_KNEE:
        return None, _no_knee(
            f"too few levels for a knee: at least {FEWEST_FOR_KNEE} are needed, but only "
            f"{len(levels)} can be used"
        )
    at = [level.parallelism for level in levels]
    chance = random.Random(0)
    smooth = _majorant(levels)
    ranks = sorted(
        _bend(at, [rate * math.exp(chance.gauss(0, deviation)) for rate in smooth], spread)
        for _ in range(_DRAWS)
    )
    tail = round((1 - CONFIDENCE) / 2 * _DRAWS)
    low, high = ranks[tail] - 1, ranks[-tail - 1] + 1
    found = _bend(at, [1 / level.seconds for level in levels], spread)
    note = ""
    if found == len(at):
        note = _not_reached(at, [1 / level.seconds for level in levels], spread)
    return None if note else at[found], KneeInterval(
        low=at[min(max(0, low), len(at) - 1)],
        high=at[high] if high < len(at) else None,
        confidence=CONFIDENCE,
        note=note,
    )


def _no_knee(why: str) -> KneeInterval:
    return KneeInterval(low=None, high=None, confidence=CONFIDENCE, note=why)


def _not_reached(levels: Sequence[int], rates: Sequence[float], spread: float) -> str:
    """Return why the knee is missing: the last level is the best, or the spread hides the knee."""
    above = _above_half(levels, rates)
    best = levels[above.index(max(above))]
    if best == levels[-1]:
        return (
            f"not reached at {counted(best, 'worker')}: on average, each added worker added at "
            "least half of the first worker's speed"
        )
    return (
        f"not known: beyond {counted(best, 'worker')}, each added worker added on average less "
        "than half of the first worker's speed, but the measurements differ among each other by "
        f"{spread:.1%}; measure longer, or with more repeats"
    )


def _above_half(levels: Sequence[int], rates: Sequence[float]) -> list[float]:
    """Return the speed of each level, less half of the first worker's speed for each worker."""
    half = rates[0] / levels[0] / 2
    return [rate - half * level for level, rate in zip(levels, rates, strict=True)]


def _bend(levels: Sequence[int], rates: Sequence[float], spread: float) -> int:
    """Return the place of the knee; the number of levels where they do not reach it."""
    above = _above_half(levels, rates)
    best = max(range(len(levels)), key=lambda each: above[each])
    # A last level that is lower by no more than equally fast levels differ has not bent.
    return len(levels) if above[-1] + spread * rates[-1] >= above[best] else best


def _majorant(levels: Sequence[MeasuredLevel]) -> list[float]:
    """Return the speeds of the lowest concave curve from zero workers that no level is above."""
    corners = [(0, 0.0)]
    for level in levels:
        new = (level.parallelism, 1 / level.seconds)
        while len(corners) > 1 and _slope(corners[-2], corners[-1]) <= _slope(corners[-1], new):
            corners.pop()
        corners.append(new)
    pieces = list(pairwise(corners))
    found = []
    for level in levels:
        first, last = next(each for each in pieces if level.parallelism <= each[1][0])
        found.append(first[1] + _slope(first, last) * (level.parallelism - first[0]))
    return found


def _slope(first: tuple[int, float], last: tuple[int, float]) -> float:
    return (last[1] - first[1]) / (last[0] - first[0])


def _scatter(levels: Sequence[MeasuredLevel]) -> float:
    """Return the deviation of levels around a smooth curve, of the logarithm of their speeds."""
    if len(levels) < FEWEST_FOR_KNEE:
        return 0.0
    smooth = zip(levels, _majorant(levels), strict=True)
    return statistics.stdev(math.log(level.seconds * rate) for level, rate in smooth)


def _fastest(
    levels: Iterable[MeasuredLevel], spread: float, counts: Callable[[MeasuredLevel], bool]
) -> LevelChoice | None:
    """Return the fewest workers that no level which counts beats by more than the spread."""
    known = [level for level in levels if counts(level)]
    fastest = min((level.seconds for level in known), default=0.0)
    found = next((level for level in known if level.seconds <= fastest * (1 + spread)), None)
    if found is None:
        return None
    return LevelChoice(
        parallelism=found.parallelism,
        seconds=short(found.seconds),
        text=f"the fewest workers that take at most {spread:.1%} longer than the fastest level",
    )


def _production(
    recommended: LevelChoice | None,
    lasting: LevelChoice | None,
    levels: Sequence[MeasuredLevel],
    rules: Rules,
) -> LevelChoice | None:
    """Return what to plan a production run with: the discount taken off a speed that lasts."""
    measured = any(each.sustained is not None for each in levels if each.valid)
    base = lasting if measured else recommended
    if base is None:
        return None
    seconds = next(each.seconds for each in levels if each.parallelism == base.parallelism)
    basis = "the sustained level" if measured else "the recommended level (CPU was not measured)"
    return LevelChoice(
        parallelism=base.parallelism,
        seconds=short(seconds / (1 - rules.discount)),
        text=f"{basis}, with {rules.discount:.0%} less speed",
    )


def _doubts(
    levels: Sequence[MeasuredLevel], scatter: float, most: float, rules: Rules
) -> Iterator[str]:
    """Yield each reason why the choices of this analysis may be wrong."""
    if scatter > most:
        yield f"the levels follow no smooth curve: they scatter around it by {scatter:.1%}"
    unsteady = [str(level.parallelism) for level in levels if level.spread > rules.widest_spread]
    if unsteady:
        yield (
            f"{len(unsteady)} of {counted(len(levels), 'level')} {are(len(unsteady))} unsteady: "
            "the repeats of "
            f"{', '.join(unsteady)} {'worker' if unsteady == ['1'] else 'workers'} differ by more "
            f"than {rules.widest_spread:.0%}"
        )
