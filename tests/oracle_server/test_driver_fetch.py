"""Through the real driver: every type, and repeated values in every size of reply."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import oracledb
import pyarrow as pa
import pytest
from long_tests import OTHER_ROUTES
from oracle_server.data.definitions import User
from oracle_server.model import (
    Answer,
    Column,
    DaySecond,
    Moment,
    Rowid,
    SessionState,
    Type,
    YearMonth,
)
from oracle_server.server import OracleServer
from oracle_server.wire.row_replies import EncodedTable, RowSet

SIZES = (1, 2, 3, 7, 100, 1000)


class Canned:
    """A database that answers some statements with given rows."""

    scn = 2_281_708

    def __init__(self) -> None:
        """Start with one user and no answers."""
        self.users = {"SCOTT": User(name="SCOTT", password="tiger", user_id=101)}
        self.answers: dict[str, tuple[tuple[Column, ...], Sequence[tuple[Any, ...]]]] = {}
        self.encoded: dict[str, EncodedTable] = {}

    def add(self, sql: str, types: Sequence[Type], rows: Iterable[tuple[Any, ...]]) -> str:
        """Answer a statement with rows; return the statement."""
        columns = tuple(Column(name=f"C{at}", type=kind) for at, kind in enumerate(types))
        self.answers[sql] = columns, list(rows)
        return sql

    def encode(self, sql: str) -> str:
        """Answer a statement that was added before from encoded rows too; return its text."""
        columns, rows = self.answers[sql]
        again = f"{sql} /* encoded */"
        self.answers[again] = columns, rows
        self.encoded[again] = EncodedTable.of(columns, rows)
        return again

    def execute(self, session: SessionState, sql: str, binds: Iterable[Any] = ()) -> Answer:
        """Answer a statement with its rows; the driver's own are done without effect."""
        if sql.startswith("ALTER SESSION"):
            return Answer(kind="alter session")
        if sql in self.encoded:
            return Answer(kind="select", rows=self.encoded[sql].rows())
        return Answer(kind="select", rows=RowSet(*self.answers[sql]))

    def describe(self, session: SessionState, sql: str) -> tuple[Column, ...] | None:
        """Describe a statement."""
        return self.answers[sql][0]


@contextmanager
def connected(server: OracleServer) -> Iterator[oracledb.Connection]:
    """Connect and close again."""
    with oracledb.connect(user="scott", password="tiger", dsn=server.dsn) as connection:
        yield connection


@pytest.fixture(scope="module")
def database() -> Canned:
    """One database for the module."""
    return Canned()


@pytest.fixture(scope="module", params=[("23ai", 512), ("19c", 8192)], ids=["23ai-512", "19c-8192"])
def connection(request: pytest.FixtureRequest, database: Canned) -> Iterator[oracledb.Connection]:
    """A connection in packets so small that vectors are split, and one to an older server."""
    mode, sdu = request.param
    with OracleServer(database, mode=mode, sdu=sdu) as server, connected(server) as connection:
        yield connection


