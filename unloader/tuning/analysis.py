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
- What limits the speed: what workers wait for is the evidence. That something is busy is evidence
  only where the waits are not known, or do not contradict it: a disk may be busy without a worker
  that waits for it, and the CPUs with other programs.
"""

from __future__ import annotations

import math
import random
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Annotated

from msgspec import Meta, Struct

from unloader.errors import ConfigError
from unloader.nouns import are, counted
from unloader.tuning.points import LOADS, Load, Point

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
_SMOOTH = 0.05
"""Levels that scatter by more around a smooth curve do not follow it (a guess)."""

# fmt: off
_STUDENT = (
    63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169, 3.106, 3.055, 3.012,
    2.977, 2.947, 2.921, 2.898, 2.878, 2.861, 2.845, 2.831, 2.819, 2.807, 2.797, 2.787,
)
# fmt: on
"""Below it Student's t is for 99 % of pairs, by degrees of freedom from 1. Many pairs of levels are
compared in a sweep."""

NO_CPU = "CPU not measured"
"""The reason where it is not known whether a level can be sustained."""

SCATTER = (
    "the points scatter: more than a third of the levels are out of order, so a knee and "
    "outliers cannot be found; repeat the measurements"
)

USED_UP = 0.9
"""From which share of its time on a resource counts as used up."""
WAITED = 0.5
"""From which share of the workers' time on a wait is the limit."""
LITTLE = 0.25
"""Below it a wait shows that something else limits, however busy the resource is."""
WORKING_DATABASE = 0.25
"""A database on the same machine that uses more of the CPUs may be waiting for them, which our
workers see as waiting for rows."""


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
    confidence: float = CONFIDENCE
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
        return next((each for each in self.levels if each.parallelism == parallelism), None)


def analyse(points: Sequence[Point], rules: Rules) -> Analysis:
    """Return all that measured points show; none, or too many levels, are a `ConfigError`.

    Points are in any order; points of the same parallelism are repeats. Seconds of points with less
    work, such as samples of a table, are scaled to the largest amount of work.
    """
    if not points:
        raise ConfigError("a sweep without points has no result", "measure some levels")
    work, amounts = Work(unit="table", amount=1.0), [1.0] * len(points)
    for unit in ("bytes", "rows"):
        known = [getattr(point, unit) for point in points]
        if all(known):
            work, amounts = Work(unit=unit, amount=max(known)), known
            break
    seconds: dict[int, list[float]] = defaultdict(list)
    loads: dict[int, list[Load]] = defaultdict(list)
    for point, amount in zip(points, amounts, strict=True):
        seconds[point.parallelism].append(point.seconds * work.amount / amount)
        loads[point.parallelism].append(point.load)
    if len(seconds) > MOST_LEVELS:
        what = f"the points are of {counted(len(seconds), 'level')} of parallelism"
        raise ConfigError(what, f"give at most {MOST_LEVELS}")

    # The pooled deviation of the logarithm of one repeated measurement: 0.02 is about 2 %.
    repeats = min(map(len, seconds.values()))
    repeated = [each for each in seconds.values() if len(each) > 1]
    freedom = sum(len(each) - 1 for each in repeated)
    share, known_deviation = rules.spread, 0.0
    if freedom:
        squares = ((len(e) - 1) * statistics.stdev(map(math.log, e)) ** 2 for e in repeated)
        deviation = math.sqrt(sum(squares) / freedom)
        known_deviation = deviation / repeats**0.5
        # Abramowitz and Stegun, 26.7.5, for the quantile 2.5758 of the normal distribution.
        quantile = 2.5758 + 4.9165 / freedom + 8.834 / freedom**2
        if freedom <= len(_STUDENT):
            quantile = _STUDENT[freedom - 1]
        # The medians of two equally fast levels rarely differ by more.
        rarely = math.expm1(quantile * deviation * math.sqrt(2 / repeats))
        share = max(2 * LEAST_DEVIATION, rarely)

    at = sorted(seconds)
    medians = [statistics.median_high(seconds[each]) for each in at]
    found = _out_of_order(medians, share)
    outliers = tuple(_outlier(at, medians, each, found or ()) for each in found or ())
    left_out = {each.parallelism: each.reason for each in outliers}
    levels = tuple(_level(each, seconds[each], loads[each], work, rules, left_out) for each in at)
    kept = [level for level in levels if not level.outlier]
    scatter = 0.0
    if len(kept) >= FEWEST_FOR_KNEE:
        smooth = zip(kept, _majorant(kept), strict=True)
        scatter = statistics.stdev(math.log(level.seconds * rate) for level, rate in smooth)
    if found is None:
        knee, interval = None, KneeInterval(low=None, high=None, note=SCATTER)
    else:
        knee, interval = _knee(kept, share, max(LEAST_DEVIATION, known_deviation, scatter))
    recommended = _fastest(kept, share, lambda level: level.valid)
    lasting = _fastest(kept, share, lambda level: level.sustained is True)
    # What to plan a production run with: the discount taken off a speed that lasts.
    measured = any(each.sustained is not None for each in levels if each.valid)
    base, production = lasting if measured else recommended, None
    if base is not None:
        slow = next(each.seconds for each in levels if each.parallelism == base.parallelism)
        basis = (
            "the sustained level" if measured else "the recommended level (CPU was not measured)"
        )
        production = LevelChoice(
            parallelism=base.parallelism,
            seconds=_short(slow / (1 - rules.discount)),
            text=f"{basis}, with {rules.discount:.0%} less speed",
        )
    doubts = []
    if scatter > max(_SMOOTH, 2 * known_deviation):
        doubts.append(f"the levels follow no smooth curve: they scatter around it by {scatter:.1%}")
    unsteady = [
        str(each.parallelism)
        for each in levels
        if (1 / each.fastest_seconds - 1 / each.slowest_seconds) * each.seconds
        > rules.widest_spread
    ]
    if unsteady:
        doubts.append(
            f"{len(unsteady)} of {counted(len(levels), 'level')} {are(len(unsteady))} unsteady: "
            "the repeats of "
            f"{', '.join(unsteady)} {'worker' if unsteady == ['1'] else 'workers'} differ by more "
            f"than {rules.widest_spread:.0%}"
        )
    above = [each.load for each in levels if knee is not None and each.parallelism > knee]
    return Analysis(
        knee=knee,
        knee_interval=interval,
        outliers=tuple(left_out),
        outlier_reasons=outliers,
        recommended=recommended.parallelism if recommended else None,
        sustained=lasting,
        production=production,
        doubts=tuple(doubts),
        limits=Limits(
            below_knee=_limit(
                [each.load for each in levels if knee is None or each.parallelism <= knee],
                "the speed of one worker: no measured resource is used up ({})",
            ),
            above_knee=_limit(
                above,
                "no measured resource is used up ({}), so something that was not measured is the "
                "limit",
            )
            if above
            else None,
        ),
        spread=Spread(share=_short(share), measured=bool(freedom)),
        work=work,
        levels=levels,
        notices=(SCATTER,) if found is None else (),
    )


