"""From the document that `unloader sweep --json` writes to the report of the sweep.

The document is data of another program run, so nothing in it is taken for granted: what is missing
or of another type is None, and a document without a point is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from unloader.errors import ConfigError
from unloader.manifest.model import UnitRecord
from unloader.report.model import Bar
from unloader.report.scaling import curve
from unloader.report.sweep_model import (
    CeilingLine,
    ChoiceLine,
    CurvePoint,
    KneeLine,
    LevelLine,
    LoadLine,
    PointLine,
    State,
    SweepPage,
    WholeTable,
)
from unloader.report.timeline import bars_of

MOST_LEVELS = 300
_CURVE_POINTS = 60
_HOUR = 3600.0

Unit = Literal["bytes", "rows", "runs"]


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
    analysis = _map(document.get("analysis")) or document
    points = tuple(map(_point, _maps(document.get("points"))))
    found_levels = _maps(analysis.get("levels"))
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
    shown = _shown(_maps(document.get("points")), choices)
    bars, together = _bars(shown)
    model, limits = _map(analysis.get("model")), _map(analysis.get("limits"))
    return SweepPage(
        source=_text(document.get("source")),
        subject=_text(document.get("subject")) or "points of a file",
        destination=_text(document.get("destination")),
        caches=_text(document.get("caches")),
        unit=unit,
        levels=levels[:MOST_LEVELS],
        levels_left_out=max(0, len(levels) - MOST_LEVELS),
        model=_text(model.get("name")),
        described=bool(model.get("describes_levels", True)),
        curve=tuple(_curve(model, levels, unit, amount)),
        predictions=tuple(
            _prediction(each, unit, amount) for each in _maps(analysis.get("predictions"))
        ),
        knee=_knee(analysis),
        choices=choices,
        recommended_options=_label({"settings": analysis.get("recommended_options")}),
        whole_table=_whole(_map(analysis.get("whole_table"))),
        ceilings=tuple(_ceilings(ceilings or _map(document.get("ceilings")), unit)),
        limit_below_knee=_text(_map(limits.get("below_knee")).get("text")),
        limit_above_knee=_text(_map(limits.get("above_knee")).get("text")),
        points=points[:MOST_LEVELS],
        shown_point=_label(shown) if shown else "",
        bars=bars,
        units_per_bar=together,
        loads=tuple(_loads(shown)),
        notices=tuple(map(_text, document.get("notices") or ())),
    )


def _work(analysis: Mapping[str, Any]) -> tuple[Unit, float]:
    """Return what rates count, and how much of it the seconds of each level are for."""
    work = _map(analysis.get("work"))
    amount = _number(work.get("amount"))
    if work.get("unit") in ("bytes", "rows") and amount:
        return work["unit"], amount
    return "runs", _HOUR


Verdicts = Mapping[tuple[str, int], LevelLine]
"""By the settings that are no parallelism, and by parallelism."""


def _verdicts(analysis: Mapping[str, Any]) -> Verdicts:
    """Return what the analysis says of each level of each curve, where settings vary."""
    found = {}
    for each in _maps(analysis.get("curves")):
        for level in _maps(each.get("levels")):
            line = _level(level, "runs", _HOUR)
            found[_label(each), line.parallelism] = line
    return found


def _rows_of_levels(
    levels: list[Mapping[str, Any]], points: tuple[PointLine, ...], verdicts: Verdicts
) -> float:
    """Return the rows that the seconds of the best curve's levels are for; 0 if unknown."""
    for each in levels:
        parallelism, seconds = each.get("parallelism"), _number(each.get("seconds"))
        for point in points:
            known = verdicts.get((_series(point.label), point.parallelism))
            same = known is not None and known.seconds == seconds
            if same and point.parallelism == parallelism and point.rows_per_second and seconds:
                return point.rows_per_second * seconds
    return 0.0


