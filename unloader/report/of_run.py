"""From the manifest of a run to its report."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from unloader.events import ParallelismChanged
from unloader.manifest.model import FailedAttemptRecord, Manifest, SampleRecord
from unloader.model import FinishedUnit, Stages
from unloader.report.model import (
    Bar,
    NodeLine,
    RouteLine,
    RunReport,
    SampleLine,
    SettingLine,
    Spread,
    StepLine,
    UnitLine,
    WorkerLine,
)
from unloader.report.timeline import bars_of

MOST_LINES = 50
"""Of a table of units or of failed attempts."""
MOST_WARNINGS = 50


def run_report(manifest: Manifest, others: Sequence[Manifest] = ()) -> RunReport:
    """Return the report of a run.

    Args:
        manifest: Of one table.
        others: Those of all routes, where it is of one of several.
    """
    table, units = manifest.table, manifest.units
    # Of a steered run those that were never to work were not idle.
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
