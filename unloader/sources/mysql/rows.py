"""Rows in the packets of MySQL's text protocol, as batches of Arrow.

Native code finds the values of whole rows and copies them into the buffers of columns. Without a
compiler Python does that, and takes 30 times as long. Python also reads a row that does not fit
into a batch.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc

from unloader.errors import SourceError
from unloader.sources.moments import conformed, parse_moments
from writers import built_library
from writers.held_values import LEAST_BYTES, HeldValue, may_be_large
from writers.large_rows import LargeRow

NAME = "unloader.sources.mysql._rows"
OVERRIDE = "UNLOADER_NATIVE_ROWS_LIBRARY"
ABI_VERSION = 1

_HEADER_BYTES = 4
_CONTINUED = 0xFFFFFF
"""Length of a packet that another one continues."""
_MORE, _ENDED, _FAILED, _LONG = range(4)
FIRST_BYTES = 256 * 1024
MOST_BYTES = 1024**3
"""Offsets of Arrow's texts have 31 bits."""

Fill = Callable[[memoryview], int]
Value = memoryview | None


class _Place(ctypes.Structure):
    _fields_ = (("end", ctypes.c_int64), ("rows", ctypes.c_int64))


class _Column(ctypes.Structure):
    """A column and its buffers, declared again in `rows.cpp`."""

    _fields_ = (
        ("values", ctypes.c_void_p),
        ("offsets", ctypes.c_void_p),
        ("validity", ctypes.c_void_p),
        ("size", ctypes.c_int64),
        ("nulls", ctypes.c_int64),
    )


@cache
def native() -> ctypes.CDLL | None:
    """Return the library; None where it was not built or is of another version."""
    pointer, size = ctypes.c_void_p, ctypes.c_int64
    functions = {
        "scan": (ctypes.c_int32, (pointer, size, ctypes.POINTER(_Place))),
        "measure": (ctypes.c_int32, (pointer, size, ctypes.POINTER(_Column), size)),
        "fill": (None, (pointer, size, ctypes.POINTER(_Column), size)),
    }
    try:
        return built_library.load(NAME, OVERRIDE, "unloader_rows_", ABI_VERSION, functions)
    except built_library.Unusable:
        return None


class RowReader:
    """Reads the rows of one result; `last` is the packet that ended it, when all rows were read."""

    def __init__(self, fill: Fill, schema: pa.Schema, batch_bytes: int) -> None:
        self.last: bytes | None = None
        self._fill, self._schema = fill, schema
        self._batch_bytes = min(batch_bytes, MOST_BYTES)
        self._ahead = b""
        """Bytes that were read and belong to no row yet."""

    def batches(self) -> Iterator[pa.RecordBatch | LargeRow]:
        """Yield the rows; one that does not fit into `batch_bytes` is separate."""
        capacity = min(FIRST_BYTES, self._batch_bytes)
        while True:
            buffer, size, place = pa.allocate_buffer(capacity), 0, _Place()
            while (status := _scan(buffer, size, place)) == _MORE and size < capacity:
                size += self._read(_view(buffer)[size:])
            batch = _batch(buffer, place, self._schema) if place.rows else None
            self._ahead = bytes(_view(buffer)[place.end : size]) + self._ahead
            del buffer
            if batch is not None:
                yield batch
            is_whole = batch is None and capacity == self._batch_bytes
            del batch
            if status in (_ENDED, _FAILED):
                length = int.from_bytes(self._ahead[:3], "little")
                self.last = self._ahead[_HEADER_BYTES : _HEADER_BYTES + length]
                return
            if status == _LONG or is_whole:
                yield self._large_row()
            capacity = min(4 * capacity, self._batch_bytes)

    def _read(self, into: memoryview) -> int:
        if not self._ahead:
            return self._fill(into)
        size = min(len(self._ahead), len(into))
        into[:size], self._ahead = self._ahead[:size], self._ahead[size:]
        return size

    def _large_row(self) -> pa.RecordBatch | LargeRow:
        """Read the row that comes next to its end; it may have several packets."""
        parts: list[pa.Buffer] = []
        length = _CONTINUED
        while length == _CONTINUED:
            header = bytearray(_HEADER_BYTES)
            self._take(memoryview(header))
            length = int.from_bytes(header[:3], "little")
            parts.append(pa.allocate_buffer(length))
            self._take(_view(parts[-1]))
        if len(parts) > 1:
            payload, at = pa.allocate_buffer(sum(part.size for part in parts)), 0
            for part in parts:
                _view(payload)[at : at + part.size] = _view(part)
                at += part.size
            parts = [payload]
        return _large(_values(_view(parts[0]), len(self._schema)), self._schema, parts[0].size)

    def _take(self, into: memoryview) -> None:
        done = 0
        while done < len(into):
            done += self._read(into[done:])


