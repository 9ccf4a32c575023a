"""Makes the manifest: what a run read, from which state, into which files, and what was checked.

How it is read back is `unloader.manifest.read`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from numa.model import BindReport, Seat
from unloader import __version__
from unloader.model import (
    Projection,
    ReadColumn,
    UnitResult,
)
from unloader.placement.evidence import Evidence, bound_seat_json, nodes_json, workers_json
from unloader.redaction import redact
from unloader.request.options.fields import recorded
from unloader.resolve.resolved import ResolvedRun
from unloader.sources.options import every_option
from writers.codecs.libraries import codec_library
from writers.model import ParquetFormat, TextFormat, WrittenFile

FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedUnit:
    """A unit's result and who produced it."""

    result: UnitResult
    partitions: tuple[str, ...]
    """The partitions that it read; empty if it was not read by partition."""
    seat: Seat
    bound: BindReport | None
    """What the seat's binding came to; None if the worker never said."""
    finals: tuple[WrittenFile, ...]
    """Its files under their final names."""
    directory: int = 0
    """Number of the directory that its files lie in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """Everything a manifest tells apart from the units."""

    run: ResolvedRun
    seconds: float
    cpu_seconds: float
    """Of all processes of the run."""
    source_rows: int | None
    verify_result: str
    directories: tuple[str, ...] = ()
    """Absolute paths, the first being where the manifest lies; empty where there is just one."""
    evidence: Evidence = field(default_factory=Evidence)
    """Where the workers were."""


def build_manifest(
    facts: RunFacts, units: tuple[FinishedUnit, ...], *, complete: bool
) -> dict[str, Any]:
    """Return the manifest as JSON-able values; units are in table order."""
    files = [file for unit in units for file in unit.finals]
    rows = sum(unit.result.rows for unit in units)
    size = sum(file.bytes for file in files)
    run, extract = facts.run, facts.run.extract
    stages = [unit.result.stages for unit in units]
    sizes = [each.uncompressed_bytes for each in stages]
    return {
        "format_version": FORMAT_VERSION,
        "run_id": run.run_id,
        "unloader_version": __version__,
        "status": "complete" if complete else "partial",
        "source": {
            "kind": extract.source.kind,
            "location": redact(extract.source.location),
            "server_version": run.server_version,
        },
        "table": None
        if extract.query is not None
        else {"schema": extract.table.schema, "name": extract.table.name},
        "query": extract.query,
        "snapshot": asdict(extract.snapshot) if extract.snapshot else None,
        "columns": _columns(extract.projection, run.output.format),
        "options": options_json(run),
        "settings": [
            {"name": each.name, "value": each.value, "from": each.origin}
            for each in run.request.settings
        ],
        "plan": {"digest": run.plan.digest, "units": len(run.plan.units)},
        **_directories(facts.directories, units),
        "units": [
            _unit(unit, placed=bool(facts.directories))
            for unit in sorted(units, key=lambda unit: unit.result.unit)
        ],
        **_placement(facts, units),
        "totals": {
            "rows": rows,
            "bytes": size,
            # Units that share a pipe name it once each.
            "files": len({file.path for file in files}),
            "seconds": round(facts.seconds, 3),
            "cpu_seconds": round(facts.cpu_seconds, 3),
            "compress_cpu_seconds": round(sum(each.compress_cpu_s for each in stages), 3),
            "uncompressed_bytes": None if None in sizes else sum(filter(None, sizes)),
            "rows_per_second": round(rows / facts.seconds) if facts.seconds else None,
            "bytes_per_second": round(size / facts.seconds) if facts.seconds else None,
            "peak_worker_rss_bytes": max((unit.result.peak_rss_bytes for unit in units), default=0),
        },
        "verified": {
            "level": run.request.verify,
            "source_rows": facts.source_rows,
            "result": facts.verify_result,
        },
    }


def options_json(run: ResolvedRun) -> dict[str, Any]:
    """Return the options that decided what was written, by the names of the command line."""
    output, shape = run.request.output, run.output.spec("").format
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
        "dialect": asdict(shape),
    }


def format_name(output_format: TextFormat | ParquetFormat) -> str:
    """Return the name of a format on the command line."""
    return "csv" if isinstance(output_format, TextFormat) else "parquet"


def journal_entry(unit: FinishedUnit) -> dict[str, Any]:
    """Return the journal's line for a finished, still staged unit."""
    return {
        "unit": unit.result.unit,
        "partitions": list(unit.partitions),
        "rows": unit.result.rows,
        "attempt": unit.result.attempt,
        "directory": unit.directory,
        "staged": [file.to_json() for file in unit.result.files],
    }


def _placement(facts: RunFacts, units: tuple[FinishedUnit, ...]) -> dict[str, Any]:
    """Return where the workers were and what each worker and node did."""
    evidence = facts.evidence
    results = [(unit.seat.worker, unit.result) for unit in units]
    return {
        "workers": workers_json(evidence, results),
        "nodes": nodes_json(evidence, results, facts.seconds),
        "warnings": [redact(text) for text in evidence.warnings.values()],
        "not_measured": list(evidence.not_measured),
    }


def _directories(
    directories: tuple[str, ...], units: tuple[FinishedUnit, ...]
) -> dict[str, list[dict[str, Any]]]:
    """Return each directory with what lies in it; nothing where there is just one."""
    if not directories:
        return {}
    placed = [
        [file for unit in units if unit.directory == number for file in unit.finals]
        for number in range(len(directories))
    ]
    return {
        "directories": [
            {"path": path, "files": len(files), "bytes": sum(file.bytes for file in files)}
            for path, files in zip(directories, placed, strict=True)
        ]
    }


def _columns(
    projection: Projection, output_format: TextFormat | ParquetFormat
) -> list[dict[str, Any]]:
    """Return what is told of each column, with its place in records of fixed width."""
    columns = [_column(column) for column in projection.columns]
    if not isinstance(output_format, TextFormat) or not output_format.fixed:
        return columns
    return [
        {**column, "position": [field.start + 1, field.start + field.width]}
        for column, field in zip(columns, output_format.fixed, strict=True)
    ]


def _column(column: ReadColumn) -> dict[str, Any]:
    return {
        "name": column.name,
        "source_type": column.source_type,
        "output_type": column.output_type,
        "nullable": column.nullable,
        "lossless": column.lossless,
        "note": column.note,
    }


def _unit(unit: FinishedUnit, *, placed: bool) -> dict[str, Any]:
    result, stages = unit.result, unit.result.stages
    place = {"directory": unit.directory} if placed else {}
    return {
        "id": result.unit,
        "partition": unit.partitions[0] if len(unit.partitions) == 1 else None,
        "partitions": list(unit.partitions),
        "rows": result.rows,
        "attempts": result.attempt,
        "seat": bound_seat_json(unit.seat, unit.bound),
        "stages": {
            "fetch_s": round(stages.fetch_s, 4),
            "encode_s": round(stages.encode_s, 4),
            "compress_s": round(stages.compress_s, 4),
            "write_s": round(stages.write_s, 4),
        },
        "seconds": round(result.seconds, 4),
        "files": [{**file.to_json(), **place} for file in unit.finals],
    }
