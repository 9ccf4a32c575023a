"""Makes the manifest: what a run read, from which state, into which files, and what was checked.

What it says of the options is made by `unloader.manifest.options`, of the columns by
`unloader.manifest.columns`. How it is read back is `unloader.manifest.read`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct, field, to_builtins
from msgspec.structs import asdict, replace

from numa.model import BindReport, Seat
from partition_planner.model import KeyRange
from unloader import __version__
from unloader.events import ParallelismChanged
from unloader.identity import ByIdentity
from unloader.manifest.asked import (
    PartRecord,
    PlanRecord,
    SettingRecord,
    SourceRecord,
    SubsetRecord,
    TableRecord,
)
from unloader.manifest.columns import columns_record
from unloader.manifest.model import (
    FORMAT_REVISION,
    ContentRecord,
    DirectoryRecord,
    FailedAttemptRecord,
    FileRecord,
    Manifest,
    NodeRecord,
    RouteRecord,
    SampleRecord,
    SeatRecord,
    StagesRecord,
    StepRecord,
    TotalsRecord,
    UnitRecord,
    VerifiedRecord,
    WorkerRecord,
)
from unloader.manifest.options import options_record
from unloader.model import UnitResult
from unloader.nouns import counted
from unloader.placement.evidence import Evidence, nodes_json, workers_json
from unloader.redaction import redact
from unloader.resolve.broken_run import digest_of_job
from unloader.resolve.resolved import ResolvedRun
from unloader.resolve.slow_installation import missing_libraries
from writers.model import WrittenFile

if TYPE_CHECKING:
    from unloader.ceilings.model import Ceilings, Efficiency


class FinishedUnit(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A unit's result and who produced it."""

    result: UnitResult
    partitions: tuple[str, ...]
    """The partitions that it read; empty if it was not read by partition."""
    seat: Seat
    bound: BindReport | None
    """The actual binding of the seat; None if the worker did not report it."""
    finals: tuple[WrittenFile, ...]
    """Its files under their final names."""
    directory: int = 0
    """Number of the directory that its files lie in."""
    started_s: float | None = None
    """When its attempt began, from the begin of the run; None if that was in an earlier process."""


class RunFacts(Struct, frozen=True, kw_only=True):
    """Everything a manifest tells apart from the units."""

    run: ResolvedRun
    seconds: float
    cpu_seconds: float
    """Of all processes of the run."""
    source_rows: int | None
    verify_result: str
    not_compared: tuple[str, ...] | None = None
    """Columns whose values could not be compared, each with why; None where none were."""
    directories: tuple[str, ...] = ()
    """Absolute paths, the first being where the manifest lies; empty where there is just one."""
    evidence: Evidence = field(default_factory=Evidence)
    """Where the workers were."""
    lowest_parallelism: int | None = None
    """Workers that the source let work when it took fewest sessions; None if it refused none."""
    ceilings: Ceilings | None = None
    """What the run is compared with, where that is wanted."""
    steps: tuple[ParallelismChanged, ...] | None = None
    """How many workers worked when; None where that was not steered."""
    kept: frozenset[str] = frozenset()
    """Units that an earlier process of the run has done: no part of what `seconds` took."""
    failed_attempts: tuple[FailedAttemptRecord, ...] = ()
    failed_attempts_left_out: int = 0
    """How many more there were."""
    samples: tuple[SampleRecord, ...] = ()
    route: RouteRecord | None = None
    """Which of several outputs of a run it is; None where there is one."""


