"""Large objects of PostgreSQL: a column of OIDs is read as the bytes that the OIDs lead to.

The rows come by COPY, so a second session reads the objects, in the same snapshot. An object up to
`WHOLE_BYTES` becomes a value of its batch; `ROWS` rows are asked for with one statement. A longer
one is read in pieces by the thread that writes it, so the session is used by two threads in turn.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
from msgspec import Struct

from unloader.errors import SourceError
from unloader.sources.postgres.session import Session
from unloader.sources.postgres.statement import OBJECT
from writers.large_rows import LargeRow, LargeValue

WHOLE_BYTES = 64 * 1024
ROWS = 64
PIECE_BYTES = 1024 * 1024
_SMALL = (
    "SELECT pg_catalog.lo_get(id, 0, $2::integer) FROM pg_catalog.unnest($1::oid[]) "
    "WITH ORDINALITY AS wanted (id, place) ORDER BY place"
)
_PIECE = "SELECT pg_catalog.lo_get($1::oid, $2::bigint, $3::integer)"


class LargeObject(Struct, frozen=True, kw_only=True):
    """A long object, read piece by piece."""

    read: Callable[[str, str, object, int, int], Any]
    oid: int
    column: str
    binary: bool = True

    def pieces(self) -> Iterator[bytes]:
        start = 0
        data = b"."
        while data:
            ((data,),) = self.read(self.column, _PIECE, self.oid, start, PIECE_BYTES)
            yield data
            start += len(data)


class LargeObjects:
    """Reads the objects of the columns of a schema that have `OBJECT`; `open_session` opens its
    session when the first object is read."""

    def __init__(self, open_session: Callable[[], Session]) -> None:
        self._open_session = open_session
        self._session: Session | None = None
        self._turn = threading.Lock()

    def filled(
        self, items: Iterable[pa.RecordBatch | LargeRow], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch | LargeRow]:
        """Yield the rows of `schema` for rows that have OIDs in place of the objects."""
        columns = object_columns(schema)
        for item in items:
            large = item.values if isinstance(item, LargeRow) else ()
            batch = item.row if isinstance(item, LargeRow) else item
            held = item.held_bytes if isinstance(item, LargeRow) else 0
            for start in range(0, batch.num_rows, ROWS):
                yield from self._filled(batch.slice(start, ROWS), schema, columns, large, held)

    def close(self) -> None:
        if self._session is not None:
            self._session.close()

    def _filled(
        self,
        batch: pa.RecordBatch,
        schema: pa.Schema,
        columns: list[int],
        large: tuple[tuple[int, LargeValue], ...],
        held_bytes: int,
    ) -> Iterator[pa.RecordBatch | LargeRow]:
        arrays = list(batch.columns)
        long: dict[int, list[tuple[int, LargeValue]]] = {0: list(large)} if large else {}
        for column in columns:
            oids, name = arrays[column].to_pylist(), schema.field(column).name
            wanted = [oid for oid in oids if oid is not None]
            found = iter(self._read(name, _SMALL, wanted, WHOLE_BYTES + 1) if wanted else ())
            values = [None if oid is None else next(found)[0] for oid in oids]
            for row, (oid, value) in enumerate(zip(oids, values, strict=True)):
                if value is not None and len(value) > WHOLE_BYTES:
                    whole = LargeObject(read=self._read, oid=oid, column=name)
                    long.setdefault(row, []).append((column, whole))
                    values[row] = None
            arrays[column] = pa.array(values, pa.binary())
        rows = pa.RecordBatch.from_arrays(arrays, schema=schema)
        start = 0
        for row in sorted(long):
            if row > start:
                yield rows.slice(start, row - start)
            own = tuple(sorted(long[row], key=lambda each: each[0]))
            yield LargeRow(row=rows.slice(row, 1), values=own, held_bytes=held_bytes)
            start = row + 1
        if start < rows.num_rows:
            yield rows.slice(start)

    def _read(self, column: str, sql: str, *arguments: object) -> list[Any]:
        with self._turn:
            if self._session is None or not self._session.alive:
                self._session = self._open_session()
            try:
                return self._session.rows(sql, *arguments, binary=True)
            except SourceError as error:
                raise type(error)(f"column {column}: {error.message}", error.hint) from error


def object_columns(schema: pa.Schema) -> list[int]:
    """Return the columns of a schema that hold large objects."""
    name, value = (each.encode() for each in OBJECT)
    return [at for at, field in enumerate(schema) if (field.metadata or {}).get(name) == value]


def with_oids(schema: pa.Schema) -> pa.Schema:
    """Return a schema with OIDs in place of the objects, as COPY sends them."""
    for column in object_columns(schema):
        schema = schema.set(column, schema.field(column).with_type(pa.uint32()))
    return schema
