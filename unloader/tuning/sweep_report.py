"""The report of a sweep: the figures of its page, which the page also contains as JSON.

It is made from the output of `unloader sweep --json`. Unknown figures are null.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import asdict

from unloader.tuning.analysis import Analysis, KneeInterval, MeasuredLevel, Work
from unloader.tuning.ceilings import Ceilings
from unloader.tuning.run_report import FORMAT_VERSION, Bar, bars_of
from unloader.tuning.sweep_document import PARALLELISM, PointReport, SweepDocument, label

MOST_LEVELS = 300
_HOUR = 3600.0

State = Literal["sustained", "valid", "not sustained", "not valid", "outlier", "failed"]
"""Of a level, by the rules; `valid` if it is unknown whether it can be sustained."""

Unit = Literal["bytes", "rows", "runs"]
"""What rates count: runs an hour where neither bytes nor rows are known."""


class LevelLine(Struct, frozen=True, kw_only=True):
    """All measurements at one parallelism, or of one point where settings vary, too."""

    parallelism: int
    series: str
    """The other settings; empty where parallelism alone varies."""
    seconds: float | None
    rate: float | None
    """In the unit of the sweep, per second."""
    lowest_rate: float | None
    highest_rate: float | None
    repeats: int
    cpu: float | None
    state: State
    reasons: str
    """Why it is not valid, cannot be sustained or is an outlier."""


class KneeLine(Struct, frozen=True, kw_only=True):
    """The level beyond which another worker adds less than half of the first worker's speed."""

    parallelism: int | None
    low: int | None
    high: int | None
    note: str


class ChoiceLine(Struct, frozen=True, kw_only=True):
    """A level to use."""

    what: Literal["recommended", "sustained", "production"]
    parallelism: int
    seconds: float | None
    text: str


class CeilingLine(Struct, frozen=True, kw_only=True):
    """What a part of the way can do at most, in the unit of the sweep."""

    what: str
    rate: float


class SweepSetting(Struct, frozen=True, kw_only=True):
    """How points were measured, or what of."""

    name: str
    value: str


class PointLine(Struct, frozen=True, kw_only=True):
    """What one point cost: medians of its measurements."""

    label: str
    parallelism: int
    state: str
    problem: str
    runs: int
    seconds: float | None = None
    rows_per_second: float | None
    bytes_per_second: float | None = None
    spread: float | None
    fetch: float | None = None
    """This and the next five: CPU seconds for a million rows."""
    encode: float | None = None
    compress: float | None = None
    write: float | None = None
    rest: float | None = None
    total: float | None = None
    workers: float | None = None
    """This and the next four: shares of all CPUs."""
    parent: float | None = None
    database: float | None = None
    others: float | None = None
    idle: float | None = None
    queued_s: float | None = None


class LoadLine(Struct, frozen=True, kw_only=True):
    """How busy a node was."""

    at_s: float
    node: str
    share: float


class WholeTableLine(Struct, frozen=True, kw_only=True):
    """What all of the table would take with the recommended options."""

    rows: int
    seconds: float


class SweepPage(Struct, frozen=True, kw_only=True):
    """Everything that the page of a sweep shows."""

    report: Literal["sweep"] = "sweep"
    format_version: Literal[1] = FORMAT_VERSION
    source: str = ""
    subject: str = "points of a file"
    destination: str = ""
    caches: str = ""
    unit: Unit
    levels: tuple[LevelLine, ...]
    levels_left_out: int
    knee: KneeLine
    choices: tuple[ChoiceLine, ...]
    doubts: tuple[str, ...]
    """Why the choices may be wrong."""
    recommended_options: str = ""
    """As options of a command line; empty without any."""
    whole_table: WholeTableLine | None = None
    ceilings: tuple[CeilingLine, ...]
    settings: tuple[SweepSetting, ...] = ()
    limit_below_knee: str
    limit_above_knee: str
    points: tuple[PointLine, ...] = ()
    shown_point: str = ""
    """The point whose timeline and load are shown: the recommended one, or the fastest."""
    bars: tuple[Bar, ...] = ()
    units_per_bar: int = 1
    loads: tuple[LoadLine, ...] = ()
    notices: tuple[str, ...]