def build_manifest(facts: RunFacts, units: tuple[FinishedUnit, ...], *, complete: bool) -> Manifest:
    """Return the manifest; units are in table order."""
    run, extract = facts.run, facts.run.extract
    results = [(unit.seat.worker, unit.result) for unit in units]
    evidence = facts.evidence
    totals = _totals(facts, units)
    table = TableRecord(schema=extract.table.schema, name=extract.table.name)
    return Manifest(
        format_revision=FORMAT_REVISION,
        run_id=run.run_id,
        unloader_version=__version__,
        status="complete" if complete else "partial",
        source=_sources.of((extract.source, run.server_version), lambda: _source(run)),
        table=None if extract.query is not None else table,
        query=extract.query,
        subset=_subset(run),
        route=facts.route,
        lake_table=run.output.options.lake_table,
        snapshot=extract.snapshot,
        columns=columns_record(run),
        options=options_record(run),
        settings=_settings.of((run.request.settings,), lambda: _settings_of(run)),
        job=digest_of_job(run.request),
        plan=PlanRecord(digest=run.plan.digest, units=len(run.plan.units)),
        directories=_directories(facts.directories, units),
        units=tuple(
            _unit(unit, placed=bool(facts.directories))
            for unit in sorted(units, key=lambda unit: unit.result.unit)
        ),
        failed_attempts=facts.failed_attempts,
        failed_attempts_left_out=facts.failed_attempts_left_out,
        samples=facts.samples,
        workers=tuple(_worker(each) for each in workers_json(evidence, results)),
        nodes=tuple(
            NodeRecord(**each) for each in nodes_json(evidence, results, facts.seconds, facts.kept)
        ),
        parallelism_steps=_steps(facts),
        warnings=tuple(
            redact(text)
            for text in (*evidence.warnings.values(), *_refusals(facts), *missing_libraries(run))
        ),
        not_measured=evidence.not_measured,
        totals=totals,
        verified=VerifiedRecord(
            level=run.request.verify,
            source_rows=facts.source_rows,
            filtered_rows=_filtered(units),
            result=facts.verify_result,
            not_compared=facts.not_compared,
        ),
        efficiency=_efficiency(facts, totals) if complete else None,
    )


_sources: ByIdentity[SourceRecord] = ByIdentity()
_settings: ByIdentity[tuple[SettingRecord, ...]] = ByIdentity()
"""Parts of manifests that tables of a run have in common."""


def _source(run: ResolvedRun) -> SourceRecord:
    source = run.extract.source
    return SourceRecord(
        kind=source.kind, location=redact(source.location), server_version=run.server_version
    )


def _settings_of(run: ResolvedRun) -> tuple[SettingRecord, ...]:
    return tuple(
        SettingRecord(name=each.name, value=each.value, origin=each.origin)
        for each in run.request.settings
    )


def _subset(run: ResolvedRun) -> SubsetRecord | None:
    """Return which part of the rows was read by `--sample`, `--part` and so on; None for all."""
    keys, plan, limit_rows = run.extract.keys, run.plan, run.extract.limit_rows
    if keys is None and plan.has_all_units and limit_rows is None:
        return None
    share, key = (None, None) if keys is None else (keys.share, keys.column)
    found = SubsetRecord(share=share, key=key, limit_rows=limit_rows)
    if plan.has_all_units:
        return found
    # Ends of ranges of keys are values of the table, which no manifest tells.
    with_values = any(isinstance(each, KeyRange) for each in plan.selectors)
    found = replace(
        found,
        units=len(plan.units),
        selectors=None if with_values else tuple(map(to_builtins, plan.selectors)),
    )
    sampled, part = plan.sampled, plan.part
    if sampled is not None:
        cost_share = round(sampled.cost_share, 6)
        found = replace(
            found, share=sampled.share, of_units=sampled.of_units, cost_share=cost_share
        )
    if part is not None:
        record = PartRecord(
            number=part.number, of=part.of, of_units=part.of_units, plan_digest=part.whole
        )
        found = replace(found, part=record, of_units=found.of_units or part.of_units)
    return found


def _filtered(units: tuple[FinishedUnit, ...]) -> int | None:
    """Return how many rows a filter left out; None where there was none."""
    found = [unit.result.filtered for unit in units if unit.result.filtered is not None]
    return sum(found) if found else None


def _efficiency(facts: RunFacts, totals: TotalsRecord) -> Efficiency | None:
    """Return how near the run came to its ceilings; without parts where none of them is its own."""
    if facts.ceilings is None:
        return None
    from unloader.manifest.compared import compared

    return compared(facts.run, facts.ceilings, totals, resumed=bool(facts.kept))


