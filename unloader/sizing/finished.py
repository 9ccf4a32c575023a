"""What the manifest of a finished run says about its speed."""

from __future__ import annotations

from pathlib import Path

from unloader.errors import ConfigError
from unloader.manifest.model import Manifest
from unloader.manifest.read import read_manifest
from unloader.nouns import counted
from unloader.sizing.model import Basis, CodecSpace, Measured

_OTHER = "give the manifest of a longer run"


def basis_of_run(directory: Path) -> Basis:
    """Return what the finished run in a directory says.

    Raises:
        OutputFailed: There is none, or its manifest is damaged.
        ConfigError: It was too short to be reckoned with.
    """
    return _basis(read_manifest(directory), str(directory))


def basis_of_manifest(path: Path) -> Basis:
    """Return what a manifest says, wherever it lies and whatever its name.

    Raises:
        OutputFailed: It is damaged.
        ConfigError: The run was too short to be reckoned with, or did not end.
    """
    return _basis(read_manifest(path.parent, path.name), str(path))


def _basis(manifest: Manifest, where: str) -> Basis:
    totals, compression = manifest.totals, manifest.options.compression
    size = totals.uncompressed_bytes or (totals.bytes if compression.codec == "none" else None)
    if manifest.status != "complete":
        raise ConfigError(
            f"the run of {where} is not complete", "give the manifest of a finished run"
        )
    if not totals.rows or not totals.bytes or totals.seconds <= 0:
        raise ConfigError(f"the run of {where} wrote no rows, or took no time", _OTHER)
    seconds, cpu = totals.seconds, totals.cpu_seconds or None
    notes: tuple[str, ...] = ()
    told = totals.rows_per_second
    if told is not None and told < 0.99 * totals.rows / seconds - 1:
        # The rate is that of the last process alone, and so are seconds and CPU time.
        if not told:
            raise ConfigError(
                f"the run of {where} was resumed when everything was already done", _OTHER
            )
        seconds, cpu = totals.rows / told, None
        notes = (f"the run in {where} was resumed: the rate comes from its last process",)
    workers = len(manifest.workers) or manifest.options.parallelism or 1
    text = manifest.options.format == "csv"
    if size is None:
        size = totals.bytes
    level = "" if compression.level is None else f":{compression.level}"
    return Basis(
        origins=(f"the run {manifest.run_id} in {where}: {counted(workers, 'worker')}",),
        measured=(
            Measured(
                workers=workers,
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
                bytes_per_cpu_second=(
                    size / totals.compress_cpu_seconds if totals.compress_cpu_seconds else None
                ),
            ),
        ),
        notes=notes,
    )
