"""LOBs that do not come with their rows: found again by ROWID or locator, read piece by piece.

A row with such a value travels by itself. Its LOB is read when the writer asks for it, on the
reader's own connection and at the snapshot of the run; the driver lets the two threads take turns.

Oracle counts a CLOB in UTF-16 units, so a character beyond the first 65,536 has two. The driver
cannot make text of one half: such a piece is read once more with one unit less.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from unloader.errors import OutputFailed, SourceError
from unloader.sources.oracle.reading.tuples import as_stored
from writers.large_rows import LargeRow, LargeValue

if TYPE_CHECKING:
    import oracledb
    import pyarrow as pa

    from unloader.sources.oracle.connection.session import Session
    from unloader.sources.oracle.reading.fetch import FetchPlan

PIECE_UNITS = 512 * 1024
"""Characters or bytes of one piece."""


class StoredLob(Struct, frozen=True, kw_only=True):
    """A LOB where it lies."""

    session: Session
    column: str
    source_type: str
    hexed: bool
    """Bytes are written as text, in digits."""
    place: str | oracledb.LOB
    """ROWID of its row, or its locator."""
    sql: str = ""
    """Finds the LOB by the ROWID of its row."""

    @property
    def binary(self) -> bool:
        """Whether the pieces are bytes."""
        return self.source_type == "BLOB" and not self.hexed

    def pieces(self) -> Iterator[Any]:
        """Read the LOB from its start.

        Raises:
            SourceError: The database failed, or the row is gone.
            OutputFailed: It holds half a character.
        """
        lob = self._located()
        with self.session.translating():
            size = lob.size()
        start = 0
        while start < size:
            piece = self._read(lob, start, min(PIECE_UNITS, size - start))
            start += _units(piece)
            yield piece.hex() if self.hexed and isinstance(piece, bytes) else piece

    def _located(self) -> Any:
        if not isinstance(self.place, str):
            return self.place
        with self.session.translating(), self.session.cursor() as cursor:
            cursor.outputtypehandler = as_stored
            row = cursor.execute(self.sql, [self.place]).fetchone()
        if row is None or row[0] is None:
            raise SourceError(
                f"column {self.column}: the row {self.place} was deleted before its LOB was read",
                "run again; without a snapshot rows can change while a run reads them",
            )
        return row[0]

    def _read(self, lob: Any, start: int, amount: int) -> str | bytes:
        for units in (amount, amount - 1):
            if units < 1:
                break
            try:
                with self.session.translating():
                    piece: str | bytes = lob.read(start + 1, units)
                if _units(piece) > 0:
                    return piece
                raise SourceError(f"column {self.column}: a LOB ended before its length")
            except UnicodeError:
                # The last unit is the first half of a character; without it the piece is whole.
                continue
        raise OutputFailed(
            f"column {self.column} holds half a character (unit {start + amount} of a LOB)",
            f"leave it out with --exclude {self.column}",
        )


def _units(piece: str | bytes) -> int:
    """Return the length of a piece as Oracle counts it."""
    return len(piece) if isinstance(piece, bytes) else len(piece.encode("utf-16-le")) // 2


class LobFinder(Struct, frozen=True, kw_only=True):
    """Takes the rows with large values out of batches."""

    session: Session
    plan: FetchPlan
    relation: str
    """What the unit reads from, at the snapshot."""
    schema: pa.Schema

    def rows(
        self, batch: pa.RecordBatch, fetched: Sequence[Any]
    ) -> Iterator[pa.RecordBatch | LargeRow]:
        """Yield the rows of a batch in order, those with large values each by itself."""
        large: dict[int, list[tuple[int, LargeValue]]] = {}
        for item, values in zip(self.plan.items, fetched, strict=True):
            if item.part in ("rowid", "locator"):
                places = values if isinstance(values, list) else values.to_pylist()
                for row, place in enumerate(places):
                    if place is not None:
                        value = self._stored(item.column, place)
                        large.setdefault(row, []).append((item.column, value))
        start = 0
        for row in sorted(large):
            if row > start:
                yield batch.slice(start, row - start)
            yield LargeRow(row=batch.slice(row, 1), values=tuple(large[row]))
            start = row + 1
        if start < batch.num_rows:
            yield batch.slice(start)

    def _stored(self, column: int, place: Any) -> StoredLob:
        import pyarrow as pa

        read = self.plan.columns[column]
        return StoredLob(
            session=self.session,
            column=read.name,
            source_type=read.source_type,
            hexed=read.source_type == "BLOB" and pa.types.is_string(self.schema.field(column).type),
            place=place,
            sql=f"SELECT {read.expression} FROM {self.relation} WHERE ROWID = CHARTOROWID(:1)",
        )