def _steps(facts: RunFacts) -> tuple[StepRecord, ...] | None:
    if facts.steps is None:
        return None
    return tuple(StepRecord(**asdict(step)) for step in facts.steps)


def _refusals(facts: RunFacts) -> tuple[str, ...]:
    """Return the line on a source that took fewer sessions than there are workers."""
    if facts.lowest_parallelism is None:
        return ()
    workers = len(facts.run.seating.seats)
    return (
        f"the database refused sessions: at times only {facts.lowest_parallelism} of "
        f"{counted(workers, 'worker')} could work",
    )


def _totals(facts: RunFacts, units: tuple[FinishedUnit, ...]) -> TotalsRecord:
    files = [file for unit in units for file in unit.finals]
    rows = sum(unit.result.rows for unit in units)
    size = sum(file.bytes for file in files)
    new = [unit for unit in units if unit.result.unit not in facts.kept]
    new_rows = sum(unit.result.rows for unit in new)
    new_bytes = sum(file.bytes for unit in new for file in unit.finals)
    stages = [unit.result.stages for unit in units]
    sizes = [each.uncompressed_bytes for each in stages]
    return TotalsRecord(
        rows=rows,
        bytes=size,
        # Units that share a pipe name it once each.
        files=len({file.path for file in files}),
        seconds=round(facts.seconds, 3),
        cpu_seconds=round(facts.cpu_seconds, 3),
        compress_cpu_seconds=round(sum(each.compress_cpu_s for each in stages), 3),
        uncompressed_bytes=None if None in sizes else sum(filter(None, sizes)),
        rows_per_second=round(new_rows / facts.seconds) if facts.seconds else None,
        bytes_per_second=round(new_bytes / facts.seconds) if facts.seconds else None,
        lowest_parallelism=facts.lowest_parallelism,
        peak_worker_rss_bytes=max((unit.result.peak_rss_bytes for unit in units), default=0),
    )


def _directories(
    directories: tuple[str, ...], units: tuple[FinishedUnit, ...]
) -> tuple[DirectoryRecord, ...] | None:
    """Return each directory with what lies in it; None where there is just one."""
    if not directories:
        return None
    placed = [
        [file for unit in units if unit.directory == number for file in unit.finals]
        for number in range(len(directories))
    ]
    return tuple(
        DirectoryRecord(path=path, files=len(files), bytes=sum(file.bytes for file in files))
        for path, files in zip(directories, placed, strict=True)
    )


def _worker(found: dict[str, Any]) -> WorkerRecord:
    seat = found["seat"]
    record = SeatRecord(**{**seat, "cpus": tuple(seat["cpus"])})
    return WorkerRecord(**{**found, "seat": record, "ran_on": tuple(found["ran_on"])})


def _unit(unit: FinishedUnit, *, placed: bool) -> UnitRecord:
    result, stages, content = unit.result, unit.result.stages, unit.result.content
    return UnitRecord(
        id=result.unit,
        partition=unit.partitions[0] if len(unit.partitions) == 1 else None,
        partitions=unit.partitions,
        rows=result.rows,
        attempts=result.attempt,
        seat=SeatRecord(
            node=unit.seat.node,
            cpus=unit.seat.cpus,
            memory_node=unit.seat.memory_node,
            memory_policy=unit.bound.memory_policy if unit.bound else None,
        ),
        stages=StagesRecord(
            fetch_s=round(stages.fetch_s, 4),
            encode_s=round(stages.encode_s, 4),
            compress_s=round(stages.compress_s, 4),
            write_s=round(stages.write_s, 4),
        ),
        seconds=round(result.seconds, 4),
        worker=unit.seat.worker,
        started_s=unit.started_s,
        files=tuple(
            FileRecord(
                path=file.path,
                rows=file.rows,
                bytes=file.bytes,
                checksum=file.checksum,
                directory=unit.directory if placed else None,
            )
            for file in unit.finals
        ),
        content=ContentRecord(nulls=content.nulls, sums=content.sums) if content else None,
    )
