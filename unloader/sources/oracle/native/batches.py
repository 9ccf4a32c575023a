"""Batches of a statement's rows by the native fetch, its first rows compared with the driver's."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from unloader.sources.oracle.connection.drivers import driver_version, native_is_exact
from unloader.sources.oracle.native import library
from unloader.sources.oracle.native.columns import descriptions
from unloader.sources.oracle.native.decoder import NO_MORE_ROWS, Refused, RowDecoder
from unloader.sources.oracle.native.tap import Tap, Way, driver_socket
from unloader.sources.oracle.reading.tuples import CheckedText, Fetched, type_handler
from unloader.sources.readings import type_named

if TYPE_CHECKING:
    import oracledb

    from unloader.sources.oracle.native.library import Description
    from unloader.sources.oracle.reading.fetch import FetchPlan

logger = logging.getLogger(__name__)

Batches = Callable[["oracledb.Connection", str, "FetchPlan", int], Generator[Fetched, None, None]]

FIRST_ROWS = 32
"""Rows of each statement that the driver decodes, too. A guess: enough to show a column that is
taken for what it is not, and few enough to cost nothing beside a unit."""


PREFETCHED = 0
"""Rows that come with the response to an execute: they would pass by."""


class NotForNative(Exception):
    """A statement that the native fetch leaves to the driver; says why."""


def tap_on(connection: oracledb.Connection) -> Tap | str:
    """Return a tap on a connection, or why its rows cannot be fetched natively."""
    installed = driver_version()
    if not native_is_exact(installed):
        return f"python-oracledb {installed} was not tested with it"
    if not connection.thin:
        return "Oracle's client library fetches the rows (thick mode)"
    if (why := library.why_not()) is not None:
        return why
    tapped = driver_socket(connection)
    if tapped is None:
        return "the driver's connection does not use exactly one separate socket"
    return Tap(connection, tapped)


class NativeStatement:
    """One statement while its rows are fetched; a context manager.

    Args:
        tap: On a connection on which nothing else happens meanwhile.
        plan: What is fetched.
    """

    def __init__(self, tap: Tap, plan: FetchPlan) -> None:
        self._plan = plan
        self._kinds = [type_named(item.fetched) for item in plan.items]
        self._tap = tap
        self._cursor = tap.connection.cursor()
        self._decoder: RowDecoder | None = None

    def __enter__(self) -> NativeStatement:
        self._tap.__enter__()
        return self

    def __exit__(self, *failure: object) -> None:
        self._tap.__exit__(None, None, None)
        if self._tap.refusal is None:
            self._cursor.close()

    def execute(self, sql: str) -> None:
        """Execute the statement; no row is fetched yet.

        Raises:
            NotForNative: A column is not for the native fetch.
            oracledb.Error: The driver or the database failed.
        """
        cursor = self._cursor
        cursor.prefetchrows = PREFETCHED
        cursor.arraysize = FIRST_ROWS
        cursor.outputtypehandler = type_handler(self._plan.items)
        cursor.execute(sql)
        found: list[Description] | None = descriptions(cursor.description, self._plan.items)
        if found is None:
            raise NotForNative("some columns have types that it does not decode")
        self._decoder = RowDecoder(found)

    def compared(self, rows: int) -> tuple[list[pa.Array], bool]:
        """Fetch rows both ways and compare every cell.

        Args:
            rows: At most.

        Returns:
            The rows, and whether there may be more.

        Raises:
            Refused: A response is not read natively, or a cell differs.
            oracledb.Error: The driver or the database failed.
            ValueError: There is a date that the driver cannot make.
        """
        decoder = self._expect("copied", rows)
        with self._refusing():
            found = self._cursor.fetchmany(rows)
        progress = decoder.finish()
        arrays = decoder.take(self._kinds)
        theirs = zip(*found, strict=True) if found else ((),) * len(arrays)
        for index, (ours, values) in enumerate(zip(arrays, theirs, strict=True)):
            if not _is_equal(ours, values):
                raise Refused("the driver decodes the first rows to other values", index)
        return arrays, progress.error != NO_MORE_ROWS

    def taken(self, rows: int) -> tuple[list[pa.Array], bool]:
        """Fetch rows natively.

        Args:
            rows: At most.

        Returns:
            The rows, and whether there may be more.

        Raises:
            Refused: A response is not read natively.
            oracledb.Error: The driver or the database failed.
        """
        decoder = self._expect("taken", rows)
        with self._refusing():
            passed = self._cursor.fetchone()
        if passed is not None:
            raise Refused("the driver received a row")
        progress = decoder.finish()
        return decoder.take(self._kinds), progress.error != NO_MORE_ROWS

    def _expect(self, way: Way, rows: int) -> RowDecoder:
        assert self._decoder is not None
        self._decoder.begin(rows)
        self._tap.expect(self._decoder, way)
        self._cursor.arraysize = rows
        return self._decoder

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """Raise what the tap refused, whatever the driver made of that."""
        try:
            yield
        finally:
            if self._tap.refusal is not None:
                raise self._tap.refusal


def _is_equal(ours: pa.Array, theirs: Sequence[Any]) -> bool:
    """Tell whether the driver's values are ours; it has been asked for numbers as text."""
    kind = ours.type
    if pa.types.is_integer(kind):
        theirs = [None if value is None else int(value) for value in theirs]
    elif pa.types.is_decimal(kind):
        theirs = [None if value is None else Decimal(value) for value in theirs]
    try:
        return bool(ours.equals(pa.array(theirs, kind)))
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return False


def native_unless_left(tap: Tap, ordinary: Batches) -> Batches:
    """Return the native way, with the driver's for statements that are left to it."""

    def batches(
        connection: oracledb.Connection, sql: str, plan: FetchPlan, rows: int
    ) -> Generator[Fetched, None, None]:
        try:
            yield from native_batches(tap, sql, plan, rows)
        except NotForNative as error:
            logger.info("the driver fetches the rows: %s", error)
            yield from ordinary(connection, sql, plan, rows)

    return batches


def native_batches(
    tap: Tap, sql: str, plan: FetchPlan, rows: int
) -> Generator[Fetched, None, None]:
    """Yield what a statement fetches, `rows` rows at a time after the first few.

    Raises:
        NotForNative: A column is not for the native fetch; before the first row.
        Refused: A response is not read natively; what was yielded must not be used, and nothing
            else may be done on the connection.
        oracledb.Error: The driver or the database failed.
        ValueError: There is a date that the driver cannot make.
    """
    with NativeStatement(tap, plan) as statement:
        statement.execute(sql)
        arrays, more = statement.compared(min(rows, FIRST_ROWS))
        # The decoder refuses a response with text that is not UTF-8.
        if len(arrays[0]):
            yield CheckedText(arrays)
        while more:
            arrays, more = statement.taken(rows)
            if len(arrays[0]):
                yield CheckedText(arrays)
