"""The records of a sweep: its points, and the result that `unloader sweep --json` prints."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, ValidationError, convert

from unloader.errors import ConfigError
from unloader.model import Request
from unloader.tuning.analysis import Analysis, Positive, Rules, analyse
from unloader.tuning.machine_load import MeasuredLoad
from unloader.tuning.points import FOR_SIZE, Point, points_text

PARALLELISM = "parallelism"


class Variant(Struct, frozen=True, kw_only=True):
    """One point of a sweep: a request with its own settings."""

    settings: Mapping[str, str]
    """The options that the sweep varies, by name, as they are written; parallelism among them."""
    request: Request
    parallelism: int


class SweepOptions(Struct, frozen=True, kw_only=True):
    """How points are measured."""

    repeats: int = 3
    most_repeats: int = 6
    """Of a point whose speeds differ by more than `widest_spread`."""
    widest_spread: float = 0.1
    """Of the speeds of one point: largest less smallest, as a share of their median."""
    warm_up: int = 1
    """Measurements that are made first and thrown away."""
    seed: int = 0
    """Decides the order."""
    sample: float | None = None
    """Share of the table that is read; None is all of it."""
    seconds: float | None = None
    """A measurement ends after these seconds; None reads to the end."""


class StageCosts(Struct, frozen=True, kw_only=True):
    """CPU seconds per million rows, of the units that were finished."""

    fetch: float | None = None
    encode: float | None = None
    compress: float | None = None
    """None where that is a part of encoding (Parquet)."""
    write: float | None = None
    rest: float | None = None
    """Of the workers' processes, in no stage: threads of a driver."""
    total: float | None = None


class UnitTime(Struct, frozen=True, kw_only=True):
    """One work unit on its worker."""

    worker: int
    unit: str
    began_seconds: float
    """Since the beginning of the measurement."""
    seconds: float
    rows: int
    bytes: int


class Measurement(Struct, frozen=True, kw_only=True):
    """One run of a point."""

    number: int
    """In the order of measuring, from 1."""
    seconds: Positive
    """From when the first unit was handed out to the end of the last one, or of the time."""
    whole_seconds: float
    """Connecting, planning, counting and publishing included."""
    rows: Annotated[int, Meta(gt=0)]
    bytes: int
    complete: bool
    """All units were read; else the time was over before."""
    units: int
    """Finished ones."""
    failed_attempts: int
    costs: StageCosts
    load: MeasuredLoad
    peak_worker_bytes: int | None
    """The most memory that one worker had resident."""
    row_bytes: float | None = None
    """Of the text of a row before compression, in the finished units; None without text."""
    timeline: tuple[UnitTime, ...] = ()
    rows_per_second: float
    bytes_per_second: float
    """Of the files."""

    @property
    def cpu_seconds(self) -> float | None:
        million = self.costs.total
        return None if million is None else million * self.rows / 1e6


PointState = Literal["steady", "unsteady", "once", "failed", "not measured"]
"""unsteady: its speeds differ by more than is allowed, however often it was measured; once: it has
only one measurement."""


