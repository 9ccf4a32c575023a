"""Sources of SQLite files whose readers do what a source may do, or may not.

They are here and not in a test, as a worker's process has to import them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from partition_planner.model import Piece, RowRange
from unloader.errors import SourceError
from unloader.model import Extract, Snapshot, SourceSpec
from unloader.sources.base import ReadAgain
from unloader.sources.sqlite.source import SQLiteReader, SQLiteSource


class _Reader:
    def __init__(self, reader: SQLiteReader) -> None:
        self._reader = reader

    def close(self) -> None:
        self._reader.close()


class _NeedsItsKey(_Reader):
    def batches(self, extract: Extract, piece: Piece, *, batch_bytes: int) -> Iterator[Any]:
        names = [column.name for column in extract.table.columns]
        if isinstance(piece.selector, RowRange) and "i" not in names:
            raise SourceError("no such column: i")
        yield from self._reader.batches(extract, piece, batch_bytes=batch_bytes)


class _ReadsTwice(_Reader):
    def __init__(self, reader: SQLiteReader) -> None:
        super().__init__(reader)
        self._left = ReadAgain.MOST_TIMES

    def batches(self, extract: Extract, piece: Piece, *, batch_bytes: int) -> Iterator[Any]:
        for batch in self._reader.batches(extract, piece, batch_bytes=batch_bytes):
            yield batch
            if self._left:
                self._left -= 1
                raise ReadAgain


class SourceThatNeedsItsKey(SQLiteSource):
    """Its ranges go by the column `i`, which must be among the chosen ones: a fault."""

    def open_reader(self, spec: SourceSpec, snapshot: Snapshot | None) -> Any:
        """Open a reader that fails without the column."""
        return _NeedsItsKey(super().open_reader(spec, snapshot))


class SourceThatReadsTwice(SQLiteSource):
    """Its reader asks to read its first unit again, as often as it may: no fault."""

    def open_reader(self, spec: SourceSpec, snapshot: Snapshot | None) -> Any:
        """Open a reader that raises `ReadAgain`."""
        return _ReadsTwice(super().open_reader(spec, snapshot))
