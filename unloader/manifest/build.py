"""Makes the manifest: what a run read, from which state, into which files, and what was checked.

How it is read back is `unloader.manifest.read`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, field
from functools import cache, lru_cache
from itertools import repeat
from typing import TYPE_CHECKING, Any

from numa.model import BindReport, Seat
from partition_planner.model import KeyRange
from unloader import __version__
from unloader.events import ParallelismChanged
from unloader.identity import ByIdentity
from unloader.json_fields import OPTIONAL, fields_of, from_json, to_json, values_getter
from unloader.manifest.asked import (
    ColumnRecord,
    EncryptionRecord,
    MaskedRecord,
    OptionsRecord,
    PartRecord,
    PlanRecord,
    SettingRecord,
    SourceRecord,
    SubsetRecord,
    TableRecord,
)
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
from unloader.model import (
    COMPARING,
    ConcurrencyOptions,
    EncryptionOptions,
    ReadColumn,
    UnitResult,
)
from unloader.placement.evidence import Evidence, nodes_json, workers_json
from unloader.redaction import redact
from unloader.request.options.fields import recorded
from unloader.resolve.resolved import ResolvedRun
from unloader.sources.options import every_option
from writers.codecs.libraries import codec_library
from writers.model import ParquetFormat, TextFormat, WrittenFile
from writers.records import dataclass, replace
from writers.schema import text_classes

if TYPE_CHECKING:
    from unloader.ceilings.model import Ceilings, Efficiency
    from unloader.transforms.model import OutputColumn


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedUnit:
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
    started_s: float | None = field(default=None, metadata={OPTIONAL: True})
    """When its attempt began, from the begin of the run; None if that was in an earlier process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
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
        columns=_columns(run),
        options=_options(run),
        settings=_settings.of((run.request.settings,), lambda: _settings_of(run)),
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
        warnings=tuple(redact(text) for text in (*evidence.warnings.values(), *_refusals(facts))),
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
_options_but_place: ByIdentity[OptionsRecord] = ByIdentity()
_plain_columns: ByIdentity[tuple[ColumnRecord, ...]] = ByIdentity()
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
        selectors=None if with_values else tuple(each.to_json() for each in plan.selectors),
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
        f"the database refused sessions: at times {facts.lowest_parallelism} of {workers} workers "
        "could work",
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


def _options(run: ResolvedRun) -> OptionsRecord:
    """Return the options as the manifest has them."""
    request, output = run.request, run.output
    # Tables of which the manifest tells the same options have them put together once.
    told = (
        *_values(request, ("selection", "output", "settings")),
        *_values(request.selection, ("table", "query")),
        *_values(request.output, ("destination", "others")),
        output.format,
        output.compression,
        output.choice,
        output.transform,
        output.options.encryption,
    )
    record = _options_but_place.of(told, lambda: _common_options(run))
    places = output.options
    return replace(record, to=places.destinations if places.others else places.destination)


def _values(record: Any, without: tuple[str, ...]) -> tuple[Any, ...]:
    """Return what a record holds in its fields, but for some."""
    kind: type = type(record)
    return _values_of(kind, without)(record)


@cache
def _values_of(kind: type, without: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    return values_getter([name for name, *_ in fields_of(kind) if name not in without])


def _common_options(run: ResolvedRun) -> OptionsRecord:
    return from_json(OptionsRecord, to_json(options_json(run)), "the options")


def options_json(run: ResolvedRun) -> dict[str, Any]:
    """Return the options that decided what was written, by the names of the command line."""
    output, shape = run.output.options, run.output.spec("").format
    compression, choice = run.output.spec("").compression, run.output.choice
    found = recorded(every_option(), run.request)
    return {
        **found,
        "to": list(output.destinations) if output.others else output.destination,
        "format": format_name(shape),
        "compression": asdict(compression),
        "compression_library": codec_library(format_name(shape), compression),
        "compression_choice": choice.to_json() if choice else None,
        "parallelism": found["parallelism"] or 0,
        **_concurrency(run.request.concurrency, found),
        "dialect": asdict(shape),
        **_encryption(output.encryption),
        **_transform(run),
    }


def _concurrency(known: ConcurrencyOptions | None, found: dict[str, Any]) -> dict[str, Any]:
    """Return what was said of the number of workers, and nothing of what was not."""
    if known is None:
        return {}
    slow = found["slow_parallelism"] if known.slow_between else None
    return {"adaptive": known.adaptive or None, "slow_parallelism": slow}


def _encryption(options: EncryptionOptions | None) -> dict[str, Any]:
    if options is None:
        return {}
    record = EncryptionRecord(
        method="parquet" if options.keyed else "age",
        recipients=options.recipients,
        key_name=options.key_name,
        key_proof=options.key_proof,
    )
    return {"encryption": to_json(record)}


def _transform(run: ResolvedRun) -> dict[str, Any]:
    if run.output.transform is None:
        return {}
    return {"transform": to_json(run.output.transform.options.steps)}


def format_name(output_format: TextFormat | ParquetFormat) -> str:
    """Return the name of a format on the command line."""
    return "csv" if isinstance(output_format, TextFormat) else "parquet"


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


def _columns(run: ResolvedRun) -> tuple[ColumnRecord, ...]:
    """Return what is said of each column, with its place in records of fixed width."""
    projection, output_format = run.written, run.output.format
    is_fixed = isinstance(output_format, TextFormat) and bool(output_format.fixed)
    if not is_fixed and run.output.transform is None and run.request.verify not in COMPARING:
        return _plain_columns.of(
            (projection,), lambda: tuple(_column(each, None) for each in projection.columns)
        )
    classes: Iterable[str | None] = repeat(None)
    if run.request.verify in COMPARING:
        classes = text_classes(projection.schema)
    columns = tuple(
        _column(column, text_class)
        for column, text_class in zip(projection.columns, classes, strict=False)
    )
    if run.output.transform is not None:
        known = zip(columns, run.output.transform.columns, strict=True)
        columns = tuple(_changed(column, how) for column, how in known)
    if not isinstance(output_format, TextFormat) or not output_format.fixed:
        return columns
    return tuple(
        replace(column, position=(field.start + 1, field.start + field.width))
        for column, field in zip(columns, output_format.fixed, strict=True)
    )


@lru_cache(maxsize=1024)  # Tables of a schema have columns in common.
def _column(column: ReadColumn, text_class: str | None) -> ColumnRecord:
    return ColumnRecord(
        name=column.name,
        source_type=column.source_type,
        output_type=column.output_type,
        nullable=column.nullable,
        lossless=column.lossless,
        note=column.note,
        text_class=text_class or None,
    )


def _changed(column: ColumnRecord, how: OutputColumn) -> ColumnRecord:
    """Return what is said of a column with what was done to it."""
    masked = how.masked
    return replace(
        column,
        masked=None
        if masked is None
        else MaskedRecord(
            method=masked.method,
            detail=masked.detail,
            key_name=masked.key_name or None,
            key_proof=masked.key_proof or None,
        ),
        changes=how.changes or None,
        read_from=None if how.inputs in ((how.name,), ()) else how.inputs,
        clear_values_of=how.unmasked_inputs or None,
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
