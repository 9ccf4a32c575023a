"""A worker's side of an Oracle database: one unit at a time into batches of the projection.

The driver makes Arrow batches of most rows. It cannot make dates before the year 1, or days that
only the Julian calendar has; a unit with such a value is read once more, with dates as text.

A LOB that is not fetched with its row is found again by ROWID or locator and read in pieces. Its
row is yielded separately. The writer reads the LOB on the reader's connection, at the snapshot of
the run; the driver makes the two threads take turns.

Oracle counts a CLOB in UTF-16 units, so a character beyond the first 65,536 has two. The driver
cannot make text of one half: such a piece is read once more with one unit less.
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
from unloader.sources.base import ReadAgain
from unloader.sources.base import batch_rows as usual_rows
from unloader.sources.oracle.connection.connect import parse_location
from unloader.sources.oracle.connection.session import MAX_ACTION_BYTES, Session
from unloader.sources.oracle.native.batches import Batches, Tap, native_unless_left, tap_on
from unloader.sources.oracle.native.confirming import confirmed_sorts, peers_of
from unloader.sources.oracle.native.decoder import Refused, library, may_be_native, sorts_of
from unloader.sources.oracle.reading.arrow import (
    BatchMaker,
    Fetched,
    NumberRefused,
    arrow_batches,
    as_stored,
    bad_text,
    tuple_batches,
)
from unloader.sources.oracle.reading.fetch import FetchPlan, batch_rows, fetch_plan, ordinary_fetch
from unloader.sources.oracle.reading.units import relation, selector_statement
from unloader.sources.statement import quoted
from writers.large_rows import LargeRow, LargeValue
from writers.schema import read_schema

if TYPE_CHECKING:
    import oracledb

    from unloader.sources.oracle.connection.session import Session
    from unloader.sources.oracle.reading.fetch import FetchPlan
    from writers.large_rows import LargeRow


logger = logging.getLogger(__name__)


class _Planned(Struct, frozen=True, kw_only=True):
    """What all units of one extract have in common."""

    extract: Extract
    moments_as_text: bool
    batch_bytes: int
    schema: pa.Schema
    plan: FetchPlan
    rows: int
    """Of one batch."""


def _planned(extract: Extract, batch_bytes: int, *, moments_as_text: bool) -> _Planned:
    schema = read_schema(extract.projection.schema)
    plan = fetch_plan(extract, moments_as_text=moments_as_text)
    return _Planned(
        extract=extract,
        moments_as_text=moments_as_text,
        batch_bytes=batch_bytes,
        schema=schema,
        plan=plan,
        rows=batch_rows(plan, usual_rows(schema, batch_bytes), batch_bytes),
    )


class OracleReader:
    """A worker's session; units are read at the snapshot that their extract names."""

    def __init__(self, spec: SourceSpec, snapshot: Snapshot | None) -> None:
        """Connect.

        Args:
            snapshot: The run's; each statement names it, so there is nothing to enter.
        """
        self._connect: Callable[[], Session] = lambda: Session(spec, action="worker")
        self._session = self._connect()
        self._route = Route(spec)
        self._moments_as_text = False
        self._stale = False
        """The driver stopped within a response. Closing is delayed, as a LOB may be in use."""
        self._last: _Planned | None = None

    def batches(
        self, extract: Extract, piece: Piece, *, batch_bytes: int
    ) -> Iterator[pa.RecordBatch | LargeRow]:
        """Yield the piece's rows; `ReadAgain` where the driver cannot make a date."""
        planned = self._planned(extract, batch_bytes)
        schema, plan = planned.schema, planned.plan
        session = self._connected()
        session.act(_action(extract, piece))
        finder = LobFinder(
            session=session, plan=plan, relation=relation(extract, piece.selector), schema=schema
        )
        maker = BatchMaker(plan=plan, schema=schema)
        for fetched in self._fetched(planned, piece):
            batch = maker.batch(fetched)
            if not plan.has_lobs:
                yield batch
            else:
                yield from finder.rows(batch, fetched)

    def close(self) -> None:
        self._session.close()

    def _connected(self) -> Session:
        if self._stale or not self._session.alive:
            self._session.close()
            self._session = self._connect()
            self._stale = False
        return self._session

    def _planned(self, extract: Extract, batch_bytes: int) -> _Planned:
        last = self._last
        # Tasks of one run hold one extract, see `Extract.__reduce__`.
        if (
            last is None
            or last.extract is not extract
            or last.batch_bytes != batch_bytes
            or last.moments_as_text is not self._moments_as_text
        ):
            last = _planned(extract, batch_bytes, moments_as_text=self._moments_as_text)
            self._last = last
        return last

    def _fetched(self, planned: _Planned, piece: Piece) -> Iterator[Fetched]:
        extract, plan = planned.extract, planned.plan
        sql = selector_statement(plan.select_list, extract, piece.selector)
        fetch = self._route.batches(plan, self._session)
        source = fetch(self._session.connection, sql, plan, planned.rows)
        with closing(source):
            while True:
                with self._translating(plan, extract, piece):
                    fetched = next(source, None)
                if fetched is None:
                    return
                yield fetched

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
                self._route.leave(f"{piece.unit}: {_told(refusal, plan)}")
            raise ReadAgain from refusal
        except UnicodeDecodeError as error:
            self._stale = True
            raise _undecodable(plan, error) from error
        except NumberRefused as error:
            raise self._misfit(error, plan, extract, piece) from error
        except (ValueError, OverflowError) as error:
            # The driver's own dates end at the year 1, and know no day of the Julian calendar.
            self._stale = True
            if not plan.sees_moments:
                raise SourceError(f"the driver cannot convert a value: {error}") from error
            logger.info("%s: %s; dates are read as text", piece.unit, error)
            self._moments_as_text = True
            raise ReadAgain from error

    def _misfit(
        self, error: NumberRefused, plan: FetchPlan, extract: Extract, piece: Piece
    ) -> OutputFailed:
        names = [
            plan.columns[item.column].name
            for item in plan.items
            if item.fetched == f"decimal128({error.digits[0]}, {error.digits[1]})"
        ]
        where, column = "", " or ".join(names)
        for name in names:
            with suppress(UnloaderError):
                rowid = self._row_with(name, error.value, extract, piece)
                if rowid is not None:
                    where, column = f" in the row with ROWID {rowid}", name
                    break
        return OutputFailed(
            f"column {column} holds {error.value}{where}, which does not fit "
            f"decimal({error.digits[0]},{error.digits[1]})",
            f"write the column as exact text with --as-text {column}; for a NUMBER without "
            "precision, --number-without-precision string has the same effect",
        )

    def _row_with(self, name: str, value: str, extract: Extract, piece: Piece) -> str | None:
        alone = f"{quoted(name)} = {value}"
        where = f"({extract.where}\n) AND {alone}" if extract.where else alone
        sql = selector_statement(
            "ROWIDTOCHAR(ROWID)", replace(extract, where=where, limit_rows=None), piece.selector
        )
        self._stale = True
        found = self._connected().value(sql)
        return None if found is None else str(found)


