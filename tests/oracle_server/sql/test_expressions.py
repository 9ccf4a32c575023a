"""Expressions as Oracle evaluates them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from oracle_server.model import Column, DaySecond, Moment, OracleError, Rowid, Type, YearMonth
from oracle_server.sql.compiling import compiled
from oracle_server.sql.evaluation import Compiled, Environment
from oracle_server.sql.syntax import Parser, tokens

COLUMNS: dict[str, tuple[Type, Any]] = {
    "N": (Type(name="NUMBER"), Decimal("-0.5")),
    "BIG": (Type(name="NUMBER"), Decimal("9.99E125")),
    "V": (Type(name="VARCHAR2", length=30), "añ😀"),
    "FIXED": (Type(name="CHAR", length=4), "ab  "),
    "D": (Type(name="DATE"), Moment(-44, 3, 15, 13, 5, 9)),
    "TS": (Type(name="TIMESTAMP", scale=9), Moment(3844, 11, 27, 3, 57, 31, 123_456_789)),
    "OFFSET_TZ": (
        Type(name="TIMESTAMP WITH TIME ZONE", scale=6),
        Moment(2024, 2, 29, 7, 0, 0, 5000, "-05:30"),
    ),
    "REGION_TZ": (
        Type(name="TIMESTAMP WITH TIME ZONE", scale=6),
        Moment(2024, 10, 27, 2, 30, 0, 0, "Europe/Berlin"),
    ),
    "LOCAL_TZ": (Type(name="TIMESTAMP WITH LOCAL TIME ZONE", scale=0), Moment(2024, 1, 1, 23, 30)),
    "IDS": (Type(name="INTERVAL DAY TO SECOND", precision=9, scale=3), DaySecond(-93_784 * 10**9)),
    "IYM": (Type(name="INTERVAL YEAR TO MONTH", precision=4), YearMonth(14)),
    "C": (Type(name="CLOB"), "añ😀"),
    "EMPTY_LOB": (Type(name="CLOB"), ""),
    "J": (Type(name="JSON"), {"a": [1, Decimal("0.10"), None]}),
    "VEC": (Type(name="VECTOR", element="FLOAT32"), (1.0, 0.1)),
    "BYTES": (Type(name="VECTOR", element="INT8"), (1, -128)),
    "R": (Type(name="RAW", length=4), b"\x00\xff"),
    "NOTHING": (Type(name="VARCHAR2", length=5), None),
    "URID": (Type(name="UROWID"), "*BAGAAIEBMAZDMDAwMDD+"),
}
ADDRESS = Rowid(70001, 5, 131, 3)


def ready(sql: str, settings: dict[str, str] | None = None) -> Compiled:
    """Return an expression over COLUMNS, compiled."""
    columns = tuple(Column(name=name, type=kind) for name, (kind, _) in COLUMNS.items())
    environment = Environment(columns=columns, rowid=Type(name="ROWID"), settings=settings or {})
    return compiled(Parser(sql, tokens(sql)).whole(), environment)


def value(sql: str, settings: dict[str, str] | None = None) -> Any:
    """Return an expression's value in the one row there is."""
    row = (*(found for _, found in COLUMNS.values()), ADDRESS)
    return ready(sql, settings).value(row)


TM9 = "'TM9','NLS_NUMERIC_CHARACTERS=''.,'''"

