"""A worker's side of a MySQL database: rows by SELECT, in a session of the run's snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from partition_planner.model import Piece
from unloader.errors import SourceError
from unloader.model import Extract, Snapshot, SourceSpec
from unloader.sources.base import Reader
from unloader.sources.mysql.rows import RowReader
from unloader.sources.mysql.session import Session
from unloader.sources.mysql.snapshot import KIND, Loan
from unloader.sources.mysql.statement import CUT, MOST_WARNINGS, selector_statement
from unloader.sources.statement import select_list
from writers.schema import read_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from writers.large_rows import LargeRow


class MySQLReader(Reader):
    """A worker's session: its own, or one that the parent lends it."""

    def __init__(self, spec: SourceSpec, snapshot: Snapshot | None) -> None:
        self._spec, self._snapshot = spec, snapshot
        self._loan: Loan | None = None
        self._session: Session | None = self._opened()

    def _opened(self) -> Session:
        if self._snapshot is None or self._snapshot.kind != KIND:
            return Session(self._spec)
        self._loan = Loan(self._spec, self._snapshot.value)
        return self._loan.session

    def batches(
        self, extract: Extract, piece: Piece, *, batch_bytes: int
    ) -> Iterator[pa.RecordBatch | LargeRow]:
        """Yield the piece's rows; a row that does not fit into `batch_bytes` alone."""
        sql = selector_statement(select_list(extract.projection.columns), extract, piece.selector)
        session = self._session = self._session or self._opened()
        last: bytes | None = None
        try:
            fill = session.begin_rows(sql)
            rows = RowReader(fill, read_schema(extract.projection.schema), batch_bytes)
            yield from rows.batches()
            last = rows.last
        except SourceError as error:
            if not error.retryable and session.is_idle:
                last = b""  # The server has refused the statement.
            raise
        finally:
            if last is None:
                # The rows that were not read are in the way of the next statement.
                self._release(is_clean=False)
        if last and session.checked_end(last):
            self._check_warnings(session, extract)

    def _check_warnings(self, session: Session, extract: Extract) -> None:
        found = session.rows("SHOW WARNINGS")
        for _, code, text in found:
            if code == CUT:
                raise SourceError(
                    f"the server has replaced a value by NULL: {text}",
                    "raise max_allowed_packet on the server, or leave the column out of --as-text",
                )
        grows = any("HEX(" in column.expression for column in extract.projection.columns)
        if grows and len(found) >= MOST_WARNINGS:
            raise SourceError(
                "the server has more warnings than it keeps, and one may be of a value that it "
                f"replaced by NULL; the first is: {found[0][2]}",
                "leave columns of bytes out of --as-text, or change what causes the warnings",
            )

    def _release(self, *, is_clean: bool) -> None:
        session, self._session = self._session, None
        if self._loan is not None:
            self._loan.end(is_clean=is_clean)
            self._loan = None
        elif session is not None:
            session.end()

    def close(self) -> None:
        self._release(is_clean=True)
