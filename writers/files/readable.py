"""A finished file to be read again: one of this machine, or one that has no path here."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from writers.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFile:
    """A file that has no path on this machine."""

    name: str
    """In messages."""
    open: Callable[[], IO[bytes]]
    """Returns it open for reading, from its first byte."""

    def __str__(self) -> str:
        """Return the name."""
        return self.name

    def __fspath__(self) -> str:
        """Return the name: messages have it where a local file has its path."""
        return self.name


Readable = Path | RemoteFile
"""Whatever can be read again."""


def open_bytes(file: Readable) -> Any:
    """Return a file open for reading its bytes, not buffered if it is a local one.

    Raises:
        OSError: It cannot be opened.
    """
    return open(file, "rb", buffering=0) if isinstance(file, Path) else file.open()


class Stoppable:
    """A file that a thread of Arrow reads, until it is told that there is no more.

    Arrow's CSV reader reads ahead in a thread of its own. Where the reader is given up early, its
    end waits for that thread, and that thread for the interpreter: neither would go on. So whoever
    gives it up stops the file first.

    Args:
        file: Open for reading; closed by `close`.
    """

    _PATIENCE_SECONDS = 1.0
    """The thread does not ask again where it is far enough ahead."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._reading = threading.Lock()
        self._stopped = False
        self._ended = threading.Event()
        self.closed = False

    def read(self, size: int) -> bytes:
        """Return the next bytes; none at the end, or once it is stopped."""
        with self._reading:
            data = b"" if self._stopped else self._file.read(size)
        if not data:
            self._ended.set()
        return data

    def stop(self) -> None:
        """Let nothing more be read, and wait until nobody tries."""
        self._stopped = True
        self._ended.wait(self._PATIENCE_SECONDS)

    def close(self) -> None:
        """Close the file."""
        self.closed = True
        self._file.close()


def arrow_stream(file: Readable) -> Any:
    """Return a file as Arrow reads it.

    A local file is opened by Arrow itself: it is read without the interpreter.

    Raises:
        OSError: It cannot be opened.
    """
    import pyarrow as pa

    return pa.OSFile(str(file)) if isinstance(file, Path) else pa.PythonFile(file.open(), mode="r")


def parquet_source(file: Readable) -> Any:
    """Return what `pyarrow.parquet.ParquetFile` takes for a file, and closes if it is local."""
    return file if isinstance(file, Path) else arrow_stream(file)
