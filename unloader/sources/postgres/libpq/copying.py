"""The rows of a COPY, from libpq into buffers of whole rows; natively where the library was built.

libpq hands out a row at a time. It is copied as it is, or turned from COPY's text form into its
CSV form on the way, which is done natively alone: in Python it would take more than the server
saves. A loop over that in C++ takes a tenth of what one in Python does,
and holds no lock of the interpreter. Both wait for the server alike, and for who cancels.
"""

from __future__ import annotations

import ctypes
import select
import time
from enum import Enum
from functools import lru_cache

from unloader.sources.postgres.libpq.buffers import BUFFERS
from unloader.sources.postgres.libpq.errors import Malformed
from unloader.sources.postgres.libpq.library import libpq
from unloader.sources.postgres.libpq.text_form import CDialect, TextForm, c_dialect
from writers import built_library

ABI_VERSION = 3
"""Of the interface in `copy.cpp`, which has the same number."""

NAME = "unloader.sources.postgres.libpq._copy"

OVERRIDE = "UNLOADER_NATIVE_COPY_LIBRARY"
"""An environment variable that names the file of another build; empty stands for none."""

SHORT_NAP_SECONDS, LONG_NAP_SECONDS = 0.0005, 0.001
"""The server sends 8 KiB at a time. Waking up for each costs more CPU than the data does; a nap
lets the socket fill, whose room on one machine is about 190 KB."""

SHORT_NAP_BYTES = 96 * 1024
"""Where so much came of a nap, the next one is short: a server that finds no room has to wait."""

FIRST_LOOK_SECONDS, LAST_LOOK_SECONDS = 0.01, 1.0
"""After so long, and twice as long each time, libpq reads although the socket has nothing. Of a
long record of TLS, as proxies send them, its older versions take a part at a time, and the socket
does not show the rest: without that it would be waited for without end."""

FIRST_BUFFER_BYTES = 64 * 1024


class Ended(Enum):
    """Why no more rows come."""

    DONE = 0
    """The server has said so, or that it failed: the next result tells."""
    BROKEN = 1
    WOKEN = 2
    """The descriptor for cancelling is ready."""


_FULL, _WIDE, _DONE, _BROKEN, _WOKEN, _SIGNAL, _NO_MEMORY, _REFUSED = range(8)


class _Filled(ctypes.Structure):
    """What a call has brought; as `copy.cpp` has it."""

    _fields_ = (
        ("size", ctypes.c_int64),
        ("rows", ctypes.c_int64),
        ("wide", ctypes.c_void_p),
        ("wide_size", ctypes.c_int64),
    )


class _Calls(ctypes.Structure):
    """The functions of libpq that the loop needs; as `copy.cpp` has it."""

    _fields_ = tuple((name, ctypes.c_void_p) for name in ("get", "consume", "release", "socket"))


class Rows:
    """The rows of one COPY, until it is closed.

    Args:
        handle: The connection, in the state of COPY to the client.
        wake: A descriptor that is ready to be read when the rows are not wanted any more.
        chunk_bytes: A chunk has less, but for one row that may not be shorter by itself.
        form: Of the CSV that is made of rows in the text form; None leaves rows as they are.
            Only where there is a native loop.
    """

    def __init__(
        self, handle: int, wake: int, chunk_bytes: int, form: TextForm | None = None
    ) -> None:
        self.count = 0
        """Rows of all chunks so far."""
        self.ended: Ended | None = None
        self._chunk_bytes = chunk_bytes
        self._buffer_bytes = FIRST_BUFFER_BYTES
        self._form = form
        loop = native()
        self._loop: _NativeLoop | _PlainLoop
        if loop is not None:
            self._loop = _NativeLoop(loop, handle, wake, form)
        else:
            assert form is None
            self._loop = _PlainLoop(handle, wake)

    def next(self) -> memoryview | None:
        """Return the next chunk, None after the last; `ended` then says why.

        Its memory is used again once no view of it is left. A row that is a chunk by itself for its
        length is a view of libpq's memory.

        Raises:
            Malformed: A row is not in the text form.
        """
        most = self._chunk_bytes
        buffer = BUFFERS.take(min(self._buffer_bytes, most), most)
        size = 0
        while self.ended is None:
            status = self._loop.fill(buffer, size, most)
            filled = self._loop.filled
            size = filled.size
            self.count += filled.rows
            if status == _NO_MEMORY:
                raise MemoryError("not enough memory for a row of COPY")
            if status == _WIDE:
                return _owned(filled.wide, filled.wide_size)
            if status == _REFUSED:
                raise self._malformed()
            if status == _FULL and len(buffer) < most:
                # Most tables are small, and a buffer is written to when it is made.
                larger = BUFFERS.take(min(4 * len(buffer), most), most)
                larger[:size] = memoryview(buffer)[:size]
                buffer = larger
                self._buffer_bytes = len(buffer)
                continue
            if status in _ENDS:
                self.ended = _ENDS[status]
            # After a signal its handler has run by now, and there is more to come.
            if size and status != _SIGNAL:
                return memoryview(buffer)[:size]
        return None

    def _malformed(self) -> Malformed:
        columns = len(self._form.forced) if self._form is not None else 0
        return Malformed(f"of its text form with {columns} columns, in row {self.count + 1}")

    def close(self) -> None:
        """Free what is held of rows that nobody asked for."""
        self._loop.close()