def _short(value: float) -> Number:
    found = float(f"{value:.4g}")
    return int(found) if found.is_integer() else found


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _level(
    parallelism: int,
    seconds: Sequence[float],
    loads: Sequence[Load],
    work: Work,
    rules: Rules,
    left_out: Mapping[int, str],
) -> MeasuredLevel:
    """Return a level with the verdict of the rules; a figure that is not known breaks no rule."""
    load = Load(**{name: _median(getattr(each, name) for each in loads) for name in LOADS})
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


def _out_of_order(seconds: Sequence[float], spread: float) -> tuple[int, ...] | None:
    """Return the places of the fewest levels that break the order; None if these are too many."""
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
    kept = {*rising[peak][1], *(len(rates) - 1 - at for at in falling[peak][1])}
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


def _outlier(
    levels: Sequence[int], seconds: Sequence[float], at: int, found: Sequence[int]
) -> Outlier:
    kept = [each for each in range(at) if each not in found]
    fewer = min(kept, key=lambda each: seconds[each], default=None)
    if fewer is None or seconds[fewer] > seconds[at]:
        reason = f"{seconds[at]:,.6g} s is faster than levels with more workers that scale"
    else:
        reason = (
            f"{seconds[at]:,.6g} s is slower than {counted(levels[fewer], 'worker')} "
            f"({seconds[fewer]:,.6g} s), while more workers are faster again"
        )
    return Outlier(parallelism=levels[at], reason=reason)


