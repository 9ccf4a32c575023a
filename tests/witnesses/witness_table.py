"""The tables that other people's Oracle clients read: hostile values, repeats, NULLs.

Of each type it has values that the clients can hold; `witness_clients` has the exceptions.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from oracle_server.database import Database
from oracle_server.model import Column, DaySecond, Moment, Type, YearMonth

USER = "SCOTT"
PASSWORD = 'tiger "Ünïcode" 1'
ROWS = 5_000
LOB_ROWS = 40

_SECOND = 1_000_000_000
_DAY = 86_400 * _SECOND
_MOMENTS = (
    Moment(2026, 11, 20, 23, 59, 59, 0),
    Moment(1, 1, 1),
    Moment(9999, 12, 31, 23, 59, 59, 0),
    Moment(1582, 10, 15),
    Moment(1899, 12, 31, 12, 0, 1, 0),
    Moment(2000, 2, 29, 0, 0, 1, 0),
)
_FRACTIONS = (0, 1_000, 999_999_000, 120_000_000, 1_000_000)
_NANOS = (0, 1, 999_999_999, 120_000_000, 1_000_001)
_ZONES = ("+00:00", "+05:45", "-03:30", "+14:00", "-12:00")


def _with(fractions: tuple[int, ...]) -> tuple[Moment, ...]:
    return tuple(
        moment._replace(nanos=fractions[i % len(fractions)]) for i, moment in enumerate(_MOMENTS)
    )


def _zoned() -> tuple[Moment, ...]:
    # The instants of the first and last days may be in other years. The instant of the first day of
    # the new calendar may be in the old one, which clients do not know.
    inner = (moment for moment in _with(_FRACTIONS) if 1582 < moment.year < 9999)
    return tuple(
        moment._replace(zone=_ZONES[i % len(_ZONES)]) for i, moment in enumerate((*inner,) * 2)
    )


def _column(name: str, type: Type, *values: Any, nullable: bool = True) -> tuple[Column, Any]:
    return Column(name=name, type=type, nullable=nullable), values


_NUMBERS = (
    Decimal("0"),
    Decimal("1E-130"),
    Decimal("9." + "9" * 39 + "E125"),
    Decimal("-1E125"),
    Decimal("0.1"),
    Decimal("-0.00001"),
    Decimal("12345678901234567890123456789012345678"),
    Decimal("-99999999999999999999999999999999999999.99"),
    Decimal("100"),
    Decimal("-100"),
    Decimal("1.000000000000000000000000000000000001"),
)
_TEXTS = ("", "a", 'q"uo\\te', "Grüße, Ω≈ç√", "日本語", "🦊 outside the BMP", "x" * 150, "\t\r\n")

COLUMNS: tuple[tuple[Column, Any], ...] = (
    _column("N", Type(name="NUMBER"), *_NUMBERS),
    _column("N38", Type(name="NUMBER", precision=38, scale=0), 10**37, -(10**38) + 1, 0, 7),
    _column(
        "N12_2",
        Type(name="NUMBER", precision=12, scale=2),
        *(Decimal(text) for text in ("0.01", "-0.5", "9999999999.99", "-1234567.8", "3")),
    ),
    _column("N5_3", Type(name="NUMBER", precision=5, scale=-3), 12_345_000, -1000, 0),
    _column("F", Type(name="FLOAT", precision=126), Decimal("0.1"), Decimal("-2.5E+40"), 3),
    _column(
        "V", Type(name="VARCHAR2", length=200, in_chars=True), *(text or None for text in _TEXTS)
    ),
    _column("NV", Type(name="NVARCHAR2", length=150), *(text or None for text in _TEXTS)),
    _column("C", Type(name="CHAR", length=8), "a       ", "abcdefgh", "ü      "),
    _column("R", Type(name="RAW", length=300), b"\x00", b"\xff" * 16, bytes(range(256)), b"abc"),
    _column("DT", Type(name="DATE"), *_MOMENTS, Moment(-4712, 1, 1), Moment(-44, 3, 15, 1, 2, 3)),
    _column("T0", Type(name="TIMESTAMP", scale=0), *_MOMENTS),
    _column("T6", Type(name="TIMESTAMP", scale=6), *_with(_FRACTIONS)),
    _column("T9", Type(name="TIMESTAMP", scale=9), *_with(_NANOS)),
    _column("TZ", Type(name="TIMESTAMP WITH TIME ZONE", scale=6), *_zoned()),
    _column("TL", Type(name="TIMESTAMP WITH LOCAL TIME ZONE", scale=6), *_with(_FRACTIONS)),
    _column(
        "YM",
        Type(name="INTERVAL YEAR TO MONTH", precision=4),
        *(YearMonth(months) for months in (0, 1, 14, 9999 * 12 + 11, -25)),
    ),
    _column(
        "DS",
        Type(name="INTERVAL DAY TO SECOND", precision=9, scale=9),
        *(DaySecond(nanos) for nanos in (0, 1_000, -1_500_000_000, 5 * _DAY + 1, -(10**6) * _DAY)),
    ),
    _column("BF", Type(name="BINARY_FLOAT"), 0.0, 1.5, -0.25, float("inf"), 2.0**-149),
    _column(
        "BD",
        Type(name="BINARY_DOUBLE"),
        *(0.1, -1e308, 5e-324, float("-inf"), float("nan"), -0.0, 2.0**53 + 2),
    ),
)
LOBS: tuple[tuple[Column, Any], ...] = (
    _column("CL", Type(name="CLOB"), "short", "ü" * 5_000, "🦊" * 40_000, "line\n" * 30_000),
    _column("NC", Type(name="NCLOB"), "日本語", "x" * 9_000),
    _column("BL", Type(name="BLOB"), b"\x00\xff", bytes(range(256)) * 1_000),
)
FLAGS: tuple[tuple[Column, Any], ...] = (_column("B", Type(name="BOOLEAN"), True, False),)


def _rows(columns: tuple[tuple[Column, Any], ...], count: int) -> list[tuple[Any, ...]]:
    """Return rows in which every column repeats values in runs of a separate length."""
    made = []
    for number in range(count):
        row: list[Any] = [number]
        for place, (_, values) in enumerate(columns):
            turn = number // (1 + place % 4)
            is_null = turn % (len(values) + 1) == len(values)
            row.append(None if is_null else values[turn % (len(values) + 1)])
        made.append(tuple(row))
    return made


def _columns(columns: tuple[tuple[Column, Any], ...]) -> tuple[Column, ...]:
    number, _ = _column("ID", Type(name="NUMBER", precision=10, scale=0), nullable=False)
    return (number, *(column for column, _ in columns))


class Tables:
    """A database with the tables, and their rows."""

    def __init__(self) -> None:
        """Make them."""
        self.database = Database()
        self.database.add_user(USER, PASSWORD)
        self.rows: dict[str, list[tuple[Any, ...]]] = {}
        self.columns: dict[str, tuple[Column, ...]] = {}
        for name, columns, count in (
            ("VALUES_OF_TYPES", COLUMNS, ROWS),
            ("LARGE_OBJECTS", LOBS, LOB_ROWS),
            ("FLAGS", FLAGS, 100),
        ):
            self.columns[name] = _columns(columns)
            self.rows[name] = _rows(columns, count)
            self.database.create_table(USER, name, columns=self.columns[name], rows=self.rows[name])
