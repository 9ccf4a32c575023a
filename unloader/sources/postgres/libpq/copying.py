"""The rows of a COPY, from libpq into buffers of whole rows, by a native loop or a plain one.

libpq returns a row at a time. The row is copied as it is, or converted from COPY's text form into
its CSV form. Only the native loop converts: in Python that would take more CPU than the server
saves. The loop in C++ takes a tenth of the CPU of the one in Python, and releases the interpreter's
lock. Both wait in the same way for the server and for a request to cancel.
"""

from __future__ import annotations

import ctypes
import select
from functools import cache
from importlib import import_module

import pyarrow as pa
from psycopg import OperationalError, pq
from psycopg.abc import Buffer
from psycopg.pq.abc import PGconn
from psycopg.pq.misc import find_libpq_full_path

from unloader.sources.postgres.errors import Malformed
from unloader.sources.postgres.statement import TextForm
from writers import built_library

ABI_VERSION = 4
"""Of the interface in `copy.cpp`, which has the same number."""

NAME = "unloader.sources.postgres.libpq._copy"

OVERRIDE = "UNLOADER_NATIVE_COPY_LIBRARY"
"""An environment variable that names the file of another build; if empty, no build is used."""

FIRST_LOOK_SECONDS, LAST_LOOK_SECONDS = 0.01, 1.0
"""libpq reads an empty socket after the first time, and again after twice the time, up to the last.
Proxies send long records of TLS. Older versions of libpq take a part of a record at a time, and the
socket does not show the rest: without these reads the wait for it would never end."""

FIRST_BUFFER_BYTES = 64 * 1024

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


class CDialect(ctypes.Structure):
    """A `TextForm` as the native code takes it, which keeps none of it."""

    _fields_ = (
        ("null", ctypes.c_char_p),
        ("forced", ctypes.c_char_p),
        ("null_size", ctypes.c_int64),
        ("columns", ctypes.c_int64),
        ("delimiter", ctypes.c_char),
        ("quote", ctypes.c_char),
    )


def c_dialect(form: TextForm) -> CDialect:
    size, columns = len(form.null), len(form.forced)
    return CDialect(form.null, bytes(form.forced), size, columns, form.delimiter, form.quote)


class Rows:
    """The rows of one COPY, until it is closed.

    `wake` is a descriptor that is ready to be read when the rows are not wanted any more. A chunk
    is smaller than `chunk_bytes`, except one row that may not be smaller. Only a native loop takes
    the form of the CSV that is made of rows in the text form.
    """

    def __init__(
        self, pgconn: PGconn, wake: int, chunk_bytes: int, form: TextForm | None = None
    ) -> None:
        self.count = 0
        self.was_woken = False
        """No more rows come, because the descriptor for cancelling is ready."""
        self._ended = False
        self._chunk_bytes = chunk_bytes
        self._buffer_bytes = FIRST_BUFFER_BYTES
        self._form = form
        loop = native()
        self._loop: _NativeLoop | _PlainLoop
        if loop is not None:
            self._loop = _NativeLoop(loop, pgconn, wake, form)
        else:
            assert form is None
            self._loop = _PlainLoop(pgconn, wake)

    def next(self) -> memoryview | None:
        """Return the next chunk, None after the last.

        Its memory is from Arrow's pool, which keeps it for the next chunk: the C library would
        return it to the kernel each time. A row too long for a buffer is a view of libpq's memory.
        """
        most = self._chunk_bytes
        buffer, size = pa.allocate_buffer(min(self._buffer_bytes, most)), 0
        while not self._ended:
            status = self._loop.fill(buffer, size, most)
            size = self._loop.filled.size
            self.count += self._loop.filled.rows
            if status == _NO_MEMORY:
                raise MemoryError("not enough memory for a row of COPY")
            if status == _WIDE:
                return self._loop.wide()
            if status == _REFUSED:
                columns = len(self._form.forced) if self._form is not None else 0
                raise Malformed(f"of its text form with {columns} columns, in row {self.count + 1}")
            if status == _FULL and buffer.size < most:
                # Most tables are small.
                larger = pa.allocate_buffer(min(4 * buffer.size, most))
                _view(larger)[:size] = _view(buffer)[:size]
                buffer, self._buffer_bytes = larger, larger.size
                continue
            self._ended = status in (_DONE, _BROKEN, _WOKEN)
            self.was_woken = status == _WOKEN
            # After a signal its handler has run by now, and there is more to come.
            if size and status != _SIGNAL:
                return _view(buffer)[:size]
        return None

    def close(self) -> None:
        self._loop.close()


