"""A worker's side of an Oracle database: one unit at a time into batches of the projection.

The driver cannot make dates before the year 1, or days that only the Julian calendar has; a unit
with such a value is read once more, with dates as text.

A LOB that is not fetched with its row is found again by ROWID or locator. Its row is yielded
separately. The writer reads the LOB in pieces on the reader's connection, at the snapshot of the
run; the driver makes the two threads take turns. Oracle counts a CLOB in UTF-16 units, and the
driver cannot make text of half a character: such a piece is read once more with one unit less.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from partition_planner.model import Piece
from unloader.errors import OutputFailed, SourceError, UnloaderError
from unloader.model import Extract, Snapshot, SourceSpec
from unloader.sources.base import ReadAgain, Reader
from unloader.sources.base import batch_rows as usual_rows
from unloader.sources.oracle import arrow
from unloader.sources.oracle.native.batches import (
    WITNESSED_ROWS,
    Tap,
    Witness,
    native_batches,
    tap_on,
)
from unloader.sources.oracle.native.decoder import Refused, check_library, may_be_native
from unloader.sources.oracle.session import MAX_ACTION_BYTES, Session, parse_location
from unloader.sources.oracle.statement import (
    FetchPlan,
    batch_rows,
    fetch_plan,
    ordinary_fetch,
    relation,
    selector_statement,
)
from unloader.sources.statement import quoted
from writers.large_rows import LargeRow, LargeValue
from writers.schema import read_schema

if TYPE_CHECKING:
    import oracledb


logger = logging.getLogger(__name__)


class OracleReader(Reader):
    """A worker's session; units are read at the snapshot that their extract names."""

    def __init__(self, spec: SourceSpec, snapshot: Snapshot | None) -> None:
        """Connect; each statement names the snapshot, so there is nothing to enter."""
        self._connect: Callable[[], Session] = lambda: Session(spec, action="worker")
        self._session = self._connect()
        self._spec = spec
        self._left: str | None = None
        """Why nothing is fetched natively any more."""
        self._refusal = ""
        """Why the native fetch was given up in this unit."""
        self._witness = self._new_witness()
        """Of the last extract."""
        self._tap: Tap | None = None
        self._moments_as_text = False
        self._stale = False
        """The driver stopped within a response. Closing is delayed, as a LOB may be in use."""
        self._planned: tuple[Any, ...] = ()
        """The last extract, batch size and way of reading dates, and what follows from them."""

    def batches(
        self, extract: Extract, piece: Piece, *, batch_bytes: int
    ) -> Iterator[pa.RecordBatch | LargeRow]:
        """Yield the piece's rows; `ReadAgain` where the driver cannot make a date."""
        asked = (batch_bytes, self._moments_as_text)
        # Tasks of one run hold one extract, see `Extract.__reduce__`.
        if not self._planned or self._planned[0] is not extract or self._planned[1] != asked:
            schema = read_schema(extract.projection.schema)
            plan = fetch_plan(extract, moments_as_text=self._moments_as_text)
            rows = batch_rows(plan, usual_rows(schema, batch_bytes), batch_bytes)
            if self._planned and self._planned[0] is not extract:
                self._witness = self._new_witness()
            self._planned = (extract, asked, schema, plan, rows)
        schema, plan, rows = self._planned[2:]
        session = self._connected()
        # A long name of a table is cut, a unit's never.
        room = MAX_ACTION_BYTES - len(piece.unit) - 1
        name = extract.table.name.encode()[:room].decode(errors="ignore")
        session.act(f"{name}.{piece.unit}")
        read_from = relation(extract, piece.selector)
        sql = selector_statement(plan.select_list, extract, piece.selector)
        way = ordinary_fetch() if plan.fetched_as == "native" else plan.fetched_as
        ordinary = arrow.arrow_batches if way == "arrow" else arrow.tuple_batches
        if self._is_native(plan, session) and self._tap is not None:
            source = native_batches(self._tap, sql, plan, rows, self._witness, ordinary)
        else:
            source = ordinary(session.connection, sql, plan, rows)
        with closing(source):
            while True:
                with self._translating(plan, extract, piece):
                    fetched = next(source, None)
                if fetched is None:
                    return
                batch = arrow.batch_of(plan, schema, fetched)
                if not any(item.part == "length" for item in plan.items):
                    yield batch
                else:
                    yield from _large_rows(batch, fetched, plan, session, read_from)

    def witnessed(self) -> tuple[int, str]:
        rows, refusal = self._witness.take(), self._refusal
        self._refusal = ""
        return rows, refusal

    def close(self) -> None:
        self._session.close()

    def _new_witness(self) -> Witness:
        session = self._spec.session
        auto = session.fetch == "auto"
        return Witness(WITNESSED_ROWS if auto else 0, session.fetch_witness if auto else 0)

    def _connected(self) -> Session:
        if self._stale or not self._session.alive:
            self._session.close()
            self._session = self._connect()
            self._stale = False
        return self._session

    def _is_native(self, plan: FetchPlan, session: Session) -> bool:
        """Return whether the rows of a plan are taken by the tap on a session.

        What failed natively once is left to the driver from then on. `ConfigError` where the native
        fetch was asked for, and its library is not usable.
        """
        asked = self._spec.session.fetch
        if asked not in ("auto", "native") or self._left is not None or not may_be_native(plan):
            return False
        if self._tap is None or self._tap.connection is not session.connection:
            if asked == "native":
                check_library()
            found: Tap | str = "the server pools connections (DRCP)"
            if not parse_location(self._spec.location).pooled:
                found = tap_on(session.connection)
            if isinstance(found, str):
                self._left = found
                logger.info("the driver fetches the rows: %s", found)
                return False
            self._tap = found
        return True

    @contextmanager
    def _translating(self, plan: FetchPlan, extract: Extract, piece: Piece) -> Iterator[None]:
        try:
            with self._session.translating():
                yield
        except Refused as refusal:
            # Part of the answer is gone, and with it this session's place in it.
            self._stale = True
            if refusal.is_moment:
                logger.info("%s: %s; dates are read as text", piece.unit, refusal)
                self._moments_as_text = True
            else:
                at = refusal.column
                name = plan.columns[plan.items[at].column].name if at >= 0 else ""
                column = f" (column {name})" if name else ""
                self._left = self._refusal = f"{refusal.reason}{column}"
                logger.info("%s: the driver fetches the rows: %s", piece.unit, self._left)
            self._witness.take()
            raise ReadAgain from refusal
        except UnicodeDecodeError as error:
            self._stale = True
            # The driver names no column.
            names = [
                plan.columns[item.column].name
                for item in plan.items
                if item.part == "value" and item.fetched == "string"
            ]
            raise arrow.bad_text(" or ".join(names), bytes(error.object)) from error
        except arrow.NumberRefused as error:
            precision, scale = error.digits
            kind = f"decimal128({precision}, {scale})"
            names = [plan.columns[each.column].name for each in plan.items if each.fetched == kind]
            where, column = "", " or ".join(names)
            for name in names:
                # The row is searched for, with the column whose value it is.
                with suppress(UnloaderError):
                    alone = f"{quoted(name)} = {error.value}"
                    asked = f"({extract.where}\n) AND {alone}" if extract.where else alone
                    same = replace(extract, where=asked, limit_rows=None)
                    self._stale = True
                    rowid = self._connected().value(
                        selector_statement("ROWIDTOCHAR(ROWID)", same, piece.selector)
                    )
                    if rowid is not None:
                        where, column = f" in the row with ROWID {rowid}", name
                        break
            raise OutputFailed(
                f"column {column} holds {error.value}{where}, which does not fit "
                f"decimal({precision},{scale})",
                f"write the column as exact text with --as-text {column}; for a NUMBER without "
                "precision, --number-without-precision string has the same effect",
            ) from error
        except (ValueError, OverflowError) as error:
            # The driver's own dates end at the year 1, and know no day of the Julian calendar.
            self._stale = True
            if not plan.sees_moments:
                raise SourceError(f"the driver cannot convert a value: {error}") from error
            logger.info("%s: %s; dates are read as text", piece.unit, error)
            self._moments_as_text = True
            raise ReadAgain from error


