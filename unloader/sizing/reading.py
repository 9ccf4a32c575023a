"""What is known, out of the files that the user names: manifests, points of a sweep, ceilings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from unloader.errors import ConfigError
from unloader.sizing.model import Basis
from unloader.sizing.points import points_of_csv, points_of_json
from unloader.sizing.record import RECORD
from writers.files.regular import read_regular

_HOW = "give the directory or manifest of a finished run, the points of a sweep, or ceilings"


def basis_of(paths: tuple[str, ...], *, like_record: bool) -> Basis:
    """Return what all files say together; a measured run counts more than a prediction.

    Args:
        paths: Files, or directories of finished runs.
        like_record: The published record is asked for.

    Raises:
        ConfigError: A file cannot be read, or says nothing about the speed of an unload.
        OutputFailed: A directory holds no finished run, or its manifest is damaged.
    """
    found = [_read(Path(path)) for path in paths]
    if like_record:
        found.append(RECORD)
    return merged(tuple(found))


def merged(found: tuple[Basis, ...]) -> Basis:
    """Return several as one: the first that says something counts, and runs before predictions."""
    if not found:
        return Basis(origins=())
    runs = [each for each in found if each.measured and not each.predicted]
    first = (runs or [each for each in found if each.measured] or [found[0]])[0]
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
        network_row_bytes=known("network_row_bytes"),
        spaces=tuple({(each.format, each.codec): each for each in every}.values()),
        notes=tuple(note for each in found for note in each.notes),
    )


def _read(path: Path) -> Basis:
    from unloader.sizing.finished import basis_of_manifest, basis_of_run

    if path.is_dir():
        return basis_of_run(path)
    try:
        text = read_regular(path, follow=True).decode()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", _HOW) from error
    except ValueError as error:
        raise ConfigError(f"{path} is not text in UTF-8", _HOW) from error
    if not text.lstrip().startswith(("{", "[")):
        return points_of_csv(path, text)
    try:
        document = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not JSON: {error}", _HOW) from error
    if isinstance(document, dict) and "units" in document and "totals" in document:
        return basis_of_manifest(path)
    if isinstance(document, dict) and "disks" in document and "machine" in document:
        from unloader.ceilings.file import read_ceilings
        from unloader.sizing.ceilings import basis_of_ceilings

        found = basis_of_ceilings(read_ceilings(path))
        return replace(found, origins=(f"the ceilings in {path}",))
    return points_of_json(path, document)
