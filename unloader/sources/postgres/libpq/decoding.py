"""COPY's CSV text into record batches by native code, for ordinary values only.

A text with any other value is declined as a whole, and the plain parser reads it: dates before
year 1 or after 9999, infinity, values that do not fit their type, text that is not UTF-8. So rules
and errors are in the plain parser alone. For the reference table of ten columns the native code
takes half of the CPU of Arrow's CSV reader, which is a fifth of that of a long run to Parquet.
"""

from __future__ import annotations

import ctypes

import pyarrow as pa

from unloader.sources.postgres.libpq.copying import native

_KINDS = {
    pa.bool_(): 0,
    pa.int16(): 1,
    pa.int32(): 2,
    pa.int64(): 3,
    pa.uint32(): 4,
    pa.float32(): 5,
    pa.float64(): 6,
    pa.date32(): 8,
    pa.timestamp("us"): 9,
    pa.timestamp("us", "UTC"): 9,
    pa.string(): 10,
    pa.binary(): 11,
}
"""As `decode.cpp` has them; a decimal of 128 bits is 7."""
_BOOL, _DECIMAL, _STRING, _BINARY = 0, 7, 10, 11
_PLACE_BYTES = 8


class _Column(ctypes.Structure):
    """A column and its buffers; as `decode.cpp` has it."""

    _fields_ = (
        ("kind", ctypes.c_int32),
        ("precision", ctypes.c_int32),
        ("scale", ctypes.c_int32),
        ("zoned", ctypes.c_int32),
        ("values", ctypes.c_void_p),
        ("offsets", ctypes.c_void_p),
        ("validity", ctypes.c_void_p),
        ("size", ctypes.c_int64),
        ("nulls", ctypes.c_int64),
    )


class Decoder:
    """Reads texts of one schema; `usable` is false without the library, or for other types."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._kinds = [
            _DECIMAL if pa.types.is_decimal128(field.type) else _KINDS.get(field.type, -1)
            for field in schema
        ]
        self._library = native()
        self.usable = self._library is not None and min(self._kinds, default=-1) >= 0

    def batch(self, text: pa.Buffer) -> pa.RecordBatch | None:
        """Return the records of a text, None if it is declined."""
        library, columns = self._library, len(self._kinds)
        assert library is not None
        most = library.unloader_copy_lines(text.address, text.size)
        places = pa.allocate_buffer(most * columns * _PLACE_BYTES)
        described = (_Column * columns)()
        rows = library.unloader_copy_index(
            text.address, text.size, columns, most, places.address, described
        )
        if rows < 0:
            return None
        arrays = []
        for index, (kind, field, column) in enumerate(
            zip(self._kinds, self._schema, described, strict=True)
        ):
            column.kind = kind
            if kind == _DECIMAL:
                column.precision, column.scale = field.type.precision, field.type.scale
            column.zoned = pa.types.is_timestamp(field.type) and field.type.tz is not None
            array = _filled(
                library,
                text,
                places.address + index * most * _PLACE_BYTES,
                rows,
                column,
                field.type,
            )
            if array is None:
                return None
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _filled(
    library: ctypes.CDLL,
    text: pa.Buffer,
    places: int,
    rows: int,
    column: _Column,
    kind: pa.DataType,
) -> pa.Array | None:
    is_text = column.kind in (_STRING, _BINARY)
    validity = _zeros((rows + 7) // 8)
    offsets = pa.allocate_buffer(4 * (rows + 1)) if is_text else None
    values = (
        pa.allocate_buffer(column.size) if is_text else _zeros((rows * kind.bit_width + 7) // 8)
    )
    column.validity, column.values = validity.address, values.address
    column.offsets = None if offsets is None else offsets.address
    if library.unloader_copy_decode(text.address, places, rows, ctypes.byref(column)):
        return None
    buffers = [validity if column.nulls else None, values]
    if offsets is not None:
        buffers[1:] = [offsets, values.slice(0, column.size)]
    return pa.Array.from_buffers(kind, rows, buffers, column.nulls)


def _zeros(size: int) -> pa.Buffer:
    """Return memory without leftovers of others: also a NULL has a value there."""
    buffer = pa.allocate_buffer(size)
    ctypes.memset(buffer.address, 0, size)
    return buffer
