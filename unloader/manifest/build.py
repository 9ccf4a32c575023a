"""Makes the manifest of a run; `unloader.manifest.read` reads it back."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import TYPE_CHECKING

from msgspec import Struct, convert, field
from msgspec.structs import replace

from partition_planner.model import KeyRange
from unloader import __version__
from unloader.events import ParallelismChanged
from unloader.manifest.model import (
    ColumnRecord,
    DirectoryRecord,
    EncryptionRecord,
    FailedAttemptRecord,
    Manifest,
    OptionsRecord,
    PlanRecord,
    RouteRecord,
    SampleRecord,
    SourceRecord,
    SubsetRecord,
    TableRecord,
    TotalsRecord,
    VerifiedRecord,
)
from unloader.model import (
    COMPARING,
    FinishedUnit,
)
from unloader.nouns import counted
from unloader.placement.evidence import Evidence, node_records, worker_records
from unloader.redaction import redact
from unloader.request.options import recorded
from unloader.resolve.planned import digest_of_job
from unloader.resolve.resolved import ResolvedTable, missing_libraries
from writers.codecs.compression import codec_library
from writers.model import TextFormat
from writers.schema import text_classes

if TYPE_CHECKING:
    pass


class RunFacts(Struct, frozen=True, kw_only=True):
    """Everything in a manifest except the units."""

    run: ResolvedTable
    seconds: float
    cpu_seconds: float
    """Of all processes of the run."""
    source_rows: int | None
    verify_result: str
    not_compared: tuple[str, ...] | None = None
    """Columns whose values could not be compared, each with why; None where none were."""
    directories: tuple[str, ...] = ()
    """Absolute paths, the directory of the manifest first; empty for a single directory."""
    evidence: Evidence = field(default_factory=Evidence)
    lowest_parallelism: int | None = None
    """Workers that the source let work when it took fewest sessions; None if it refused none."""
    steps: tuple[ParallelismChanged, ...] | None = None
    """How many workers worked when; None where that was not steered."""
    kept: frozenset[str] = frozenset()
    """Units that an earlier process of the run has done: no part of what `seconds` took."""
    failed_attempts: tuple[FailedAttemptRecord, ...] = ()
    failed_attempts_left_out: int = 0
    samples: tuple[SampleRecord, ...] = ()
    route: RouteRecord | None = None


def build_manifest(facts: RunFacts, units: tuple[FinishedUnit, ...], *, complete: bool) -> Manifest:
    """Return the manifest; units are in table order."""
    run, extract, evidence = facts.run, facts.run.extract, facts.evidence
    table = TableRecord(schema=extract.table.schema, name=extract.table.name)
    warnings = [*evidence.warnings.values()]
    if facts.lowest_parallelism is not None:
        workers = counted(len(run.seating.seats), "worker")
        warnings.append(
            f"the database refused sessions: at times only {facts.lowest_parallelism} of "
            f"{workers} could work"
        )
    filtered = [unit.filtered for unit in units if unit.filtered is not None]
    return Manifest(
        run_id=run.run_id,
        unloader_version=__version__,
        status="complete" if complete else "partial",
        source=SourceRecord(
            kind=extract.source.kind,
            location=redact(extract.source.location),
            server_version=run.server_version,
        ),
        table=None if extract.query is not None else table,
        query=extract.query,
        subset=_subset(run),
        route=facts.route,
        lake_table=run.output.options.lake_table,
        snapshot=extract.snapshot,
        columns=columns_record(run),
        options=options_record(run),
        settings=run.request.settings,
        job=digest_of_job(run.request),
        plan=PlanRecord(digest=run.plan.digest, units=len(run.plan.units)),
        directories=_directories(facts.directories, units),
        units=tuple(
            replace(unit, stages=replace(unit.stages, load=None))
            for unit in sorted(units, key=lambda unit: unit.unit)
        ),
        failed_attempts=facts.failed_attempts,
        failed_attempts_left_out=facts.failed_attempts_left_out,
        samples=facts.samples,
        workers=worker_records(evidence, units),
        nodes=node_records(evidence, units, facts.seconds, facts.kept),
        parallelism_steps=facts.steps,
        warnings=tuple(map(redact, (*warnings, *missing_libraries(run)))),
        not_measured=evidence.not_measured,
        totals=_totals(facts, units),
        verified=VerifiedRecord(
            level=run.request.verify,
            source_rows=facts.source_rows,
            filtered_rows=sum(filtered) if filtered else None,
            result=facts.verify_result,
            not_compared=facts.not_compared,
        ),
    )


def _subset(run: ResolvedTable) -> SubsetRecord | None:
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
        selectors=None if with_values else plan.selectors,
    )
    sampled, part = plan.sampled, plan.part
    if sampled is not None:
        cost_share = round(sampled.cost_share, 6)
        found = replace(
            found, share=sampled.share, of_units=sampled.of_units, cost_share=cost_share
        )
    if part is not None:
        found = replace(found, part=part, of_units=found.of_units or part.of_units)
    return found


def _totals(facts: RunFacts, units: tuple[FinishedUnit, ...]) -> TotalsRecord:
    files = [file for unit in units for file in unit.files]
    rows = sum(unit.rows for unit in units)
    size = sum(file.bytes for file in files)
    new = [unit for unit in units if unit.unit not in facts.kept]
    new_rows = sum(unit.rows for unit in new)
    new_bytes = sum(file.bytes for unit in new for file in unit.files)
    stages = [unit.stages for unit in units]
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
        peak_worker_rss_bytes=max((unit.peak_rss_bytes for unit in units), default=0),
    )


def _directories(
    directories: tuple[str, ...], units: tuple[FinishedUnit, ...]
) -> tuple[DirectoryRecord, ...] | None:
    if not directories:
        return None
    sizes: list[list[int]] = [[] for _ in directories]
    for unit in units:
        for file in unit.files:
            sizes[file.directory].append(file.bytes)
    return tuple(
        DirectoryRecord(path=path, files=len(each), bytes=sum(each))
        for path, each in zip(directories, sizes, strict=True)
    )


def options_record(run: ResolvedTable) -> OptionsRecord:
    """Return the options that decided the output, by the names of the command line."""
    output, shape = run.output.options, run.output.spec("").format
    compression, choice = run.output.spec("").compression, run.output.choice
    name = "csv" if isinstance(shape, TextFormat) else "parquet"
    steps = None if run.output.transform is None else run.output.transform.options.steps
    found = recorded(run.request, OptionsRecord.__struct_fields__)
    concurrency, encryption = run.request.concurrency, output.encryption
    if concurrency is not None:
        found["adaptive"] = concurrency.adaptive or None
        if not concurrency.slow_between:
            found["slow_parallelism"] = None
    options = {
        **found,
        "to": output.destinations if output.others else output.destination,
        "format": name,
        "compression": compression,
        "compression_library": codec_library(name, compression),
        "compression_choice": choice,
        "parallelism": found["parallelism"] or 0,
        "dialect": shape,
        "encryption": encryption
        and EncryptionRecord(
            method="parquet" if encryption.keyed else "age",
            recipients=encryption.recipients,
            key_name=encryption.key_name,
            key_proof=encryption.key_proof,
        ),
        "transform": steps,
    }
    return convert(options, OptionsRecord)


def columns_record(run: ResolvedTable) -> tuple[ColumnRecord, ...]:
    """Return the record of each column, with its place in records of fixed width."""
    projection, output_format = run.written, run.output.format
    classes: Iterable[str | None] = repeat(None)
    if run.request.verify in COMPARING:
        classes = text_classes(projection.schema)
    columns = tuple(
        ColumnRecord(
            name=column.name,
            source_type=column.source_type,
            output_type=column.output_type,
            nullable=column.nullable,
            lossless=column.lossless,
            note=column.note,
            text_class=text_class or None,
        )
        for column, text_class in zip(projection.columns, classes, strict=False)
    )
    if run.output.transform is not None:
        columns = tuple(
            replace(
                column,
                masked=how.masked,
                changes=how.changes or None,
                read_from=None if how.inputs in ((how.name,), ()) else how.inputs,
                clear_values_of=how.unmasked_inputs or None,
            )
            for column, how in zip(columns, run.output.transform.columns, strict=True)
        )
    if not isinstance(output_format, TextFormat) or not output_format.fixed:
        return columns
    return tuple(
        replace(column, position=(field.start + 1, field.start + field.width))
        for column, field in zip(columns, output_format.fixed, strict=True)
    )