class PointReport(Struct, frozen=True, kw_only=True):
    """All measurements of one point."""

    settings: Mapping[str, str]
    parallelism: Annotated[int, Meta(gt=0)]
    measurements: tuple[Measurement, ...]
    state: PointState
    problem: str = ""
    """Why it failed."""
    rows_per_second: float | None
    """The speed of the `median` measurement; None without a measurement."""
    spread: float | None
    """How far the speeds are apart, as a share of their median; None for fewer than two."""

    @property
    def median(self) -> Measurement | None:
        """Return the measurement with the median speed, of two the slower; None without any."""
        ordered = sorted(self.measurements, key=lambda each: each.rows_per_second)
        return ordered[(len(ordered) - 1) // 2] if ordered else None


def spread_of(measurements: Iterable[Measurement]) -> float | None:
    """Return how far speeds are apart, as a share of their median; None for fewer than two."""
    speeds = [each.rows_per_second for each in measurements]
    if len(speeds) < 2:
        return None
    return (max(speeds) - min(speeds)) / statistics.median_low(speeds)


class SampleTaken(Struct, frozen=True, kw_only=True):
    """Which part of the table every measurement reads."""

    units: int
    of_units: int
    rows: int | None
    """By the source's estimate."""
    of_rows: int | None
    share: float
    """Of the bytes, or else the rows or units."""


class WholeTable(Struct, frozen=True, kw_only=True):
    """The seconds of all rows that the options select, at the recommended level."""

    parallelism: int
    rows: int
    """By the source's estimate, where the sweep has not read them all."""
    seconds: float


class Curve(Analysis, frozen=True, kw_only=True):
    """The analysis of points that differ in parallelism alone."""

    settings: Mapping[str, str]
    """The varied options that are equal for all its points."""
    rows_per_second: float
    """Of its recommended level, or else of its fastest."""
    whole_table: WholeTable | None


class SweepDocument(Analysis, frozen=True, kw_only=True):
    """What a sweep has found, as `--json` prints it, with the analysis of the fastest curve."""

    recommended_options: Mapping[str, str]
    """Of the fastest curve; parallelism is missing where none is recommended."""
    whole_table: WholeTable | None
    curves: tuple[Curve, ...]
    """The fastest first."""
    source: str
    """Without a secret."""
    subject: str
    """The table, or `query`."""
    destination: str
    options: SweepOptions
    sample: SampleTaken | None
    whole_rows: int | None
    """Rows of all that the options select; by the source's estimate where they were not all read.
    """
    cores: int | None
    """Of this machine that may be used, threads of one core counted once."""
    caches: str
    """The state of the caches of database and system, in one sentence."""
    points: tuple[PointReport, ...]
    """In the order in which they were asked for."""
    interrupted: bool
    order: tuple[str, ...]
    """Labels of the points in the order in which they were measured."""


def is_sweep(document: Mapping[str, Any]) -> bool:
    """Return whether this is what a sweep wrote, live or from a file of points."""
    return "levels" in document or "points" in document


def sweep_of(document: Mapping[str, Any], path: object) -> Analysis:
    """Return what a sweep of this version wrote, or raise a `ConfigError`."""
    try:
        return convert(document, SweepDocument if "points" in document else Analysis)
    except ValidationError as error:
        raise ConfigError(
            f"{path} is not what unloader sweep --json of this version wrote: {error}",
            "make it with: unloader sweep --json > FILE",
        ) from error


def label(settings: Mapping[str, str]) -> str:
    """Return the settings of a point as options of a command line."""
    return " ".join(f"--{name} {value}" for name, value in settings.items())


def points_csv(report: SweepDocument) -> str:
    """Return CSV for `unloader.tuning.points`, and with further columns for `unloader size`."""
    names = dict.fromkeys(name for point in report.points for name in point.settings)
    names.pop(PARALLELISM, None)
    points, others = [], []
    for point in report.points:
        for each in point.measurements:
            points.append(point_of(point.parallelism, each, report.cores))
            others.append({name: point.settings.get(name, "") for name in names})
    remarks = (f"{report.subject} to {report.destination}", f"caches {report.caches}")
    return points_text(points, remarks, always=FOR_SIZE, others=others)


def point_of(parallelism: int, each: Measurement, cores: int | None = None) -> Point:
    """Return a measurement as a file of points has it."""
    return Point(
        parallelism=parallelism,
        seconds=each.seconds,
        bytes=each.bytes or None,
        rows=each.rows,
        row_bytes=each.row_bytes,
        cores=cores,
        cpu_seconds=each.cpu_seconds,
        load=each.load,
    )


def curves_of(
    points: Iterable[PointReport], rules: Rules, whole_rows: int | None
) -> tuple[Curve, ...]:
    """Return each curve, the fastest first; `whole_rows` is of all that the options select."""
    members: dict[tuple[tuple[str, str], ...], list[PointReport]] = {}
    for point in points:
        if point.measurements:
            common = tuple(each for each in point.settings.items() if each[0] != PARALLELISM)
            members.setdefault(common, []).append(point)
    curves = [_curve(dict(common), same, rules, whole_rows) for common, same in members.items()]
    return tuple(sorted(curves, key=lambda each: -each.rows_per_second))


def _curve(
    settings: dict[str, str], points: Sequence[PointReport], rules: Rules, whole_rows: int | None
) -> Curve:
    measured = [(point.parallelism, each) for point in points for each in point.measurements]
    analysis = analyse([point_of(parallelism, each) for parallelism, each in measured], rules)
    level, whole = analysis.level(analysis.recommended), None
    if level is not None and whole_rows:
        # The analysis brings all points to the work of the one that did most.
        name = "bytes" if analysis.work.unit == "bytes" else "rows"
        _, most = max(measured, key=lambda each: float(getattr(each[1], name)))
        seconds = level.seconds * whole_rows / most.rows
        whole = WholeTable(parallelism=level.parallelism, rows=whole_rows, seconds=seconds)
    return Curve(
        **{name: getattr(analysis, name) for name in Analysis.__struct_fields__},
        settings=settings,
        rows_per_second=max(
            point.rows_per_second or 0.0
            for point in points
            if analysis.recommended in (None, point.parallelism)
        ),
        whole_table=whole,
    )
