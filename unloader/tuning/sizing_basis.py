"""Measured speeds of unloads, from files: manifests, points of a sweep, ceilings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from unloader.errors import ConfigError
from unloader.manifest.model import Manifest
from unloader.manifest.read import read_manifest
from unloader.nouns import counted
from unloader.tuning.analysis import Analysis
from unloader.tuning.ceilings import Ceilings, EncoderCeiling, SourceLevel, read_ceilings
from unloader.tuning.points import MOST_POINTS, Point, points_of
from unloader.tuning.sizing import Basis, CodecSpace
from unloader.tuning.sweep_document import SweepDocument, is_sweep, point_of, sweep_of
from writers.files.regular import read_regular

_KNOWN_FILES = (
    "give the directory or manifest of a finished run, the points of a sweep, or ceilings"
)
_SWEEP_FILE = "give what unloader sweep --json wrote, or CSV with the head parallelism,seconds"
_OTHER = "give the manifest of a longer run"

_DROPPED = {
    "null:": "the sweep wrote to null: - the time of the destination is not in its rates",
    "null:rows": "the sweep wrote to null:rows - its rates are of the source alone: nothing was "
    "encoded, compressed or written",
}


def basis_of(paths: tuple[str, ...]) -> Basis:
    """Return the measurements of files and finished runs together.

    The first that says something counts, and a measured run more than a prediction. A file that
    says nothing of speed is a `ConfigError`; a directory without a finished run is an
    `OutputFailed`.
    """
    found = [_read(Path(path)) for path in paths]
    if not found:
        return Basis()
    first = min(found, key=lambda each: (not each.measured, each.predicted))
    others = (first, *(each for each in found if each is not first))

    def known(name: str) -> Any:
        values = (getattr(each, name) for each in others)
        return next((value for value in values if value is not None), None)

    every = [each for basis in reversed(others) for each in basis.spaces]
    return Basis(
        origins=tuple(origin for each in found for origin in each.origins),
        measured=first.measured,
        predicted=first.predicted,
        rows=known("rows"),
        row_bytes=known("row_bytes"),
        disk_rate=known("disk_rate"),
        source_rows_per_second=known("source_rows_per_second"),
        spaces=tuple({(each.format, each.codec): each for each in every}.values()),
        notes=tuple(note for each in found for note in each.notes),
    )


def _read(path: Path) -> Basis:
    if path.is_dir():
        return _of_run(read_manifest(path), str(path))
    try:
        text = read_regular(path, follow=True).decode()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", _KNOWN_FILES) from error
    except ValueError as error:
        raise ConfigError(f"{path} is not text in UTF-8", _KNOWN_FILES) from error
    if not text.lstrip().startswith(("{", "[")):
        return _of_csv(path, text)
    try:
        document = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not JSON: {error}", _KNOWN_FILES) from error
    if isinstance(document, dict) and "units" in document and "totals" in document:
        return _of_run(read_manifest(path.parent, path.name), str(path))
    if isinstance(document, dict) and "disks" in document and "machine" in document:
        return _of_ceilings(read_ceilings(path), path)
    if not isinstance(document, dict) or not is_sweep(document):
        raise ConfigError(
            f"{path} is not a manifest or a file of ceilings, and has no points of a sweep",
            "give one of these files",
        )
    return _of_sweep(sweep_of(document, path), path)


def _of_csv(path: Path, text: str) -> Basis:
    """Return the points of a CSV file, as `unloader sweep --replay` reads it."""
    file = points_of(path, text)
    found = []
    for point, settings in zip(file.points, file.others, strict=True):
        # A sweep that writes the width may have compressed its bytes; others are not text.
        codec = (settings.get("compression") or "none").lower()
        shape = (settings.get("format") or "csv").lower()
        is_text = "row_bytes" not in file.columns and (codec, shape) == ("none", "csv")
        found.append((_settings_text(settings), _measured(point, is_text=is_text)))
    return _of_points(found, path)


def _of_sweep(found: Analysis, path: Path) -> Basis:
    """Return the measurements of a sweep, or the levels of an analysis of points."""
    if not isinstance(found, SweepDocument):
        amount: dict[str, Any] = (
            {found.work.unit: found.work.amount} if found.work.unit != "table" else {}
        )
        levels = (
            Point(parallelism=each.parallelism, seconds=each.seconds, **amount)
            for each in found.levels
        )
        return _of_points([("", _measured(level, is_text=True)) for level in levels], path)
    measured = [
        (
            _settings_text(point.settings),
            _measured(point_of(point.parallelism, each, found.cores), is_text=False),
        )
        for point in found.points
        for each in point.measurements
    ]
    basis, dropped = _of_points(measured, path), _DROPPED.get(found.destination)
    return replace(
        basis, rows=found.whole_rows, notes=(*basis.notes, *((dropped,) if dropped else ()))
    )


def _measured(point: Point, *, is_text: bool) -> Point:
    """Return a point; its bytes are not used unless they are text before compression."""
    size = point.bytes if is_text else None
    if point.rows is not None and point.row_bytes is not None:
        size = point.rows * point.row_bytes
    cores = None if point.cores is None else min(point.parallelism, point.cores)
    return replace(point, bytes=size, cores=cores)


def _settings_text(settings: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {text}" for name, text in settings.items() if name != "parallelism")


def _of_points(found: list[tuple[str, Point]], path: Path) -> Basis:
    if not found:
        raise ConfigError(f"{path} has no points", _SWEEP_FILE)
    if len(found) > MOST_POINTS:
        raise ConfigError(f"{path} has more than {MOST_POINTS:,} points", "give fewer points")
    fastest, _ = max(found, key=lambda each: (each[1].rows or 1.0) / each[1].seconds)
    measured = tuple(point for key, point in found if key == fastest)
    varied = len({key for key, _ in found}) > 1
    widths = [each.bytes / each.rows for each in measured if each.bytes and each.rows]
    return Basis(
        origins=(f"{counted(len(measured), 'point')} of a sweep in {path}",),
        measured=measured,
        row_bytes=max(widths, default=None),
        notes=(f"of the settings in {path} the fastest: {fastest}",) if varied else (),
    )


def _of_run(manifest: Manifest, where: str) -> Basis:
    totals, compression = manifest.totals, manifest.options.compression
    if manifest.status != "complete":
        raise ConfigError(
            f"the run of {where} is not complete", "give the manifest of a finished run"
        )
    if not totals.rows or not totals.bytes or totals.seconds <= 0:
        raise ConfigError(f"the run of {where} wrote no rows, or took no time", _OTHER)
    seconds, cpu = totals.seconds, totals.cpu_seconds or None
    notes: tuple[str, ...] = ()
    rate = totals.rows_per_second
    if rate is not None and rate < 0.99 * totals.rows / seconds - 1:
        # The rate counts the last process alone, and so do seconds and CPU time.
        if not rate:
            raise ConfigError(
                f"the run of {where} was resumed when everything was already done", _OTHER
            )
        seconds, cpu = totals.rows / rate, None
        notes = (f"the run in {where} was resumed: the rate comes from its last process",)
    workers = len(manifest.workers) or manifest.options.parallelism or 1
    text, size = manifest.options.format == "csv", totals.uncompressed_bytes or totals.bytes
    level = "" if compression.level is None else f":{compression.level}"
    compressing = totals.compress_cpu_seconds
    return Basis(
        origins=(f"the run {manifest.run_id} in {where}: {counted(workers, 'worker')}",),
        measured=(
            Point(
                parallelism=workers,
                seconds=seconds,
                rows=totals.rows,
                bytes=size if text else None,
                cpu_seconds=cpu,
            ),
        ),
        rows=totals.rows,
        # Of text alone: how wide the text of Parquet's rows would be is not known.
        row_bytes=size / totals.rows if text else None,
        spaces=(
            CodecSpace(
                format=manifest.options.format,
                codec=f"{compression.codec}{level}",
                row_bytes=None if text else size / totals.rows,
                ratio=size / totals.bytes,
                bytes_per_cpu_second=size / compressing if compressing else None,
            ),
        ),
        notes=notes,
    )


def _of_ceilings(found: Ceilings, path: Path) -> Basis:
    """Return disks, codecs, and points by the lowest rate of source, encoder and cores."""
    encoder, levels = found.encoder, found.source.levels if found.source is not None else ()
    text = encoder is not None and encoder.format == "csv"
    measured: tuple[Point, ...] = ()
    spaces: tuple[CodecSpace, ...] = ()
    if encoder is not None:
        cores = found.machine.cores
        measured = tuple(_predicted_point(each, encoder, cores) for each in levels)
        spaces = tuple(
            CodecSpace(
                format=encoder.format,
                codec=each.codec if each.level is None else f"{each.codec}:{each.level}",
                # Text is as wide as the question says; what Parquet makes of other rows is not
                # known.
                row_bytes=None if text else encoder.row_bytes,
                ratio=each.ratio,
                bytes_per_cpu_second=each.bytes_per_cpu_second,
            )
            for each in encoder.codecs
        )
    most = None
    if len(levels) > 1:
        *_, before, last = sorted(levels, key=lambda each: each.parallelism)
        expected = before.rows_per_second * last.parallelism / before.parallelism
        gained = last.rows_per_second - before.rows_per_second
        # The source has levelled off where workers bring less than half of a proportional gain.
        if gained < (expected - before.rows_per_second) / 2:
            most = max(each.rows_per_second for each in levels)
    return Basis(
        origins=(f"the ceilings in {path}",),
        measured=measured,
        predicted=True,
        row_bytes=encoder.row_bytes if encoder is not None and text else None,
        disk_rate=max((each.bytes_per_second for each in found.disks), default=None),
        source_rows_per_second=most,
        spaces=spaces,
    )


def _predicted_point(level: SourceLevel, encoder: EncoderCeiling, cores: int) -> Point:
    workers = level.parallelism
    encode = encoder.encode_cpu_seconds / encoder.sample_rows
    cost = None if level.cpu_seconds is None else level.cpu_seconds / level.rows + encode
    rates = [level.rows_per_second]
    if encode:
        rates.append(workers / encode)
    if cost:
        rates.append(min(workers, cores) / cost)
    rate = min(rates)
    return Point(
        parallelism=workers,
        seconds=1.0,
        rows=rate,
        bytes=rate * encoder.row_bytes if encoder.format == "csv" else None,
        cores=min(workers, cores),
        cpu_seconds=None if cost is None else rate * cost,
    )
