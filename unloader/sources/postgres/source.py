"""PostgreSQL: partitions and heap ranges over COPY, all workers in one exported snapshot.

The parent holds a read-only transaction and exports its snapshot; each worker imports it. Reads go
through COPY, the server's own exact text: handed on where the asked-for dialect is one that COPY
writes (`encoded`), parsed from the CSV form into batches elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from partition_planner.model import Piece, Selector
from unloader.errors import SourceError, UnloaderError
from unloader.model import Extract, ReadColumn, Snapshot, SourceSpec
from unloader.request.locations import HOSTS, UrlForm
from unloader.sources.base import Source, Text
from unloader.sources.postgres import relations
from unloader.sources.postgres.catalog import PostgresCatalog
from unloader.sources.postgres.errors import NOT_UTF8, state_of
from unloader.sources.postgres.session import (
    EXPORTED,
    PARENT_GATHER,
    Session,
    check_unchanged,
    is_exported,
    session_in,
)
from unloader.sources.postgres.statement import (
    CopyDialect,
    base_type,
    declared,
    is_number,
    reads_others,
    selector_statement,
)
from unloader.sources.readings import Declared
from unloader.sources.registry import OPTIONS
from unloader.sources.statement import quoted, select_list
from writers.schema import read_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from writers.large_rows import LargeRow
    from writers.model import TextFormat

ENCODED_PIECE_BYTES = 1024 * 1024


class PostgresSource(Source):
    """PostgreSQL servers, by `postgresql://user@host:port/database`."""

    scheme = "postgresql"
    summary = "PostgreSQL: postgresql://user@host:5432/database"
    url = UrlForm(
        written="postgresql://USER@HOST:5432/DATABASE",
        what="server",
        target=re.compile(rf"{HOSTS}(?:/[^@?#]*)?"),
    )
    extra = "postgres"
    driver = "psycopg"
    options = OPTIONS["postgresql"]
    waits_for_network = True

    def at_snapshot(self, spec: SourceSpec, kind: str, value: str) -> SourceSpec | None:
        if kind != EXPORTED or not is_exported(value):
            return None
        return replace(spec, session=replace(spec.session, snapshot=value))

    def declared(self, source_type: str) -> Declared:
        return declared(source_type)

    def load(self) -> None:
        from unloader.sources.postgres.libpq import connection  # noqa: F401

    def open_catalog(self, spec: SourceSpec) -> PostgresCatalog:
        return PostgresCatalog(Session(spec, gather=PARENT_GATHER), spec)

    def open_reader(self, spec: SourceSpec, snapshot: Snapshot | None) -> PostgresReader:
        return PostgresReader(lambda: session_in(spec, snapshot))


class PostgresReader:
    """A worker's session inside the run's snapshot."""

    def __init__(self, connect: Callable[[], Session]) -> None:
        """Connect. An interrupted COPY ends its connection, and a new one is made after it."""
        self._connect = connect
        self._session = connect()

    def batches(
        self, extract: Extract, piece: Piece, *, batch_bytes: int
    ) -> Iterator[pa.RecordBatch | LargeRow]:
        """Yield the piece's rows, each batch parsed from about `batch_bytes` of COPY text.

        A row with a longer text is yielded separately.
        """
        from unloader.sources.postgres.parse import CopyParser, WideRows

        schema = read_schema(extract.projection.schema)
        parser = CopyParser(schema)
        wide = WideRows(schema, parser, batch_bytes)
        for chunks in self._copied(extract, piece.selector, CopyDialect(), batch_bytes):
            for chunk in chunks:
                # The usual rows of a chunk come together, each wide one separately.
                if len(chunk) < batch_bytes:
                    yield parser.parse(chunk)
                else:
                    yield from wide.rows(memoryview(chunk))
                del chunk
            del chunks

    def encoded(
        self, extract: Extract, piece: Piece, text: TextFormat
    ) -> Iterator[tuple[Text, ...]]:
        forced: tuple[str, ...] | bool = text.enclose == "all"
        if text.enclose == "strings":
            forced = tuple(
                column.name
                for column in extract.table.columns
                if not is_number(column) and base_type(column) != "boolean"
            )
        dialect = CopyDialect(
            delimiter=text.delimiter, quote=text.enclosure, null=text.null, force_quote=forced
        )
        columns = [column.name for column in extract.projection.columns]
        yield from self._copied(extract, piece.selector, dialect, ENCODED_PIECE_BYTES, columns)

    @property
    def encoded_rows(self) -> int:
        """Rows of the last `encoded`, from the server's `COPY n`."""
        return self._session.rows_copied

    def close(self) -> None:
        with suppress(UnloaderError):
            self._session.close()

    def _copied(
        self,
        extract: Extract,
        selector: Selector,
        dialect: CopyDialect,
        piece_bytes: int,
        columns: Sequence[str] = (),
    ) -> Iterator[tuple[Text, ...]]:
        sql = selector_statement(select_list(extract.projection.columns), extract, selector)
        try:
            yield from self._connected().copy(sql, dialect, piece_bytes, columns)
        except SourceError as error:
            if state_of(error.__cause__) not in NOT_UTF8:
                raise
            raise self._not_utf8(extract, selector, error) from error
        if self._session.in_transaction and reads_others(extract):
            check_unchanged(relations.changed(self._session))

    def _not_utf8(self, extract: Extract, selector: Selector, error: SourceError) -> SourceError:
        """Return the error of texts that have no UTF-8, with the names of their columns."""
        # A transaction takes no further statement after an error.
        self._session.close()
        self._session = self._connect()
        columns = extract.projection.columns
        bad = [each for each in columns if not self._has_utf8(extract, selector, each)]
        if not bad:
            return error
        encoding = self._session.value("SHOW server_encoding")
        names = ", ".join(column.name for column in bad)
        label = "the query" if extract.query is not None else extract.table.label
        column = quoted(bad[0].name)
        return SourceError(
            f"{label} has text that is not UTF-8 in {names}: {error.message}",
            f"leave it out with --exclude {names.replace(' ', '')}, or read the bytes: use a "
            f"--query that has for each such column: convert_to({column}::text, '{encoding}') AS "
            f"{column}",
        )

    def _has_utf8(self, extract: Extract, selector: Selector, column: ReadColumn) -> bool:
        text = f"pg_catalog.convert_to(pg_catalog.concat({column.expression}), 'UTF8')"
        sql = selector_statement(f"pg_catalog.count({text})", extract, selector)
        session = self._session
        try:
            with session.apart() if session.in_transaction else nullcontext(), session.users_path():
                session.rows(sql)
        except SourceError as error:
            if state_of(error.__cause__) not in NOT_UTF8:
                raise
            return False
        return True

    def _connected(self) -> Session:
        if not self._session.alive:
            self._session.close()
            self._session = self._connect()
        return self._session
