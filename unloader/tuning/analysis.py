"""Puts the analysis of a sweep together: points in, one `Analysis` out. No file and no clock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from msgspec import Struct

from unloader.errors import ConfigError
from unloader.nouns import are, counted
from unloader.tuning import knee as knees
from unloader.tuning.limits import limit_of
from unloader.tuning.model import (
    Analysis,
    Choice,
    Extrapolation,
    Knee,
    Limit,
    Outlier,
    Prediction,
    Spread,
)
from unloader.tuning.outliers import DESCRIBES, SCATTER, disturbed, improbable
from unloader.tuning.points import Level, Point, deviation_of_repeats, levels_of
from unloader.tuning.prediction import predict
from unloader.tuning.validity import (
    Rules,
    Verdict,
    smallest_of_the_fastest,
    sustained,
    verdict,
)

if TYPE_CHECKING:
    from unloader.tuning.fitting import Fitted

MOST_LEVELS = 256
FEWEST_FOR_KNEE = 3


class _Study(Struct, frozen=True, kw_only=True):
    """What is told from levels alone, without rules."""

    kept: tuple[Level, ...]
    """Without the outliers."""
    spread: Spread
    outliers: tuple[Outlier, ...]
    fitted: Fitted | None
    described: bool
    knee: Knee
    notices: tuple[str, ...]

    def predictions(self, wanted: Sequence[int]) -> tuple[Prediction, ...]:
        """Return the predictions for some parallelisms."""
        levels = tuple(level.parallelism for level in self.kept)
        return predict(wanted, self.fitted, levels, described=self.described)


def analyse(points: Iterable[Point], rules: Rules, wanted: Sequence[int] = ()) -> Analysis:
    """Return all that measured points say.

    Args:
        points: In any order; those of the same parallelism are repeats.
        rules: What is valid, and how much is taken off for production.
        wanted: Parallelisms to predict; by default the measured ones, and twice the largest.

    Raises:
        ConfigError: There are no points or too many levels, or scipy is not installed.
    """
    levels, work = levels_of(points)
    if not levels:
        raise ConfigError("a sweep without points has no result", "measure some levels")
    if len(levels) > MOST_LEVELS:
        what = f"the points are of {counted(len(levels), 'level')} of parallelism"
        raise ConfigError(what, f"give at most {MOST_LEVELS}")
    study = _study(levels, rules)
    verdicts = tuple(verdict(level, rules) for level in levels)
    judged = [pair for pair in zip(levels, verdicts, strict=True) if pair[0] in study.kept]
    recommended = _choice([level for level, each in judged if each.valid], study)
    lasting = _choice(sustained(*zip(*judged, strict=True)), study)
    below, above = _limits(levels, study.knee)
    everywhere = [*(level.parallelism for level in levels), 2 * levels[-1].parallelism]
    best = study.fitted.best if study.fitted else None
    return Analysis(
        levels=levels,
        verdicts=verdicts,
        work=work,
        spread=study.spread,
        outliers=study.outliers,
        curves=tuple(each.curve() for each in study.fitted.fits) if study.fitted else (),
        chosen=best.curve() if best else None,
        deviation=study.fitted.deviation if study.fitted else None,
        described=study.described,
        knee=study.knee,
        below_knee=below,
        above_knee=above,
        predictions=study.predictions(wanted or everywhere),
        extrapolation=_trial(levels, rules),
        recommended=recommended,
        sustained=lasting,
        production=_production(recommended, lasting, verdicts, rules),
        doubts=tuple(_doubts(levels, study, rules)),
        notices=study.notices,
    )


def _doubts(levels: Sequence[Level], study: _Study, rules: Rules) -> Iterator[str]:
    """Yield each reason why the choices of this analysis may be wrong."""
    if study.fitted is not None and not study.described:
        law = study.fitted.best.curve().law
        yield (
            f"no law describes the levels: they deviate by {study.fitted.deviation:.1%} from the "
            f"nearest law, {law}"
        )
    unsteady = [str(level.parallelism) for level in levels if level.spread > rules.widest_spread]
    if unsteady:
        yield (
            f"{len(unsteady)} of {counted(len(levels), 'level')} {are(len(unsteady))} unsteady: "
            "the repeats of "
            f"{', '.join(unsteady)} workers differ by more than {rules.widest_spread:.0%}"
        )


def _study(levels: Sequence[Level], rules: Rules) -> _Study:
    fitting = library()
    spread, known = _spread(levels, rules, fitting)
    outliers = disturbed(levels, spread.share)
    kept = _without(levels, outliers or ())
    more = improbable(kept, spread.share, known, fitting)
    kept = _without(kept, more)
    fitted = fitting.fit(*_columns(kept), known)
    if more and outliers:
        # One level that is too fast can make the next ones seem slow.
        outliers = tuple(each for each in outliers if not _follows(each, levels, fitted))
        kept = _without(levels, (*outliers, *more))
        fitted = fitting.fit(*_columns(kept), known)
    described = fitted is not None and fitted.deviation <= max(DESCRIBES, 2 * known)
    return _Study(
        kept=kept,
        spread=spread,
        outliers=tuple(sorted((*(outliers or ()), *more), key=lambda each: each.parallelism)),
        fitted=fitted,
        described=described,
        knee=_no_knee(SCATTER)
        if outliers is None
        else _knee(kept, fitted if described else None, fitting),
        notices=(SCATTER,) if outliers is None else (),
    )


def _follows(outlier: Outlier, levels: Sequence[Level], fitted: Fitted) -> bool:
    """Return whether a level is where the law of others predicts it."""
    (level,) = (each for each in levels if each.parallelism == outlier.parallelism)
    _, low, high = fitted.seconds(level.parallelism)
    return low <= level.seconds <= high


def _spread(levels: Sequence[Level], rules: Rules, library: ModuleType) -> tuple[Spread, float]:
    """Return the spread, and the deviation of a level's median as repeats tell it."""
    measured = deviation_of_repeats(levels)
    if measured is None:
        return Spread(share=rules.spread, measured=False), 0.0
    deviation, freedom = measured
    repeats = min(level.repeats for level in levels)
    share = library.spread_of(deviation, freedom, repeats)
    return Spread(share=share, measured=True), deviation / repeats**0.5


