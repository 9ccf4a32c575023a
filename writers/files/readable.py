"""A finished file that is read again: a local file, or one without a path on this machine."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from msgspec import Struct

from writers.encryption.age import Decrypted
from writers.files.regular import open_regular

if TYPE_CHECKING:
    from writers.model import Encryption


class RemoteFile(Struct, frozen=True, kw_only=True):
    """A file that has no path on this machine."""

    name: str
    open: Callable[[], IO[bytes]]

    def __str__(self) -> str:
        return self.name

    def __fspath__(self) -> str:
        """Return the name: messages have it where a local file has its path."""
        return self.name


Readable = Path | RemoteFile


def open_bytes(file: Readable) -> Any:
    """Return a file open for reading its bytes, not buffered if it is a local one."""
    return open(open_regular(file), "rb", buffering=0) if isinstance(file, Path) else file.open()


def arrow_stream(file: Readable) -> Any:
    """Return a file as Arrow reads it: a local file is read without the interpreter."""
    import pyarrow as pa

    if not isinstance(file, Path):
        return pa.PythonFile(file.open(), mode="r")
    with open_bytes(file) as opened:
        # Arrow takes a path only. This path leads to the open file, even if its name was reused.
        return pa.OSFile(f"/proc/self/fd/{opened.fileno()}")


def decrypted(file: Readable, encryption: Encryption) -> Readable:
    """Return text as it was before it was encrypted; other files are returned as they are.

    Parquet is decrypted by its reader.
    """
    if not encryption.recipients:
        return file

    def opened() -> IO[bytes]:
        raw = Decrypted(open_bytes(file), encryption.identities)
        return cast("IO[bytes]", io.BufferedReader(raw, 1 << 20))

    return RemoteFile(name=str(file), open=opened)