def _knee(
    levels: Sequence[MeasuredLevel], spread: float, deviation: float
) -> tuple[int | None, KneeInterval]:
    """Return the knee and its interval.

    The interval covers the knees of resampled sweeps, widened by one level on each side, as
    nothing is known between two levels. The deviation is of the logarithm of a level's speed.
    """
    if len(levels) < FEWEST_FOR_KNEE:
        note = (
            f"too few levels for a knee: at least {FEWEST_FOR_KNEE} are needed, but only "
            f"{len(levels)} can be used"
        )
        return None, KneeInterval(low=None, high=None, note=note)
    at = [level.parallelism for level in levels]

    def bend(rates: Sequence[float]) -> tuple[int, int]:
        """Return the best level's place, and the knee's: the number of levels without one."""
        half = rates[0] / at[0] / 2
        above = [rate - half * level for level, rate in zip(at, rates, strict=True)]
        best = max(range(len(at)), key=lambda each: above[each])
        # A last level that is lower by no more than equally fast levels differ has not bent.
        return best, len(at) if above[-1] + spread * rates[-1] >= above[best] else best

    chance = random.Random(0)
    smooth = _majorant(levels)
    ranks = sorted(
        bend([rate * math.exp(chance.gauss(0, deviation)) for rate in smooth])[1]
        for _ in range(_DRAWS)
    )
    tail = round((1 - CONFIDENCE) / 2 * _DRAWS)
    low, high = ranks[tail] - 1, ranks[-tail - 1] + 1
    best, knee = bend([1 / level.seconds for level in levels])
    note = ""
    if knee == len(at):
        workers = counted(at[best], "worker")
        note = (
            f"not reached at {workers}: on average, each added worker added at least half of the "
            "first worker's speed"
            if best == len(at) - 1
            else f"not known: beyond {workers}, each added worker added on average less than half "
            "of the first worker's speed, but the measurements differ among each other by "
            f"{spread:.1%}; measure longer, or with more repeats"
        )
    return None if note else at[knee], KneeInterval(
        low=at[min(max(0, low), len(at) - 1)], high=at[high] if high < len(at) else None, note=note
    )


def _majorant(levels: Sequence[MeasuredLevel]) -> list[float]:
    """Return the speeds of the lowest concave curve from zero workers that no level is above."""

    def slope(first: tuple[int, float], last: tuple[int, float]) -> float:
        return (last[1] - first[1]) / (last[0] - first[0])

    corners = [(0, 0.0)]
    for level in levels:
        new = (level.parallelism, 1 / level.seconds)
        while len(corners) > 1 and slope(corners[-2], corners[-1]) <= slope(corners[-1], new):
            corners.pop()
        corners.append(new)
    found = []
    for level in levels:
        first, last = next(each for each in pairwise(corners) if level.parallelism <= each[1][0])
        found.append(first[1] + slope(first, last) * (level.parallelism - first[0]))
    return found


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
        seconds=_short(found.seconds),
        text=f"the fewest workers that take at most {spread:.1%} longer than the fastest level",
    )


def _limit(loads: Sequence[Load], unused: str) -> Limit:
    """Return what limits the speed at some levels; `unused` has a place for the figures."""
    medians = {name: _median(getattr(load, name) for load in loads) for name in LOADS}
    known = {
        name: share for name, share in medians.items() if share is not None and name != "queued"
    }
    used = _used_up(known)
    if used:
        return Limit(resources=tuple(used), text="; ".join(used.values()))
    if not known:
        return Limit(resources=(), text="unknown: no load was measured at these levels")
    return Limit(
        resources=(), text=unused.format(", ".join(f"{n} {each:.0%}" for n, each in known.items()))
    )


def _used_up(known: Mapping[str, float]) -> dict[str, str]:
    """Return the resources that are used up, each with that in words."""
    waited, source, delay = (known.get(name) for name in ("output", "source", "delay"))
    disk, cpu, throttled = known.get("disk"), known.get("cpu"), known.get("throttled", 0.0)
    found = {}
    if waited is not None and waited >= WAITED:
        busy = "" if disk is None else f"; {disk:.0%} busy"
        found["disk"] = f"the disk (workers waited for it {waited:.0%} of their time{busy})"
    elif disk is not None and disk >= USED_UP and (waited is None or waited >= LITTLE):
        found["disk"] = f"the disk ({disk:.0%} busy)"
    if source is not None and source >= WAITED:
        found["source"] = f"the source (workers waited for it {source:.0%} of their time)"
    if known.get("network", 0.0) >= USED_UP:
        found["network"] = f"the network ({known['network']:.0%} of the link)"
    # Workers are known to wait for something else, and not for a CPU.
    database_works = known.get("database", 0.0) >= WORKING_DATABASE
    for_source = source is not None and source >= WAITED and not database_works
    for_output = waited is not None and waited >= WAITED
    if delay is not None and delay < LITTLE and (for_source or for_output):
        return found
    if throttled >= WAITED and (delay is None or delay >= LITTLE):
        busy = "" if cpu is None else f"; {cpu:.0%} busy"
        found["cpu"] = (
            f"the CPUs (the quota of the control group was used up in {throttled:.0%} of its "
            f"periods{busy})"
        )
    elif cpu is not None and cpu >= USED_UP:
        found["cpu"] = f"the CPUs ({cpu:.0%} busy)"
    elif delay is not None and delay >= WAITED:
        found["cpu"] = (
            f"the CPUs (workers were ready but waited for a CPU for {delay:.0%} of their time)"
        )
    elif known.get("node", 0.0) >= USED_UP:
        # If all CPUs are busy, the busiest node is busy, too.
        found["node"] = f"the CPUs of one NUMA node ({known['node']:.0%} busy)"
    return found
