"""What a value of the test server must become, worked out from the value itself.

Nothing here knows the unloader, the driver or the wire: fields of moments become ticks by Python's
calendar and the 400 years after which it repeats, zones by `zoneinfo`.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
from oracle_server.model import Column, DaySecond, Moment, Type, YearMonth

_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097
_EPOCH = date(1970, 1, 1)
_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def day_number(year: int, month: int, day: int) -> int:
    """Return days since 1970-01-01; years as Oracle counts them, -1 being 1 BC."""
    astronomical = year + 1 if year < 0 else year
    cycles = 12 if astronomical < 1 else 0
    later = date(astronomical + cycles * _CYCLE_YEARS, month, day)
    return (later - _EPOCH).days - cycles * _CYCLE_DAYS


def offset_seconds(moment: Moment) -> int:
    """Return how far the zone of a moment is ahead of UTC."""
    zone = moment.zone
    if zone is None:
        return 0
    if zone[0] in "+-":
        hours, minutes = zone[1:].split(":")
        size = int(hours) * 3600 + int(minutes) * 60
        return -size if zone[0] == "-" else size
    # A region's oldest offset may have seconds, which Oracle has not; the tests use later years.
    # Of an hour that clocks show twice Oracle means the second, in standard time.
    local = datetime(*moment[:6], tzinfo=ZoneInfo(zone), fold=1)
    offset = local.utcoffset()
    assert offset is not None
    return int(offset / timedelta(seconds=1))


def ticks(moment: Moment, unit: str) -> int:
    """Return a moment as Arrow counts it, zoned ones in UTC."""
    clock = (moment.hour * 60 + moment.minute) * 60 + moment.second
    seconds = day_number(moment.year, moment.month, moment.day) * 86400 + clock
    whole = (seconds - offset_seconds(moment)) * _UNITS[unit]
    fraction, rest = divmod(moment.nanos, 10**9 // _UNITS[unit])
    assert rest == 0, "the type has too few digits for the test's value"
    return whole + fraction


def moment_text(moment: Moment, *, suffix: str = "") -> str:
    """Return the one text of a moment: a minus before Christ, no zeros behind the fraction."""
    sign = "-" if moment.year < 0 else ""
    fraction = f".{moment.nanos:09d}".rstrip("0").rstrip(".")
    text = f"{sign}{abs(moment.year):04d}-{moment.month:02d}-{moment.day:02d}"
    text += f" {moment.hour:02d}:{moment.minute:02d}:{moment.second:02d}{fraction}"
    if moment.zone is not None:
        offset = offset_seconds(moment)
        size = abs(offset) // 60
        text += f" {'-' if offset < 0 else '+'}{size // 60:02d}:{size % 60:02d}"
        text += "" if moment.zone[0] in "+-" else f"[{moment.zone}]"
    return text + suffix


def plain(array: pa.Array) -> list[Any]:
    """Return Arrow values as Python ones that compare exactly: timestamps as their ticks."""
    if pa.types.is_timestamp(array.type):
        return array.view(pa.int64()).to_pylist()
    values: list[Any] = array.to_pylist()
    if pa.types.is_floating(array.type):
        return [None if value is None else value.hex() for value in values]
    return values


def expected(column: Column, kind: pa.DataType, value: Any) -> Any:
    """Return what `plain` must give for a value of the server in a column of an Arrow type."""
    if value is None:
        return None
    name = column.type.name
    if pa.types.is_timestamp(kind):
        return ticks(value, kind.unit)
    if pa.types.is_decimal(kind):
        return Decimal(value)
    if pa.types.is_floating(kind):
        return float(value).hex()
    if isinstance(value, Moment):
        return moment_text(value, suffix=" +00:00" if name.endswith("LOCAL TIME ZONE") else "")
    if isinstance(value, DaySecond | YearMonth):
        return interval_text(column.type, value)
    if name in ("CHAR", "NCHAR"):
        return padded(column.type, value)
    return _as_text(value) if pa.types.is_string(kind) else _content(value)


def _content(value: Any) -> Any:
    return value.read(0, value.length) if hasattr(value, "read") else value


def _as_text(value: Any) -> str:
    content = _content(value)
    if isinstance(content, bytes):
        return content.hex()
    if isinstance(content, bool):
        return str(content).lower()
    return str(content)


def padded(kind: Type, text: str) -> str:
    """Return a CHAR with its blanks."""
    length = kind.length or 1
    size = len(text) if kind.in_chars else len(text.encode())
    return text + " " * (length - size)


def interval_text(kind: Type, value: DaySecond | YearMonth) -> str:
    """Return an interval as TO_CHAR shows it."""
    number = value.months if isinstance(value, YearMonth) else value.nanos
    sign, size = "-" if number < 0 else "+", abs(number)
    if isinstance(value, YearMonth):
        return f"{sign}{size // 12:0{kind.precision}d}-{size % 12:02d}"
    seconds, nanos = divmod(size, 10**9)
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    day, hour = divmod(hours, 24)
    fraction = f".{nanos:09d}"[: (kind.scale or 0) + 1] if kind.scale else ""
    return f"{sign}{day:0{kind.precision}d} {hour:02d}:{minute:02d}:{second:02d}{fraction}"


def number(column: Column, value: Any) -> Any:
    """Return a number of the server in a form that compares exactly."""
    if value is None:
        return None
    return float(value).hex() if column.type.name.startswith("BINARY_") else Decimal(value)


def as_number(column: Column, text: str | None) -> Any:
    """Return a number's text in the same form."""
    if text is None:
        return None
    if not column.type.name.startswith("BINARY_"):
        assert not text.startswith((".", "-.")), text
        return Decimal(text)
    if column.type.name == "BINARY_DOUBLE":
        return float(text).hex()
    return pa.array([float(text)], pa.float32())[0].as_py().hex()


def json_of(kind: Type, value: Any) -> Any:
    """Return what JSON or a vector of the server is, read back from its text."""
    if value is None or kind.name == "JSON":
        return value
    exact = {"FLOAT32": pa.float32(), "FLOAT64": pa.float64(), "INT8": pa.int64()}[kind.element]
    return [Decimal(repr(v)) for v in pa.array(value, exact).to_pylist()]


def native_of(kind: Type) -> str:
    """Return a type as Oracle prints it."""
    name, digits, scale = kind.name, kind.precision, kind.scale
    if name == "NUMBER":
        if digits is None:
            return "NUMBER" if scale is None else f"NUMBER(*,{scale})"
        return f"NUMBER({digits},{scale})" if scale else f"NUMBER({digits})"
    if name == "FLOAT":
        return f"FLOAT({digits})"
    if name.startswith("TIMESTAMP"):
        return name.replace("TIMESTAMP", f"TIMESTAMP({scale})", 1)
    if name == "INTERVAL DAY TO SECOND":
        return f"INTERVAL DAY({digits}) TO SECOND({scale})"
    if name == "INTERVAL YEAR TO MONTH":
        return f"INTERVAL YEAR({digits}) TO MONTH"
    if name in ("VARCHAR2", "CHAR"):
        return f"{name}({kind.length} {'CHAR' if kind.in_chars else 'BYTE'})"
    if name == "VECTOR":
        return f"VECTOR({kind.length}, {kind.element})"
    return name if kind.length is None else f"{name}({kind.length})"
