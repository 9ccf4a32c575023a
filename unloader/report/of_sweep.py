"""From the document that `unloader sweep --json` writes to the report of the sweep.

The document is data of another program run, so nothing in it is taken for granted: what is missing
or of another type is None, and a document without a point is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from unloader.errors import ConfigError
from unloader.report.sweep_model import (
    ChoiceLine,
    CurvePoint,
    KneeLine,
    LevelLine,
    PointLine,
    State,
    SweepPage,
    WholeTable,
)
from unloader.report.sweeps.limits import Unit, ceilings_of, settings_of
from unloader.report.sweeps.points import (
    label_of,
    loads_of,
    point_line,
    row_bytes,
    shown_point,
    timeline_of,
)
from unloader.report.sweeps.scaling import curve
from unloader.report.sweeps.values import as_map, as_maps, as_number, as_text, digits

MOST_LEVELS = 300
_CURVE_POINTS = 60
_HOUR = 3600.0


def is_sweep(document: object) -> bool:
    """Tell whether this is what a sweep wrote, live or from a file of points."""
    return isinstance(document, Mapping) and ("levels" in document or "points" in document)


def sweep_report(
    document: Mapping[str, Any], ceilings: Mapping[str, Any] | None = None
) -> SweepPage:
    """Return the report of a sweep.

    Args:
        document: Points, their analysis (in the document itself or under `analysis`), or both.
        ceilings: What `unloader preflight --save` wrote; None takes those of the document.

    Raises:
        ConfigError: It has neither a point nor a level.
    """
    analysis = as_map(document.get("analysis")) or document
    measured = as_maps(document.get("points"))
    points = tuple(map(point_line, measured))
    found_levels = as_maps(analysis.get("levels"))
    if not found_levels and not points:
        raise ConfigError(
            "the sweep has no points, so there is nothing to show", "measure some levels"
        )
    verdicts = _verdicts(analysis)
    several = len({series for series, _ in verdicts}) > 1
    if found_levels and not several:
        unit, amount = _work(analysis)
        levels = tuple(_level(each, unit, amount) for each in found_levels)
    else:
        # Bytes of one format or codec are no measure of another.
        unit, amount = "rows", _rows_of_levels(found_levels, points, verdicts)
        levels = tuple(_level_of_point(point, verdicts) for point in points)
    choices = tuple(_choices(analysis))
    wanted = next((each.parallelism for each in choices if each.what == "recommended"), None)
    shown = shown_point(measured, wanted)
    bars, together = timeline_of(shown)
    model, limits = as_map(analysis.get("model")), as_map(analysis.get("limits"))
    return SweepPage(
        source=as_text(document.get("source")),
        subject=as_text(document.get("subject")) or "points of a file",
        destination=as_text(document.get("destination")),
        caches=as_text(document.get("caches")),
        unit=unit,
        levels=levels[:MOST_LEVELS],
        levels_left_out=max(0, len(levels) - MOST_LEVELS),
        model=as_text(model.get("name")),
        described=bool(model.get("describes_levels", True)),
        curve=tuple(_curve(model, levels, amount)),
        predictions=tuple(
            _prediction(each, amount) for each in as_maps(analysis.get("predictions"))
        ),
        knee=_knee(analysis),
        choices=choices,
        doubts=tuple(map(as_text, analysis.get("doubts") or ())),
        recommended_options=label_of({"settings": analysis.get("recommended_options")}),
        whole_table=_whole(as_map(analysis.get("whole_table"))),
        ceilings=tuple(
            ceilings_of(ceilings or as_map(document.get("ceilings")), unit, row_bytes(measured))
        ),
        settings=tuple(settings_of(document)),
        limit_below_knee=as_text(as_map(limits.get("below_knee")).get("text")),
        limit_above_knee=as_text(as_map(limits.get("above_knee")).get("text")),
        points=points[:MOST_LEVELS],
        shown_point=label_of(shown) if shown else "",
        bars=bars,
        units_per_bar=together,
        loads=tuple(loads_of(shown)),
        notices=tuple(map(as_text, document.get("notices") or ())),
    )


def _work(analysis: Mapping[str, Any]) -> tuple[Unit, float]:
    """Return what rates count, and how much of it the seconds of each level are for."""
    work = as_map(analysis.get("work"))
    amount = as_number(work.get("amount"))
    if work.get("unit") in ("bytes", "rows") and amount:
        return work["unit"], amount
    return "runs", _HOUR


Verdicts = Mapping[tuple[str, int], LevelLine]
"""By the settings that are no parallelism, and by parallelism."""


def _verdicts(analysis: Mapping[str, Any]) -> Verdicts:
    """Return what the analysis says of each level of each curve, where settings vary."""
    found = {}
    for each in as_maps(analysis.get("curves")):
        for level in as_maps(each.get("levels")):
            line = _level(level, "runs", _HOUR)
            found[label_of(each), line.parallelism] = line
    return found


def _rows_of_levels(
    levels: list[Mapping[str, Any]], points: tuple[PointLine, ...], verdicts: Verdicts
) -> float:
    """Return the rows that the seconds of the best curve's levels are for; 0 if unknown."""
    for each in levels:
        parallelism, seconds = each.get("parallelism"), as_number(each.get("seconds"))
        for point in points:
            known = verdicts.get((_series(point.label), point.parallelism))
            same = known is not None and known.seconds == seconds
            if same and point.parallelism == parallelism and point.rows_per_second and seconds:
                return point.rows_per_second * seconds
    return 0.0