class _NativeLoop:
    """The loop in C++."""

    def __init__(
        self, library: ctypes.CDLL, pgconn: PGconn, wake: int, form: TextForm | None
    ) -> None:
        names = ("PQgetCopyData", "PQconsumeInput", "PQfreemem", "PQsocket")
        calls = _Calls(*(ctypes.cast(getattr(libpq(), name), ctypes.c_void_p) for name in names))
        self._library = library
        dialect = ctypes.byref(c_dialect(form)) if form is not None else None
        handle = pgconn.pgconn_ptr  # type: ignore[attr-defined]
        self._copy = library.unloader_copy_open(ctypes.byref(calls), handle, wake, dialect)
        if not self._copy:
            raise MemoryError("not enough memory for a COPY")
        self.filled = _Filled()

    def fill(self, buffer: pa.Buffer, size: int, most: int) -> int:
        """Put rows into a buffer after `size` bytes; it is full for a row that may fit into `most`
        bytes.
        """
        fill, filled = self._library.unloader_copy_fill, ctypes.byref(self.filled)
        return int(fill(self._copy, buffer.address, size, buffer.size, most, filled))

    def wide(self) -> memoryview:
        """Return a row that is too long for a buffer, without a copy: it may have a gigabyte."""
        address, size = self.filled.wide, self.filled.wide_size
        return memoryview(pa.foreign_buffer(address, size, _Owner(address))).toreadonly()

    def close(self) -> None:
        self._library.unloader_copy_close(self._copy)


class _PlainLoop:
    """The loop in Python, over `get_copy_data`."""

    def __init__(self, pgconn: PGconn, wake: int) -> None:
        self._pgconn = pgconn
        self._row: Buffer | None = None
        self.filled = _Filled()
        self._waiting, self._stopping = select.poll(), wake
        self._waiting.register(pgconn.socket, select.POLLIN)
        self._waiting.register(wake, select.POLLIN)

    def fill(self, buffer: pa.Buffer, size: int, most: int) -> int:
        """Put rows into a buffer, as `_NativeLoop.fill` does."""
        filled, view = self.filled, _view(buffer)
        filled.size, filled.rows = size, 0
        while True:
            if self._row is None:
                try:
                    length, row = self._pgconn.get_copy_data(1)
                except OperationalError:
                    return _DONE
                if length < 0:
                    return _DONE
                if length == 0:
                    ready = self._waiting.poll(FIRST_LOOK_SECONDS * 1000)
                    if self._stopping in [descriptor for descriptor, _ in ready]:
                        return _WOKEN
                    try:
                        self._pgconn.consume_input()
                    except OperationalError:
                        return _BROKEN
                    continue
                self._row = row
            end = filled.size + len(self._row)
            if end >= buffer.size:
                if filled.size or buffer.size < most:
                    return _FULL
                filled.rows = 1
                return _WIDE
            view[filled.size : end] = self._row
            self._row = None
            filled.size = end
            filled.rows += 1

    def wide(self) -> memoryview:
        row, self._row = self._row, None
        assert row is not None
        return memoryview(row).toreadonly()

    def close(self) -> None:
        self._row = None


def _view(buffer: pa.Buffer) -> memoryview:
    return memoryview(buffer).cast("B")


class _Owner:
    """Memory of libpq, freed with the last view of it."""

    def __init__(self, address: int) -> None:
        self._address, self._free = address, libpq().PQfreemem

    def __del__(self) -> None:
        self._free(self._address)


@cache
def libpq() -> ctypes.CDLL:
    """Return the libpq that psycopg has loaded, for functions that psycopg does not wrap.

    psycopg's module in C is linked with libpq, and a lookup in the module finds libpq's functions.
    """
    is_python = pq.__impl__ == "python"
    path = find_libpq_full_path() if is_python else import_module(pq.PGconn.__module__).__file__
    library = ctypes.CDLL(path)
    library.PQfreemem.argtypes = (ctypes.c_void_p,)
    library.PQsetErrorVerbosity.argtypes = (ctypes.c_void_p, ctypes.c_int)
    return library


@cache
def native() -> ctypes.CDLL | None:
    """Return the library of the loop; None where it was not built or is of another version."""
    pointer, size, status = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32
    dialect, filled = ctypes.POINTER(CDialect), ctypes.POINTER(_Filled)
    functions = {
        "open": (pointer, (ctypes.POINTER(_Calls), pointer, ctypes.c_int32, dialect)),
        "fill": (status, (pointer, pointer, size, size, size, filled)),
        "convert": (size, (dialect, ctypes.c_char_p, size, pointer, size)),
        "close": (None, (pointer,)),
        "lines": (size, (pointer, size)),
        "index": (size, (pointer, size, size, size, pointer, pointer)),
        "decode": (status, (pointer, pointer, size, pointer)),
    }
    try:
        return built_library.load(NAME, OVERRIDE, "unloader_copy_", ABI_VERSION, functions)
    except built_library.Unusable:
        return None