def sweep_report(found: Analysis, ceilings: Ceilings | None = None) -> SweepPage:
    """Return the report of a sweep.

    Args:
        found: The result of the sweep.
        ceilings: A file of `unloader preflight --save`, to compare the sweep with.
    """
    live = found if isinstance(found, SweepDocument) else None
    unit, levels, row_bytes = _unit(found.work), _levels(found), None
    if live is not None:
        if len(live.curves) > 1:
            # Bytes of one format or codec are not comparable with bytes of another.
            unit, levels = "rows", _levels_of_points(live)
        measured = next((each.median for each in live.points if each.median is not None), None)
        row_bytes = measured.bytes / measured.rows if measured is not None else None
    return SweepPage(
        unit=unit,
        levels=levels[:MOST_LEVELS],
        levels_left_out=max(0, len(levels) - MOST_LEVELS),
        knee=_knee(found.knee, found.knee_interval),
        choices=tuple(_choices(found)),
        doubts=found.doubts,
        ceilings=tuple(_ceilings(ceilings, unit, row_bytes)) if ceilings is not None else (),
        limit_below_knee=found.limits.below_knee.text,
        limit_above_knee=found.limits.above_knee.text if found.limits.above_knee else "",
        notices=found.notices,
        **(_live(live) if live is not None else {}),
    )


def _live(found: SweepDocument) -> dict[str, Any]:
    """Return the fields of a page that only a sweep which measured has."""
    whole, shown = found.whole_table, _shown_point(found)
    bars, together = _timeline(shown)
    return {
        "source": found.source,
        "subject": found.subject,
        "destination": found.destination,
        "caches": found.caches,
        "recommended_options": label(found.recommended_options),
        "whole_table": WholeTableLine(rows=whole.rows, seconds=whole.seconds) if whole else None,
        "settings": tuple(_settings(found)),
        "points": tuple(map(_point_line, found.points[:MOST_LEVELS])),
        "shown_point": label(shown.settings) if shown else "",
        "bars": bars,
        "units_per_bar": together,
        "loads": tuple(_loads(shown)),
    }


def _unit(work: Work) -> Unit:
    return "bytes" if work.unit == "bytes" else "rows" if work.unit == "rows" else "runs"


def _levels(found: Analysis) -> tuple[LevelLine, ...]:
    amount = _HOUR if _unit(found.work) == "runs" else found.work.amount
    return tuple(
        LevelLine(
            parallelism=each.parallelism,
            series="",
            seconds=each.seconds,
            rate=_digits(amount / each.seconds),
            lowest_rate=_digits(amount / each.slowest_seconds),
            highest_rate=_digits(amount / each.fastest_seconds),
            repeats=each.repeats,
            cpu=each.load.cpu,
            state=_state(each),
            reasons="; ".join(each.reasons),
        )
        for each in found.levels
    )


def _state(level: MeasuredLevel) -> State:
    if level.outlier:
        return "outlier"
    if not level.valid:
        return "not valid"
    if level.sustained is None:
        return "valid"
    return "sustained" if level.sustained else "not sustained"


def _levels_of_points(found: SweepDocument) -> tuple[LevelLine, ...]:
    judged = {
        (label(curve.settings), level.parallelism): level
        for curve in found.curves
        for level in curve.levels
    }
    return tuple(_level_of_point(point, judged) for point in found.points)


def _level_of_point(
    point: PointReport, judged: Mapping[tuple[str, int], MeasuredLevel]
) -> LevelLine:
    others = {name: text for name, text in point.settings.items() if name != PARALLELISM}
    level = judged.get((label(others), point.parallelism))
    median = point.median
    return LevelLine(
        parallelism=point.parallelism,
        series=label(others),
        seconds=median.seconds if median is not None else None,
        rate=point.rows_per_second,
        lowest_rate=None,
        highest_rate=None,
        repeats=len(point.measurements),
        cpu=level.load.cpu if level is not None else None,
        state="failed" if level is None else _state(level),
        reasons=point.problem or ("; ".join(level.reasons) if level is not None else ""),
    )


def _knee(parallelism: int | None, interval: KneeInterval) -> KneeLine:
    return KneeLine(
        parallelism=parallelism, low=interval.low, high=interval.high, note=interval.note
    )


