"""How many rows make a batch of a given size, from the types alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

TEXT_BYTES = 24
"""Guess for a value of no fixed width: an offset and a short text."""
MIN_ROWS = 1024
MAX_ROWS = 1_000_000


def row_bytes(schema: pa.Schema) -> int:
    """Return about how many bytes of Arrow memory one row takes."""
    return max(1, sum(_field_bytes(field.type) for field in schema))


def batch_rows(schema: pa.Schema, batch_bytes: int) -> int:
    """Return the rows of a batch of about `batch_bytes`, between MIN_ROWS and MAX_ROWS."""
    return min(MAX_ROWS, max(MIN_ROWS, batch_bytes // row_bytes(schema)))


def _field_bytes(kind: pa.DataType) -> int:
    try:
        width: int = kind.bit_width
    except ValueError:
        return TEXT_BYTES * max(1, int(kind.num_fields))
    return (width + 7) // 8 + 1
