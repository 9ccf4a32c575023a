"""The manifest: what a run read, from which state, into which files, and whether that was checked.

`_manifest.json` in the destination is written last, so its presence means that the run is complete.
Resuming and verifying trust the manifest and the journal and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from numa.model import BindReport, Seat
from partition_planner.model import Plan
from unloader import __version__
from unloader.errors import OutputFailed
from unloader.evidence import Evidence, nodes_json, seat_json, workers_json
from unloader.model import (
    Extract,
    JobSpec,
    OutputOptions,
    Projection,
    ReadColumn,
    UnitResult,
)
from writers.codecs.libraries import codec_library
from writers.model import ParquetFormat, TextFormat, WrittenFile

MANIFEST = "_manifest.json"
FORMAT_VERSION = 1

_NEEDED = ("run_id", "table", "query", "snapshot", "options", "units", "totals")
"""What replacing and verifying a run rely on."""

_TOTALS = ("rows", "bytes", "files")

_RESTORE = "restore it, or unload again to another directory"


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedUnit:
    """A unit's result and who produced it."""

    result: UnitResult
    partition: str | None
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

    run_id: str
    job: JobSpec
    extract: Extract
    plan: Plan
    server_version: str
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
    extract = facts.extract
    stages = [unit.result.stages for unit in units]
    sizes = [each.uncompressed_bytes for each in stages]
    return {
        "format_version": FORMAT_VERSION,
        "run_id": facts.run_id,
        "unloader_version": __version__,
        "status": "complete" if complete else "partial",
        "source": {
            "kind": extract.source.kind,
            "location": extract.source.location,
            "server_version": facts.server_version,
        },
        "table": None
        if extract.query is not None
        else {"schema": extract.table.schema, "name": extract.table.name},
        "query": extract.query,
        "snapshot": asdict(extract.snapshot) if extract.snapshot else None,
        "columns": _columns(extract.projection, facts.job.output.output.format),
        "options": options_json(facts.job),
        "plan": {"digest": facts.plan.digest, "units": len(facts.plan.units)},
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
            "level": facts.job.verify,
            "source_rows": facts.source_rows,
            "result": facts.verify_result,
        },
    }


def options_json(job: JobSpec) -> dict[str, Any]:
    """Return the options that decided what was written, by the names of the command line."""
    output: OutputOptions = job.output
    spec = output.output
    shared = {
        "to": list(output.destinations) if output.others else output.destination,
        "columns": list(job.selection.columns),
        "exclude": list(job.selection.exclude),
        "where": job.selection.where,
        "partition": list(job.selection.partitions),
        "as_text": list(job.selection.as_text),
        "format": format_name(spec.format),
        "compression": asdict(spec.compression),
        "compression_library": codec_library(format_name(spec.format), spec.compression),
        "compression_choice": output.choice.to_json() if output.choice else None,
        "file_size": spec.file_size_bytes,
        "file_per": output.file_per,
        "file_name": output.file_name,
        "overwrite": output.overwrite,
        "overlap_buffer": spec.buffer_bytes,
        "overlap_buffers": spec.buffers,
        "checksum": spec.checksum,
        "direct_io": spec.direct_io,
        "fetch_memory": job.fetch_bytes,
        "worker_memory": job.worker_memory_bytes,
        "parallelism": job.limits.parallelism,
        "split": job.limits.split,
        "unit_bytes": job.limits.unit_bytes,
        "consistency": job.consistency,
        "verify": job.verify,
        "retries": job.retry.retries,
        "retry_delay": job.retry.delay_seconds,
        "stall_timeout": job.retry.stall_seconds,
        "fetch": job.source.session.fetch,
    }
    return {
        **shared,
        **asdict(job.values),
        **asdict(job.seats),
        "dialect": asdict(spec.format),
    }


def format_name(output_format: TextFormat | ParquetFormat) -> str:
    """Return the name of a format on the command line."""
    return "csv" if isinstance(output_format, TextFormat) else "parquet"


