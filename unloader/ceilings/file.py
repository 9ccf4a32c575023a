"""A file of ceilings: written by `unloader preflight --save`, read by `run` and `size`."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec

from unloader.ceilings.model import Ceilings
from unloader.errors import ConfigError, OutputFailed
from unloader.storage.model import MANIFEST
from writers.files.regular import read_regular

_AGAIN = "make one with: unloader preflight --save FILE"


def check_saveable(path: Path) -> None:
    """Check that a file could be made, before anything is measured for it.

    Raises:
        OutputFailed: It could not.
    """
    if path.name == MANIFEST:
        raise _not_saveable(path, "it would replace the manifest of a run")
    if path.is_dir():
        raise _not_saveable(path, "it is a directory")
    staged = _staged(path)
    try:
        staged.touch()
        staged.unlink()
    except OSError as error:
        raise _not_saveable(path, str(error.strerror)) from error


def save_ceilings(path: Path, found: Ceilings) -> None:
    """Write ceilings to a file; an earlier file is replaced as a whole, or left as it is.

    Raises:
        OutputFailed: It cannot be written.
    """
    staged = _staged(path)
    try:
        with staged.open("w", encoding="utf-8") as file:
            file.write(msgspec.json.format(msgspec.json.encode(found)).decode() + "\n")
            file.flush()
            os.fsync(file.fileno())
        staged.replace(path)
    except OSError as error:
        with suppress(OSError):
            staged.unlink()
        raise _not_saveable(path, str(error.strerror)) from error


def _staged(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.part")


def _not_saveable(path: Path, why: str) -> OutputFailed:
    return OutputFailed(
        f"cannot save the ceilings in {path}: {why}",
        "give --save a file in an existing directory that you may write to",
    )


def read_ceilings(path: Path) -> Ceilings:
    """Return the ceilings in a file.

    Raises:
        ConfigError: It cannot be read, or holds something else.
    """
    try:
        data = read_regular(path, follow=True)
    except OSError as error:
        raise ConfigError(
            f"cannot read the file of ceilings {path}: {error.strerror}", _AGAIN
        ) from error
    try:
        found = msgspec.json.decode(data, type=Ceilings)
        wrong = _wrong(found)
    except (msgspec.DecodeError, RecursionError) as error:
        wrong = str(error)
    if wrong:
        raise ConfigError(f"the file of ceilings {path} cannot be used: {wrong}", _AGAIN)
    return found


def _wrong(found: Ceilings) -> str:
    """Return which figure no measurement gives, as in an edited or damaged file; empty if none."""
    levels = found.source.levels if found.source else ()
    rates: dict[str, list[float]] = {
        "disks.bytes_per_second": [each.bytes_per_second for each in found.disks],
        "together.bytes_per_second": [found.together.bytes_per_second] if found.together else [],
        "source.levels.parallelism": [each.parallelism for each in levels],
        "source.levels.rows_per_second": [each.rows_per_second for each in levels],
        "encoder.row_bytes": [found.encoder.row_bytes] if found.encoder else [],
        "encoder.codecs.ratio": [each.ratio for each in found.encoder.codecs]
        if found.encoder
        else [],
    }
    for name, values in rates.items():
        for value in values:
            if not 0 < value < float("inf"):
                return f"{name} is {value}, not a number above 0"
    return ""
