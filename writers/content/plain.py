"""Checksums of columns without the native library: the same numbers, value by value, in Python.

The results of the native library are tested against this.
"""

from __future__ import annotations

import hashlib
import math
import re
import struct
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from writers.content.forms import Form, Kind

_NUMBER = re.compile(rb"([+-]?)0*(\d*)(?:\.(\d*?)0*)?")
_DAY_SECONDS = 86400
_ENDS = {Kind.DATE: 2**31 - 1, Kind.TIMESTAMP: 2**63 - 1}


def number_of(text: bytes) -> int:
    """Return what one value adds to the checksum of its column."""
    return int.from_bytes(hashlib.md5(text, usedforsecurity=False).digest()[:8], "big")


def column_sum(array: pa.Array, form: Form) -> tuple[int, int]:
    """Return the sum over an array's values, modulo 2**64, and the number of nulls."""
    text = _text_of(form)
    values = (value for value in _values(array, form) if value is not None)
    return sum(number_of(text(value)) for value in values) % 2**64, array.null_count


def _values(array: pa.Array, form: Form) -> list[Any]:

    if form.kind in (Kind.BYTES, Kind.NUMBER_TEXT, Kind.HEX_TEXT):
        large = form.width == 8
        array = array.cast(pa.large_binary() if large else pa.binary())
    elif form.kind in (Kind.DATE, Kind.TIMESTAMP, Kind.TIME):
        array = array.view(pa.int32() if form.width == 4 else pa.int64())
    found: list[Any] = array.to_pylist()
    return found


def _text_of(form: Form) -> Callable[[Any], bytes]:
    if form.kind is Kind.FLOAT:
        return lambda value: _float(value, ">f" if form.width == 4 else ">d")
    if form.kind in (Kind.DATE, Kind.TIMESTAMP):
        return lambda ticks: _moment(ticks, form)
    made: dict[Kind, Callable[[Any], bytes]] = {
        Kind.BYTES: bytes,
        Kind.NUMBER_TEXT: number_text,
        Kind.HEX_TEXT: lambda text: bytes.fromhex(text[form.digits :].decode("ascii")),
        Kind.INTEGER: lambda value: str(value).encode(),
        Kind.NATURAL: lambda value: str(value).encode(),
        Kind.DECIMAL: lambda value: number_text(f"{value:f}".encode()),
        Kind.BOOLEAN: lambda value: b"true" if value else b"false",
        Kind.TIME: lambda ticks: _time(ticks, form.digits),
    }
    return made[form.kind]


def number_text(text: bytes) -> bytes:
    """Return a number in digits without needless zeros or a sign +; another text as it is."""
    match = _NUMBER.fullmatch(text)
    if match is None or not any(48 <= byte <= 57 for byte in text):
        return text
    sign, whole, fraction = match[1], match[2], match[3] or b""
    if not whole and not fraction:
        return b"0"
    return b"-" * (sign == b"-") + (whole or b"0") + (b"." + fraction if fraction else b"")


def _float(value: float, layout: str) -> bytes:
    if math.isnan(value):
        return b"NaN"
    return struct.pack(layout, value).hex().encode()


def _moment(ticks: int, form: Form) -> bytes:
    if form.infinite and abs(ticks) == _ENDS[form.kind]:
        return b"infinity" if ticks > 0 else b"-infinity"
    if form.kind is Kind.DATE:
        date, before = _date(ticks)
        return f"{date}{before}".encode()
    seconds, fraction = divmod(ticks, 10**form.digits)
    days, of_day = divmod(seconds, _DAY_SECONDS)
    date, before = _date(days)
    zone = "+00:00" if form.utc else ""
    return f"{date} {_clock(of_day, fraction, form.digits)}{zone}{before}".encode()


def _date(days: int) -> tuple[str, str]:
    """Return the day, and what marks a year before 1; by Hinnant's civil_from_days."""
    era, of_era = divmod(days + 719_468, 146_097)
    of_cycle = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * of_cycle + of_cycle // 4 - of_cycle // 100)
    shifted = (5 * of_year + 2) // 153
    day = of_year - (153 * shifted + 2) // 5 + 1
    month = shifted + 3 if shifted < 10 else shifted - 9
    year = of_cycle + era * 400 + (month <= 2)
    before = year < 1
    return f"{1 - year if before else year:04}-{month:02}-{day:02}", " BC" if before else ""


def _time(ticks: int, digits: int) -> bytes:
    seconds, fraction = divmod(ticks, 10**digits)
    return _clock(seconds, fraction, digits).encode()


def _clock(seconds: int, fraction: int, digits: int) -> str:
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    shown = f"{hour:02}:{minute:02}:{second:02}"
    return f"{shown}.{fraction:0{digits}}".rstrip("0") if fraction else shown