EVERY_TYPE: list[tuple[Type, Any, Any]] = [
    (Type(name="NUMBER"), Decimal("-12345678901234567890.123456789"), Decimal("-12345678901234567890.123456789")),
    (Type(name="NUMBER"), int("9" * 38), Decimal("9" * 38)),
    (Type(name="NUMBER"), int("9" * 40), Decimal("9" * 40)),
    (Type(name="NUMBER"), Decimal("1E-130"), Decimal("1E-130")),
    (Type(name="NUMBER"), Decimal("9.99E125"), Decimal("9.99E125")),
    (Type(name="NUMBER", precision=9, scale=2), Decimal("-99.99"), Decimal("-99.99")),
    (Type(name="FLOAT", precision=126), Decimal("0.1"), Decimal("0.1")),
    (Type(name="NUMBER", expression=True), 0, Decimal(0)),
    (Type(name="VARCHAR2", length=400), "é\U0001f600" * 90, "é\U0001f600" * 90),
    (Type(name="NVARCHAR2", length=400), "é\U0001f600" * 90, "é\U0001f600" * 90),
    (Type(name="CHAR", length=5), "ab   ", "ab   "),
    (Type(name="NCHAR", length=3), "ñ  ", "ñ  "),
    (Type(name="RAW", length=30), b"\x00\xff\xfe", b"\x00\xff\xfe"),
    (Type(name="DATE"), Moment(1, 1, 1), datetime(1, 1, 1)),
    (Type(name="DATE"), Moment(9999, 12, 31, 23, 59, 59), datetime(9999, 12, 31, 23, 59, 59)),
    (Type(name="TIMESTAMP", scale=6), Moment(2024, 1, 2, 3, 4, 5, 123456000), datetime(2024, 1, 2, 3, 4, 5, 123456)),
    (Type(name="TIMESTAMP", scale=6), Moment(2024, 1, 2), datetime(2024, 1, 2)),
    (Type(name="TIMESTAMP WITH TIME ZONE", scale=6), Moment(2024, 1, 2, 1, nanos=1000, zone="+05:30"), datetime(2024, 1, 2, 1, 0, 0, 1)),
    (Type(name="TIMESTAMP WITH TIME ZONE", scale=6), Moment(2024, 1, 2, 22, zone="-03:30"), datetime(2024, 1, 2, 22)),
    (Type(name="TIMESTAMP WITH LOCAL TIME ZONE", scale=6), Moment(2024, 1, 2, 3, 4, 5), datetime(2024, 1, 2, 3, 4, 5)),
    (Type(name="INTERVAL YEAR TO MONTH"), YearMonth(-14), oracledb.IntervalYM(-1, -2)),
    (Type(name="INTERVAL DAY TO SECOND"), DaySecond(-86_400_000_001_000), timedelta(days=-1, microseconds=-1)),
    (Type(name="BINARY_DOUBLE"), -1.5e300, -1.5e300),
    (Type(name="BINARY_DOUBLE"), float("-inf"), float("-inf")),
    (Type(name="BINARY_FLOAT"), 0.5, 0.5),
    (Type(name="ROWID"), Rowid(73038, 24, 36802, 58), str(Rowid(73038, 24, 36802, 58))),
    (Type(name="UROWID"), Rowid(73038, 24, 36802, 58), str(Rowid(73038, 24, 36802, 58))),
    (Type(name="UROWID"), "*BAEACwoDwgUC/gECAwQF", "*BAEACwoDwgUC/gECAwQF"),
    (Type(name="VARCHAR2", length=0), None, None),
]  # fmt: skip
"""A type, a value, and the driver's value with fetch_decimals."""

WITH_LOBS: list[tuple[Type, Any, Any]] = [
    (Type(name="CLOB"), "é\U0001f600" * 20_000, "é\U0001f600" * 20_000),
    (Type(name="NCLOB"), "ñ" * 300, "ñ" * 300),
    (Type(name="BLOB"), bytes(range(256)) * 300, bytes(range(256)) * 300),
    (Type(name="BOOLEAN"), True, True),
    (Type(name="BOOLEAN"), False, False),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "table"), [("plain", EVERY_TYPE), ("lobs", WITH_LOBS)], ids=["plain", "lobs"]
)
def test_every_type(
    database: Canned, connection: oracledb.Connection, name: str, table: list[tuple[Type, Any, Any]]
) -> None:
    """The driver returns the right value of every type, and None for NULL."""
    types = [kind for kind, _, _ in table]
    values = tuple(value for _, value, _ in table)
    nulls = (None,) * len(values)
    sql = database.add(f"SELECT {name}", types, [values, nulls, nulls, values])
    cursor = connection.cursor()
    cursor.execute(sql, fetch_decimals=True, fetch_lobs=False)
    rows = cursor.fetchall()
    expected = tuple(found for _, _, found in table)
    assert rows == [expected, nulls, nulls, expected]


