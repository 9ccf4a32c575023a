"""The report of a sweep: the figures of its page, which the page also contains as JSON.

It is made from the output of `unloader sweep --json`. Unknown figures are null.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from unloader.tuning.analysis import Analysis, KneeInterval, LevelChoice, Limits, MeasuredLevel
from unloader.tuning.ceilings import Ceilings
from unloader.tuning.machine_load import Moment
from unloader.tuning.run_report import FORMAT_VERSION, Bar, bars_of
from unloader.tuning.sweep_document import (
    PARALLELISM,
    Measurement,
    PointReport,
    SweepDocument,
    SweepOptions,
    WholeTable,
    label,
)

MOST_LEVELS = 300
_HOUR = 3600.0

State = Literal["sustained", "valid", "not sustained", "not valid", "outlier", "failed"]
"""Of a level, by the rules; `valid` if it is unknown whether it can be sustained."""

Unit = Literal["bytes", "rows", "runs"]
"""What rates count: runs an hour where neither bytes nor rows are known."""


class LevelLine(Struct, frozen=True, kw_only=True):
    """All measurements at one parallelism, or of one point where settings vary, too."""

    parallelism: int
    series: str = ""
    """The other settings; empty where parallelism alone varies."""
    seconds: float | None
    rate: float | None
    """In the unit of the sweep, per second."""
    lowest_rate: float | None = None
    highest_rate: float | None = None
    repeats: int
    cpu: float | None
    state: State
    reasons: str
    """Why it is not valid, cannot be sustained or is an outlier."""


class CeilingLine(Struct, frozen=True, kw_only=True):
    """What a part of the way can do at most, in the unit of the sweep."""

    what: str
    rate: float


class PointLine(Struct, frozen=True, kw_only=True):
    """What one point cost."""

    label: str
    parallelism: int
    state: str
    problem: str
    runs: int
    rows_per_second: float | None
    spread: float | None
    median: Measurement | None
    """The median measurement, without its moments and its timeline."""


class SweepPage(Struct, frozen=True, kw_only=True):
    """Everything that the page of a sweep shows; the last fields are of a sweep that measured."""

    report: Literal["sweep"] = "sweep"
    format_version: Literal[2] = FORMAT_VERSION
    unit: Unit
    levels: tuple[LevelLine, ...]
    levels_left_out: int
    knee: int | None
    knee_interval: KneeInterval
    recommended: int | None
    sustained: LevelChoice | None
    production: LevelChoice | None
    doubts: tuple[str, ...]
    """Why the choices may be wrong."""
    limits: Limits
    ceilings: tuple[CeilingLine, ...]
    notices: tuple[str, ...]
    source: str = ""
    subject: str = "points of a file"
    destination: str = ""
    caches: str = ""
    recommended_options: str = ""
    """As options of a command line; empty without any."""
    whole_table: WholeTable | None = None
    options: SweepOptions | None = None
    whole_rows: int | None = None
    cores: int | None = None
    points: tuple[PointLine, ...] = ()
    shown_point: str = ""
    """The point whose timeline and load are shown: the recommended one, or the fastest."""
    bars: tuple[Bar, ...] = ()
    units_per_bar: int = 1
    moments: tuple[Moment, ...] = ()
    """How busy the nodes were."""


def sweep_report(found: Analysis, ceilings: Ceilings | None = None) -> SweepPage:
    """Return the report of a sweep.

    Args:
        found: The result of the sweep.
        ceilings: A file of `unloader preflight --save`, to compare the sweep with.
    """
    live = found if isinstance(found, SweepDocument) else None
    unit: Unit = "bytes" if found.work.unit == "bytes" else "rows"
    amount = found.work.amount
    if found.work.unit == "table":
        unit, amount = "runs", _HOUR
    row_bytes = None
    if live is not None and len(live.curves) > 1:
        # Bytes of one format or codec are not comparable with bytes of another.
        unit, levels = "rows", tuple(_levels_of_points(live))
    else:
        levels = tuple(_level(each, amount) for each in found.levels)
    if live is not None:
        medians = (point.median for point in live.points)
        row_bytes = next((each.bytes / each.rows for each in medians if each is not None), None)
    page = SweepPage(
        unit=unit,
        levels=levels[:MOST_LEVELS],
        levels_left_out=max(0, len(levels) - MOST_LEVELS),
        knee=found.knee,
        knee_interval=found.knee_interval,
        recommended=found.recommended,
        sustained=found.sustained,
        production=found.production,
        doubts=found.doubts,
        limits=found.limits,
        ceilings=tuple(_ceilings(ceilings, unit, row_bytes)) if ceilings is not None else (),
        notices=found.notices,
    )
    return page if live is None else _with_points(page, live)


def _with_points(page: SweepPage, found: SweepDocument) -> SweepPage:
    measured = [point for point in found.points if point.measurements]
    # The fastest of the recommended parallelism, or of all.
    same = [point for point in measured if point.parallelism == found.recommended]
    shown = max(same or measured, key=lambda point: point.rows_per_second or 0.0, default=None)
    median = shown.median if shown is not None else None
    bars, together = bars_of(
        Bar(
            worker=each.worker,
            unit=each.unit,
            last_unit=each.unit,
            started_s=_digits(each.began_seconds),
            seconds=each.seconds,
            rows=each.rows,
        )
        for each in (median.timeline if median is not None else ())
    )
    return replace(
        page,
        source=found.source,
        subject=found.subject,
        destination=found.destination,
        caches=found.caches,
        recommended_options=label(found.recommended_options),
        whole_table=found.whole_table,
        options=found.options,
        whole_rows=found.whole_rows,
        cores=found.cores,
        points=tuple(map(_point, found.points[:MOST_LEVELS])),
        shown_point=label(shown.settings) if shown is not None else "",
        bars=bars,
        units_per_bar=together,
        moments=median.moments if median is not None else (),
    )


def _point(point: PointReport) -> PointLine:
    median = point.median
    return PointLine(
        label=label(point.settings),
        parallelism=point.parallelism,
        state=point.state,
        problem=point.problem,
        runs=len(point.measurements),
        rows_per_second=point.rows_per_second,
        spread=point.spread,
        median=None if median is None else replace(median, moments=(), timeline=()),
    )


def _level(each: MeasuredLevel, amount: float) -> LevelLine:
    return LevelLine(
        parallelism=each.parallelism,
        seconds=each.seconds,
        rate=_digits(amount / each.seconds),
        lowest_rate=_digits(amount / each.slowest_seconds),
        highest_rate=_digits(amount / each.fastest_seconds),
        repeats=each.repeats,
        cpu=each.load.cpu,
        state=_state(each),
        reasons="; ".join(each.reasons),
    )


def _state(level: MeasuredLevel) -> State:
    if level.outlier:
        return "outlier"
    if not level.valid:
        return "not valid"
    if level.sustained is None:
        return "valid"
    return "sustained" if level.sustained else "not sustained"


def _levels_of_points(found: SweepDocument) -> Iterator[LevelLine]:
    judged = {
        (label(curve.settings), level.parallelism): level
        for curve in found.curves
        for level in curve.levels
    }
    for point in found.points:
        series = label({k: text for k, text in point.settings.items() if k != PARALLELISM})
        level, median = judged.get((series, point.parallelism)), point.median
        yield LevelLine(
            parallelism=point.parallelism,
            series=series,
            seconds=median.seconds if median is not None else None,
            rate=point.rows_per_second,
            repeats=len(point.measurements),
            cpu=level.load.cpu if level is not None else None,
            state="failed" if level is None else _state(level),
            reasons=point.problem or ("; ".join(level.reasons) if level is not None else ""),
        )


def _ceilings(found: Ceilings, unit: Unit, row_bytes: float | None) -> Iterator[CeilingLine]:
    """Yield the ceilings in the unit of a sweep; `row_bytes` is the size of a row in the files."""
    if found.disk is not None and unit == "bytes":
        yield CeilingLine(what="disk, sequential writes", rate=found.disk.bytes_per_second)
    if found.source is not None:
        rate = max(each.rows_per_second for each in found.source.levels)
        if unit == "rows":
            yield CeilingLine(what="source, rows thrown away", rate=rate)
        elif unit == "bytes" and row_bytes is not None:
            yield CeilingLine(what="source, rows thrown away", rate=round(rate * row_bytes, 1))


def _digits(value: float) -> float:
    """Return a number with six digits of it."""
    return float(f"{value:.6g}")
