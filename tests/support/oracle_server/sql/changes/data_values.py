"""Values as statements that change tables write them, made into what a column holds.

Beside the expressions that queries have, these are the constructors of types that have no literal:
intervals, XML, JSON, vectors, and numbers given as their bytes.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from oracle_server.model import Column, DaySecond, OracleError, Rowid, Type, YearMonth
from oracle_server.sql.expressions import conversions
from oracle_server.sql.expressions.compiling import compiled
from oracle_server.sql.expressions.evaluation import Environment
from oracle_server.sql.syntax import Call
from oracle_server.wire.values.numbers import decode_number

_CONVERTED = ("NUMBER", "FLOAT", "DATE", "TIMESTAMP")
_TEXTS = ("VARCHAR2", "NVARCHAR2", "CHAR", "NCHAR")
_YEARS = re.compile(r"\s*([-+]?)(\d{1,9})-(\d{1,2})\s*")
_DAYS = re.compile(r"\s*([-+]?)(\d{1,9}) (\d{1,2}):(\d\d):(\d\d)(?:\.(\d{1,9}))?\s*")


def _year_month(text: str) -> YearMonth:
    found = _YEARS.fullmatch(text)
    if found is None or int(found[3]) > 11:
        raise OracleError(1867, "the interval is invalid")
    months = int(found[2]) * 12 + int(found[3])
    return YearMonth(-months if found[1] == "-" else months)


def _day_second(text: str) -> DaySecond:
    found = _DAYS.fullmatch(text)
    if found is None:
        raise OracleError(1867, "the interval is invalid")
    days, hours, minutes, seconds = (int(part) for part in found.group(2, 3, 4, 5))
    whole = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    nanos = whole * 10**9 + int((found[6] or "").ljust(9, "0"))
    return DaySecond(-nanos if found[1] == "-" else nanos)


def _vector(text: str) -> tuple[Any, ...]:
    return tuple(json.loads(text))


def _json(text: str) -> Any:
    return json.loads(text, parse_float=Decimal)


def _binary(code: str) -> Callable[[bytes], float]:
    return lambda data: float(struct.unpack(code, data)[0])


_MAKERS: dict[str, Callable[..., Any]] = {
    "TO_YMINTERVAL": _year_month,
    "TO_DSINTERVAL": _day_second,
    "TO_VECTOR": _vector,
    "JSON": _json,
    "XMLTYPE": str,
    "UTL_RAW.CAST_TO_NUMBER": decode_number,
    "UTL_RAW.CAST_TO_BINARY_FLOAT": _binary(">f"),
    "UTL_RAW.CAST_TO_BINARY_DOUBLE": _binary(">d"),
}
"""What makes a value of its first argument, which is no expression of queries here."""
_EMPTY: dict[str, Any] = {"EMPTY_CLOB": "", "EMPTY_BLOB": b""}


def evaluated(
    expression: Any, column: Column, environment: Environment, row: Sequence[Any] = ()
) -> Any:
    """Return what a column holds after an expression was assigned to it.

    Args:
        expression: As the parser gave it.
        column: Where the value goes.
        environment: Of the statement.
        row: The row the expression may speak of, its address behind it.

    Raises:
        OracleError: The value does not fit, or the expression is wrong.
    """
    name = expression.name if isinstance(expression, Call) else ""
    if name in _EMPTY:
        return _EMPTY[name]
    if name in _MAKERS:
        inner = compiled(expression.arguments[0], environment).value(row)
        return None if inner is None else _MAKERS[name](inner)
    one = compiled(expression, environment)
    return _stored(one.value(row), one.type, column, environment.settings)


def _stored(value: Any, source: Type, column: Column, settings: dict[str, str]) -> Any:
    kind = column.type
    if value is None:
        return None
    if kind.name.startswith(_CONVERTED):
        return conversions.cast(value, source, kind, settings)
    if kind.name in _TEXTS:
        text = conversions.text_of(value, source, settings) or ""
        used = len(text) if kind.in_chars or kind.name[0] == "N" else len(text.encode())
        if used > (kind.length or 0):
            raise OracleError(12899, f'value too large for column "{column.name}" (actual: {used})')
        return text
    if kind.name == "UROWID" and isinstance(value, str) and not value.startswith("*"):
        return Rowid.parse(value)
    if kind.name in ("RAW", "BLOB", "LONG RAW") and isinstance(value, str):
        return bytes.fromhex(value)
    if kind.name in ("BINARY_FLOAT", "BINARY_DOUBLE"):
        return float(value)
    return value
