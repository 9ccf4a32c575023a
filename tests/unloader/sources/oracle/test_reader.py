"""A worker's side of an Oracle database, through the real driver and a server on the wire."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import pytest
from long_tests import OTHER_ROUTES, also
from oracle.runs import BOTH, CSV, PARQUET, Natives, Rows, Run, check, create, natives
from oracle_server.database import Database
from oracle_server.faults import Fault
from oracle_server.model import DaySecond, Moment, Rowid, Type, YearMonth
from oracle_server.samples.tables import types_table
from oracle_server.server import OracleServer
from routes.runs import OneOutput

from unloader.errors import OutputFailed, SourceError, UnloaderError
from unloader.model import Fetch, ValueOptions
from unloader.sources.oracle.reader import OracleReader
from writers.model import TextFormat


@pytest.fixture(scope="module")
def server() -> Iterator[OracleServer]:
    """A server with the user SCOTT and no tables."""
    database = Database()
    database.add_user("SCOTT", "tiger")
    with OracleServer(database) as running:
        yield running


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNLOADER_PASSWORD", "tiger")


NUMBERS: Natives = {
    "ID": ("NUMBER(9)", Type(name="NUMBER", precision=9, scale=0)),
    "BIG": ("NUMBER(18)", Type(name="NUMBER", precision=18, scale=0)),
    "MONEY": ("NUMBER(20,5)", Type(name="NUMBER", precision=20, scale=5)),
    "WIDE": ("NUMBER(38)", Type(name="NUMBER", precision=38, scale=0)),
    "SMALL": ("NUMBER(3,5)", Type(name="NUMBER", precision=3, scale=5)),
    "R": ("BINARY_FLOAT", Type(name="BINARY_FLOAT")),
    "D": ("BINARY_DOUBLE", Type(name="BINARY_DOUBLE")),
}
NUMBER_ROWS: Rows = (
    (0, 0, 0, 0, 0, 0.0, -0.0),
    (
        999_999_999,
        999_999_999_999_999_999,
        Decimal("999999999999999.99999"),
        10**38 - 1,
        Decimal("0.00999"),
        1.5,
        float("inf"),
    ),
    (
        -999_999_999,
        -999_999_999_999_999_999,
        Decimal("123456789012345.12345"),
        9_007_199_254_740_993,
        Decimal("-0.00001"),
        -1.5,
        float("-inf"),
    ),
    (None, None, None, None, None, None, None),
    (1, 1, Decimal("0.1"), -(10**38) + 1, Decimal("0.00123"), 0.5, 5e-324),
    (1, 1, Decimal("0.1"), -(10**38) + 1, Decimal("0.00123"), 0.5, 0.1),
)

TEXTS: Natives = {
    "V": ("VARCHAR2(40 CHAR)", Type(name="VARCHAR2", length=40, in_chars=True)),
    "N": ("NVARCHAR2(40)", Type(name="NVARCHAR2", length=40, in_chars=True)),
    "C": ("CHAR(8 BYTE)", Type(name="CHAR", length=8)),
    "B": ("RAW(16)", Type(name="RAW", length=16)),
    "R": ("ROWID", Type(name="ROWID")),
}
ADDRESS = Rowid(70_000, 4, 131, 7)
TEXT_ROWS: Rows = (
    ("ü€🦆 ", "ü€🦆", "ü      ", b"\x00\x01\xff", ADDRESS),
    (' "a",\r\n\t', "NULL", "\\N      ", b"\xaa" * 16, ADDRESS),
    (None, None, None, None, None),
    ("a" * 40, "ß" * 40, "60JAW   ", b"plain", None),
)

MOMENTS: Natives = {
    "D": ("DATE", Type(name="DATE")),
    "T": ("TIMESTAMP(6)", Type(name="TIMESTAMP", scale=6)),
    "Z": ("TIMESTAMP(6) WITH TIME ZONE", Type(name="TIMESTAMP WITH TIME ZONE", scale=6)),
    "L": (
        "TIMESTAMP(6) WITH LOCAL TIME ZONE",
        Type(name="TIMESTAMP WITH LOCAL TIME ZONE", scale=6),
    ),
}
MOMENT_ROWS: Rows = (
    (
        Moment(1, 1, 1),
        Moment(1, 1, 1),
        Moment(2024, 1, 31, 7, 0, 0, 500_000_000, "-05:30"),
        Moment(2024, 1, 31, 23, 59, 59, 999_999_000),
    ),
    (
        Moment(9999, 12, 31, 23, 59, 59),
        Moment(9999, 12, 31, 23, 59, 59, 999_999_000),
        Moment(2024, 7, 1, 12, 0, 0, 1_000, "Europe/Berlin"),
        Moment(1969, 12, 31, 23, 59, 59, 1_000),
    ),
    (None, None, None, None),
    (
        Moment(1582, 10, 4),
        Moment(3844, 11, 27, 3, 57, 31, 123_456_000),
        Moment(1999, 12, 31, 23, 0, 0, 0, "+14:00"),
        Moment(2000, 1, 1),
    ),
    (
        Moment(1582, 10, 15),
        Moment(1970, 1, 1),
        Moment(1970, 1, 1, 0, 0, 0, 0, "+00:00"),
        Moment(1, 1, 1),
    ),
)


@pytest.mark.parametrize("fetch", BOTH)
@pytest.mark.parametrize("target", [CSV, PARQUET], ids=["csv", "parquet"])
@pytest.mark.parametrize(
    ("columns", "rows"),
    [(NUMBERS, NUMBER_ROWS), (TEXTS, TEXT_ROWS), (MOMENTS, MOMENT_ROWS)],
    ids=["numbers", "texts", "moments"],
)
def test_every_value_arrives_as_it_is(
    server: OracleServer, columns: Natives, rows: Rows, fetch: Fetch, target: OneOutput
) -> None:
    """Values at the edges of their types come out unchanged by either way of fetching."""
    create(server, columns, rows)
    check(Run(server, columns, fetch=fetch, target=target), columns, rows)


@pytest.mark.parametrize("fetch", BOTH)
@pytest.mark.parametrize(
    "target",
    [
        pytest.param(CSV, id="csv"),
        pytest.param(PARQUET, id="parquet", marks=pytest.mark.long(OTHER_ROUTES)),
        pytest.param(
            OneOutput(text=None, as_text=("*",)), id="text", marks=pytest.mark.long(OTHER_ROUTES)
        ),
    ],
)
def test_hostile_values_of_every_type(
    server: OracleServer, fetch: Fetch, target: OneOutput
) -> None:
    """A table of every type at its edges is unchanged, also as text and with large LOBs."""
    name = "TYPES_TABLE"
    if ("SCOTT", name) not in server.database.catalog.tables:
        types_table(server.database)
    columns = natives(server.database.table("SCOTT", name).columns)
    rows = server.database.query("SCOTT", f"SELECT * FROM {name}")
    check(Run(server, columns, name=name, fetch=fetch, target=target), columns, rows)


@pytest.mark.parametrize("fetch", BOTH)
def test_numbers_without_precision_are_exact_text(server: OracleServer, fetch: Fetch) -> None:
    """A NUMBER of any size is the text of all its digits; 0.5 has its zero."""
    values = [
        Decimal("0.12345678901234567890123456789012345678"),
        Decimal("-12345678901234567890.123456789"),
        Decimal("1E-130"),
        Decimal("9.99E+125"),
        Decimal("-1E-30"),
        Decimal("0.5"),
        Decimal("-0.5"),
        None,
        10**38 - 1,
        0,
    ]
    columns: Natives = {
        "N": ("NUMBER", Type(name="NUMBER")),
        "F": ("FLOAT(126)", Type(name="FLOAT", precision=126)),
    }
    create(server, columns, [(value, value) for value in values])
    table = Run(server, columns, fetch=fetch).table()
    for name in columns:
        texts = table.column(name).to_pylist()
        assert [None if text is None else Decimal(text) for text in texts] == values
        assert texts[5:8] == ["0.5", "-0.5", None]


@pytest.mark.parametrize("fetch", BOTH)
def test_intervals_are_text(server: OracleServer, fetch: Fetch) -> None:
    """Intervals come as TO_CHAR shows them, negative ones and their fractions included."""
    columns: Natives = {
        "D": (
            "INTERVAL DAY(2) TO SECOND(6)",
            Type(name="INTERVAL DAY TO SECOND", precision=2, scale=6),
        ),
        "Y": ("INTERVAL YEAR(2) TO MONTH", Type(name="INTERVAL YEAR TO MONTH", precision=2)),
    }
    two_days = DaySecond((2 * 86400 * 10**9) + 6_000_007_000)
    create(server, columns, [(two_days, YearMonth(18)), (DaySecond(-two_days.nanos), None)])
    table = Run(server, columns, fetch=fetch).table()
    assert table.column("D").to_pylist() == ["+02 00:00:06.000007", "-02 00:00:06.000007"]
    assert table.column("Y").to_pylist() == ["+01-06", None]


OLD: Natives = {
    "D": ("DATE", Type(name="DATE")),
    "T": ("TIMESTAMP(6)", Type(name="TIMESTAMP", scale=6)),
    "N": ("TIMESTAMP(9)", Type(name="TIMESTAMP", scale=9)),
}
OLD_ROWS: Rows = (
    *((Moment(2024, 1, n % 28 + 1), Moment(2024, 1, 1, 0, 0, n % 60), None) for n in range(500)),
    (Moment(-44, 3, 15), Moment(-4712, 1, 1), Moment(-1, 12, 31, 23, 59, 59, 123_456_789)),
    (Moment(-1, 2, 28), Moment(-44, 3, 15, 12, 0, 0, 500_000_000), Moment(-44, 3, 15)),
)


@pytest.mark.parametrize("fetch", BOTH)
def test_years_before_christ_are_read_again(server: OracleServer, fetch: Fetch) -> None:
    """A unit with dates that the driver cannot make is read once more; later units only once."""
    create(server, OLD, OLD_ROWS)
    run = Run(server, OLD, fetch=fetch)
    check(run, OLD, OLD_ROWS)
    assert run.again == 1
    reader = OracleReader(run.spec, run.extract.snapshot)
    run.items(reader, 1024 * 1024)
    assert run.again == 2
    rows = sum(batch.num_rows for batch in run.items(reader, 1024 * 1024))  # type: ignore[union-attr]
    reader.close()
    assert (rows, run.again) == (len(OLD_ROWS), 2)


@pytest.mark.parametrize("fetch", BOTH)
def test_days_of_the_julian_calendar_only(server: OracleServer, fetch: Fetch) -> None:
    """A day that the Gregorian calendar has not is refused by name, and written with --as-text."""
    columns: Natives = {"D": ("DATE", Type(name="DATE"))}
    create(server, columns, [(Moment(2024, 1, 1),), (Moment(1500, 2, 29),)])
    with pytest.raises(OutputFailed, match="column D holds 1500-02-29 00:00:00") as refused:
        Run(server, columns, fetch=fetch).table()
    assert "--as-text D" in refused.value.hint
    text = OneOutput(text=TextFormat(), as_text=("d",))
    table = Run(server, columns, fetch=fetch, target=text).table()
    assert table.column("D").to_pylist() == ["2024-01-01 00:00:00", "1500-02-29 00:00:00"]


@pytest.mark.parametrize("fetch", BOTH)
def test_nanoseconds_are_kept_or_refused(server: OracleServer, fetch: Fetch) -> None:
    """Nine digits are text, or timestamp[ns] where that reaches; beyond it the value is named."""
    columns: Natives = {"T": ("TIMESTAMP(9)", Type(name="TIMESTAMP", scale=9))}
    inside = [(Moment(2024, 1, 31, 23, 59, 59, 123_456_789),), (None,), (Moment(1677, 9, 22),)]
    finest = OneOutput(text=None, values=ValueOptions(nanoseconds="timestamp"))
    create(server, columns, inside)
    check(Run(server, columns, fetch=fetch), columns, inside)
    check(Run(server, columns, fetch=fetch, target=finest), columns, inside)
    outside = [(Moment(3844, 11, 27, 3, 57, 31, 123_456_789),)]
    create(server, columns, outside)
    check(Run(server, columns, fetch=fetch), columns, outside)
    with pytest.raises(OutputFailed, match=r"T holds 3844-11-27 03:57:31\.123456789") as refused:
        Run(server, columns, fetch=fetch, target=finest).table()
    assert "--nanoseconds string" in refused.value.hint


@pytest.mark.parametrize("fetch", BOTH)
def test_zones_get_a_column_of_their_own(server: OracleServer, fetch: Fetch) -> None:
    """With zone columns Parquet has the instant and, beside it, offset or region."""
    columns = {"Z": MOMENTS["Z"]}
    rows = [(row[2],) for row in MOMENT_ROWS]
    create(server, columns, rows)
    zones = OneOutput(text=None, values=ValueOptions(zone_columns=True))
    run = Run(server, columns, fetch=fetch, target=zones)
    assert run.table().column_names == ["Z", "Z_zone"]
    check(run, columns, rows)
    found = run.table().column("Z_zone").to_pylist()
    assert found == [None if row[0] is None else row[0].zone for row in rows]


@pytest.mark.parametrize("fetch", BOTH)
def test_numbers_that_do_not_fit_are_named_with_their_row(
    server: OracleServer, fetch: Fetch
) -> None:
    """A value beyond the decimal asked for stops the unit: column, value and ROWID are named."""
    columns: Natives = {"A": ("NUMBER", Type(name="NUMBER")), "B": ("NUMBER", Type(name="NUMBER"))}
    misfit = Decimal("0.12345678901")
    create(server, columns, [(n, n) for n in range(200)] + [(1, misfit)])
    form = ValueOptions(number_without_precision="decimal(38,10)")
    target = OneOutput(text=None, values=form)
    rowid = server.database.query("SCOTT", "SELECT ROWIDTOCHAR(ROWID) FROM T WHERE B < 1 AND B > 0")
    with pytest.raises(OutputFailed, match=f"column B holds {misfit}") as refused:
        Run(server, columns, fetch=fetch, target=target).table()
    assert str(rowid[0][0]) in refused.value.message
    create(server, columns, [(1, Decimal("-0.5")), (10**27, None)])
    found = Run(server, columns, fetch=fetch, target=target).table()
    assert found.column("B").to_pylist() == [Decimal("-0.5"), None]


@pytest.mark.parametrize("fetch", ["arrow", "native", *also(OTHER_ROUTES, "tuples")])
def test_a_thousand_columns(server: OracleServer, fetch: Fetch) -> None:
    """The widest table that Oracle has is read like others, in batches that stay small."""
    columns: Natives = {
        f"C{n}": ("VARCHAR2(4000 CHAR)", Type(name="VARCHAR2", length=4000, in_chars=True))
        for n in range(1000)
    }
    rows = [tuple(f"{row}/{n}" if n % 3 else None for n in range(1000)) for row in range(40)]
    create(server, columns, rows)
    run = Run(server, columns, fetch=fetch)
    check(run, columns, rows)
    reader = OracleReader(run.spec, run.extract.snapshot)
    sizes = [batch.num_rows for batch in run.items(reader, 1024 * 1024)]  # type: ignore[union-attr]
    reader.close()
    assert max(sizes) == 16


def test_a_session_shows_what_it_reads(server: OracleServer) -> None:
    """The session's action is the table and the unit, for anyone who looks at V$SESSION."""
    create(server, {"N": NUMBERS["ID"]}, [(1,)])
    run = Run(server, {"N": NUMBERS["ID"]})
    reader = OracleReader(run.spec, run.extract.snapshot)
    run.items(reader, 1024)
    assert "T.u1" in [session.action for session in server.sessions]
    reader.close()