def _level(each: Mapping[str, Any], unit: Unit, amount: float) -> LevelLine:
    seconds = as_number(each.get("seconds"))
    fastest, slowest = (
        as_number(each.get("fastest_seconds")),
        as_number(each.get("slowest_seconds")),
    )
    return LevelLine(
        parallelism=int(as_number(each.get("parallelism")) or 0),
        series="",
        seconds=seconds,
        rate=_rate(amount, seconds),
        lowest_rate=_rate(amount, slowest),
        highest_rate=_rate(amount, fastest),
        repeats=int(as_number(each.get("repeats")) or 1),
        cpu=as_number(as_map(each.get("load")).get("cpu")),
        state=_state(each),
        reasons="; ".join(map(as_text, each.get("reasons") or ())),
    )


def _state(level: Mapping[str, Any]) -> State:
    if level.get("outlier"):
        return "outlier"
    if level.get("valid") is False:
        return "not valid"
    sustained = level.get("sustained")
    return "valid" if sustained is None else "sustained" if sustained else "not sustained"


def _level_of_point(point: PointLine, verdicts: Verdicts) -> LevelLine:
    series = _series(point.label)
    judged = verdicts.get((series, point.parallelism))
    failed = point.rows_per_second is None
    return LevelLine(
        parallelism=point.parallelism,
        series=series,
        seconds=point.seconds,
        rate=point.rows_per_second,
        lowest_rate=None,
        highest_rate=None,
        repeats=point.runs,
        cpu=judged.cpu if judged is not None else None,
        state="failed" if failed else judged.state if judged is not None else "valid",
        reasons=point.problem or (judged.reasons if judged is not None else ""),
    )


def _series(label: str) -> str:
    """Return the settings of a label but for the parallelism, which is on an axis."""
    settings = (each.strip() for each in label.split("--"))
    return " ".join(f"--{each}" for each in settings if each and not _is_parallelism(each))


def _is_parallelism(setting: str) -> bool:
    return setting.split(" ", 1)[0] == "parallelism"


def _curve(
    model: Mapping[str, Any], levels: Iterable[LevelLine], amount: float
) -> Iterator[CurvePoint]:
    one = as_number(model.get("one_worker_seconds"))
    numbers = {name: as_number(value) for name, value in as_map(model.get("parameters")).items()}
    parameters = {name: value for name, value in numbers.items() if value is not None}
    most = max((level.parallelism for level in levels), default=0)
    if one is None:
        return
    for at, seconds in curve(
        as_text(model.get("name")), parameters, one, float(most), _CURVE_POINTS
    ):
        yield _along(at, seconds, None, None, amount)


def _prediction(each: Mapping[str, Any], amount: float) -> CurvePoint:
    reason = as_text(each.get("reason"))
    # What cannot be predicted has no interval that anybody could rely on.
    low, high = (None if reason else as_number(each.get(name)) for name in ("low", "high"))
    parallelism, seconds = as_number(each.get("parallelism")), as_number(each.get("seconds"))
    return _along(parallelism or 0.0, seconds, low, high, amount, reason)


def _along(
    at: float,
    seconds: float | None,
    low: float | None,
    high: float | None,
    amount: float,
    reason: str = "",
) -> CurvePoint:
    return CurvePoint(
        parallelism=round(at, 3),
        seconds=digits(seconds),
        low=low,
        high=high,
        rate=_rate(amount, seconds),
        lowest_rate=_rate(amount, high),
        highest_rate=_rate(amount, low),
        reason=reason,
    )


def _knee(analysis: Mapping[str, Any]) -> KneeLine | None:
    interval = as_map(analysis.get("knee_interval"))
    if not interval:
        return None
    return KneeLine(
        parallelism=as_number(analysis.get("knee")),
        low=as_number(interval.get("low")),
        high=as_number(interval.get("high")),
        method=as_text(interval.get("method")),
        note=as_text(interval.get("note")),
    )


def _choices(analysis: Mapping[str, Any]) -> Iterator[ChoiceLine]:
    recommended = as_number(analysis.get("recommended"))
    if recommended is not None:
        seconds = next(
            (
                as_number(each.get("seconds"))
                for each in as_maps(analysis.get("levels"))
                if each.get("parallelism") == recommended
            ),
            None,
        )
        yield ChoiceLine(what="recommended", parallelism=int(recommended), seconds=seconds, text="")
    names: tuple[Literal["sustained", "production"], ...] = ("sustained", "production")
    for name in names:
        found = as_map(analysis.get(name))
        parallelism = as_number(found.get("parallelism"))
        if parallelism is not None:
            yield ChoiceLine(
                what=name,
                parallelism=int(parallelism),
                seconds=as_number(found.get("seconds")),
                text=as_text(found.get("text")),
            )


def _whole(found: Mapping[str, Any]) -> WholeTable | None:
    if not found:
        return None
    names = ("rows", "seconds", "low", "high")
    return WholeTable(**{name: as_number(found.get(name)) for name in names})


def _rate(amount: float, seconds: float | None) -> float | None:
    return digits(amount / seconds) if seconds and amount else None
