"""Rows with values too large to lie in memory: what a source hands over beside batches.

A row of this kind represents a batch of one row. Its large values come in pieces and can be read
more than once, since some formats must know a value, or its length, before they write it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from writers.errors import ValueNotRepresentable, WriteError
from writers.schema import check_schema, pc, text_class

if TYPE_CHECKING:
    import pyarrow as pa

COLLECTED_BYTES = 64 * 1024 * 1024
"""The largest value of a format without streaming (Parquet), which takes several times as much
memory to encode; of every source."""


class LargeValue(Protocol):
    """One value, read piece by piece."""

    @property
    def binary(self) -> bool:
        """Whether the pieces are bytes; text otherwise."""

    def pieces(self) -> Iterator[bytes] | Iterator[str]:
        """Read from the start at every call: pieces of any length, but of whole characters."""


class PassedValue(Struct, frozen=True):
    """A large value whose pieces go through a function, each time that they are read."""

    value: LargeValue
    through: Callable[[Iterator[Any]], Iterator[Any]]

    @property
    def binary(self) -> bool:
        return self.value.binary

    def pieces(self) -> Iterator[Any]:
        return self.through(self.value.pieces())


class LargeRow(Struct, frozen=True, kw_only=True):
    row: pa.RecordBatch
    """One row of the writer's schema, with nulls in place of the large values."""
    values: tuple[tuple[int, LargeValue], ...]
    """Column index and value, ascending, each column once; a large value is never NULL."""
    held_bytes: int = 0
    """Bytes of memory that the values keep for as long as the row is there."""

    @property
    def num_rows(self) -> int:
        return 1


def check_large_row(large: LargeRow, schema: pa.Schema) -> None:
    """Make sure that a large row is one row of a schema, and its values suit their columns."""
    import pyarrow as pa

    check_schema(large.row, schema)
    indexes = [index for index, _ in large.values]
    if large.row.num_rows != 1 or indexes != sorted(set(indexes) & set(range(len(schema)))):
        raise WriteError(
            f"a large row has {large.row.num_rows} rows and large values in the columns "
            f"{indexes} of {len(schema)}; it must have one row and name each column once, in "
            "ascending order."
        )
    binary = (pa.binary(), pa.large_binary(), pa.binary_view())
    text = (pa.string(), pa.large_string(), pa.string_view())
    for index, value in large.values:
        field = schema.field(index)
        kind = text_class(field) if text_class(field) == "timestamp" else field.type
        if kind not in (binary if value.binary else text):
            given = "binary" if value.binary else "text"
            raise WriteError(
                f"column {field.name} has the type {kind}, which cannot hold a large {given} value."
            )


def collected(large: LargeRow) -> pa.RecordBatch:
    """Return a large row as a batch of one row; a value may have at most `COLLECTED_BYTES`."""
    import pyarrow as pa

    columns = list(large.row.columns)
    for index, value in large.values:
        field = large.row.schema.field(index)
        # One buffer that grows: otherwise the pieces and their sum would be in memory together.
        data = bytearray()
        for piece in value.pieces():
            data += piece.encode() if isinstance(piece, str) else piece
            if len(data) > COLLECTED_BYTES:
                raise _too_large(field.name, f"more than {COLLECTED_BYTES:,} bytes")
        offsets = pa.py_buffer(array("i", [0, len(data)]))
        kind = pa.binary() if value.binary else pa.string()
        held = pa.Array.from_buffers(kind, 1, [None, offsets, pa.py_buffer(data)])
        columns[index] = held if kind == field.type else held.cast(field.type)
    return pa.RecordBatch.from_arrays(columns, schema=large.row.schema)


def is_long(kind: pa.DataType) -> bool:
    """Return whether values of a type are ranges of bytes, of any length."""
    from pyarrow import types

    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
    )


def check_collectable(batch: pa.RecordBatch) -> None:
    """Make sure that no value of a batch has more than `COLLECTED_BYTES`."""
    from pyarrow import types

    if batch.nbytes <= COLLECTED_BYTES:
        return
    for column, field in zip(batch.columns, batch.schema, strict=True):
        if column.nbytes <= COLLECTED_BYTES:
            continue
        if types.is_nested(field.type):
            largest = max(column.slice(row, 1).nbytes for row in range(len(column)))
        elif is_long(field.type):
            largest = pc.max(pc.binary_length(column)).as_py() or 0
        else:
            continue
        if largest > COLLECTED_BYTES:
            raise _too_large(field.name, f"{largest:,} bytes")


def _too_large(column: str, size: str) -> ValueNotRepresentable:
    return ValueNotRepresentable(
        f"column {column} holds a value of {size}; this format needs each value in memory, and "
        f"accepts at most {COLLECTED_BYTES:,} bytes.",
        f"leave it out with --exclude {column}, "
        "or use --format csv, which writes values of any size.",
    )
