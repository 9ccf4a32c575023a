"""Reading one file again and comparing it with what its writer reported."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from unloader.errors import VerifyMismatch
from writers.files.checksums import checksum_name
from writers.files.read_back import ReadBack, read_back
from writers.files.readable import Readable
from writers.model import Compression, OutputSpec, TextFormat, WrittenFile

_ANY = TextFormat()
"""Checksums know no format."""


def check_bytes(
    path: Readable, file: WrittenFile, advance: Callable[[int], None] = lambda size: None
) -> None:
    """Compare the size and the checksum of a file with what its writer reported.

    Args:
        path: The file.
        file: What its writer reported.
        advance: Called with the bytes of each piece that was read; what it raises ends all.

    Raises:
        VerifyMismatch: One differs.
        WriteError: The file is missing or cannot be read.
    """
    checksum = checksum_name(file.checksum)
    found = read_back(path, _ANY, Compression(), rows=False, checksum=checksum, advance=advance)
    _compare(path, file, found)


def check_file(
    path: Readable,
    file: WrittenFile,
    spec: OutputSpec,
    *,
    header: bool,
    advance: Callable[[int], None] = lambda size: None,
) -> None:
    """Read a file again and compare it with what its writer reported.

    Args:
        path: The file.
        file: What its writer reported.
        spec: How it was written.
        header: Whether it begins with one, where the format has one.
        advance: Called with the bytes of each piece that was read; what it raises ends all.

    Raises:
        VerifyMismatch: Size, checksum or number of records differ; of encrypted files records are
            counted only if the spec has the keys.
        WriteError: The file is missing or cannot be read.
    """
    if isinstance(path, Path):
        with suppress(OSError):
            # To read all of what has grown without end would take as long.
            size = path.lstat().st_size
            if size > file.bytes:
                raise _differs(path, [f"size {size} instead of {file.bytes}"])
    shape = spec.format
    if isinstance(shape, TextFormat) and not header:
        shape = replace(shape, header=False)
    found = read_back(
        path,
        shape,
        spec.compression,
        rows=True,
        checksum=checksum_name(file.checksum),
        advance=advance,
        encryption=spec.encryption,
    )
    _compare(path, file, found)


def _compare(path: Readable, file: WrittenFile, found: ReadBack) -> None:
    differences = [
        f"{what} {now} instead of {was}"
        for what, was, now in (
            ("size", file.bytes, found.bytes),
            ("checksum", file.checksum, found.checksum),
            ("rows", file.rows, file.rows if found.rows is None else found.rows),
        )
        if was != now
    ]
    if differences:
        raise _differs(path, differences)


def _differs(path: Readable, differences: list[str]) -> VerifyMismatch:
    return VerifyMismatch(
        f"{path} has {', '.join(differences)}", "unload the table again, and check the storage"
    )