def _action(extract: Extract, piece: Piece) -> str:
    """Return `TABLE.UNIT`; a long name of a table is cut, a unit's never."""
    room = MAX_ACTION_BYTES - len(piece.unit) - 1
    return extract.table.name.encode()[:room].decode(errors="ignore") + "." + piece.unit


def _told(refusal: Refused, plan: FetchPlan) -> str:
    if refusal.column < 0:
        return refusal.reason
    return f"{refusal.reason} (column {plan.columns[plan.items[refusal.column].column].name})"


def _undecodable(plan: FetchPlan, error: UnicodeDecodeError) -> OutputFailed:
    """Return the error for text that the driver cannot decode; the driver names no column."""
    names = [
        plan.columns[item.column].name
        for item in plan.items
        if item.part == "value" and item.fetched == "string"
    ]
    return bad_text(" or ".join(names), bytes(error.object))


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
    """The table or query that the unit reads, at the snapshot."""
    schema: pa.Schema

    def rows(
        self, batch: pa.RecordBatch, fetched: Sequence[Any]
    ) -> Iterator[pa.RecordBatch | LargeRow]:
        """Yield the rows of a batch in order; each row with large values is a `LargeRow`."""
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
        read = self.plan.columns[column]
        return StoredLob(
            session=self.session,
            column=read.name,
            source_type=read.source_type,
            hexed=read.source_type == "BLOB" and pa.types.is_string(self.schema.field(column).type),
            place=place,
            sql=f"SELECT {read.expression} FROM {self.relation} WHERE ROWID = CHARTOROWID(:1)",
        )


class Route:
    """Decides for each statement; what failed natively once is left to the driver from then on."""

    def __init__(self, spec: SourceSpec) -> None:
        self._spec = spec
        self._left: str | None = None
        """Why nothing is fetched natively any more."""
        self._confirmed: frozenset[str] | None = None
        self._tap: Tap | None = None

    def batches(self, plan: FetchPlan, session: Session) -> Batches:
        """Return how the rows of a plan come over a session.

        Raises:
            ConfigError: The native fetch was asked for, and cannot be used on this machine.
        """
        way = ordinary_fetch() if plan.fetched_as == "native" else plan.fetched_as
        ordinary = arrow_batches if way == "arrow" else tuple_batches
        if not self._may_be_native(plan, session):
            return ordinary
        tap = self._tap_on(session)
        return ordinary if tap is None else native_unless_left(tap, ordinary)

    def leave(self, reason: str) -> None:
        self._left = reason
        logger.warning("the driver fetches the rows from here on: %s", reason)

    def _may_be_native(self, plan: FetchPlan, session: Session) -> bool:
        asked = self._spec.session.fetch
        if asked not in ("auto", "native") or self._left is not None or not may_be_native(plan):
            return False
        return asked == "native" or set(sorts_of(plan)) <= self._confirmed_sorts(session)

    def _tap_on(self, session: Session) -> Tap | None:
        """Return a tap on the session's connection, None where there can be none."""
        connection = session.connection
        if self._tap is not None and self._tap.connection is connection:
            return self._tap
        if self._spec.session.fetch == "native":
            library()
        if parse_location(self._spec.location).pooled:
            found: Tap | str = "the server pools connections (DRCP)"
        else:
            found = tap_on(connection)
        if isinstance(found, str):
            self._left = found
            logger.info("the driver fetches the rows: %s", found)
            return None
        self._tap = found
        return found

    def _confirmed_sorts(self, session: Session) -> frozenset[str]:
        if self._confirmed is None:
            self._confirmed = confirmed_sorts(peers_of(self._spec, session))
        return self._confirmed
