"""Values of bind variables as clients send them, back into Python values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oracle_server.model import OracleError
from oracle_server.wire.values.numbers import decode_double, decode_number
from oracle_server.wire.values.temporal import decode_day_second, decode_moment, decode_year_month


def _utf8(data: bytes) -> str:
    return data.decode()


def _utf16(data: bytes) -> str:
    return data.decode("utf-16-be")


_TEXT = frozenset({1, 8, 96, 11, 208})
"""VARCHAR2, LONG, CHAR; ROWID and UROWID arrive as their text."""
_DECODERS: dict[int, Callable[[bytes], Any]] = {
    2: decode_number,
    3: decode_number,
    12: decode_moment,
    23: bytes,
    24: bytes,
    100: decode_double,
    101: decode_double,
    180: decode_moment,
    181: decode_moment,
    182: decode_year_month,
    183: decode_day_second,
    231: decode_moment,
    252: lambda data: data[0] == 1,
}


def decode_bind(content: bytes | None, type_number: int, charset_form: int = 1) -> Any:
    """Return the Python value of a bind's bytes.

    Args:
        content: Without their length; None is NULL.
        type_number: Of the bind's descriptor.
        charset_form: Of the descriptor; 2 is text in UTF-16.

    Returns:
        None, str, int, Decimal, float, bool, bytes, Moment, YearMonth or DaySecond.

    Raises:
        OracleError: ORA-00932, a type no statement here takes as a bind.
    """
    if content is None:
        return None
    if type_number in _TEXT:
        return _utf16(content) if charset_form == 2 else _utf8(content)
    decode = _DECODERS.get(type_number)
    if decode is None:
        raise OracleError(932, f"inconsistent data types: bind of type {type_number}")
    return decode(content)
