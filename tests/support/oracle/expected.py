"""The expected output of Oracle's values, in text and in Parquet."""

from __future__ import annotations

import ctypes
import json
import math
import re
from datetime import date, datetime, timedelta
from decimal import Context, Decimal
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
    """Return the one text of a moment: a minus before Christ, no zeros after the fraction."""
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


_EXACT = Context(prec=200)
_PLAIN_CHARACTERS = 64
"""TM9 turns to an exponent for numbers that would have more."""


def csv_text(value: Any, kind: Type) -> str | None:
    """Return the text of a value; None is NULL. Floats are given by `float_form` instead."""
    if value is None:
        return None
    name = kind.name
    if name in ("NUMBER", "FLOAT"):
        return number_text(value, kind)
    if name == "BOOLEAN":
        return "true" if value else "false"
    if isinstance(value, Moment):
        text = moment_text(value, suffix="+00:00" if "LOCAL" in name else "")
        return closed_up(text) if "TIME ZONE" in name else text
    if isinstance(value, (YearMonth, DaySecond)):
        return interval_of(value, kind)
    if name == "JSON":
        return _json(value)
    if name == "VECTOR":
        return "[" + ",".join(_component(part, kind.element) for part in value) + "]"
    if name in ("CHAR", "NCHAR"):
        used = len(value) if kind.in_chars or name == "NCHAR" else len(value.encode())
        return str(value) + " " * ((kind.length or 0) - used)
    if hasattr(value, "read"):
        value = value.read(0, value.length)
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    return str(value)


def closed_up(text: str) -> str:
    """Return a timestamp without the blank that Parquet's text has before the offset."""
    return re.sub(r" ([+-]\d\d:\d\d)", r"\1", text)


def number_text(value: int | Decimal, kind: Type) -> str:
    """Return a NUMBER: all digits of its scale, or as TM9 with a zero before a bare point."""
    exact = Decimal(value)
    scale = kind.scale
    digits = max(kind.precision or 38, scale or 0)
    if kind.name == "NUMBER" and scale is not None and scale >= 0 and digits <= 38:
        return f"{exact:.{scale}f}" if scale else f"{exact:f}".partition(".")[0]
    if not exact:
        return "0"
    stripped = exact.normalize(_EXACT)
    plain = f"{stripped:f}"
    # Oracle counts without the zero before the point.
    if len(plain.replace("0.", ".", 1) if abs(exact) < 1 else plain) <= _PLAIN_CHARACTERS:
        return plain
    mantissa = "".join(map(str, stripped.as_tuple().digits))
    fraction = f".{mantissa[1:]}" if len(mantissa) > 1 else ""
    return f"{'-' if exact < 0 else ''}{mantissa[0]}{fraction}E{stripped.adjusted():+03d}"


def interval_of(value: YearMonth | DaySecond, kind: Type) -> str:
    """Return an interval as TO_CHAR has it, its first field as wide as the type says."""
    if isinstance(value, YearMonth):
        years, months = divmod(abs(value.months), 12)
        return f"{'-' if value.months < 0 else '+'}{years:0{kind.precision}d}-{months:02d}"
    seconds, nanos = divmod(abs(value.nanos), 10**9)
    days, rest = divmod(seconds, 86_400)
    clock = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}.{nanos:09d}"
    sign = "-" if value.nanos < 0 else "+"
    return f"{sign}{days:0{kind.precision}d} {clock[: 9 + (kind.scale or 0)]}"


def float_form(value: float | str, kind: Type) -> tuple[str, int]:
    """Return what two texts of a binary number share: its value, and the fewest digits of it.

    Args:
        value: The number, or the text under test.
        kind: BINARY_FLOAT or BINARY_DOUBLE.
    """
    single = kind.name == "BINARY_FLOAT"
    number = float(value)
    if single:
        number = ctypes.c_float(number).value
    if not math.isfinite(number):
        known = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
        assert not isinstance(value, str) or value in known, value
        return str(number), 0
    text = value if isinstance(value, str) else _shortest(number, single)
    return number.hex(), len(Decimal(text).normalize(_EXACT).as_tuple().digits)


def _shortest(number: float, single: bool) -> str:
    if not single:
        return repr(number)
    texts = (f"{number:.{digits}g}" for digits in range(1, 10))
    return next(text for text in texts if ctypes.c_float(float(text)).value == number)


def _json(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{_json(key)}:{_json(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_json, value)) + "]"
    if isinstance(value, (int, Decimal)) and not isinstance(value, bool):
        return f"{Decimal(value):f}"
    return json.dumps(value, ensure_ascii=False)


def _component(part: float, element: str) -> str:
    if element == "INT8":
        return str(part)
    if not part:
        return "0"
    exact = Decimal(_shortest(part, element == "FLOAT32")).normalize(_EXACT)
    mantissa = "".join(map(str, exact.as_tuple().digits))
    sign = "-" if part < 0 else ""
    return f"{sign}{mantissa[0]}.{mantissa[1:] or '0'}E{exact.adjusted():+04d}"


def csv_records(content: str) -> list[list[str | None]]:
    """Return the records of an RFC 4180 text, a bare nothing as None.

    A field in quotes is never NULL, so the empty string in quotes is one.
    """
    records: list[list[str | None]] = []
    record: list[str | None] = []
    at = 0
    while at < len(content):
        if content[at] == '"':
            end = at + 1
            while content[end] != '"' or content[end + 1 : end + 2] == '"':
                end = content.index('"', end) if content[end] != '"' else end + 2
            record.append(content[at + 1 : end].replace('""', '"'))
            at = end + 1
        else:
            ends = [found for mark in ",\n" if (found := content.find(mark, at)) >= 0]
            end = min(ends, default=len(content))
            record.append(content[at:end] or None)
            at = end
        if content[at : at + 1] == ",":
            at += 1
            continue
        assert content[at : at + 1] == "\n", content[at : at + 40]
        records.append(record)
        record = []
        at += 1
    return records
