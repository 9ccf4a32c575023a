"""Tables with hostile values of every type."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from oracle_server.data.tables import Table
from oracle_server.database import Database
from oracle_server.model import Column, DaySecond, Moment, Rowid, Type, YearMonth

_TSTZ, _TSLTZ = "TIMESTAMP WITH TIME ZONE", "TIMESTAMP WITH LOCAL TIME ZONE"
_DAY = 86_400 * 10**9

DATES = (
    Moment(3844, 11, 27, 3, 57, 31),
    Moment(1, 1, 1),
    Moment(9999, 12, 31, 23, 59, 59),
    Moment(1582, 10, 4, 12, 0, 0),
    Moment(1582, 10, 15),
    Moment(1677, 9, 21, 0, 12, 43),
    Moment(2262, 4, 11, 23, 47, 17),
    Moment(1969, 12, 31, 23, 59, 59),
    Moment(1970, 1, 1),
    Moment(2000, 2, 29, 23, 59, 59),
    Moment(1600, 2, 29),
)
"""Days at the edges, which exist in both calendars; Oracle's calendar changes in 1582."""

TEXTS = (
    "plain",
    " leading and trailing ",
    " ",
    "it's \"quoted\", 'twice'",
    "line\nbreak",
    "carriage\r\nreturn",
    "tab\there",
    "~~enclosed~~",
    "a,b;c|d",
    "\\N",
    "NULL",
    "\\",
    "umlaut äöüß",
    "emoji 😀👍",
    "日本語テキスト",
    "e\u0301 combining",
    "\u00a0",
    "nul\x00inside",
    "x" * 100,
)
NUMBERS = (
    Decimal("1234567890123456789012345678901234567890"),
    Decimal("1E-130"),
    Decimal("9.99E125"),
    Decimal("-1E-30"),
    Decimal("0.12345678901234567890123456789012345678"),
    Decimal("-12345678901234567890.123456789"),
    Decimal("123456789012345678901"),
    Decimal("-9.99E125"),
    Decimal("0.1"),
    0,
    1,
    -1,
    9007199254740993,
    10**37,
)