def _view(buffer: pa.Buffer) -> memoryview:
    return memoryview(buffer).cast("B")


def _scan(buffer: pa.Buffer, size: int, place: _Place) -> int:
    """Move `place` over the whole rows in a buffer; return what follows them."""
    if (library := native()) is not None:
        found: int = library.unloader_rows_scan(buffer.address, size, ctypes.byref(place))
        return found
    view = _view(buffer)
    while size - place.end >= _HEADER_BYTES:
        at = place.end + _HEADER_BYTES
        length = int.from_bytes(view[place.end : place.end + 3], "little")
        if length == _CONTINUED:
            return _LONG
        if size - at < length:
            return _MORE
        first = view[at] if length else 0
        if first == 0xFF or (first == 0xFE and length < 9):
            return _FAILED if first == 0xFF else _ENDED
        place.end, place.rows = at + length, place.rows + 1
    return _MORE


def _values(row: memoryview, count: int) -> list[Value]:
    """Return the values of a row; None is NULL."""
    found: list[Value] = []
    at = 0
    try:
        for _ in range(count):
            length, at = row[at], at + 1
            if length == 0xFB:
                found.append(None)
                continue
            if length > 0xFB:
                size = {0xFC: 2, 0xFD: 3, 0xFE: 8}[length]
                length, at = int.from_bytes(row[at : at + size], "little"), at + size
            found.append(row[at : at + length])
            at += length
    except LookupError as error:
        raise _malformed() from error
    if at != len(row):
        raise _malformed()
    return found


def _malformed() -> SourceError:
    return SourceError(
        "the server sent a row that cannot be read",
        "connect to the server directly: a program between unloader and the server may change data",
    )


def _batch(buffer: pa.Buffer, place: _Place, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows up to a place in a buffer."""
    library = native()
    if library is None:
        view, at, rows = _view(buffer), 0, []
        while at < place.end:
            length = int.from_bytes(view[at : at + 3], "little")
            at += _HEADER_BYTES
            rows.append(_values(view[at : at + length], len(schema)))
            at += length
        columns_of = zip(schema.types, zip(*rows, strict=True), strict=True)
        arrays = [_array(values, kind) for kind, values in columns_of]
        return conformed(arrays, schema, [_parsed] * len(arrays))
    columns = (_Column * len(schema))()
    if library.unloader_rows_measure(buffer.address, place.end, columns, len(schema)):
        raise _malformed()
    made = []
    for column in columns:
        values, offsets = pa.allocate_buffer(column.size), pa.allocate_buffer(4 * (place.rows + 1))
        validity = pa.allocate_buffer((place.rows + 7) // 8)
        ctypes.memset(validity.address, 0, validity.size)
        column.values, column.offsets = values.address, offsets.address
        column.validity = validity.address
        made.append([validity, offsets, values])
    library.unloader_rows_fill(buffer.address, place.end, columns, len(schema))
    arrays = []
    for field, column, (validity, offsets, values) in zip(schema, columns, made, strict=True):
        buffers = [validity if column.nulls else None, offsets, values]
        arrays.append(
            pa.Array.from_buffers(_carrier(field.type), place.rows, buffers, column.nulls)
        )
    return conformed(arrays, schema, [_parsed] * len(arrays))


def _carrier(kind: pa.DataType) -> pa.DataType:
    """Return the type that values have before they are parsed."""
    return pa.binary() if pa.types.is_binary(kind) else pa.string()


def _array(values: Sequence[Value], kind: pa.DataType) -> pa.Array:
    plain = pa.array([None if each is None else bytes(each) for each in values], pa.binary())
    return pa.Array.from_buffers(_carrier(kind), len(plain), plain.buffers(), plain.null_count)


def _parsed(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    return parse_moments(texts, kind) if pa.types.is_temporal(kind) else pc.cast(texts, kind)


def _large(
    values: Sequence[Value], schema: pa.Schema, held_bytes: int
) -> pa.RecordBatch | LargeRow:
    """Return one row with its long values lent, or as a batch if all values are short."""
    small, lent = list(values), []
    for index, (value, field) in enumerate(zip(values, schema, strict=True)):
        if value is not None and len(value) >= LEAST_BYTES and may_be_large(field):
            binary = bool(pa.types.is_binary(field.type))
            lent.append((index, HeldValue(data=value, binary=binary, column=field.name)))
            small[index] = None
    arrays = [_array([value], field.type) for value, field in zip(small, schema, strict=True)]
    row = conformed(arrays, schema, [_parsed] * len(arrays))
    return LargeRow(row=row, values=tuple(lent), held_bytes=held_bytes) if lent else row
