"""What pages show: of a run, from its manifest alone; of a sweep, from its JSON.

Lists are cut where a table has many thousands of work units, so that the page opens in any browser.
Beside each such list is the number of all. Unknown figures are null.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from unloader.manifest.model import (
    Manifest,
    TableEntry,
    TablesManifest,
    TotalsRecord,
    VerifiedRecord,
)
from unloader.model import FinishedUnit, Stages
from unloader.placement.evidence import WorkerRecord
from unloader.tuning.analysis import Analysis, MeasuredLevel
from unloader.tuning.ceilings import Ceilings
from unloader.tuning.sweep_document import (
    PARALLELISM,
    Measurement,
    PointReport,
    SweepDocument,
    label,
)

FORMAT_VERSION: Literal[2] = 2

MOST_BARS = 1500
"""A drawing of 1,500 bars opens immediately; one of 20,000 takes seconds."""
MOST_LINES = 50
"""Of a table of units, of failed attempts or of warnings."""


class Bar(Struct, frozen=True, kw_only=True):
    """One attempt at a work unit on the timeline, or several units that one worker did in a row."""

    worker: int
    unit: str
    """The first one, where there are several."""
    last_unit: str = ""
    """Empty where there is one."""
    units: int = 1
    partition: str = ""
    """Empty without one, and where there are several."""
    started_s: float
    seconds: float
    """To the end of the last one."""
    rows: int
    attempt: int = 1
    """The highest of the units."""
    outcome: Literal["done", "done in a retry", "failed"] = "done"
    message: str = ""
    """Why it failed."""


class WorkerLine(Struct, frozen=True, kw_only=True):
    """One worker."""

    record: WorkerRecord
    ended_s: float | None
    """When its last unit ended; None where that is not known."""
    failed_attempts: int
    stages: Stages


class SampleLine(Struct, frozen=True, kw_only=True):
    """How fast the run was since the sample before."""

    at_s: float
    rows: int
    rows_per_second: float
    bytes_per_second: float
    busy_workers: int
    cpu_by_node: dict[str, float]
    """Empty where it is not known."""


class Spread(Struct, frozen=True, kw_only=True):
    """How evenly the work was spread over units and workers."""

    units: int
    units_kept: int
    """Of an earlier process of the run; they are on no timeline."""
    median_s: float | None
    longest_s: float | None
    first_worker_idle_s: float | None
    """When the first worker had nothing more to do."""
    last_worker_idle_s: float | None
    """When the last one had."""
    busy_share: float | None
    """Of the workers' time until then that they spent in units."""


class RouteLine(Struct, frozen=True, kw_only=True):
    """One of several outputs."""

    name: str
    destination: str
    totals: TotalsRecord
    verified: VerifiedRecord


class RunReport(Struct, frozen=True, kw_only=True):
    """Everything that the page of a run shows."""

    report: Literal["run"] = "run"
    format_version: Literal[2] = FORMAT_VERSION
    manifest: Manifest
    """Without its units, and with the first of its failed attempts and warnings."""
    destination: str
    routes: tuple[RouteLine, ...]
    """All that are known to be complete; empty where there is one output."""
    spread: Spread
    stages: Stages
    """Sums over all units."""
    workers: tuple[WorkerLine, ...]
    bars: tuple[Bar, ...]
    units_per_bar: int
    """Most units of one bar."""
    slowest: tuple[FinishedUnit, ...]
    """The units that took longest, slowest first, without their files."""
    failed_attempts: int
    samples: tuple[SampleLine, ...]


def bars_of(
    units: Iterable[Bar], failed: Sequence[Bar] = (), most: int = MOST_BARS
) -> tuple[tuple[Bar, ...], int]:
    """Return bars by worker and time, a failed attempt in each alone, and most units of a bar."""
    by_worker: dict[int, list[Bar]] = defaultdict(list)
    for unit in sorted(units, key=lambda bar: bar.started_s):
        by_worker[unit.worker].append(unit)
    longest, together = max(map(len, by_worker.values()), default=0), 1
    while sum(math.ceil(len(done) / together) for done in by_worker.values()) > most:
        if longest <= together:
            break
        together *= 2
    bars = list(failed[:most])
    for done in by_worker.values():
        for shared in (done[at : at + together] for at in range(0, len(done), together)):
            first, last = shared[0], shared[-1]
            attempt = max(bar.attempt for bar in shared)
            bars.append(
                replace(
                    first,
                    last_unit=last.unit if len(shared) > 1 else "",
                    units=len(shared),
                    partition=first.partition if len(shared) == 1 else "",
                    seconds=round(last.started_s + last.seconds - first.started_s, 4),
                    rows=sum(bar.rows for bar in shared),
                    attempt=attempt,
                    outcome="done" if attempt == 1 else "done in a retry",
                )
            )
    return tuple(sorted(bars, key=lambda bar: (bar.worker, bar.started_s))), together