def _choices(found: Analysis) -> Iterator[ChoiceLine]:
    level = found.level(found.recommended)
    if level is not None:
        yield ChoiceLine(
            what="recommended", parallelism=level.parallelism, seconds=level.seconds, text=""
        )
    if found.sustained is not None:
        yield ChoiceLine(what="sustained", **asdict(found.sustained))
    if found.production is not None:
        yield ChoiceLine(what="production", **asdict(found.production))


def _ceilings(found: Ceilings, unit: Unit, row_bytes: float | None) -> Iterator[CeilingLine]:
    """Yield the ceilings in the unit of a sweep.

    Args:
        found: The ceilings.
        unit: Of the sweep's rates.
        row_bytes: Of one row in the files, where that is known.
    """
    if found.disk is not None and unit == "bytes":
        yield CeilingLine(what="disk, sequential writes", rate=found.disk.bytes_per_second)
    if found.source is None:
        return
    best = max(each.rows_per_second for each in found.source.levels)
    if unit == "rows":
        yield CeilingLine(what="source, rows thrown away", rate=best)
    elif unit == "bytes" and row_bytes is not None:
        yield CeilingLine(what="source, rows thrown away", rate=round(best * row_bytes, 1))


_SETTINGS = {
    "repeats": "measurements of a point",
    "most_repeats": "at most, where they differ too much",
    "widest_spread": "allowed difference between them, as a share",
    "warm_up": "warm-ups",
    "sample": "share of the table",
    "seconds": "longest measurement, in seconds",
    "seed": "seed of the order",
}


def _settings(found: SweepDocument) -> Iterator[SweepSetting]:
    """Yield how the points were measured."""
    known = {name: getattr(found.options, key) for key, name in _SETTINGS.items()}
    known |= {"cores of the machine": found.cores, "rows of the table": found.whole_rows}
    for name, value in known.items():
        if value is not None:
            yield SweepSetting(name=name, value=str(value))


def _point_line(point: PointReport) -> PointLine:
    """Return what a point cost."""
    median = point.median
    known: dict[str, Any] = {}
    if median is not None:
        known = {
            "seconds": median.seconds,
            "bytes_per_second": median.bytes_per_second,
            **asdict(median.costs),
            "queued_s": median.queueing.longest_seconds,
        }
        if median.machine is not None:
            who, cpu = median.machine.processes, median.machine.cpu
            known |= {
                "workers": who.workers,
                "parent": who.parent,
                "database": who.database,
                "others": who.rest,
                "idle": cpu.idle if cpu is not None else None,
            }
    return PointLine(
        label=label(point.settings),
        parallelism=point.parallelism,
        state=point.state,
        problem=point.problem,
        runs=len(point.measurements),
        rows_per_second=point.rows_per_second,
        spread=point.spread,
        **known,
    )


def _shown_point(found: SweepDocument) -> PointReport | None:
    """Return the point whose timeline is shown: the fastest of the recommended parallelism."""
    measured = [point for point in found.points if point.measurements]
    same = [point for point in measured if point.parallelism == found.recommended]
    return max(same or measured, key=lambda point: point.rows_per_second or 0.0, default=None)


def _timeline(point: PointReport | None) -> tuple[tuple[Bar, ...], int]:
    """Return the bars of a point's median measurement, and the most units of one bar."""
    median = point.median if point is not None else None
    units: Sequence[Any] = median.timeline if median is not None else ()
    return bars_of(
        Bar(
            worker=each.worker,
            unit=each.unit,
            last_unit=each.unit,
            units=1,
            partition="",
            started_s=_digits(each.began_seconds),
            seconds=each.seconds,
            rows=each.rows,
            attempt=1,
            outcome="done",
        )
        for each in units
    )


def _loads(point: PointReport | None) -> Iterator[LoadLine]:
    """Yield the load of the nodes during a point's median measurement."""
    median = point.median if point is not None else None
    for moment in median.moments if median is not None else ():
        for node in moment.nodes:
            yield LoadLine(
                at_s=round(moment.at_seconds, 3), node=str(node.node), share=round(node.busy, 4)
            )


def _digits(value: float) -> float:
    """Return a number with six digits of it."""
    return float(f"{value:.6g}")
