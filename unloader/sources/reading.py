"""Reading a work unit: its pieces one after the other, through a reader that knows single ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from unloader.sources.base import ReadAgain

if TYPE_CHECKING:
    import pyarrow as pa

    from partition_planner.model import WorkUnit
    from unloader.model import Extract
    from unloader.sources.base import Reader, Text, TextReader
    from writers.large_rows import LargeRow
    from writers.model import TextFormat

Read = TypeVar("Read")


def read_again(read: Callable[[], Read]) -> Read:
    """Return what `read` makes of a unit; it is called again for each `ReadAgain`.

    Raises:
        ReadAgain: The reader asked for more than `MOST_TIMES` further readings.
    """
    for _ in range(ReadAgain.MOST_TIMES):
        with suppress(ReadAgain):
            return read()
    return read()


def unit_batches(
    reader: Reader, extract: Extract, unit: WorkUnit, *, batch_bytes: int
) -> Iterator[pa.RecordBatch | LargeRow]:
    """Yield the rows of a unit; arguments and errors are those of `Reader.batches`."""
    if extract.limit_rows is not None:
        yield from _limited_batches(reader, extract, unit, batch_bytes)
        return
    for piece in unit.pieces:
        yield from reader.batches(extract, piece, batch_bytes=batch_bytes)


def _limited_batches(
    reader: Reader, extract: Extract, unit: WorkUnit, batch_bytes: int
) -> Iterator[pa.RecordBatch | LargeRow]:
    """Yield rows until there are as many as were asked for: a reader knows of one piece alone."""
    from writers.large_rows import LargeRow

    left = extract.limit_rows or 0
    for piece in unit.pieces:
        if left <= 0:
            return
        asked = replace(extract, limit_rows=left)
        for batch in reader.batches(asked, piece, batch_bytes=batch_bytes):
            left -= 1 if isinstance(batch, LargeRow) else batch.num_rows
            yield batch
            del batch


def unit_text(
    reader: TextReader,
    extract: Extract,
    unit: WorkUnit,
    text: TextFormat,
    counted: Callable[[int], None] = lambda rows: None,
) -> Iterator[tuple[Text, ...]]:
    """Yield the rows of a unit as text; arguments and errors are those of `TextReader.encoded`.

    Args:
        reader: A worker's connection.
        extract: What is read.
        unit: Whose rows are read.
        text: The dialect.
        counted: Takes the database's count of the rows it sent, after each piece.
    """
    left = extract.limit_rows
    for piece in unit.pieces:
        if left is not None and left <= 0:
            return
        yield from reader.encoded(replace(extract, limit_rows=left), piece, text)
        counted(reader.encoded_rows)
        if left is not None:
            left -= reader.encoded_rows


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
