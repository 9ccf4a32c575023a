"""Makes the manifest of a run; `unloader.manifest.read` reads it back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat

from msgspec import convert
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
from unloader.model import COMPARING, FinishedUnit
from unloader.nouns import counted
from unloader.placement.evidence import Evidence, node_records, worker_records
from unloader.redaction import redact
from unloader.request.options import recorded
from unloader.resolve.planning import digest_of_job
from unloader.resolve.resolved import ResolvedTable, missing_libraries
from writers.codecs.compression import codec_library
from writers.model import TextFormat, WrittenFile
from writers.schema import text_classes


def build_manifest(
    run: ResolvedTable,
    units: Sequence[FinishedUnit],
    *,
    complete: bool,
    seconds: float,
    cpu_seconds: float,
    source_rows: int | None,
    verify_result: str,
    not_compared: tuple[str, ...] | None = None,
    directories: tuple[str, ...] = (),
    evidence: Evidence | None = None,
    lowest_parallelism: int | None = None,
    steps: tuple[ParallelismChanged, ...] | None = None,
    kept: frozenset[str] = frozenset(),
    failed_attempts: Sequence[FailedAttemptRecord] = (),
    failed_attempts_left_out: int = 0,
    samples: tuple[SampleRecord, ...] = (),
    route: RouteRecord | None = None,
) -> Manifest:
    """Return the manifest of one output.

    `cpu_seconds` are of all processes. `not_compared` has columns with the reason; None if no
    values were compared. `kept` are units of an earlier process, which `seconds` do not include.
    """
    extract, evidence = run.extract, evidence or Evidence()
    table = TableRecord(schema=extract.table.schema, name=extract.table.name)
    warnings = [*evidence.warnings.values()]
    if lowest_parallelism is not None:
        workers = counted(len(run.seating.seats), "worker")
        warnings.append(
            f"the database refused sessions: at times only {lowest_parallelism} of {workers} could "
            "work"
        )
    ordered = tuple(sorted(units, key=lambda unit: unit.unit))
    filtered = [unit.filtered for unit in units if unit.filtered is not None]
    files = [file for unit in units for file in unit.files]
    new = [unit for unit in units if unit.unit not in kept]
    new_bytes = sum(file.bytes + file.value_bytes for unit in new for file in unit.files)
    sizes = [unit.stages.uncompressed_bytes for unit in units]
    return Manifest(
        run_id=run.run_id,
        unloader_version=__version__,
        status="complete" if complete else "partial",
        source=source_record(run),
        table=None if extract.query is not None else table,
        query=extract.query,
        subset=_subset(run),
        route=route,
        lake_table=run.output.options.lake_table,
        snapshot=extract.snapshot,
        columns=columns_record(run),
        options=options_record(run),
        settings=run.request.settings,
        job=digest_of_job(run.request),
        plan=PlanRecord(digest=run.plan.digest, units=len(run.plan.units)),
        directories=_directories(directories, files),
        units=tuple(replace(each, stages=replace(each.stages, load=None)) for each in ordered),
        failed_attempts=tuple(failed_attempts),
        failed_attempts_left_out=failed_attempts_left_out,
        samples=samples,
        workers=worker_records(evidence, units),
        nodes=node_records(evidence, units, seconds, kept),
        parallelism_steps=steps,
        warnings=tuple(map(redact, (*warnings, *missing_libraries(run)))),
        not_measured=evidence.not_measured,
        totals=TotalsRecord(
            rows=sum(unit.rows for unit in units),
            bytes=sum(file.bytes + file.value_bytes for file in files),
            # Units that share a pipe name it once each.
            files=len({file.path for file in files}),
            seconds=round(seconds, 3),
            cpu_seconds=round(cpu_seconds, 3),
            compress_cpu_seconds=round(sum(each.stages.compress_cpu_s for each in units), 3),
            uncompressed_bytes=None if None in sizes else sum(filter(None, sizes)),
            rows_per_second=round(sum(unit.rows for unit in new) / seconds) if seconds else None,
            bytes_per_second=round(new_bytes / seconds) if seconds else None,
            lowest_parallelism=lowest_parallelism,
            peak_worker_rss_bytes=max((unit.peak_rss_bytes for unit in units), default=0),
        ),
        verified=VerifiedRecord(
            level=run.request.verify,
            source_rows=source_rows,
            filtered_rows=sum(filtered) if filtered else None,
            result=verify_result,
            not_compared=not_compared,
        ),
    )


def source_record(run: ResolvedTable) -> SourceRecord:
    source = run.extract.source
    return SourceRecord(
        kind=source.kind, location=redact(source.location), server_version=run.server_version
    )


def _subset(run: ResolvedTable) -> SubsetRecord | None:
    """Return which part of the rows was read by `--sample`, `--part` and so on; None for all."""
    keys, plan, limit_rows = run.extract.keys, run.plan, run.extract.limit_rows
    if keys is None and plan.has_all_units and limit_rows is None:
        return None
    # Ends of ranges of keys are values of the table, which no manifest shows.
    with_values = any(isinstance(each, KeyRange) for each in plan.selectors)
    is_whole = plan.has_all_units
    sampled, part = (None, None) if is_whole else (plan.sampled, plan.part)
    of_units = (sampled.of_units if sampled else None) or (part.of_units if part else None)
    share = keys.share if keys else None
    return SubsetRecord(
        part=part,
        share=sampled.share if sampled else share,
        key=keys.column if keys else None,
        units=None if is_whole else len(plan.units),
        of_units=of_units,
        cost_share=round(sampled.cost_share, 6) if sampled else None,
        selectors=None if is_whole or with_values else plan.selectors,
        limit_rows=limit_rows,
    )


def _directories(
    directories: tuple[str, ...], files: Sequence[WrittenFile]
) -> tuple[DirectoryRecord, ...] | None:
    sizes: list[list[int]] = [[] for _ in directories]
    for file in files if directories else ():
        sizes[file.directory].append(file.bytes + file.value_bytes)
    found = zip(directories, sizes, strict=True)
    return (
        tuple(DirectoryRecord(path=path, files=len(each), bytes=sum(each)) for path, each in found)
        or None
    )


def options_record(run: ResolvedTable) -> OptionsRecord:
    output, shape = run.output.options, run.output.spec("").format
    compression, choice = run.output.spec("").compression, run.output.choice
    name = "csv" if isinstance(shape, TextFormat) else "parquet"
    transform = run.output.options.transform
    steps = None if transform is None else transform.steps
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
        replace(convert(column, ColumnRecord, from_attributes=True), text_class=text_class or None)
        for column, text_class in zip(projection.columns, classes, strict=False)
    )
    if run.output.origins:
        columns = tuple(
            replace(
                column,
                masked=how.masked,
                changes=how.changes or None,
                read_from=None if how.inputs in ((how.name,), ()) else how.inputs,
                clear_values_of=how.unmasked_inputs or None,
            )
            for column, how in zip(columns, run.output.origins, strict=True)
        )
    if not isinstance(output_format, TextFormat) or not output_format.fixed:
        return columns
    return tuple(
        replace(column, position=(field.start + 1, field.start + field.width))
        for column, field in zip(columns, output_format.fixed, strict=True)
    )
