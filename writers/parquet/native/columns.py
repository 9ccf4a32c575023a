"""Which columns the native library can encode, and what it is told of them.

pyarrow decides the physical type: its own schema of the file is asked, and a column that it would
store otherwise than the library is none that the library knows.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    import pyarrow as pa


class Source(IntEnum):
    """How values lie in Arrow; the same numbers are in `page.h`."""

    BOOLEAN = 0
    INT8 = 1
    INT16 = 2
    INT32 = 3
    INT64 = 4
    UINT8 = 5
    UINT16 = 6
    UINT32 = 7
    DECIMAL = 8
    TEXT32 = 9
    TEXT64 = 10
    FIXED = 11


class Physical(IntEnum):
    """The types of the Parquet format, by its numbers."""

    BOOLEAN = 0
    INT32 = 1
    INT64 = 2
    FLOAT = 4
    DOUBLE = 5
    BYTE_ARRAY = 6
    FIXED_LEN_BYTE_ARRAY = 7


class Encoding(IntEnum):
    """Those encodings of the Parquet format that are written, by its numbers."""

    PLAIN = 0
    RLE = 3
    DELTA_BINARY_PACKED = 5
    DELTA_BYTE_ARRAY = 7
    RLE_DICTIONARY = 8
    BYTE_STREAM_SPLIT = 9


_NUMBERS = frozenset({Encoding.PLAIN, Encoding.RLE_DICTIONARY})
_ENCODINGS = {
    Physical.BOOLEAN: frozenset({Encoding.PLAIN}),
    Physical.INT32: _NUMBERS | {Encoding.DELTA_BINARY_PACKED, Encoding.BYTE_STREAM_SPLIT},
    Physical.INT64: _NUMBERS | {Encoding.DELTA_BINARY_PACKED, Encoding.BYTE_STREAM_SPLIT},
    Physical.FLOAT: _NUMBERS | {Encoding.BYTE_STREAM_SPLIT},
    Physical.DOUBLE: _NUMBERS | {Encoding.BYTE_STREAM_SPLIT},
    Physical.BYTE_ARRAY: _NUMBERS | {Encoding.DELTA_BYTE_ARRAY},
    Physical.FIXED_LEN_BYTE_ARRAY: _NUMBERS,
}
"""What the library can do."""


class ColumnForm(Struct, frozen=True, kw_only=True):
    """How one column is stored."""

    name: str
    source: Source
    physical: Physical
    width: int = 0
    """Bytes of a value of fixed length, 0 for others."""
    nullable: bool = True
    signed: bool = True
    factor: int = 1
    """Numbers are multiplied with it: Parquet has no seconds."""

    def can(self, encoding: Encoding) -> bool:
        """Return whether the library has this encoding for the column."""
        return encoding in _ENCODINGS[self.physical]


def forms_of(schema: pa.Schema, stored: Any) -> tuple[ColumnForm, ...] | None:
    """Return how the columns are stored, None where the library does not know one of them.

    Args:
        schema: Of the batches.
        stored: pyarrow's schema of the file that these batches make.
    """
    if not len(schema) or len(stored) != len(schema):
        return None
    forms = []
    for index, field in enumerate(schema):
        form = _form_of(field)
        column = stored.column(index)
        if form is None or form.physical.name != column.physical_type:
            return None
        if column.max_repetition_level or column.max_definition_level != int(form.nullable):
            return None
        if form.width and form.width != column.length:
            return None
        forms.append(form)
    return tuple(forms)


def _form_of(field: pa.Field) -> ColumnForm | None:
    from pyarrow import types

    kind, common = field.type, {"name": field.name, "nullable": field.nullable}
    if types.is_decimal128(kind):
        return _decimal(kind.precision, common)
    if types.is_fixed_size_binary(kind):
        return ColumnForm(
            source=Source.FIXED,
            physical=Physical.FIXED_LEN_BYTE_ARRAY,
            width=kind.byte_width,
            signed=False,
            **common,
        )
    found = _simple_forms().get(str(kind))
    if found is None and types.is_timestamp(kind):
        found = (Source.INT64, Physical.INT64, True, 1000 if kind.unit == "s" else 1)
    if found is None:
        return None
    source, physical, signed, factor = found
    return ColumnForm(source=source, physical=physical, signed=signed, factor=factor, **common)


def _decimal(precision: int, common: dict[str, Any]) -> ColumnForm:
    if precision <= 18:
        physical = Physical.INT32 if precision <= 9 else Physical.INT64
        return ColumnForm(source=Source.DECIMAL, physical=physical, **common)
    return ColumnForm(
        source=Source.DECIMAL,
        physical=Physical.FIXED_LEN_BYTE_ARRAY,
        # As many bytes as hold the largest number of so many digits, and a sign.
        width=(10**precision).bit_length() // 8 + 1,
        **common,
    )


def _simple_forms() -> dict[str, tuple[Source, Physical, bool, int]]:
    text32 = (Source.TEXT32, Physical.BYTE_ARRAY, False, 1)
    text64 = (Source.TEXT64, Physical.BYTE_ARRAY, False, 1)
    return {
        "bool": (Source.BOOLEAN, Physical.BOOLEAN, False, 1),
        "int8": (Source.INT8, Physical.INT32, True, 1),
        "int16": (Source.INT16, Physical.INT32, True, 1),
        "int32": (Source.INT32, Physical.INT32, True, 1),
        "int64": (Source.INT64, Physical.INT64, True, 1),
        "uint8": (Source.UINT8, Physical.INT32, False, 1),
        "uint16": (Source.UINT16, Physical.INT32, False, 1),
        "uint32": (Source.UINT32, Physical.INT32, False, 1),
        "uint64": (Source.INT64, Physical.INT64, False, 1),
        "float": (Source.INT32, Physical.FLOAT, True, 1),
        "double": (Source.INT64, Physical.DOUBLE, True, 1),
        "date32[day]": (Source.INT32, Physical.INT32, True, 1),
        "time32[s]": (Source.INT32, Physical.INT32, True, 1000),
        "time32[ms]": (Source.INT32, Physical.INT32, True, 1),
        "time64[us]": (Source.INT64, Physical.INT64, True, 1),
        "time64[ns]": (Source.INT64, Physical.INT64, True, 1),
        "string": text32,
        "binary": text32,
        "large_string": text64,
        "large_binary": text64,
    }