def test_a_lost_connection_is_replaced(server: OracleServer) -> None:
    """After an error that cost the connection the next unit is read on a new one."""
    create(server, {"N": NUMBERS["ID"]}, [(n,) for n in range(100)])
    run = Run(server, {"N": NUMBERS["ID"]})
    reader = OracleReader(run.spec, run.extract.snapshot)
    server.faults.add(Fault(kind="ora-00028", statement='SELECT "N"'))
    with pytest.raises(UnloaderError, match="ORA-00028") as failed:
        run.items(reader, 1024)
    assert failed.value.retryable
    assert sum(batch.num_rows for batch in run.items(reader, 1024)) == 100  # type: ignore[union-attr]
    reader.close()


class Latin(str):
    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        """Return the bytes that the server stores and sends."""
        return super().encode("latin-1")


@pytest.mark.parametrize("fetch", BOTH)
def test_bytes_that_are_no_text_are_refused(server: OracleServer, fetch: Fetch) -> None:
    """Bytes outside the character set are an error that shows them, never a replaced character."""
    columns: Natives = {"V": TEXTS["V"], "ID": NUMBERS["ID"]}
    create(server, columns, [("fine", 1), (Latin("caf\xe9"), 2)])
    with pytest.raises(OutputFailed, match=r"column V holds bytes that are not text.*636166e9"):
        Run(server, columns, fetch=fetch).table()
    national: Natives = {"N": TEXTS["N"], "ID": NUMBERS["ID"]}
    create(server, national, [("fine", 1), ("\ud83e", 2)])
    with pytest.raises(OutputFailed, match=r"column N holds bytes that are not text.*d83e"):
        Run(server, national, fetch=fetch).table()


def test_columns_that_changed_meanwhile_are_an_error(server: OracleServer) -> None:
    """A column that is of another type than was planned for stops the unit, with a way out."""
    create(server, {"V": TEXTS["V"]}, [("x",)])
    with pytest.raises(SourceError, match=r"V NUMBER\(9\)") as refused:
        Run(server, {"V": NUMBERS["ID"]}, fetch="arrow").table()
    assert "--fetch tuples" in refused.value.hint