def _level(each: Mapping[str, Any], unit: Unit, amount: float) -> LevelLine:
    seconds = _number(each.get("seconds"))
    fastest, slowest = _number(each.get("fastest_seconds")), _number(each.get("slowest_seconds"))
    return LevelLine(
        parallelism=int(_number(each.get("parallelism")) or 0),
        series="",
        seconds=seconds,
        rate=_rate(amount, seconds),
        lowest_rate=_rate(amount, slowest),
        highest_rate=_rate(amount, fastest),
        repeats=int(_number(each.get("repeats")) or 1),
        cpu=_number(_map(each.get("load")).get("cpu")),
        state=_state(each),
        reasons="; ".join(map(_text, each.get("reasons") or ())),
    )


def _state(level: Mapping[str, Any]) -> State:
    if level.get("outlier"):
        return "outlier"
    if level.get("valid") is False:
        return "not valid"
    return "not sustained" if level.get("sustained") is False else "sustained"


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
        state="failed" if failed else judged.state if judged is not None else "sustained",
        reasons=point.problem or (judged.reasons if judged is not None else ""),
    )


def _series(label: str) -> str:
    """Return the settings of a label but for the parallelism, which is on an axis."""
    settings = (each.strip() for each in label.split("--"))
    return " ".join(f"--{each}" for each in settings if each and not _is_parallelism(each))


def _is_parallelism(setting: str) -> bool:
    return setting.split(" ", 1)[0] == "parallelism"


def _curve(
    model: Mapping[str, Any], levels: Iterable[LevelLine], unit: Unit, amount: float
) -> Iterator[CurvePoint]:
    one = _number(model.get("one_worker_seconds"))
    numbers = {name: _number(value) for name, value in _map(model.get("parameters")).items()}
    parameters = {name: value for name, value in numbers.items() if value is not None}
    most = max((level.parallelism for level in levels), default=0)
    if one is None:
        return
    for at, seconds in curve(_text(model.get("name")), parameters, one, float(most), _CURVE_POINTS):
        yield _along(at, seconds, None, None, amount)


def _prediction(each: Mapping[str, Any], unit: Unit, amount: float) -> CurvePoint:
    return _along(
        _number(each.get("parallelism")) or 0.0,
        _number(each.get("seconds")),
        _number(each.get("low")),
        _number(each.get("high")),
        amount,
        _text(each.get("reason")),
    )


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
        seconds=_digits(seconds),
        low=low,
        high=high,
        rate=_rate(amount, seconds),
        lowest_rate=_rate(amount, high),
        highest_rate=_rate(amount, low),
        reason=reason,
    )


def _knee(analysis: Mapping[str, Any]) -> KneeLine | None:
    interval = _map(analysis.get("knee_interval"))
    if not interval:
        return None
    return KneeLine(
        parallelism=_number(analysis.get("knee")),
        low=_number(interval.get("low")),
        high=_number(interval.get("high")),
        method=_text(interval.get("method")),
        note=_text(interval.get("note")),
    )


def _choices(analysis: Mapping[str, Any]) -> Iterator[ChoiceLine]:
    recommended = _number(analysis.get("recommended"))
    if recommended is not None:
        seconds = next(
            (
                _number(each.get("seconds"))
                for each in _maps(analysis.get("levels"))
                if each.get("parallelism") == recommended
            ),
            None,
        )
        yield ChoiceLine(what="recommended", parallelism=int(recommended), seconds=seconds, text="")
    names: tuple[Literal["sustained", "production"], ...] = ("sustained", "production")
    for name in names:
        found = _map(analysis.get(name))
        parallelism = _number(found.get("parallelism"))
        if parallelism is not None:
            yield ChoiceLine(
                what=name,
                parallelism=int(parallelism),
                seconds=_number(found.get("seconds")),
                text=_text(found.get("text")),
            )


def _whole(found: Mapping[str, Any]) -> WholeTable | None:
    if not found:
        return None
    names = ("rows", "seconds", "low", "high")
    return WholeTable(**{name: _number(found.get(name)) for name in names})


