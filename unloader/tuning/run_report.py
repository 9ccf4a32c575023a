"""The report of a run, of one table or of several: what its page shows, from its manifest alone.

Lists are cut where a table has many thousands of work units, so that the page opens in any browser.
Beside each such list is the number of all.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Literal

from msgspec import Struct, field

from unloader.events import ParallelismChanged
from unloader.manifest.model import (
    Efficiency,
    FailedAttemptRecord,
    Manifest,
    SampleRecord,
    SourceRecord,
    TableEntry,
    TablesManifest,
    TablesTotals,
    TotalsRecord,
    VerifiedRecord,
)
from unloader.model import Cause, FinishedUnit, Snapshot, Stages

FORMAT_VERSION: Literal[1] = 1


class SettingLine(Struct, frozen=True, kw_only=True):
    """One option that was set somewhere."""

    name: str
    value: str
    origin: str = field(name="from")


class Bar(Struct, frozen=True, kw_only=True):
    """One attempt at a work unit on the timeline, or several units that one worker did in a row."""

    worker: int
    unit: str
    """The first one, where there are several."""
    last_unit: str
    units: int
    partition: str
    """Empty without one, and where there are several."""
    started_s: float
    seconds: float
    """To the end of the last one."""
    rows: int
    attempt: int
    """The highest of the units."""
    outcome: Literal["done", "done in a retry", "failed"]
    message: str = ""
    """Why it failed."""


class UnitLine(Struct, frozen=True, kw_only=True):
    """One work unit."""

    unit: str
    partition: str
    worker: int | None
    node: int
    rows: int
    bytes: int
    attempts: int
    started_s: float | None
    seconds: float
    stages: Stages


class WorkerLine(Struct, frozen=True, kw_only=True):
    """One worker."""

    worker: int
    node: int
    units: int
    rows: int
    bytes: int
    busy_s: float
    """Seconds of its units."""
    ended_s: float | None
    """When its last unit ended; None where that is not known."""
    failed_attempts: int
    stages: Stages


class NodeLine(Struct, frozen=True, kw_only=True):
    """One NUMA node."""

    node: int
    workers: int
    rows: int
    bytes: int
    rows_per_second: int | None
    bytes_per_second: int | None


class SampleLine(Struct, frozen=True, kw_only=True):
    """How fast the run was since the sample before."""

    at_s: float
    rows: int
    rows_per_second: float
    bytes_per_second: float
    busy_workers: int
    cpu_by_node: dict[str, float]
    """Empty where it is not known."""


class StepLine(Struct, frozen=True, kw_only=True):
    """A change of the number of workers, of a run whose number was steered."""

    at_s: float
    before: int | None
    """Workers until then; None at the first step."""
    workers: int
    """From then on."""
    of: int
    """Workers that have a seat."""
    rows_per_second: float | None
    """As last measured with the number before; None where it was not."""
    cause: Cause
    reason: str


class Spread(Struct, frozen=True, kw_only=True):
    """How evenly the work was spread over units and workers."""

    units: int
    units_kept: int
    """Of an earlier process of the run; they are on no timeline."""
    median_s: float | None
    longest_s: float | None
    longest_unit: str
    first_worker_idle_s: float | None
    """When the first worker had nothing more to do."""
    last_worker_idle_s: float | None
    """When the last one had."""
    busy_share: float | None
    """Of the workers' time until then that they spent in units."""


class RouteLine(Struct, frozen=True, kw_only=True):
    """One of several outputs."""

    name: str
    rows: int
    left_out: int | None
    """By its filter; None without one."""
    bytes: int
    files: int
    verified: str
    destination: str


class RunReport(Struct, frozen=True, kw_only=True):
    """Everything that the page of a run shows."""

    report: Literal["run"] = "run"
    format_version: Literal[1] = FORMAT_VERSION
    run_id: str
    status: str
    unloader_version: str
    source: SourceRecord
    table: str
    """Empty for a query."""
    query: str
    destination: str
    route: str
    """Which of several outputs the figures are of; empty where there is one."""
    routes: tuple[RouteLine, ...]
    """All that are known to be complete; empty where there is one output."""
    snapshot: Snapshot | None
    totals: TotalsRecord
    verified: VerifiedRecord
    parallelism: int
    spread: Spread
    stages: Stages
    """Sums over all units."""
    workers: tuple[WorkerLine, ...]
    nodes: tuple[NodeLine, ...]
    bars: tuple[Bar, ...]
    units_per_bar: int
    """Most units of one bar."""
    slowest: tuple[UnitLine, ...]
    """The units that took longest, slowest first."""
    failed: tuple[Bar, ...]
    """The first failed attempts."""
    failed_attempts: int
    samples: tuple[SampleLine, ...]
    steps: tuple[StepLine, ...]
    """Empty where the number of workers was not steered."""
    efficiency: Efficiency | None
    """None where the run was compared with no ceilings."""
    settings: tuple[SettingLine, ...]
    warnings: tuple[str, ...]
    not_measured: tuple[str, ...]


