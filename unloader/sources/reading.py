"""Reading a work unit: its pieces one after the other, through a reader that knows single ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from partition_planner.model import WorkUnit
    from unloader.model import Extract
    from unloader.sources.base import Reader, Text, TextReader
    from writers.large_rows import LargeRow
    from writers.model import TextFormat


def unit_batches(
    reader: Reader, extract: Extract, unit: WorkUnit, *, batch_bytes: int
) -> Iterator[pa.RecordBatch | LargeRow]:
    """Yield the rows of a unit; arguments and errors are those of `Reader.batches`."""
    for piece in unit.pieces:
        yield from reader.batches(extract, piece, batch_bytes=batch_bytes)


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
    for piece in unit.pieces:
        yield from reader.encoded(extract, piece, text)
        counted(reader.encoded_rows)