def _stamps(digits: int) -> tuple[Moment, ...]:
    unit = 10 ** (9 - digits)
    fractions = (123_456_789, 999_999_999, 1, 0, 500_000_000)
    return tuple(day._replace(nanos=fractions[n % 5] // unit * unit) for n, day in enumerate(DATES))


def _zoned(digits: int = 6) -> tuple[Moment, ...]:
    unit = 10 ** (9 - digits)
    nanos = 123_456_789 // unit * unit
    return (
        Moment(2024, 2, 29, 7, 0, 0, nanos, "-05:30"),
        Moment(2024, 6, 30, 23, 59, 59, nanos, "+14:00"),
        Moment(2024, 10, 27, 2, 30, 0, nanos, "Europe/Berlin"),
        Moment(2024, 7, 1, 12, 0, 0, 0, "America/New_York"),
        Moment(2024, 1, 1, 0, 30, 0, 0, "Asia/Kolkata"),
        Moment(3844, 11, 27, 3, 57, 31, nanos, "+00:00"),
        Moment(1970, 1, 1, 0, 0, 0, 0, "-12:00"),
        Moment(9999, 12, 31, 12, 0, 0, 0, "+05:45"),
        Moment(2024, 1, 1, 0, 0, 0, 0, "UTC"),
    )


def _columns() -> list[tuple[str, Type, tuple[Any, ...]]]:
    return [*_number_columns(), *_text_columns(), *_time_columns(), *_large_columns()]


def _number_columns() -> list[tuple[str, Type, tuple[Any, ...]]]:
    def number(precision: int, scale: int) -> Type:
        return Type(name="NUMBER", precision=precision, scale=scale)

    nines = 10**38 - 1
    return [
        ("N_PLAIN", Type(name="NUMBER"), NUMBERS),
        ("N_9", number(9, 0), (999999999, -999999999, 0, 1, 100)),
        ("N_18", number(18, 0), (10**18 - 1, 1 - 10**18, 0, 9007199254740993)),
        ("N_38", number(38, 0), (nines, -nines, 9007199254740993, 0, 10**37)),
        (
            "N_20_5",
            number(20, 5),
            (
                Decimal("123456789012345.12345"),
                Decimal("999999999999999.99999"),
                Decimal("-0.00001"),
                0,
            ),
        ),
        ("N_38_38", number(38, 38), (Decimal("0." + "12345678901234567890123456789012345678"), 0)),
        ("N_10_M2", number(10, -2), (123456789000, -100, 0, 10**12 - 100)),
        ("N_3_5", number(3, 5), (Decimal("0.00999"), Decimal("-0.00001"), 0)),
        ("N_INTEGER", Type(name="NUMBER", scale=0), (nines, -1, 0)),
        (
            "F_126",
            Type(name="FLOAT", precision=126),
            (Decimal("3.14159265358979323846264338327950288"), Decimal("1E-100"), 5),
        ),
        ("F_24", Type(name="FLOAT", precision=24), (Decimal("1.5"), Decimal("-0.25"))),
        (
            "BF",
            Type(name="BINARY_FLOAT"),
            (1.5, -0.0, float("inf"), 3.4028234663852886e38, 2.0**-149),
        ),
        (
            "BD",
            Type(name="BINARY_DOUBLE"),
            (0.1, float("-inf"), float("nan"), 1.7976931348623157e308, 5e-324, -0.0),
        ),
        ("B", Type(name="BOOLEAN"), (True, False)),
    ]


def _text_columns() -> list[tuple[str, Type, tuple[Any, ...]]]:
    national = tuple(text for text in TEXTS if "\x00" not in text)
    return [
        ("V_100", Type(name="VARCHAR2", length=400), TEXTS),
        ("V_CHARS", Type(name="VARCHAR2", length=100, in_chars=True), TEXTS),
        ("V_4000", Type(name="VARCHAR2", length=4000), ("y" * 4000, "ü" * 2000, "z")),
        ("NV", Type(name="NVARCHAR2", length=100, in_chars=True), national),
        ("C_8", Type(name="CHAR", length=8), ("k7037", "ü", "12345678", "it's", " x")),
        ("C_8C", Type(name="CHAR", length=8, in_chars=True), ("üüü", "😀", "a")),
        ("NC_5", Type(name="NCHAR", length=5, in_chars=True), ("ab", "日本", "x")),
        ("R_16", Type(name="RAW", length=16), (b"\x00\x01\xfe\xff", b"\xaa" * 16, b"text", b"\x00")),
        ("RID", Type(name="ROWID"), (Rowid(70001, 4, 131, 0), Rowid(4294967295, 1023, 4194303, 999))),
        ("URID", Type(name="UROWID", length=4000), (Rowid(70001, 4, 131, 7), "*BAGAAIEBMAZDMDAwMDD+")),
    ]  # fmt: skip


def _time_columns() -> list[tuple[str, Type, tuple[Any, ...]]]:
    days = Type(name="INTERVAL DAY TO SECOND", precision=2, scale=6)
    long_days = Type(name="INTERVAL DAY TO SECOND", precision=9, scale=9)
    spans = (93_784 * 10**9 + 5000, -_DAY - 7000, 0, 99 * _DAY + 86_399_999_999_000)
    return [
        ("D", Type(name="DATE"), DATES),
        *((f"TS_{n}", Type(name="TIMESTAMP", scale=n), _stamps(n)) for n in range(10)),
        ("TZ_6", Type(name=_TSTZ, scale=6), _zoned()),
        ("TZ_9", Type(name=_TSTZ, scale=9), _zoned(9)),
        ("TZ_0", Type(name=_TSTZ, scale=0), _zoned(0)),
        ("TL_6", Type(name=_TSLTZ, scale=6), _stamps(6)),
        ("TL_9", Type(name=_TSLTZ, scale=9), _stamps(9)),
        ("IDS", days, tuple(map(DaySecond, spans))),
        (
            "IDS_9",
            long_days,
            (DaySecond(999_999_999 * _DAY + _DAY - 1), DaySecond(1 - 10**9 * _DAY)),
        ),
        (
            "IYM",
            Type(name="INTERVAL YEAR TO MONTH", precision=2),
            (YearMonth(14), YearMonth(-14), YearMonth(1199), YearMonth(0)),
        ),
        (
            "IYM_9",
            Type(name="INTERVAL YEAR TO MONTH", precision=9),
            (YearMonth(11_999_999_999), YearMonth(-1)),
        ),
    ]


def _large_columns() -> list[tuple[str, Type, tuple[Any, ...]]]:
    long_text = "0123456789" * 10_000
    clobs = (
        "",
        "short",
        "x" * 32_767,
        "y" * 32_768,
        long_text,
        "emoji 😀 in a CLOB\n~~",
        "ü" * 20_000,
    )
    data = {"a": [1, Decimal("0.1"), None, True], "b": {"c": "ü😀\n"}, "d": ""}
    element = ("FLOAT32", "FLOAT64", "INT8")
    vectors = ((1.0, -2.5, 0.0), (0.1, 1e300), (1, -128, 127))
    return [
        ("CL", Type(name="CLOB"), clobs),
        ("NCL", Type(name="NCLOB"), clobs[:4]),
        ("BL", Type(name="BLOB"), (b"", b"\x00\xff", b"\x01" * 32_767, bytes(range(256)) * 400)),
        ("J", Type(name="JSON"), (data, [], "text", 12, Decimal("123456789012345678.25"))),
        ("X", Type(name="XMLTYPE"), ("<a>ü &amp; 😀</a>", "<b/>", f"<c>{'d' * 5000}</c>")),
        *(
            (f"VEC_{e}", Type(name="VECTOR", element=e, length=len(v)), (v, tuple(reversed(v))))
            for e, v in zip(element, vectors, strict=True)
        ),
    ]  # fmt: skip


def types_table(
    db: Database,
    *,
    owner: str = "SCOTT",
    name: str = "TYPES_TABLE",
    rows: int = 220,
    without: Iterable[str] = (),
) -> Table:
    """Create a table with columns of every type but LONG and LONG RAW.

    ID counts from 1. Values come in pairs of equal rows, and from row to row at a different step
    in every column; NULL comes round in every column, and in one row of fifty it is all there is.

    Args:
        without: Type names (as in `Type.name`) or column names to leave out.
    """
    left_out = set(without)
    kept = [c for c in _columns() if c[0] not in left_out and c[1].name not in left_out]
    identity = Column(name="ID", type=Type(name="NUMBER", precision=10, scale=0), nullable=False)
    columns = (identity, *(Column(name=column, type=kind) for column, kind, _ in kept))
    content = [
        (
            number + 1,
            *(
                None if number % 50 == 49 else _turn(values, number // 2 + place)
                for place, (_, _, values) in enumerate(kept)
            ),
        )
        for number in range(rows)
    ]
    return db.create_table(owner, name, columns=columns, rows=content, rows_per_block=10)


def _turn(values: tuple[Any, ...], number: int) -> Any:
    place = number % (len(values) + 1)
    return None if place == len(values) else values[place]


def long_tables(db: Database, *, owner: str = "SCOTT") -> tuple[Table, Table]:
    """Create LONG_TABLE (ID, L LONG) and LONG_RAW_TABLE (ID, LR LONG RAW)."""
    identity = Column(name="ID", type=Type(name="NUMBER", precision=10, scale=0))
    texts = ("short", None, "x" * 32_768, "ü😀\n" * 30_000, "short", "short")
    raws = (b"\x00\xff", None, b"\x01" * 70_000, b"text", b"text")
    tables = [
        db.create_table(
            owner,
            f"{kind.replace(' ', '_')}_TABLE",
            columns=(identity, Column(name=short, type=Type(name=kind))),
            rows=enumerate(values, 1),
        )
        for kind, short, values in (("LONG", "L", texts), ("LONG RAW", "LR", raws))
    ]
    return tables[0], tables[1]