def _ceilings(found: Mapping[str, Any], unit: Unit) -> Iterator[CeilingLine]:
    """Yield the ceilings that count the same as the sweep, from the file of `preflight`."""
    key = {"bytes": "bytes_per_second", "rows": "rows_per_second", "runs": ""}[unit]
    disks = [_map(found.get("together"))] if found.get("together") else _maps(found.get("disks"))
    rates = [rate for each in disks if (rate := _number(each.get(key))) is not None]
    if rates:
        yield CeilingLine(what="disk, sequential writes", rate=max(rates))
    levels = _maps(_map(found.get("source")).get("levels"))
    best = max(
        (rate for each in levels if (rate := _number(each.get("rows_per_second"))) is not None),
        default=None,
    )
    if best is not None and unit == "rows":
        yield CeilingLine(what="source, rows thrown away", rate=best)


def _point(each: Mapping[str, Any]) -> PointLine:
    runs = _maps(each.get("measurements"))
    median = _median(runs)
    costs, machine = _map(median.get("costs")), _map(median.get("machine"))
    who = _map(machine.get("processes"))
    return PointLine(
        label=_label(each),
        parallelism=int(_number(each.get("parallelism")) or 0),
        state=_text(each.get("state")),
        problem=_text(each.get("problem")),
        runs=len(runs),
        seconds=_number(median.get("seconds")),
        rows_per_second=_number(each.get("rows_per_second")),
        bytes_per_second=_number(median.get("bytes_per_second")),
        spread=_number(each.get("spread")),
        **{
            name: _number(costs.get(name))
            for name in ("fetch", "encode", "compress", "write", "rest", "total")
        },
        workers=_number(who.get("workers")),
        parent=_number(who.get("parent")),
        database=_number(who.get("database")),
        others=_number(who.get("rest")),
        idle=_number(_map(machine.get("cpu")).get("idle")),
        queued_s=_number(_map(median.get("queueing")).get("longest_seconds")),
    )


def _label(point: Mapping[str, Any]) -> str:
    settings = _map(point.get("settings"))
    return " ".join(f"--{name} {value}" for name, value in settings.items())


def _median(runs: list[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the measurement with the median speed, of two the slower."""
    ordered = sorted(runs, key=lambda run: _number(run.get("rows_per_second")) or 0.0)
    return ordered[(len(ordered) - 1) // 2] if ordered else {}


def _shown(
    points: list[Mapping[str, Any]], choices: tuple[ChoiceLine, ...]
) -> Mapping[str, Any] | None:
    wanted = next((each.parallelism for each in choices if each.what == "recommended"), None)
    measured = [point for point in points if point.get("measurements")]
    same = [point for point in measured if point.get("parallelism") == wanted]
    return max(
        same or measured,
        key=lambda point: _number(point.get("rows_per_second")) or 0.0,
        default=None,
    )


def _bars(point: Mapping[str, Any] | None) -> tuple[tuple[Bar, ...], int]:
    timeline = _maps(_median(_maps((point or {}).get("measurements"))).get("timeline"))
    units = [
        UnitRecord(
            id=_text(each.get("unit")),
            rows=int(_number(each.get("rows")) or 0),
            seconds=_number(each.get("seconds")) or 0.0,
            worker=int(_number(each.get("worker")) or 0),
            started_s=_digits(_number(each.get("began_seconds"))) or 0.0,
            files=(),
        )
        for each in timeline
    ]
    return bars_of(units, ())


def _loads(point: Mapping[str, Any] | None) -> Iterator[LoadLine]:
    for moment in _maps(_median(_maps((point or {}).get("measurements"))).get("moments")):
        at = _number(moment.get("at_seconds"))
        for node in _maps(moment.get("nodes")):
            share = _number(node.get("busy"))
            if at is not None and share is not None:
                yield LoadLine(
                    at_s=round(at, 3), node=_text(node.get("node")), share=round(share, 4)
                )


def _rate(amount: float, seconds: float | None) -> float | None:
    return _digits(amount / seconds) if seconds and amount else None


def _digits(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")


def _map(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _maps(value: object) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value


def _text(value: object) -> str:
    return "" if value is None else str(value)
