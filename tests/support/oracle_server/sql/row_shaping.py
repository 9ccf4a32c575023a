"""From a scan's rows to a result's: projections, filters, order, aggregates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cmp_to_key
from operator import itemgetter
from typing import Any

from oracle_server.data.tables import Row
from oracle_server.model import OracleError
from oracle_server.sql.expressions.compiling import comparable
from oracle_server.sql.expressions.evaluation import Compiled, Environment
from oracle_server.sql.syntax import Call

_UNORDERED = {"CLOB", "NCLOB", "BLOB", "LONG", "LONG RAW", "JSON", "XMLTYPE", "VECTOR"}


def aggregated(rows: list[Row], calls: list[Call], inner: list[Compiled | None]) -> Row:
    """Return the one row of a query of aggregates alone."""
    found: list[Any] = []
    for call, one in zip(calls, inner, strict=True):
        if one is None:
            found.append(len(rows))
            continue
        values = [value for row in rows if (value := one.value(row)) is not None]
        if call.name == "COUNT":
            found.append(len(values))
        elif call.name == "SUM":
            found.append(sum(values) if values else None)
        else:
            side, _ = comparable(one, one, Environment())
            best = min if call.name == "MIN" else max
            rows_kept = [row for row in rows if one.value(row) is not None]
            found.append(one.value(best(rows_kept, key=side)) if rows_kept else None)
    return tuple(found)


def projection(values: list[Compiled], width: int) -> Callable[[Iterable[Row]], Iterable[Row]]:
    """Return what makes result rows of a scan's rows."""
    functions = [one.value for one in values]
    places = [one.column for one in values]
    if places == list(range(width)):
        return lambda rows: rows
    if len(places) > 1 and None not in places:
        return lambda rows: map(itemgetter(*places), rows)

    def project(rows: Iterable[Row]) -> Iterator[Row]:
        try:
            for row in rows:
                yield tuple([function(row) for function in functions])
        except (ValueError, TypeError, ArithmeticError) as error:
            raise OracleError(1722, f"invalid number ({error})") from error

    return project


def kept(rows: Iterable[Row], condition: Compiled) -> Iterator[Row]:
    """Yield the rows for which a condition is true."""
    test = condition.value
    if condition.constant:
        # `WHERE 1 = 0` reads nothing of a large table.
        return iter(rows) if condition.now() else iter(())
    return (row for row in rows if test(row))


def first_rows(rows: Iterable[Row], limit: int) -> Iterator[Row]:
    """Yield no more than so many rows, and ask for no more."""
    left = limit
    for row in rows if limit else ():
        yield row
        left -= 1
        if not left:
            return


def in_order(
    rows: Iterable[Row], order: list[tuple[Compiled, bool]], environment: Environment
) -> list[Row]:
    """Return rows in order; NULL is the greatest, text goes by its code points."""
    sides = []
    for one, descending in order:
        if one.type.name in _UNORDERED:
            raise OracleError(932, f"inconsistent datatypes: expected - got {one.type.name}")
        sides.append((comparable(one, one, environment)[0], descending))

    def compare(a: Row, b: Row) -> int:
        for side, descending in sides:
            x, y = side(a), side(b)
            if x == y:
                continue
            less = False if x is None else True if y is None else x < y
            return -1 if less != descending else 1
        return 0

    return sorted(rows, key=cmp_to_key(compare))