MOST_BARS = 1500
"""A drawing of 1,500 bars opens immediately; one of 20,000 takes seconds."""


def bars_of(
    units: Iterable[Bar], failed: Sequence[Bar] = (), most: int = MOST_BARS
) -> tuple[tuple[Bar, ...], int]:
    """Return the bars by worker and time, and the most units of one bar.

    Failed attempts always have separate bars. Where there are too many units, several that a
    worker did in a row share a bar.

    Args:
        units: A bar for each unit.
        failed: A bar for each failed attempt.
        most: How many of each are shown.
    """
    by_worker: dict[int, list[Bar]] = defaultdict(list)
    for unit in units:
        by_worker[unit.worker].append(unit)
    for done in by_worker.values():
        done.sort(key=lambda bar: bar.started_s)
    together = 1
    while sum(math.ceil(len(done) / together) for done in by_worker.values()) > most:
        if all(len(done) <= together for done in by_worker.values()):
            break
        together *= 2
    bars = [
        _shared(done[at : at + together])
        for done in by_worker.values()
        for at in range(0, len(done), together)
    ]
    bars += failed[:most]
    return tuple(sorted(bars, key=lambda bar: (bar.worker, bar.started_s))), together


def _shared(done: Sequence[Bar]) -> Bar:
    first, last = done[0], done[-1]
    attempt = max(bar.attempt for bar in done)
    return Bar(
        worker=first.worker,
        unit=first.unit,
        last_unit=last.unit,
        units=len(done),
        partition=first.partition if len(done) == 1 else "",
        started_s=first.started_s,
        seconds=round(last.started_s + last.seconds - first.started_s, 4),
        rows=sum(bar.rows for bar in done),
        attempt=attempt,
        outcome="done" if attempt == 1 else "done in a retry",
    )


MOST_LINES = 50
"""Of a table of units or of failed attempts."""
MOST_WARNINGS = 50


def run_report(manifest: Manifest, others: Sequence[Manifest] = ()) -> RunReport:
    """Return the report of a run.

    Args:
        manifest: Of one table.
        others: The manifests of all routes, if there are several.
    """
    table, units = manifest.table, manifest.units
    # In a steered run, workers that never had to work were not idle.
    expected = 0 if manifest.parallelism_steps else len(manifest.workers)
    failed = tuple(map(_failed_bar, manifest.failed_attempts))
    bars, units_per_bar = bars_of(filter(None, map(_unit_bar, units)), failed)
    to = manifest.options.to
    return RunReport(
        run_id=manifest.run_id,
        status=manifest.status,
        unloader_version=manifest.unloader_version,
        source=manifest.source,
        table=".".join(filter(None, (table.schema, table.name))) if table else "",
        query=manifest.query or "",
        destination=to if isinstance(to, str) else ", ".join(to),
        route=manifest.route.name if manifest.route else "",
        routes=tuple(_route(each) for each in others if each.route),
        snapshot=manifest.snapshot,
        totals=manifest.totals,
        verified=manifest.verified,
        parallelism=len(manifest.workers),
        spread=_spread(units, expected),
        stages=_sum(unit.stages for unit in units),
        workers=tuple(_workers(manifest)),
        nodes=tuple(
            NodeLine(
                node=each.node,
                workers=each.workers,
                rows=each.rows,
                bytes=each.bytes,
                rows_per_second=each.rows_per_second,
                bytes_per_second=each.bytes_per_second,
            )
            for each in manifest.nodes
        ),
        bars=bars,
        units_per_bar=units_per_bar,
        slowest=tuple(map(_unit, sorted(units, key=lambda unit: -unit.seconds)[:MOST_LINES])),
        failed=failed[:MOST_LINES],
        failed_attempts=len(manifest.failed_attempts) + manifest.failed_attempts_left_out,
        samples=tuple(_samples(manifest.samples)),
        steps=tuple(_steps(manifest.parallelism_steps or ())),
        efficiency=manifest.efficiency,
        settings=tuple(
            SettingLine(name=each.name, value=each.value, origin=each.origin)
            for each in manifest.settings
        ),
        warnings=manifest.warnings[:MOST_WARNINGS],
        not_measured=manifest.not_measured[:MOST_WARNINGS],
    )