def test_long(database: Canned, connection: oracledb.Connection) -> None:
    """LONG and LONG RAW come whole, with NULL distinguished, at any length."""
    rows = [("x" * 70_000, b"\x00" * 300), (None, None), ("é", b"\x01"), ("é", b"\x01")]
    sql = database.add("SELECT long", [Type(name="LONG"), Type(name="LONG RAW")], rows)
    assert connection.cursor().execute(sql).fetchall() == rows


def test_description(database: Canned, connection: oracledb.Connection) -> None:
    """The driver knows columns by name, type, size, precision and scale."""
    types = [
        Type(name="NUMBER", precision=9, scale=2),
        Type(name="NUMBER"),
        Type(name="VARCHAR2", length=60, in_chars=True),
        Type(name="TIMESTAMP", scale=9),
    ]
    sql = database.add("SELECT description", types, [])
    found = connection.cursor().execute(sql).description
    assert [(one.name, one.type_code.name) for one in found] == [
        ("C0", "DB_TYPE_NUMBER"),
        ("C1", "DB_TYPE_NUMBER"),
        ("C2", "DB_TYPE_VARCHAR"),
        ("C3", "DB_TYPE_TIMESTAMP"),
    ]
    assert (found[0].precision, found[0].scale) == (9, 2)
    assert (found[1].precision, found[1].scale) == (0, -127)
    assert found[2].internal_size == 240
    assert found[3].scale == 9


def test_xmltype(database: Canned, connection: oracledb.Connection) -> None:
    """XMLTYPE values are read from their object images.

    The driver first looks the type up with a PL/SQL block, which this server may refuse; it remembers
    the type all the same, and asks no more.
    """
    rows = [("<a>é</a>" * count,) for count in (1, 1, 1, 50, 5000)] + [(None,)] * 3
    sql = database.add("SELECT xml", [Type(name="XMLTYPE")], rows)
    cursor = connection.cursor()
    with suppress(oracledb.DatabaseError):
        cursor.execute(sql)
    cursor.execute(sql)
    assert cursor.fetchall() == rows


class Pattern:
    """A CLOB of any length, made when it is read."""

    def __init__(self, length: int) -> None:
        """Take the length in characters."""
        self.length = length

    def read(self, offset: int, amount: int) -> str:
        """Return characters that tell where they are from."""
        return "".join(chr(0xE0 + at % 10) for at in range(offset, offset + amount))


def test_locators(database: Canned, connection: oracledb.Connection) -> None:
    """LOB objects tell their size, and are read in any piece."""
    types = [Type(name="CLOB"), Type(name="NCLOB"), Type(name="BLOB")]
    rows = [
        (Pattern(100_000), "ñ" * 10, bytes(range(256))),
        (None, None, None),
        ("", "\U0001f600", b"x"),
    ]
    sql = database.add("SELECT locators", types, rows)
    (clob, nclob, blob), nulls, (empty, face, small) = connection.cursor().execute(sql)
    assert (clob.size(), nclob.size(), blob.size()) == (100_000, 10, 256)
    assert clob.read(99_999) == "èé"
    assert clob.read(11, 10) == "".join(chr(0xE0 + at) for at in range(10))
    assert len(clob.read()) == 100_000
    assert nclob.read() == "ñ" * 10
    assert blob.read(2, 3) == b"\x01\x02\x03"
    assert blob.getchunksize() == 8060
    assert nulls == (None, None, None)
    assert (empty.read(), face.size(), face.read(), small.read()) == ("", 2, "\U0001f600", b"x")


def near_repeats(seed: int, values: Sequence[Any], count: int = 60) -> list[Any]:
    """Return values in runs of random length, NULLs among them."""
    chance = random.Random(seed)
    found: list[Any] = []
    while len(found) < count:
        found += [chance.choice([*values, None])] * chance.choice((1, 1, 1, 2, 3, 9))
    return found[:count]


_NUMBER = Type(name="NUMBER", precision=18, scale=0)
_MONEY = Type(name="NUMBER", precision=12, scale=2)
_TEXT = Type(name="VARCHAR2", length=400)
_DATE = Type(name="DATE")
_STAMP = Type(name="TIMESTAMP", scale=6)
_DATES = [Moment(2024, 1, 2), Moment(1, 1, 1, 23), Moment(9999, 12, 31, 0, 0, 1)]
_STAMPS = [
    Moment(2024, 1, 2, nanos=1000),
    Moment(2024, 1, 2),
    Moment(1969, 12, 31, 23, 59, 59, 999999000),
]
_PRICES = [Decimal("0.01"), Decimal("-9999999999.99"), Decimal("100")]