_ENDS = {_DONE: Ended.DONE, _BROKEN: Ended.BROKEN, _WOKEN: Ended.WOKEN}


class _NativeLoop:
    """The loop in C++."""

    def __init__(self, library: ctypes.CDLL, handle: int, wake: int, form: TextForm | None) -> None:
        pq = libpq()
        names = ("PQgetCopyData", "PQconsumeInput", "PQfreemem", "PQsocket")
        calls = _Calls(*(ctypes.cast(getattr(pq, name), ctypes.c_void_p) for name in names))
        self._library = library
        dialect = ctypes.byref(c_dialect(form)) if form is not None else None
        self._copy = library.unloader_copy_open(ctypes.byref(calls), handle, wake, dialect)
        if not self._copy:
            raise MemoryError("not enough memory for a COPY")
        self.filled = _Filled()

    def fill(self, buffer: bytearray, size: int, most: int) -> int:
        """Put rows into a buffer behind its first `size` bytes; return why it stopped.

        It is full, too, for a row that may fit into a buffer of `most` bytes.
        """
        into = (ctypes.c_char * 0).from_buffer(buffer)
        start, room = ctypes.addressof(into), len(buffer)
        fill = self._library.unloader_copy_fill
        return int(fill(self._copy, start, size, room, most, ctypes.byref(self.filled)))

    def close(self) -> None:
        """Free what it holds."""
        self._library.unloader_copy_close(self._copy)


class _PlainLoop:
    """The same in Python."""

    def __init__(self, handle: int, wake: int) -> None:
        self._libpq, self._handle = libpq(), handle
        self._row = ctypes.c_void_p()
        self._size = 0
        self._any = False
        self._napped = 0
        self._look_seconds = FIRST_LOOK_SECONDS
        self.filled = _Filled()
        self._waiting, self._stopping = select.poll(), wake
        self._waiting.register(self._libpq.PQsocket(handle), select.POLLIN)
        self._waiting.register(wake, select.POLLIN)

    def fill(self, buffer: bytearray, size: int, most: int) -> int:
        """Put rows into a buffer behind its first `size` bytes; return why it stopped.

        It is full, too, for a row that may fit into a buffer of `most` bytes.
        """
        filled = self.filled
        filled.size, filled.rows, filled.wide, filled.wide_size = size, 0, None, 0
        while True:
            if not self._row:
                self._size = self._libpq.PQgetCopyData(self._handle, ctypes.byref(self._row), 1)
                self._napped += max(0, self._size)
            if self._size < 0:
                return _DONE
            if self._size == 0:
                stopped = self._wait()
                if stopped is not None:
                    return stopped
                continue
            if filled.size + self._size >= len(buffer):
                if filled.size or len(buffer) < most:
                    return _FULL
                filled.wide, filled.wide_size, filled.rows = self._row.value, self._size, 1
                self._row = ctypes.c_void_p()
                return _WIDE
            end = filled.size + self._size
            buffer[filled.size : end] = ctypes.string_at(self._row.value or 0, self._size)
            self.close()
            filled.size = end
            filled.rows += 1

    def _wait(self) -> int | None:
        ready = self._waiting.poll(0)
        if not ready:
            if self._any:
                is_short = self._napped >= SHORT_NAP_BYTES
                time.sleep(SHORT_NAP_SECONDS if is_short else LONG_NAP_SECONDS)
                self._napped = 0
            ready = self._waiting.poll(self._look_seconds * 1000)
            self._look_seconds = (
                FIRST_LOOK_SECONDS if ready else min(2 * self._look_seconds, LAST_LOOK_SECONDS)
            )
        if self._stopping in [descriptor for descriptor, _ in ready]:
            return _WOKEN
        self._any = self._any or bool(ready)
        return None if self._libpq.PQconsumeInput(self._handle) else _BROKEN

    def close(self) -> None:
        """Free what it holds."""
        if self._row:
            self._libpq.PQfreemem(self._row)
            self._row = ctypes.c_void_p()


class _Owner:
    """Memory of libpq, freed when nobody has a view of it any more."""

    def __init__(self, address: int) -> None:
        self._address, self._free = address, libpq().PQfreemem

    def __del__(self) -> None:
        self._free(self._address)


def _owned(address: int, size: int) -> memoryview:
    """Return a view of a row in libpq's memory, without a copy: it may have a gigabyte."""
    import pyarrow as pa

    return memoryview(pa.foreign_buffer(address, size, _Owner(address))).toreadonly()


@lru_cache(maxsize=1)
def native() -> ctypes.CDLL | None:
    """Return the library of the loop; None where it was not built or is of another version."""
    pointer, size, status = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32
    dialect, filled = ctypes.POINTER(CDialect), ctypes.POINTER(_Filled)
    functions = {
        "open": (pointer, (ctypes.POINTER(_Calls), pointer, ctypes.c_int32, dialect)),
        "fill": (status, (pointer, pointer, size, size, size, filled)),
        "convert": (size, (dialect, ctypes.c_char_p, size, pointer, size)),
        "close": (None, (pointer,)),
    }
    try:
        return built_library.load(NAME, OVERRIDE, "unloader_copy_", ABI_VERSION, functions)
    except built_library.Unusable:
        return None