def _route(manifest: Manifest) -> RouteLine:
    to = manifest.options.to
    return RouteLine(
        name=manifest.route.name if manifest.route else "",
        rows=manifest.totals.rows,
        left_out=manifest.verified.filtered_rows,
        bytes=manifest.totals.bytes,
        files=manifest.totals.files,
        verified=manifest.verified.result,
        destination=to if isinstance(to, str) else ", ".join(to),
    )


def _unit(unit: FinishedUnit) -> UnitLine:
    return UnitLine(
        unit=unit.unit,
        partition=unit.partition or "",
        worker=unit.worker,
        node=unit.seat.node,
        rows=unit.rows,
        bytes=sum(file.bytes for file in unit.files),
        attempts=unit.attempt,
        started_s=unit.started_s,
        seconds=unit.seconds,
        stages=unit.stages,
    )


def _unit_bar(unit: FinishedUnit) -> Bar | None:
    """Return the bar of a unit; None where its worker or its begin is not known."""
    if unit.worker is None or unit.started_s is None:
        return None
    return Bar(
        worker=unit.worker,
        unit=unit.unit,
        last_unit=unit.unit,
        units=1,
        partition=unit.partition or "",
        started_s=unit.started_s,
        seconds=unit.seconds,
        rows=unit.rows,
        attempt=unit.attempt,
        outcome="done",
    )


def _failed_bar(failed: FailedAttemptRecord) -> Bar:
    return Bar(
        worker=failed.worker,
        unit=failed.unit,
        last_unit=failed.unit,
        units=1,
        partition="",
        started_s=failed.started_s,
        seconds=failed.seconds,
        rows=0,
        attempt=failed.attempt,
        outcome="failed",
        message=failed.message,
    )


def _sum(stages: Iterable[Stages]) -> Stages:
    listed = list(stages)
    names = ("fetch_s", "encode_s", "write_s", "compress_s", "compress_cpu_s")
    sums = {name: round(sum(getattr(each, name) for each in listed), 4) for name in names}
    sizes = [each.uncompressed_bytes for each in listed]
    return Stages(**sums, uncompressed_bytes=None if None in sizes else sum(filter(None, sizes)))


def _workers(manifest: Manifest) -> Iterator[WorkerLine]:
    done: dict[int | None, list[FinishedUnit]] = defaultdict(list)
    for unit in manifest.units:
        done[unit.worker].append(unit)
    failed = Counter(each.worker for each in manifest.failed_attempts)
    for worker in manifest.workers:
        mine = done[worker.worker]
        yield WorkerLine(
            worker=worker.worker,
            node=worker.seat.node,
            units=worker.units,
            rows=worker.rows,
            bytes=worker.bytes,
            busy_s=worker.seconds,
            ended_s=max(map(_end, filter(_is_timed, mine)), default=None),
            failed_attempts=failed[worker.worker],
            stages=_sum(unit.stages for unit in mine),
        )


def _spread(units: Sequence[FinishedUnit], workers: int) -> Spread:
    longest = max(units, key=lambda unit: unit.seconds, default=None)
    timed = list(filter(_is_timed, units))
    ends: dict[int | None, float] = {}
    for unit in timed:
        ends[unit.worker] = max(ends.get(unit.worker, 0.0), _end(unit))
    began = min((unit.started_s or 0.0 for unit in timed), default=0.0)
    whole = (max(ends.values(), default=0.0) - began) * max(workers, len(ends))
    busy = sum(unit.seconds for unit in timed)
    return Spread(
        units=len(units),
        units_kept=sum(unit.worker is not None and unit.started_s is None for unit in units),
        median_s=round(statistics.median(unit.seconds for unit in units), 4) if units else None,
        longest_s=longest.seconds if longest is not None else None,
        longest_unit=longest.unit if longest is not None else "",
        first_worker_idle_s=min(ends.values(), default=None),
        last_worker_idle_s=max(ends.values(), default=None),
        busy_share=round(min(1.0, busy / whole), 4) if whole > 0 else None,
    )


def _is_timed(unit: FinishedUnit) -> bool:
    return unit.worker is not None and unit.started_s is not None