def run_report(manifest: Manifest, others: Sequence[Manifest] = ()) -> RunReport:
    """Return the report of a run of one table, with the manifests of its routes, if it has any."""
    units = manifest.units
    bars, units_per_bar = bars_of(
        (
            Bar(
                worker=unit.worker,
                unit=unit.unit,
                partition=unit.partition or "",
                started_s=unit.started_s,
                seconds=unit.seconds,
                rows=unit.rows,
                attempt=unit.attempt,
            )
            for unit in units
            if unit.worker is not None and unit.started_s is not None
        ),
        [
            Bar(
                worker=each.worker,
                unit=each.unit,
                started_s=each.started_s,
                seconds=each.seconds,
                rows=0,
                attempt=each.attempt,
                outcome="failed",
                message=each.message,
            )
            for each in manifest.failed_attempts
        ],
    )
    slowest = sorted(units, key=lambda unit: -unit.seconds)[:MOST_LINES]
    done: dict[int | None, list[FinishedUnit]] = defaultdict(list)
    for unit in units:
        done[unit.worker].append(unit)
    failed = Counter(each.worker for each in manifest.failed_attempts)
    return RunReport(
        manifest=replace(
            manifest,
            units=(),
            failed_attempts=manifest.failed_attempts[:MOST_LINES],
            warnings=manifest.warnings[:MOST_LINES],
            not_measured=manifest.not_measured[:MOST_LINES],
        ),
        destination=", ".join(manifest.places),
        routes=tuple(
            RouteLine(
                name=each.route.name,
                destination=", ".join(each.places),
                totals=each.totals,
                verified=each.verified,
            )
            for each in others
            if each.route
        ),
        # In a steered run, workers that never had to work were not idle.
        spread=_spread(units, 0 if manifest.parallelism_steps else len(manifest.workers)),
        stages=_sum(units),
        workers=tuple(
            WorkerLine(
                record=worker,
                ended_s=max(_ends(done[worker.worker]).values(), default=None),
                failed_attempts=failed[worker.worker],
                stages=_sum(done[worker.worker]),
            )
            for worker in manifest.workers
        ),
        bars=bars,
        units_per_bar=units_per_bar,
        slowest=tuple(replace(unit, files=()) for unit in slowest),
        failed_attempts=len(manifest.failed_attempts) + manifest.failed_attempts_left_out,
        # What a failed attempt had written counts no more, so a total may fall.
        samples=tuple(
            SampleLine(
                at_s=now.at_s,
                rows=now.rows,
                rows_per_second=round(max(0, now.rows - before.rows) / passed, 1),
                bytes_per_second=round(max(0, now.bytes - before.bytes) / passed, 1),
                busy_workers=now.busy_workers,
                cpu_by_node=now.cpu_by_node or {},
            )
            for before, now in pairwise(manifest.samples)
            if (passed := now.at_s - before.at_s) > 0
        ),
    )


def _sum(units: Iterable[FinishedUnit]) -> Stages:
    listed = [unit.stages for unit in units]
    names = ("fetch_s", "encode_s", "write_s", "compress_s", "compress_cpu_s")
    sums = {name: round(sum(getattr(each, name) for each in listed), 4) for name in names}
    sizes = [each.uncompressed_bytes for each in listed]
    return Stages(**sums, uncompressed_bytes=None if None in sizes else sum(filter(None, sizes)))


def _spread(units: Sequence[FinishedUnit], workers: int) -> Spread:
    seconds, ends = [unit.seconds for unit in units], _ends(units)
    timed = [unit for unit in units if unit.worker in ends and unit.started_s is not None]
    began = min((unit.started_s or 0.0 for unit in timed), default=0.0)
    whole = (max(ends.values(), default=0.0) - began) * max(workers, len(ends))
    busy = sum(unit.seconds for unit in timed)
    return Spread(
        units=len(units),
        units_kept=sum(unit.worker is not None and unit.started_s is None for unit in units),
        median_s=round(statistics.median(seconds), 4) if units else None,
        longest_s=max(seconds, default=None),
        first_worker_idle_s=min(ends.values(), default=None),
        last_worker_idle_s=max(ends.values(), default=None),
        busy_share=round(min(1.0, busy / whole), 4) if whole > 0 else None,
    )


def _ends(units: Iterable[FinishedUnit]) -> dict[int, float]:
    """Return when the last unit of each worker ended, of units whose time is known."""
    ends: dict[int, float] = {}
    for unit in units:
        if unit.worker is not None and unit.started_s is not None:
            ended = round(unit.started_s + unit.seconds, 4)
            ends[unit.worker] = max(ends.get(unit.worker, 0.0), ended)
    return ends


class TablesReport(Struct, frozen=True, kw_only=True):
    """Everything that the page of a run over several tables shows."""

    report: Literal["tables"] = "tables"
    format_version: Literal[2] = FORMAT_VERSION
    manifest: TablesManifest
    """Without its tables."""
    asked_for: int
    """Number of all tables, complete or not."""
    rows_per_second: float | None
    bytes_per_second: float | None
    verified: str
    tables: tuple[TableEntry, ...]
    """The complete ones. What took workers longest comes first."""
    missing: tuple[TableEntry, ...]