CASES = [
    (f"TO_CHAR(N,{TM9})", "-.5"),
    (f"TO_CHAR(BIG,{TM9})", "9.99E+125"),
    (f"TO_CHAR(1E-130,{TM9})", "1E-130"),
    (f"TO_CHAR(-1E62,{TM9})", "-1" + "0" * 62),
    (f"TO_CHAR(1E64,{TM9})", "1E+64"),
    (f"TO_CHAR(0.00,{TM9})", "0"),
    (f"TO_CHAR(1200,{TM9})", "1200"),
    ("TO_CHAR(D,'SYYYY-MM-DD HH24:MI:SS')", "-0044-03-15 13:05:09"),
    ("TO_CHAR(TS,'SYYYY-MM-DD HH24:MI:SS.FF9')", " 3844-11-27 03:57:31.123456789"),
    ("TO_CHAR(TS,'FF')", "123456789"),
    ("TO_CHAR(OFFSET_TZ,'SYYYY-MM-DD HH24:MI:SS.FF6 TZH:TZM')", " 2024-02-29 07:00:00.000005 -05:30"),
    ("TO_CHAR(REGION_TZ,'TZH:TZM TZR')", "+01:00 EUROPE/BERLIN"),
    ("TO_CHAR(OFFSET_TZ,'TZR')", "-05:30"),
    ("TO_CHAR(TS,'FF3 \"of\" HH AM')", "123 of 03 AM"),
    ("SYS_EXTRACT_UTC(OFFSET_TZ)", Moment(2024, 2, 29, 12, 30, 0, 5000)),
    ("SYS_EXTRACT_UTC(REGION_TZ)", Moment(2024, 10, 27, 1, 30)),
    ("OFFSET_TZ AT TIME ZONE 'Asia/Kolkata'", Moment(2024, 2, 29, 18, 0, 0, 5000, "Asia/Kolkata")),
    ("LOCAL_TZ AT TIME ZONE '+02:00'", Moment(2024, 1, 2, 1, 30, 0, 0, "+02:00")),
    ("TO_CHAR(IDS)", "-000000001 02:03:04.000"),
    ("TO_CHAR(IYM)", "+0001-02"),
    ("DBMS_LOB.GETLENGTH(C)", 4),
    ("DBMS_LOB.GETLENGTH(EMPTY_LOB)", 0),
    ("LENGTH(V)", 3),
    ("CASE WHEN DBMS_LOB.GETLENGTH(C) <= 4 THEN C END", "añ😀"),
    ("CASE WHEN DBMS_LOB.GETLENGTH(C) > 4 THEN ROWIDTOCHAR(ROWID) END", None),
    ("JSON_SERIALIZE(J RETURNING CLOB)", '{"a":[1,0.1,null]}'),
    ("VECTOR_SERIALIZE(VEC RETURNING CLOB)", "[1.0E+000,1.0E-001]"),
    ("VECTOR_SERIALIZE(BYTES RETURNING CLOB)", "[1,-128]"),
    ("RAWTOHEX(R)", "00FF"),
    ("ROWIDTOCHAR(ROWID)", str(ADDRESS)),
    ("CAST(URID AS VARCHAR2(4000))", "*BAGAAIEBMAZDMDAwMDD+"),
    ("DBMS_ROWID.ROWID_BLOCK_NUMBER(ROWID)", 131),
    ("ROWID >= CHARTOROWID('AAARFxAAFAAAACDAAD')", True),
    ("NVL(NOTHING, 'x') || LTRIM('  y') || NOTHING", "xy"),
    ("NOTHING = '' OR NOTHING IS NULL", True),
    ("NOT (NOTHING = 'a')", None),
    ("NOTHING NOT IN ('a', 'b')", None),
    ("FIXED = 'ab'", True),
    ("RTRIM(FIXED) || '|'", "ab|"),
    ("V LIKE 'a__' AND V LIKE '%\\😀' ESCAPE '\\'", True),
    ("D < DATE '0001-01-01'", True),
    ("TS BETWEEN TIMESTAMP '3844-11-27 03:57:31.123456788' AND DATE '3845-01-01'", True),
    ("OFFSET_TZ = TIMESTAMP '2024-02-29 12:30:00.000005 +00:00'", True),
    ("N IN (1, -.5)", True),
    ("CAST(2.345 AS NUMBER(10,2))", Decimal("2.35")),
    ("MOD(7, 4) - 1", 2),
    ("DECODE(N, 1, 'a', -0.5, 'b', 'c')", "b"),
    ("TO_CHAR(DATE '1582-10-04' + 1, 'YYYY-MM-DD')", "1582-10-15"),
    ("q'[it's]'", "it's"),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "expected"), CASES, ids=[sql for sql, _ in CASES])
def test_value(sql: str, expected: Any) -> None:
    """An expression has the value that Oracle documents for it."""
    assert value(sql) == expected


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("UNKNOWN", 904),
        ("OTHER.N", 904),
        ("TO_CHAR(D, 'QX9')", 1821),
        ("TO_CHAR(D, 'FF3')", 1821),
        ("TO_DATE('2023-02-29', 'YYYY-MM-DD')", 1839),
        ("TO_DATE('x', 'YYYY-MM-DD')", 1861),
        ("SYS_EXTRACT_UTC(D)", 932),
        ("C = 'x'", 932),
        ("JSON_SERIALIZE(N)", 932),
        ("CHARTOROWID('short')", 1410),
        ("CAST(1234 AS NUMBER(3))", 1438),
        ("N > 'abc'", 1722),
        ("1 / 0", 1476),
        ("N +", 936),
        ("(N", 907),
        ("'open", 1756),
    ],
)
def test_error(sql: str, code: int) -> None:
    """What Oracle refuses is refused with its code."""
    with pytest.raises(OracleError) as caught:
        value(sql)
    assert caught.value.code == code
