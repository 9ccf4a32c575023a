"""Oracle SQL that makes tables of given columns and puts exact values into them.

Values are those of `oracle_server.model`. The texts follow the SQL reference, so that any Oracle
understands them; nothing in them depends on a session's NLS settings.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from oracle_server.model import Column, DaySecond, Moment, Type, YearMonth
from oracle_server.sql.conversions import json_text
from oracle_server.wire.oracle_values import encode_number

_LITERAL_CHARACTERS = 1000
"""Of one text literal: 4000 bytes at most, and a character has up to four."""
_RAW_BYTES = 2000
_TEXT_BYTES = 4000
_MASK = "SYYYY-MM-DD HH24:MI:SS"


def quoted(name: str) -> str:
    """Return an identifier in double quotes."""
    return f'"{name}"'


def column_type(kind: Type) -> str:
    """Return a type as CREATE TABLE names it."""
    name, scale = kind.name, kind.scale
    if name == "NUMBER":
        if kind.precision is None:
            return name if scale is None else f"NUMBER(*,{scale})"
        return f"NUMBER({kind.precision},{scale or 0})"
    if name == "FLOAT":
        return f"FLOAT({kind.precision})"
    if name.startswith("TIMESTAMP"):
        return name.replace("TIMESTAMP", f"TIMESTAMP({6 if scale is None else scale})", 1)
    if name == "INTERVAL YEAR TO MONTH":
        return f"INTERVAL YEAR({kind.precision}) TO MONTH"
    if name == "INTERVAL DAY TO SECOND":
        return f"INTERVAL DAY({kind.precision}) TO SECOND({scale})"
    if name == "VECTOR":
        return f"VECTOR({kind.length},{kind.element})"
    if name in ("VARCHAR2", "CHAR"):
        return f"{name}({kind.length} {'CHAR' if kind.in_chars else 'BYTE'})"
    if kind.length is not None:
        return f"{name}({kind.length})"
    return name


def create_table(
    name: str, columns: Sequence[Column], *, key: Sequence[str] = (), tail: str = ""
) -> str:
    """Return CREATE TABLE.

    Args:
        name: Of the table, without quotes.
        columns: In order.
        key: Columns of the primary key.
        tail: What follows the columns: organization, partitions.
    """
    parts = [
        f"{quoted(column.name)} {column_type(column.type)}{'' if column.nullable else ' NOT NULL'}"
        for column in columns
    ]
    if key:
        parts.append(f"PRIMARY KEY ({', '.join(map(quoted, key))})")
    return f"CREATE TABLE {quoted(name)} ({', '.join(parts)}) {tail}".strip()


def insert(name: str, columns: Sequence[Column], row: Sequence[Any]) -> tuple[str, dict[str, Any]]:
    """Return an INSERT of one row, and the binds of the values that are too long for literals.

    The names of binds are `b` and the place of the column.
    """
    texts, binds = [], {}
    for place, (column, given) in enumerate(zip(columns, row, strict=True)):
        value = given.read(0, given.length) if hasattr(given, "read") else given
        text = literal(value, column.type)
        if text is None:
            binds[f"b{place}"] = value
            text = f":b{place}"
        texts.append(text)
    return f"INSERT INTO {quoted(name)} VALUES ({', '.join(texts)})", binds


def literal(value: Any, kind: Type) -> str | None:
    """Return an expression of exactly that value, None if it is too long for a statement."""
    name = kind.name
    if value is None:
        return "NULL"
    if name in ("NUMBER", "FLOAT"):
        return _number(value)
    if name in ("BINARY_FLOAT", "BINARY_DOUBLE"):
        code = ">f" if name == "BINARY_FLOAT" else ">d"
        return f"UTL_RAW.CAST_TO_{name}({_raw(struct.pack(code, value))})"
    if name == "BOOLEAN":
        return "TRUE" if value else "FALSE"
    if name == "DATE":
        return f"TO_DATE({text_literal(_fields(value))},'{_MASK}')"
    if name.startswith("TIMESTAMP"):
        return _timestamp(value, name)
    if isinstance(value, YearMonth):
        years, months = divmod(abs(value.months), 12)
        return f"TO_YMINTERVAL('{'-' if value.months < 0 else '+'}{years}-{months:02d}')"
    if isinstance(value, DaySecond):
        return f"TO_DSINTERVAL('{_day_second(value)}')"
    return _other(value, name)


def _other(value: Any, name: str) -> str | None:
    if name in ("RAW", "LONG RAW", "BLOB"):
        if not value:
            return "EMPTY_BLOB()" if name == "BLOB" else "NULL"
        if len(value) > _RAW_BYTES:
            return None
        return f"TO_BLOB({_raw(value)})" if name == "BLOB" else _raw(value)
    if name in ("ROWID", "UROWID"):
        text = text_literal(str(value))
        return f"CHARTOROWID({text})" if name == "ROWID" else text
    if name == "VECTOR":
        return f"TO_VECTOR('[{','.join(map(repr, value))}]')"
    if name == "JSON":
        return f"JSON({text_literal(json_text(value))})"
    if name == "XMLTYPE":
        return f"XMLTYPE({_pieces(value, 'TO_CLOB')})"
    if name in ("CLOB", "NCLOB"):
        # National literals even for CLOB: the database converts, and loses nothing in AL32UTF8.
        return _pieces(value, f"TO_{name}") if value else f"EMPTY_{name.removeprefix('N')}()"
    if name == "LONG" and len(value.encode()) > _TEXT_BYTES:
        return None
    return text_literal(value, national=name[0] == "N")


def text_literal(text: str, *, national: bool = False) -> str:
    """Return a text as literals of a length that Oracle takes, NUL as CHR(0)."""
    prefix = "N" if national else ""
    parts = []
    for number, piece in enumerate(text.split("\0")):
        parts += ["CHR(0)"] if number else []
        for start in range(0, len(piece), _LITERAL_CHARACTERS):
            part = piece[start : start + _LITERAL_CHARACTERS].replace("'", "''")
            parts.append(f"{prefix}'{part}'")
    return "||".join(parts) or "NULL"


def _pieces(text: str, function: str) -> str:
    starts = range(0, len(text), _LITERAL_CHARACTERS)
    return "||".join(
        f"{function}({text_literal(text[at : at + _LITERAL_CHARACTERS])})" for at in starts
    )


def _raw(data: bytes) -> str:
    return f"HEXTORAW('{data.hex().upper()}')"


def _number(value: int | Decimal) -> str:
    sign, digits, exponent = Decimal(value).as_tuple()
    if len(digits) > 38:
        # Numeric literals have no more digits, but the type has.
        return f"UTL_RAW.CAST_TO_NUMBER({_raw(encode_number(value))})"
    assert isinstance(exponent, int)
    written = "".join(map(str, digits))
    return f"{'-' if sign else ''}{written}" + (f"E{exponent}" if exponent else "")


def _fields(moment: Moment) -> str:
    sign = "-" if moment.year < 0 else ""
    date = f"{sign}{abs(moment.year):04d}-{moment.month:02d}-{moment.day:02d}"
    return f"{date} {moment.hour:02d}:{moment.minute:02d}:{moment.second:02d}"


def _timestamp(moment: Moment, name: str) -> str:
    text = f"{_fields(moment)}.{moment.nanos:09d}"
    if name == "TIMESTAMP":
        return f"TO_TIMESTAMP('{text}','{_MASK}.FF9')"
    # The fields of a local time zone's value are those of UTC.
    zone = "+00:00" if "LOCAL" in name else moment.zone
    return f"TO_TIMESTAMP_TZ('{text} {zone}','{_MASK}.FF9 TZR')"


def _day_second(value: DaySecond) -> str:
    seconds, nanos = divmod(abs(value.nanos), 10**9)
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    sign = "-" if value.nanos < 0 else "+"
    return f"{sign}{days} {hour:02d}:{minute:02d}:{second:02d}.{nanos:09d}"