def tables_report(manifest: TablesManifest) -> TablesReport:
    totals = manifest.totals
    done = [each for each in manifest.tables if each.status == "complete"]
    return TablesReport(
        manifest=replace(manifest, tables=()),
        asked_for=len(manifest.tables),
        rows_per_second=round(totals.rows / totals.seconds, 1) if totals.seconds > 0 else None,
        bytes_per_second=round(totals.bytes / totals.seconds, 1) if totals.seconds > 0 else None,
        verified=", ".join(sorted({each.verified or "" for each in done})),
        tables=tuple(sorted(done, key=lambda each: -(each.worker_seconds or 0))),
        missing=tuple(each for each in manifest.tables if each.status != "complete"),
    )


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
    runs: int
    point: PointReport
    """Without its measurements."""
    median: Measurement | None
    """The median measurement, without its timeline."""


class SweepPage(Struct, frozen=True, kw_only=True):
    """Everything that the page of a sweep shows; the last fields are of a sweep that measured."""

    report: Literal["sweep"] = "sweep"
    format_version: Literal[2] = FORMAT_VERSION
    sweep: Analysis
    """Without its points."""
    unit: Unit
    levels: tuple[LevelLine, ...]
    ceilings: tuple[CeilingLine, ...]
    recommended_options: str = ""
    """As options of a command line; empty without any."""
    points: tuple[PointLine, ...] = ()
    shown_point: str = ""
    """The point whose timeline and load are shown: the recommended one, or the fastest."""
    bars: tuple[Bar, ...] = ()
    units_per_bar: int = 1


def sweep_report(found: Analysis, ceilings: Ceilings | None = None) -> SweepPage:
    """Return the report of a sweep, compared with ceilings if there are any."""
    live = found if isinstance(found, SweepDocument) else None
    unit: Unit = "bytes" if found.work.unit == "bytes" else "rows"
    amount, row_bytes = found.work.amount, None
    if found.work.unit == "table":
        unit, amount = "runs", 3600.0
    levels = tuple(
        LevelLine(
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
        for each in found.levels
    )
    if live is not None:
        if len(live.curves) > 1:
            # Bytes of one format or codec are not comparable with bytes of another.
            unit, lines_of_points = "rows", []
            judged = {
                (label(curve.settings), level.parallelism): level
                for curve in live.curves
                for level in curve.levels
            }
            for point in live.points:
                series = label({k: text for k, text in point.settings.items() if k != PARALLELISM})
                level, median = judged.get((series, point.parallelism)), point.median
                reasons = "; ".join(level.reasons) if level is not None else ""
                lines_of_points.append(
                    LevelLine(
                        parallelism=point.parallelism,
                        series=series,
                        seconds=median.seconds if median is not None else None,
                        rate=point.rows_per_second,
                        repeats=len(point.measurements),
                        cpu=level.load.cpu if level is not None else None,
                        state="failed" if level is None else _state(level),
                        reasons=point.problem or reasons,
                    )
                )
            levels = tuple(lines_of_points)
        medians = (point.median for point in live.points)
        row_bytes = next((each.bytes / each.rows for each in medians if each is not None), None)
    lines = list[CeilingLine]()
    if ceilings is not None and ceilings.disk is not None and unit == "bytes":
        rate = ceilings.disk.bytes_per_second
        lines.append(CeilingLine(what="disk, sequential writes", rate=rate))
    # In bytes it is the size of a row in the files that counts.
    size = {"rows": 1.0, "bytes": row_bytes, "runs": None}[unit]
    if ceilings is not None and ceilings.source is not None and size is not None:
        rate = max(each.rows_per_second for each in ceilings.source.levels)
        lines.append(CeilingLine(what="source, rows thrown away", rate=round(rate * size, 1)))
    page = SweepPage(
        sweep=found if live is None else replace(live, points=()),
        unit=unit,
        levels=levels,
        ceilings=tuple(lines),
    )
    if live is None:
        return page
    measured = [point for point in live.points if point.measurements]
    # The fastest of the recommended parallelism, or of all.
    same = [point for point in measured if point.parallelism == live.recommended]
    shown = max(same or measured, key=lambda point: point.rows_per_second or 0.0, default=None)
    median = shown.median if shown is not None else None
    bars, together = bars_of(
        Bar(
            worker=each.worker,
            unit=each.unit,
            started_s=_digits(each.began_seconds),
            seconds=each.seconds,
            rows=each.rows,
        )
        for each in (median.timeline if median is not None else ())
    )
    return replace(
        page,
        recommended_options=label(live.recommended_options),
        points=tuple(
            PointLine(
                label=label(point.settings),
                runs=len(point.measurements),
                point=replace(point, measurements=()),
                median=each and replace(each, timeline=()),
            )
            for point in live.points
            for each in (point.median,)
        ),
        shown_point=label(shown.settings) if shown is not None else "",
        bars=bars,
        units_per_bar=together,
    )


def _state(level: MeasuredLevel) -> State:
    if level.outlier:
        return "outlier"
    if not level.valid:
        return "not valid"
    if level.sustained is None:
        return "valid"
    return "sustained" if level.sustained else "not sustained"


def _digits(value: float) -> float:
    return float(f"{value:.6g}")
