"""Rows of Python values, as the driver makes them without Arrow, turned into Arrow arrays.

Slower than the driver's own batches, so for what those cannot give: LOBs of rows without ROWID,
and versions of the driver whose batches are not exact. Values take another way through the driver,
which makes the two a check on each other.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from unloader.sources.readings import type_named

if TYPE_CHECKING:
    import oracledb

    from unloader.sources.oracle.reading.fetch import FetchPlan, Item

Fetched = Sequence[Any]
"""One Arrow array for each item; of LOB locators a list."""


class CheckedText(list[Any]):
    """`Fetched` by somebody who has made sure already that all text is UTF-8."""


_EXACT = Context(prec=300)
"""More digits than a NUMBER has, written out."""


class NumberRefused(Exception):
    """A number that does not fit the decimal it was to become."""

    def __init__(self, value: str, precision: int, scale: int) -> None:
        super().__init__(value)
        self.value = value
        self.digits = (precision, scale)


def tuple_batches(
    connection: oracledb.Connection, sql: str, plan: FetchPlan, rows: int
) -> Generator[Fetched, None, None]:
    """Yield what a statement fetches, `rows` rows at a time.

    Raises:
        NumberRefused: A number does not fit.
        oracledb.Error: The driver or the database failed.
    """
    kinds = [type_named(item.fetched) for item in plan.items]
    with connection.cursor() as cursor:
        cursor.arraysize = cursor.prefetchrows = rows
        cursor.outputtypehandler = type_handler(plan.items)
        cursor.execute(sql)
        while found := cursor.fetchmany(rows):
            yield [
                list(values) if item.part == "locator" else _array(values, kind)
                for item, kind, values in zip(
                    plan.items, kinds, zip(*found, strict=True), strict=True
                )
            ]


def type_handler(items: Sequence[Item]) -> Callable[..., Any]:
    """Return what the driver asks, column by column, for the form of its values."""
    import oracledb

    whole = {
        oracledb.DB_TYPE_CLOB: oracledb.DB_TYPE_LONG,
        oracledb.DB_TYPE_NCLOB: oracledb.DB_TYPE_LONG_NVARCHAR,
        oracledb.DB_TYPE_BLOB: oracledb.DB_TYPE_LONG_RAW,
    }
    position = -1

    def handler(cursor: oracledb.Cursor, metadata: oracledb.FetchInfo) -> Any:
        nonlocal position
        position = (position + 1) % len(items)
        if metadata.type_code is oracledb.DB_TYPE_NUMBER:
            return cursor.var(oracledb.DB_TYPE_VARCHAR, arraysize=cursor.arraysize)
        if items[position].part == "value" and metadata.type_code in whole:
            return cursor.var(whole[metadata.type_code], arraysize=cursor.arraysize)
        return as_stored(cursor, metadata)

    return handler


def as_stored(cursor: oracledb.Cursor, metadata: oracledb.FetchInfo) -> Any:
    """Have the driver leave text and LOBs that are checked to be JSON as they are.

    Without this it makes dictionaries of them.
    """
    if not metadata.is_json or metadata.type_code.name == "DB_TYPE_JSON":
        return None
    size = metadata.internal_size or 0
    return cursor.var(metadata.type_code, size=size, arraysize=cursor.arraysize)


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if not any(isinstance(value, str) for value in values) or pa.types.is_string(kind):
        return pa.array(values, kind)
    texts = pa.array(values, pa.string())
    if not pa.types.is_decimal(kind):
        return texts.cast(kind)
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid as error:
        misfit = next(value for value in values if not _fits(value, kind))
        raise NumberRefused(misfit, kind.precision, kind.scale) from error


def _fits(value: str | None, kind: pa.Decimal128Type) -> bool:
    if value is None:
        return True
    number = Decimal(value).normalize(_EXACT).as_tuple()
    exponent = int(number.exponent)
    whole = len(number.digits) + exponent
    return bool(-exponent <= kind.scale and whole <= kind.precision - kind.scale)