def _without(levels: Sequence[Level], outliers: Sequence[Outlier]) -> tuple[Level, ...]:
    names = {each.parallelism for each in outliers}
    return tuple(level for level in levels if level.parallelism not in names)


def _columns(levels: Sequence[Level]) -> tuple[list[int], list[float]]:
    return [level.parallelism for level in levels], [level.seconds for level in levels]


def _knee(levels: Sequence[Level], described: Fitted | None, library: ModuleType) -> Knee:
    at, seconds = _columns(levels)
    if len(at) < FEWEST_FOR_KNEE:
        return _no_knee(f"too few levels for a knee: {len(at)}, and {FEWEST_FOR_KNEE} are needed")
    if described is not None:
        return knees.of_law(described, at[-1])
    return knees.of_levels(at, *library.concave_knee(at, seconds, draws=knees.DRAWS))


def _no_knee(why: str) -> Knee:
    return Knee(parallelism=None, low=None, high=None, method="none", note=why)


def _limits(levels: Sequence[Level], knee: Knee) -> tuple[Limit, Limit | None]:
    """Return what limits the speed up to the knee, and beyond it where levels are there."""
    bend = knee.parallelism if knee.parallelism is not None else levels[-1].parallelism
    # A curve that is flat from its beginning bends before it.
    below = [level for level in levels if level.parallelism <= bend] or levels[:1]
    above = [level for level in levels if level.parallelism > bend]
    return limit_of(below, above=False), limit_of(above, above=True) if above else None


def _choice(levels: Sequence[Level], study: _Study) -> Choice | None:
    found = smallest_of_the_fastest(levels, study.spread.share)
    if found is None:
        return None
    share = (
        f"{study.spread.share:.2g}" if study.spread.share < 0.01 else f"{study.spread.share:.1%}"
    )
    return Choice(
        parallelism=found.parallelism,
        seconds=found.seconds,
        text=f"the fewest workers that are within {share} of the fastest level",
    )


def _production(
    recommended: Choice | None,
    lasting: Choice | None,
    verdicts: Sequence[Verdict],
    rules: Rules,
) -> Choice | None:
    """Return what to plan a production run with: the discount taken off a speed that lasts."""
    measured = any(each.sustained is not None for each in verdicts if each.valid)
    base = lasting if measured else recommended
    if base is None:
        return None
    basis = "the sustained level" if measured else "the recommended level (CPU was not measured)"
    return Choice(
        parallelism=base.parallelism,
        seconds=base.seconds / (1 - rules.discount),
        text=f"{basis}, with {rules.discount:.0%} less speed",
    )


def _trial(levels: Sequence[Level], rules: Rules) -> Extrapolation | None:
    """Predict the largest level from those up to half of it, as if it had not been measured."""
    largest = levels[-1]
    half = [level for level in levels if 2 * level.parallelism <= largest.parallelism]
    if len(half) < FEWEST_FOR_KNEE:
        return None
    (found,) = _study(half, rules).predictions([largest.parallelism])
    return Extrapolation(
        up_to=half[-1].parallelism, prediction=found, measured_seconds=largest.seconds
    )


def library() -> ModuleType:
    """Return the one module that needs scipy.

    Raises:
        ConfigError: It is not installed.
    """
    try:
        from unloader.tuning import fitting
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("scipy", "numpy"):
            raise
        raise ConfigError(
            "the analysis of a sweep needs numpy and scipy: "
            f"the module {error.name!r} is not installed",
            "pip install 'unloader[sweep]'",
        ) from error
    return fitting