def _end(unit: FinishedUnit) -> float:
    return round((unit.started_s or 0.0) + unit.seconds, 4)


def _samples(samples: Sequence[SampleRecord]) -> Iterator[SampleLine]:
    for before, now in pairwise(samples):
        passed = now.at_s - before.at_s
        if passed <= 0:
            continue
        # What a failed attempt had written counts no more, so a total may fall.
        yield SampleLine(
            at_s=now.at_s,
            rows=now.rows,
            rows_per_second=round(max(0, now.rows - before.rows) / passed, 1),
            bytes_per_second=round(max(0, now.bytes - before.bytes) / passed, 1),
            busy_workers=now.busy_workers,
            cpu_by_node=now.cpu_by_node or {},
        )


def _steps(steps: Sequence[ParallelismChanged]) -> Iterator[StepLine]:
    before = None
    for step in steps:
        yield StepLine(
            at_s=step.seconds,
            before=before,
            workers=step.workers,
            of=step.of,
            rows_per_second=step.rows_per_second or None,
            cause=step.cause,
            reason=step.reason,
        )
        before = step.workers


class TableLine(Struct, frozen=True, kw_only=True):
    """One table that is complete."""

    table: str
    """Empty for a query."""
    directory: str
    """As seen from the directory of the run."""
    rows: int | None
    bytes: int | None
    files: int | None
    units: int | None
    worker_seconds: float | None
    worker_share: float | None
    """Of what workers did for all tables; None where nothing was measured."""
    verified: str


class MissingLine(Struct, frozen=True, kw_only=True):
    """One table that is not complete."""

    table: str
    directory: str
    status: str
    reason: str


class TablesReport(Struct, frozen=True, kw_only=True):
    """Everything that the page of a run over several tables shows."""

    report: Literal["tables"] = "tables"
    format_version: Literal[1] = FORMAT_VERSION
    run_id: str
    status: str
    unloader_version: str
    source: SourceRecord
    destination: str
    """`--to`, with its fields."""
    directory: str
    """Of the run, when its manifest was written."""
    snapshot: Snapshot | None
    totals: TablesTotals
    asked_for: int
    """Number of all tables, complete or not."""
    rows_per_second: float | None
    bytes_per_second: float | None
    verified: str
    tables: tuple[TableLine, ...]
    """What took workers longest comes first."""
    missing: tuple[MissingLine, ...]
    settings: tuple[SettingLine, ...]


def tables_report(manifest: TablesManifest) -> TablesReport:
    """Return the report of a run over several tables."""
    totals = manifest.totals
    done = [each for each in manifest.tables if each.status == "complete"]
    busy = sum(each.worker_seconds or 0.0 for each in done)
    seconds = totals.seconds
    return TablesReport(
        run_id=manifest.run_id,
        status=manifest.status,
        unloader_version=manifest.unloader_version,
        source=manifest.source,
        destination=manifest.options.to,
        directory=manifest.options.directory,
        snapshot=manifest.snapshot,
        totals=totals,
        asked_for=len(manifest.tables),
        rows_per_second=round(totals.rows / seconds, 1) if seconds > 0 else None,
        bytes_per_second=round(totals.bytes / seconds, 1) if seconds > 0 else None,
        verified=", ".join(sorted({each.verified or "" for each in done})),
        tables=tuple(
            _table_line(each, busy)
            for each in sorted(done, key=lambda each: -(each.worker_seconds or 0))
        ),
        missing=tuple(
            MissingLine(
                table=_table_name(each),
                directory=each.directory,
                status=each.status,
                reason=each.error or "",
            )
            for each in manifest.tables
            if each.status != "complete"
        ),
        settings=tuple(
            SettingLine(name=each.name, value=each.value, origin=each.origin)
            for each in manifest.settings
        ),
    )


def _table_line(entry: TableEntry, busy: float) -> TableLine:
    seconds = entry.worker_seconds
    return TableLine(
        table=_table_name(entry),
        directory=entry.directory,
        rows=entry.rows,
        bytes=entry.bytes,
        files=entry.files,
        units=entry.units,
        worker_seconds=seconds,
        worker_share=round(seconds / busy, 4) if busy and seconds is not None else None,
        verified=entry.verified or "",
    )


def _table_name(entry: TableEntry) -> str:
    table = entry.table
    name = "" if table is None else ".".join(filter(None, (table.schema, table.name)))
    return f"{name} ({entry.route})" if entry.route else name