def journal_entry(unit: FinishedUnit) -> dict[str, Any]:
    """Return the journal's line for a finished, still staged unit."""
    return {
        "unit": unit.result.unit,
        "partition": unit.partition,
        "rows": unit.result.rows,
        "attempt": unit.result.attempt,
        "directory": unit.directory,
        "staged": [file.to_json() for file in unit.result.files],
    }


def read_manifest(destination: Path, name: str = MANIFEST) -> Mapping[str, Any]:
    """Return the manifest of a finished run.

    Args:
        destination: The directory that it lies in.
        name: Another name than it has once its run is finished.

    Raises:
        OutputFailed: There is none, it is no whole manifest, or of a later format version.
    """
    path = destination / name
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise OutputFailed(
            f"{destination} holds no finished run: there is no {MANIFEST}",
            "name the directory that was given with --to",
        ) from None
    except (OSError, ValueError) as error:
        raise OutputFailed(f"{path} cannot be read: {error}", _RESTORE) from error
    version = document.get("format_version") if isinstance(document, dict) else None
    if version != FORMAT_VERSION:
        raise OutputFailed(
            f"{path} has format version {version!r}, this program reads {FORMAT_VERSION}",
            "use the version of unloader that wrote it",
        )
    try:
        files_of(document)
        known = len(directories_of(document, destination))
        strangers = [place for place in places_of(document).values() if not 0 <= place < known]
        if strangers:
            raise ValueError(f"there is no directory {strangers[0]}")
        missing = [key for key in _NEEDED if key not in document]
        missing += [key for key in _TOTALS if key not in document.get("totals", _TOTALS)]
    except (KeyError, TypeError, ValueError) as error:
        raise OutputFailed(f"{path} is damaged: {error!r}", _RESTORE) from error
    if missing:
        raise OutputFailed(f"{path} is damaged: it has no {missing[0]!r}", _RESTORE)
    return dict(document)


def files_of(manifest: Mapping[str, Any]) -> dict[str, WrittenFile]:
    """Return the files of a manifest by name, in table order.

    A file that several units share (one file for the table) comes once.
    """
    return {
        str(file["path"]): WrittenFile(
            path=str(file["path"]),
            rows=int(file["rows"]),
            bytes=int(file["bytes"]),
            checksum=str(file["checksum"]),
        )
        for unit in manifest["units"]
        for file in unit["files"]
    }


def directories_of(
    manifest: Mapping[str, Any], home: Path, *, recorded: bool = False
) -> tuple[Path, ...]:
    """Return the directories that hold a run's files, in the order of their numbers.

    Args:
        manifest: Of any run.
        home: Where the manifest lies; that is the first directory, wherever it was at the time.
        recorded: The first directory is where it was at the time.
    """
    listed = tuple(Path(str(each["path"])) for each in manifest.get("directories", ()))
    if not listed:
        return (home,)
    return listed if recorded else (home, *listed[1:])


def places_of(manifest: Mapping[str, Any]) -> dict[str, int]:
    """Return for each file of a manifest, by name, the number of its directory."""
    return {
        str(file["path"]): int(file.get("directory", 0))
        for unit in manifest["units"]
        for file in unit["files"]
    }


def _placement(facts: RunFacts, units: tuple[FinishedUnit, ...]) -> dict[str, Any]:
    """Return where the workers were and what each worker and node did."""
    evidence = facts.evidence
    results = [(unit.seat.worker, unit.result) for unit in units]
    return {
        "workers": workers_json(evidence, results),
        "nodes": nodes_json(evidence, results, facts.seconds),
        "warnings": list(evidence.warnings.values()),
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
        "partition": unit.partition,
        "rows": result.rows,
        "attempts": result.attempt,
        "seat": seat_json(unit.seat, unit.bound),
        "stages": {
            "fetch_s": round(stages.fetch_s, 4),
            "encode_s": round(stages.encode_s, 4),
            "compress_s": round(stages.compress_s, 4),
            "write_s": round(stages.write_s, 4),
        },
        "seconds": round(result.seconds, 4),
        "files": [{**file.to_json(), **place} for file in unit.finals],
    }
