"""What CSV has for a value of Oracle, worked out from the value and the published table of types.

docs/types.md is that table. Nothing here knows the unloader: what is expected of it is written down
a second time.
"""

from __future__ import annotations

import ctypes
import json
import math
import re
from decimal import Context, Decimal
from typing import Any

from oracle_server.model import DaySecond, Moment, Type, YearMonth

from oracle.expected import moment_text

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
        return interval_text(value, kind)
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


def interval_text(value: YearMonth | DaySecond, kind: Type) -> str:
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
