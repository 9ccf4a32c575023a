"""Rows with values too large to lie in memory: what a source hands over beside batches.

A row of this kind stands for a batch of one row. Its large values come in pieces and can be read
more than once, since some formats must know a value, or its length, before they write it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from writers.errors import ValueNotRepresentable, WriteError
from writers.schema import check_schema, text_class

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

COLLECTED_BYTES = 64 * 1024 * 1024
"""The largest value that a format without streaming (Parquet) collects in memory."""


class LargeValue(Protocol):
    """One value, read piece by piece."""

    @property
    def binary(self) -> bool:
        """Whether the pieces are bytes; text otherwise."""

    def pieces(self) -> Iterator[bytes] | Iterator[str]:
        """Read the value from its start, at every call; pieces may have any length, even none.

        A character or byte is never cut: text pieces are whole characters.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeRow:
    """One row with values of any size."""

    row: pa.RecordBatch
    """One row of the writer's schema, with nulls in place of the large values."""
    values: tuple[tuple[int, LargeValue], ...]
    """Column index and value, ascending, each column once; a large value is never NULL."""


def check_large_row(large: LargeRow, schema: pa.Schema) -> None:
    """Make sure that a large row is one row of a schema, and its values suit their columns.

    Raises:
        WriteError: It is not; columns are named.
    """
    import pyarrow as pa

    check_schema(large.row, schema)
    indexes = [index for index, _ in large.values]
    if large.row.num_rows != 1 or indexes != sorted(set(indexes) & set(range(len(schema)))):
        raise WriteError(
            f"a large row has {large.row.num_rows} rows and large values in the columns {indexes} "
            f"of {len(schema)}; it must be one row and name each column once, ascending."
        )
    binary = (pa.binary(), pa.large_binary(), pa.binary_view())
    text = (pa.string(), pa.large_string(), pa.string_view())
    for index, value in large.values:
        field = schema.field(index)
        kind = text_class(field) if text_class(field) == "timestamp" else field.type
        if kind not in (binary if value.binary else text):
            given = "binary" if value.binary else "text"
            raise WriteError(
                f"column {field.name} has the type {kind}, which holds no large {given} value."
            )


def collected(large: LargeRow) -> pa.RecordBatch:
    """Return a large row as a batch of one row, all its values in memory.

    Raises:
        ValueNotRepresentable: A value has more than `COLLECTED_BYTES`.
    """
    import pyarrow as pa

    columns = list(large.row.columns)
    for index, value in large.values:
        field = large.row.schema.field(index)
        columns[index] = pa.array([_collected(value, field.name)], field.type)
    return pa.RecordBatch.from_arrays(columns, schema=large.row.schema)


def _collected(value: LargeValue, column: str) -> bytes | str:
    collected, size = [], 0
    for piece in value.pieces():
        data = piece.encode() if isinstance(piece, str) else piece
        size += len(data)
        if size > COLLECTED_BYTES:
            raise ValueNotRepresentable(
                f"column {column} holds a value of more than {COLLECTED_BYTES:,} bytes, and this "
                f"format must hold a value in memory. Next: leave it out with --exclude {column}, "
                "or use --format csv, which writes values of any size."
            )
        collected.append(data)
    whole = b"".join(collected)
    return whole if value.binary else whole.decode()