CASES: dict[str, list[tuple[Type, list[Any]]]] = {
    "one number": [(_NUMBER, near_repeats(1, [1, 2, 10**17]))],
    "number always the same": [(_NUMBER, [7] * 60)],
    "number never the same": [(_NUMBER, list(range(60)))],
    "number repeats late": [(_NUMBER, [*range(30), *[5] * 30])],
    "number repeats early": [(_NUMBER, [*[5] * 30, *range(30)])],
    "all null": [(_NUMBER, [None] * 60)],
    "null and not": [(_NUMBER, [None, 1] * 30)],
    "decimals": [(_MONEY, near_repeats(2, _PRICES))],
    "text": [(_TEXT, near_repeats(3, ["a", "é" * 100, "x" * 300]))],
    "long text": [(_TEXT, near_repeats(4, ["x" * 253, "y" * 400]))],
    "dates": [(_DATE, near_repeats(5, _DATES))],
    "timestamps": [(_STAMP, near_repeats(6, _STAMPS))],
    "doubles": [(Type(name="BINARY_DOUBLE"), near_repeats(7, [0.5, -0.0, 1e300]))],
    "raw": [(Type(name="RAW", length=30), near_repeats(8, [b"\0", b"\xff" * 30]))],
    "char": [(Type(name="CHAR", length=5), near_repeats(9, ["a    ", "     "]))],
    "national text": [(Type(name="NVARCHAR2", length=20), near_repeats(10, ["ñ", "\U0001f600"]))],
    "null literal": [(_NUMBER, near_repeats(11, [1, 2])), (Type(name="VARCHAR2", length=0), [None] * 60)],
    "two columns": [(_NUMBER, list(range(60))), (_TEXT, near_repeats(12, ["a", "b"]))],
    "one repeats, one not": [(_DATE, [_DATES[0]] * 60), (_NUMBER, list(range(60)))],
    "eight columns": [(_NUMBER, near_repeats(20 + at, [1, 2])) for at in range(8)],
    "nine columns": [(_TEXT, near_repeats(30 + at, ["a", "b"])) for at in range(9)],
    "mixed": [
        (_NUMBER, near_repeats(40, [1, 2])), (_MONEY, near_repeats(41, _PRICES)), (_DATE, near_repeats(42, _DATES)),
        (_TEXT, near_repeats(43, ["x" * 300, "y"])), (_STAMP, near_repeats(44, _STAMPS)), (_NUMBER, list(range(60))),
    ],
}  # fmt: skip


def as_python(value: Any) -> Any:
    if isinstance(value, Moment):
        return datetime(*value[:6], value.nanos // 1000)
    return value


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.parametrize("encoded", [False, True], ids=["rows", "encoded"])
@pytest.mark.parametrize("case", CASES)
def test_repeated_values(
    database: Canned, connection: oracledb.Connection, case: str, encoded: bool
) -> None:
    """Tuples and data frames equal the source in replies of every size."""
    types, values = zip(*CASES[case], strict=True)
    rows = list(zip(*values, strict=True))
    sql = database.add(f"SELECT {case}", types, rows)
    sql = database.encode(sql) if encoded else sql
    expected = [tuple(map(as_python, row)) for row in rows]
    for size in SIZES:
        for prefetch in (2, size):
            cursor = connection.cursor()
            cursor.arraysize, cursor.prefetchrows = size, prefetch
            cursor.execute(sql, fetch_decimals=True)
            assert cursor.fetchall() == expected, (case, size, prefetch)
        frames = connection.fetch_df_batches(sql, size=size, fetch_decimals=True)
        found = pa.concat_tables(pa.table(frame) for frame in frames)
        found_rows = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
        assert found_rows == expected, (case, size)
