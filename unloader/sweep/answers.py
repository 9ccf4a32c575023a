"""What the analysis says of each curve of a sweep, and what it means for the whole table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from unloader.errors import ConfigError
from unloader.sweep.model import PointReport, SweepReport, label
from unloader.sweep.points import PARALLELISM, curves, measured_points
from unloader.tuning.analysis import analyse
from unloader.tuning.model import Analysis
from unloader.tuning.validity import Rules


class WholeTable(Struct, frozen=True, kw_only=True):
    """The predicted seconds of all rows that the options select."""

    parallelism: int
    rows: int
    """By the source's estimate, where the sweep has not read them all."""
    seconds: float
    low: float | None
    high: float | None


class Answer(Struct, frozen=True, kw_only=True):
    """The answer of one curve: points that differ in parallelism alone."""

    settings: Mapping[str, str]
    """What they have in common, of what the sweep varies."""
    analysis: Analysis
    whole: WholeTable | None
    rows_per_second: float
    """Of its recommended level, or else of its fastest."""

    def recommended(self) -> dict[str, str]:
        """Return the recommended options, without parallelism where none is recommended."""
        choice = self.analysis.recommended
        own = {} if choice is None else {PARALLELISM: str(choice.parallelism)}
        return {**own, **self.settings}


class Answers(Struct, frozen=True, kw_only=True):
    """The answers of all curves, and why there are none where there are none."""

    answers: tuple[Answer, ...]
    """The fastest first."""
    notices: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return what is added to the JSON of a report; the keys of `--replay` are the best's."""
        best = self.answers[0] if self.answers else None
        return {
            **(best.analysis.to_json() if best else {}),
            "recommended_options": best.recommended() if best else None,
            "whole_table": _whole_json(best.whole) if best else None,
            "curves": [
                {
                    "settings": dict(each.settings),
                    "rows_per_second": each.rows_per_second,
                    "whole_table": _whole_json(each.whole),
                    **each.analysis.to_json(),
                }
                for each in self.answers
            ],
        }


def answers_of(report: SweepReport, rules: Rules, wanted: Sequence[int]) -> Answers:
    """Return what the analysis says.

    Args:
        report: Of the sweep.
        rules: Which points are valid.
        wanted: Parallelisms to predict; empty is the usual ones.
    """
    found, notices = [], []
    for settings, points in curves(report):
        known = [point for point in points if point.measurements]
        if not known:
            continue
        try:
            analysis = analyse(measured_points(known), rules, wanted)
        except ConfigError as error:
            notices.append(f"no analysis: {error.message}. Next: {error.hint}")
            break
        name = f"{label(settings)}: " if settings else ""
        notices += [f"{name}{text}" for text in analysis.notices]
        found.append(
            Answer(
                settings=settings,
                analysis=analysis,
                whole=_whole(analysis, known, report.whole_rows),
                rows_per_second=_speed(analysis, known),
            )
        )
    found.sort(key=lambda each: -each.rows_per_second)
    return Answers(answers=tuple(found), notices=tuple(notices))


def _speed(analysis: Analysis, points: Sequence[PointReport]) -> float:
    choice = analysis.recommended
    speeds = [
        point.rows_per_second or 0.0
        for point in points
        if choice is None or point.parallelism == choice.parallelism
    ]
    return max(speeds, default=0.0)


def _whole(
    analysis: Analysis, points: Sequence[PointReport], whole_rows: int | None
) -> WholeTable | None:
    """Return the seconds of all rows at the recommended parallelism, from those of the sample."""
    choice = analysis.recommended
    if choice is None or not whole_rows:
        return None
    measured = [each for point in points for each in point.measurements]
    # The analysis brings all points to the work of the one that did most.
    name = "bytes" if analysis.work.unit == "bytes" else "rows"
    most = max(measured, key=lambda each: float(getattr(each, name)))
    factor = whole_rows / most.rows
    at = choice.parallelism
    one = next((each for each in analysis.predictions if each.parallelism == at), None)
    if one is None or one.seconds is None:
        return WholeTable(
            parallelism=at, rows=whole_rows, seconds=choice.seconds * factor, low=None, high=None
        )
    return WholeTable(
        parallelism=at,
        rows=whole_rows,
        seconds=one.seconds * factor,
        low=None if one.low is None else one.low * factor,
        high=None if one.high is None else one.high * factor,
    )


def _whole_json(whole: WholeTable | None) -> dict[str, Any] | None:
    if whole is None:
        return None
    return {
        "parallelism": whole.parallelism,
        "rows": whole.rows,
        "seconds": whole.seconds,
        "low": whole.low,
        "high": whole.high,
    }
