"""Delimited text from record batches through the native library, which is loaded on first use.

It writes what `writers.text.delimited` writes. Columns of types that the library does not know are
made text by `writers.text.text_values` first. Where the library stops at a value, the plain encoder
takes the whole batch: it has the bytes, or the error that names column and row.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from copy import copy
from functools import lru_cache, partial

import pyarrow as pa

from writers import built_library
from writers.built_library import ArrowArray
from writers.errors import ValueNotRepresentable
from writers.large_rows import LargeRow
from writers.model import TextFormat
from writers.native.description import Kind, describe_format, is_known
from writers.schema import has_infinities
from writers.text.delimited import PlainEncoder
from writers.text.number_texts import holds_infinity
from writers.text.text_values import text_of

ABI_VERSION = 3
"""Of the interface in `encoder.cpp`, which has the same number."""
NAME = "writers.native._encoder"
OVERRIDE = "UNLOADER_NATIVE_LIBRARY"
"""An environment variable that names the file of another build, such as one for a sanitizer."""

_DONE, _FULL, _REFUSED, _UNDECIDED = range(4)
"""Why the library stopped: `Status` in `records.h`."""
_ALL_ROWS = 2**63 - 1
_FEW_RECORDS_ROOM = 4096
"""Bytes. One record alone leaves a rest of the caller's buffer, often too small for the next."""
_LEAST_ROOM, _MOST_ROOM = 64 * 1024, 64 * 1024 * 1024


class Progress(ctypes.Structure):
    """How far the encoder came in a batch; as `records.h` has it."""

    _fields_ = (
        ("rows", ctypes.c_int64),
        ("bytes", ctypes.c_uint64),
        ("needed", ctypes.c_uint64),
        ("column", ctypes.c_int64),
    )


_POINTER = ctypes.c_void_p
_FUNCTIONS = {
    "open": (_POINTER, (ctypes.c_char_p, ctypes.c_size_t)),
    "close": (None, (_POINTER,)),
    "begin": (_POINTER, (_POINTER, ctypes.POINTER(ArrowArray), ctypes.c_char_p)),
    "fill": (
        ctypes.c_int32,
        (_POINTER, _POINTER, ctypes.c_size_t, ctypes.c_int64, ctypes.POINTER(Progress)),
    ),
    "end": (None, (_POINTER,)),
    "count_records": (
        ctypes.c_int64,
        (ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char, ctypes.POINTER(ctypes.c_uint8)),
    ),
}


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    """Return the library, loaded and of the right version, or raise Unusable."""
    return built_library.load(NAME, OVERRIDE, "unloader_", ABI_VERSION, _FUNCTIONS)


why_not = partial(built_library.reason, library)
"""Returns why the library cannot be used, None if it can."""
check_choice = partial(built_library.check_choice, "text", why_not)
"""Refuses the choice "native" if the library cannot be used."""


class NativeEncoder:
    """Encodes the batches of one work unit, in order; used by one thread at a time."""

    def __init__(self, schema: pa.Schema, format: TextFormat) -> None:
        self._style = _style(schema.serialize().to_pybytes(), format)
        self._plain = copy(self._style.plain)
        self.preamble, self.header = self._plain.preamble, self._plain.header

    @property
    def rows_encoded(self) -> int:
        """Rows of all batches so far; the row named in an error is counted from their start."""
        return self._plain.rows_encoded

    def encode(self, batch: pa.RecordBatch) -> bytes | memoryview:
        """Return the records of a batch; see `PlainEncoder.encode`."""
        parts = []
        with self.rows(batch) as rows:
            room = min(max(2 * batch.nbytes, _LEAST_ROOM), _MOST_ROOM)
            while not rows.done:
                # Not cleared, so unused memory costs nothing.
                room = max(room, rows.needed)
                memory = memoryview(pa.allocate_buffer(room)).cast("B")
                if count := rows.fill(memory):
                    parts.append(memory[:count])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def encode_large(self, large: LargeRow) -> Iterator[bytes]:
        """Return the record of one row piece by piece; see `PlainEncoder.encode_large`."""
        return self._plain.encode_large(large)

    def rows(self, batch: pa.RecordBatch) -> BatchRows:
        """Return the rows of a batch, to be ended (`with`) before the next ones begin."""
        return BatchRows(self._style, self._plain, batch)