PIECE_UNITS = 512 * 1024


class StoredLob(Struct, frozen=True, kw_only=True):
    session: Session
    column: str
    source_type: str
    hexed: bool
    place: str | oracledb.LOB
    """ROWID of its row, or its locator."""
    sql: str = ""

    @property
    def binary(self) -> bool:
        return self.source_type == "BLOB" and not self.hexed

    def pieces(self) -> Iterator[Any]:
        """Read the LOB; `SourceError` without its row, `OutputFailed` for half a character."""
        lob: Any = self.place
        if isinstance(lob, str):
            with self.session.translating(), self.session.cursor() as cursor:
                cursor.outputtypehandler = arrow.as_stored
                row = cursor.execute(self.sql, [lob]).fetchone()
            if row is None or row[0] is None:
                raise SourceError(
                    f"column {self.column}: the row {lob} was deleted before its LOB was read",
                    "run again; without a snapshot rows can change while a run reads them",
                )
            lob = row[0]
        with self.session.translating():
            size = lob.size()
        start = 0
        while start < size:
            piece = self._read(lob, start, min(PIECE_UNITS, size - start))
            start += _units(piece)
            yield piece.hex() if self.hexed and isinstance(piece, bytes) else piece

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


def _large_rows(
    batch: pa.RecordBatch, fetched: Sequence[Any], plan: FetchPlan, session: Session, read_from: str
) -> Iterator[pa.RecordBatch | LargeRow]:
    """Yield the rows of a batch in order; each row with large values is a `LargeRow`.

    `session` reads the values from `read_from`, the table or query of the unit at the snapshot.
    """
    large: dict[int, list[tuple[int, LargeValue]]] = {}
    for item, values in zip(plan.items, fetched, strict=True):
        if item.part not in ("rowid", "locator"):
            continue
        read, kind = plan.columns[item.column], batch.schema.field(item.column).type
        for row, place in enumerate(values if isinstance(values, list) else values.to_pylist()):
            if place is not None:
                value = StoredLob(
                    session=session,
                    column=read.name,
                    source_type=read.source_type,
                    hexed=read.source_type == "BLOB" and pa.types.is_string(kind),
                    place=place,
                    sql=f"SELECT {read.expression} FROM {read_from} WHERE ROWID = CHARTOROWID(:1)",
                )
                large.setdefault(row, []).append((item.column, value))
    start = 0
    for row in sorted(large):
        if row > start:
            yield batch.slice(start, row - start)
        yield LargeRow(row=batch.slice(row, 1), values=tuple(large[row]))
        start = row + 1
    if start < batch.num_rows:
        yield batch.slice(start)
