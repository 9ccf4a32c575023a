"""Writes that bypass the page cache: aligned blocks go from our memory to the device.

The content of a file is the same as without. Bytes at its end that do not fill a block go through
the page cache, and so does everything if the file system does not accept direct writes.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import logging
import mmap
import os
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

from writers.files.disk_space import GuardedWrites, rest_after, sync

if TYPE_CHECKING:
    from collections.abc import Sequence

    from writers.codecs.compression import BytesLike


logger = logging.getLogger(__name__)

_GATHER_BYTES = 1024 * 1024
"""The memory in which pieces of odd sizes are gathered into blocks (a guess)."""

_REFUSALS = (errno.EINVAL, errno.EOPNOTSUPP)


def refusal(directory: str | os.PathLike[str]) -> str | None:
    """Return why files in a directory cannot be written directly; None if they can.

    It creates an unnamed file there, if possible.
    """
    try:
        with TemporaryFile(dir=directory, buffering=0) as file:
            if (alignment := _alignment(file.fileno())) is not None:
                # Some file systems refuse only the write.
                file.write(mmap.mmap(-1, alignment))
                return None
    except OSError as exc:
        if exc.errno not in _REFUSALS:
            reason = os.strerror(exc.errno) if exc.errno else exc
            return f"direct writes cannot be tested ({reason})"
    return "its file system does not accept direct writes"


def open_direct(descriptor: int, path: Path, min_free_bytes: int = 0) -> DirectFile | None:
    """Return a direct writer of the empty file; None if its file system does not have one."""
    alignment = _alignment(descriptor)
    if alignment is None:
        logger.info(
            "%s: its file system does not accept direct writes; the file is written normally", path
        )
        return None
    return DirectFile(descriptor, path, alignment, min_free_bytes)


class DirectFile:
    """A regular file that is written in aligned blocks.

    Args:
        descriptor: Of the empty file; closed by `close`.
        path: Its name.
        alignment: The offset, size and memory of each write are a multiple of it, in bytes.
        min_free_bytes: See `open_file`.
    """

    is_regular = True

    def __init__(
        self, descriptor: int, path: Path, alignment: int, min_free_bytes: int = 0
    ) -> None:
        self._descriptor = descriptor
        self._path = path
        self._alignment = alignment
        self._is_direct = True
        self._gather_bytes = max(_GATHER_BYTES // alignment, 1) * alignment
        self._gather: memoryview | None = None
        self._gathered = 0
        self._arrived = 0
        self._writes = GuardedWrites(descriptor, path, min_free_bytes)
        self.written = 0

    def whole(self, buffer_bytes: int) -> int:
        return max(self._alignment, buffer_bytes - buffer_bytes % self._alignment)

    def put(self, pieces: Sequence[BytesLike]) -> None:
        for piece in pieces:
            view = memoryview(piece)
            self.written += view.nbytes
            if not self._gathered and _is_at_page(view):
                aligned = view.nbytes - view.nbytes % self._alignment
                self._write(view[:aligned])
                view = view[aligned:]
            self._put_gathered(view)

    def finish(self) -> None:
        if self._gather is not None:
            aligned = self._gathered - self._gathered % self._alignment
            self._write(self._gather[:aligned])
            self._leave_direct()
            self._write(self._gather[aligned : self._gathered])
            self._gather, self._gathered = None, 0
        sync(self._descriptor, self._path)

    def interrupt(self) -> None:
        self._writes.interrupt()

    def close(self) -> None:
        os.close(self._descriptor)

    def _put_gathered(self, view: memoryview) -> None:
        while view.nbytes:
            if self._gather is None:
                flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
                self._gather = memoryview(mmap.mmap(-1, self._gather_bytes, flags=flags))
            piece = view[: self._gather_bytes - self._gathered]
            self._gather[self._gathered : self._gathered + piece.nbytes] = piece
            self._gathered += piece.nbytes
            view = view[piece.nbytes :]
            if self._gathered == self._gather_bytes:
                self._write(self._gather)
                self._gathered = 0

    def _write(self, view: memoryview) -> None:
        rest: Sequence[BytesLike] = [view] if view.nbytes else []
        while rest:
            if self._arrived % self._alignment:
                # After a short write inside a block only normal writes can continue.
                self._leave_direct()
            try:
                count = self._writes.write_some(rest)
            except OSError as exc:
                if not self._is_direct or exc.errno not in _REFUSALS:
                    raise
                logger.info(
                    "%s: a direct write was refused; the file is written normally", self._path
                )
                self._leave_direct()
            else:
                self._arrived += count
                rest = rest_after(rest, count)

    def _leave_direct(self) -> None:
        if self._is_direct:
            _set_direct(self._descriptor, wanted=False)
            self._is_direct = False


def _alignment(descriptor: int) -> int | None:
    """Make a file direct; return the alignment of its writes, or None if it cannot be direct."""
    alignment = max(os.fstatvfs(descriptor).f_bsize, mmap.PAGESIZE)
    # Our memory starts at a page, and all known devices need a power of two.
    if alignment & (alignment - 1):
        return None
    try:
        _set_direct(descriptor, wanted=True)
    except OSError as exc:
        if exc.errno not in _REFUSALS:
            raise
        return None
    return alignment


def _set_direct(descriptor: int, *, wanted: bool) -> None:
    direct = getattr(os, "O_DIRECT", None)
    if direct is None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | direct if wanted else flags & ~direct)


def _is_at_page(view: memoryview) -> bool:
    if view.readonly or not view.nbytes:
        return False
    return ctypes.addressof(ctypes.c_char.from_buffer(view)) % mmap.PAGESIZE == 0