class _Style:
    """What all encoders of one schema and format have in common; none of it changes."""

    def __init__(self, schema: pa.Schema, format: TextFormat) -> None:
        self.plain = PlainEncoder(schema, format)
        """One that has encoded nothing yet."""
        self.schema, self.format = schema, format
        self.library = library()
        self._handle: int | None = None
        self.kinds: tuple[Kind | None, ...] = ()
        self.takes_all = b""
        """The kinds of all columns, where none is ever to be made text before; else empty."""
        self.is_known = is_known(format)
        if self.is_known:
            description, self.kinds = describe_format(schema, format)
            known = [kind for kind in self.kinds if kind is not None]
            if len(known) == len(schema) and not any(map(has_infinities, schema)):
                self.takes_all = bytes(known)
            self._handle = self.library.unloader_open(description, len(description))
            if not self._handle:
                raise RuntimeError("the native encoder does not accept its own description")

    def begin(self, batch: pa.RecordBatch) -> int | None:
        """Hand over a batch, which stays alive; return its records, None if a value has no text."""
        if self.takes_all:
            # Python for each column took a tenth of the time of a batch.
            batch.validate()
            kinds = self.takes_all
        else:
            columns, found = [], bytearray()
            try:
                for kind, column, field in zip(self.kinds, batch.columns, self.schema, strict=True):
                    if kind is None or (has_infinities(field) and holds_infinity(column)):
                        column = text_of(column, field, self.format)
                        large = pa.types.is_large_string(column.type)
                        kind = Kind.TEXT64 if large else Kind.TEXT32
                    columns.append(column)
                    found.append(kind)
            except ValueNotRepresentable:
                # One of another column or row may come first.
                return None
            batch, kinds = pa.RecordBatch.from_arrays(columns, [""] * len(columns)), bytes(found)
        array = ArrowArray()
        batch._export_to_c(ctypes.addressof(array))
        records = self.library.unloader_begin(self._handle, array, kinds)
        if not records:
            raise RuntimeError("the native encoder does not accept a batch of its schema")
        return int(records)

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self.library.unloader_close(self._handle)


@lru_cache(maxsize=8)
def _style(schema: bytes, format: TextFormat) -> _Style:
    """Return the facts about a serialized schema: each unit of a run opens an encoder."""
    return _Style(pa.ipc.read_schema(pa.py_buffer(schema)), format)


class BatchRows:
    """The rows of a batch on their way into buffers; made by `NativeEncoder.rows`."""

    def __init__(self, style: _Style, plain: PlainEncoder, batch: pa.RecordBatch) -> None:
        self._library = style.library
        self._plain = plain
        self._batch = batch
        self._records: int | None = None
        self._bytes = 0
        self._ready: memoryview | None = None
        """What the plain encoder has made of the batch, as far as it is not taken."""
        self._progress = Progress()
        self.done = not batch.num_rows
        """Whether all rows are encoded."""
        self.needed = 0
        """Bytes of room with which the next record fits for sure, known once one did not."""
        if not self.done:
            self._records = style.begin(batch) if style.is_known else None
            if self._records is None:
                self._encode_plainly()

    def __enter__(self) -> BatchRows:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._records is not None:
            self._library.unloader_end(self._records)
            self._records = None

    def next_records(self) -> memoryview:
        """Return the next record, or the next few short ones, in separate memory."""
        room = memoryview(bytearray(max(self.needed, _FEW_RECORDS_ROOM)))
        return room[: self.fill(room, 1 if self.needed > _FEW_RECORDS_ROOM else _ALL_ROWS)]

    def fill(self, room: memoryview, most_rows: int = _ALL_ROWS) -> int:
        """Put in whole records that fit and return their bytes, 0 if more room may be `needed`.

        The plain encoder may cut one at the end. ValueNotRepresentable: a value cannot be written.
        """
        full, progress = not room.nbytes, self._progress
        while not (full or self.done):
            if self._ready is not None:
                count = min(room.nbytes, self._ready.nbytes)
                room[:count] = self._ready[:count]
                self._ready = self._ready[count:]
                self.done = not self._ready.nbytes
                return count
            # One byte serves all sizes: an array type of each size would be a separate class, and
            # wait for the garbage collector.
            memory = ctypes.c_char.from_buffer(room)
            status = self._library.unloader_fill(
                self._records, ctypes.addressof(memory), room.nbytes, most_rows, progress
            )
            self.needed = progress.needed
            self._bytes += progress.bytes
            full = status == _FULL
            if status == _DONE:
                self.done = True
                self._plain.rows_encoded += self._batch.num_rows
                self.__exit__()
            elif status in (_REFUSED, _UNDECIDED):
                self._encode_plainly()
            elif not full:
                raise MemoryError("there is not enough memory for the text of a record")
            if progress.bytes:
                return int(progress.bytes)
        return 0

    def _encode_plainly(self) -> None:
        self.__exit__()
        self.needed = 1
        self._ready = memoryview(self._plain.encode(self._batch))[self._bytes :]
