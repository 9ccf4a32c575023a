"""Texts of numbers, dates and zones, batches of the driver, and units."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from long_tests import OTHER_ROUTES, also
from oracle_server.model import Rowid
from routes.runs import OneOutput, oracle_projection

from partition_planner.model import ColumnInfo, TableInfo
from unloader.model import Extract, SourceSpec, ValueOptions
from unloader.sources.moments import MomentRefused, parse_moments
from unloader.sources.oracle.arrow import batch_of, requested_schema
from unloader.sources.oracle.statement import (
    FILE_SHIFT,
    FetchPlan,
    batch_rows,
    fetch_plan,
    last_level,
    partition_name,
    rowid_text,
)
from unloader.sources.oracle.types import TYPES
from writers.model import TextFormat
from writers.schema import read_schema

CYCLE_YEARS = 400
CYCLE_DAYS = 146_097
"""The Gregorian calendar repeats after these."""


def shown(value: datetime, digits: int) -> str:
    """Return a moment as `TO_CHAR` shows it with SYYYY."""
    fraction = f".{value.microsecond:06d}"[: digits + 1] if digits else ""
    return f" {value.year:04d}-{value:%m-%d %H:%M:%S}{fraction}"


@settings(deadline=None, max_examples=examples(50))
@given(st.lists(st.datetimes() | st.none(), max_size=40), st.sampled_from([0, 3, 6]))
def test_moments_become_the_ticks_of_their_fields(
    values: list[datetime | None], digits: int
) -> None:
    """Every moment from the year 1 to 9999 becomes what Python's calendar makes of its fields."""
    texts = pa.array([None if v is None else shown(v, digits) for v in values], pa.string())
    kept = 10 ** (6 - digits)
    expected = [
        None if v is None else v.replace(microsecond=v.microsecond // kept * kept) for v in values
    ]
    assert parse_moments(texts, pa.timestamp("us")).to_pylist() == expected


@settings(deadline=None, max_examples=examples(50))
@given(st.dates(min_value=date(CYCLE_YEARS * 12 + 1, 1, 1), max_value=date(9512, 12, 31)))
def test_years_before_christ_follow_the_gregorian_cycle(later: date) -> None:
    """Days before the year 1 lie whole cycles of 400 years before the ones that Python knows."""
    year = later.year - 24 * CYCLE_YEARS
    sign, counted = ("-", 1 - year) if year < 1 else (" ", year)
    if counted > 4712:
        return
    text = f"{sign}{counted:04d}-{later:%m-%d} 00:00:00"
    expected = ((later - date(1970, 1, 1)).days - 24 * CYCLE_DAYS) * 86400
    assert parse_moments(pa.array([text]), pa.timestamp("s")).view(pa.int64()).to_pylist() == [
        expected
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (" 1500-02-29 00:00:00", "not a day of the Gregorian calendar"),
        (" 2023-02-29 00:00:00", "not a day of the Gregorian calendar"),
        (" 0000-00-00 00:00:00", "impossible year"),
        ("-0000-01-01 00:00:00", "impossible year"),
        (" 2024-00-10 00:00:00", "not a day"),
        (" 2024-01-00 00:00:00", "not a day"),
        (" 2024-01-01 24:00:00", "impossible time"),
        (" 2024-01-01 00:00:60", "impossible time"),
        ("rubbish", "not a date"),
    ],
)
def test_what_is_no_moment_is_refused(text: str, reason: str) -> None:
    """The first text without a timestamp is named."""
    texts = pa.array([None, " 2024-01-01 00:00:00", text, text])
    with pytest.raises(MomentRefused) as refused:
        parse_moments(texts, pa.timestamp("s"))
    assert refused.value.args[0] == text.strip()
    assert reason in refused.value.args[1]


def test_nanoseconds_end_where_their_type_does() -> None:
    """The last nanosecond that 64 bits count is kept; the next one is refused, not wrapped."""
    kind = pa.timestamp("ns", "UTC")
    last = " 2262-04-11 23:47:16.854775807"
    early = " 1677-09-21 00:12:44.000000001"
    ticks = parse_moments(pa.array([last, early]), kind).view(pa.int64()).to_pylist()
    since = datetime(1677, 9, 21, 0, 12, 44, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    assert ticks == [2**63 - 1, since // timedelta(seconds=1) * 10**9 + 1]
    for text in (
        " 2262-04-11 23:47:16.854775808",
        " 2262-04-11 23:47:17.000000000",
        " 1677-09-21 00:12:43.000000000",
        " 3844-11-27 03:57:31.123456789",
        "-0044-03-15 00:00:00.000000000",
    ):
        with pytest.raises(MomentRefused, match=text.strip()):
            parse_moments(pa.array([text]), kind)


CSV = OneOutput(text=TextFormat())
PARQUET = OneOutput(text=None)
FINEST = OneOutput(
    text=None,
    values=ValueOptions(
        number_without_precision="decimal(38,10)", nanoseconds="timestamp", zone_columns=True
    ),
)


def planned(target: OneOutput, *natives: str, moments_as_text: bool = False) -> FetchPlan:
    """Return how a table with columns of these types is fetched."""
    columns = tuple(ColumnInfo(name=f"C{n}", native_type=t) for n, t in enumerate(natives))
    table = TableInfo(schema="S", name="T", columns=columns, named_partitions=True, row_ranges=True)
    extract = Extract(
        source=SourceSpec(kind="oracle", location=""),
        snapshot=None,
        table=table,
        query=None,
        where=None,
        projection=oracle_projection(table, target),
    )
    return fetch_plan(extract, moments_as_text=moments_as_text)


@pytest.mark.parametrize("target", [CSV, PARQUET, FINEST], ids=["csv", "parquet", "finest"])
def test_the_driver_is_asked_for_nothing_that_it_changes(target: OneOutput) -> None:
    """No nanoseconds, which it wraps; no doubles of NUMBERs; no integers of fractions."""
    natives = (*TYPES, "NUMBER(9)", "NUMBER(18)", "NUMBER(9,2)", "NUMBER(3,5)", "TIMESTAMP(9)")
    plan = planned(target, *natives)
    for item, field in zip(plan.items, requested_schema(plan), strict=True):
        native = plan.columns[item.column].source_type
        kind = field.type
        if pa.types.is_timestamp(kind):
            assert kind == pa.timestamp("s" if native == "DATE" else "us"), native
        if pa.types.is_floating(kind):
            assert native.startswith("BINARY_"), native
        if pa.types.is_integer(kind) and item.part == "value":
            assert native in ("NUMBER(9)", "NUMBER(18)"), native


def test_dates_as_text_leave_none_to_the_driver() -> None:
    """Read a second time, a unit has no date or timestamp that the driver would make."""
    natives = ("DATE", "TIMESTAMP(6)", "TIMESTAMP(3) WITH LOCAL TIME ZONE")
    assert planned(PARQUET, *natives).sees_moments
    assert not planned(PARQUET, *natives, moments_as_text=True).sees_moments


@pytest.mark.parametrize(
    ("natives", "most"),
    [
        (("NUMBER(9)",), 10_000),
        (("VARCHAR2(4000 BYTE)",) * 10, 1000),
        (("CLOB",), 256),
        (("CLOB", "BLOB"), 128),
        (("LONG",), 256),
        *also(OTHER_ROUTES, (("VARCHAR2(4000 CHAR)",) * 1000, 16)),
    ],
    ids=["narrow", "wide", "one LOB", "two LOBs", "a LONG", "widest"],
)
def test_rows_of_a_batch_follow_from_the_widest_row(natives: tuple[str, ...], most: int) -> None:
    """The widest rows that a table can have bound a batch, for memory is bounded by the options."""
    share = 2 * 1024 * 1024
    assert 0 < batch_rows(planned(CSV, *natives), 10_000, share) <= most


def test_empty_lobs_are_told_from_none() -> None:
    """A LOB of no length comes over as NULL; its length shows that it is empty."""
    plan = planned(CSV, "CLOB", "BLOB")
    lengths = pa.array([0, None, 1])
    nothing = pa.array([None, None, None], pa.string())
    texts = pa.array([None, None, "x"])
    data = pa.array([None, None, b"x"], pa.binary())
    schema = read_schema(projection_of("CLOB", "BLOB"))
    batch = batch_of(plan, schema, [texts, lengths, nothing, data, lengths, nothing])
    assert batch.column(0).to_pylist() == ["", None, "x"]
    assert batch.column(1).to_pylist() == [b"", None, b"x"]


def projection_of(*natives: str) -> bytes:
    """Return the schema of a table with columns of these types."""
    columns = tuple(ColumnInfo(name=f"C{n}", native_type=t) for n, t in enumerate(natives))
    table = TableInfo(schema="S", name="T", columns=columns, named_partitions=True, row_ranges=True)
    return oracle_projection(table, CSV).schema


@given(st.integers(1, 2**32 - 1), st.integers(1, 1022), st.integers(0, 2**22 - 1))
def test_rowids_of_usual_tablespaces(object_id: int, file: int, block: int) -> None:
    """A ROWID has 18 characters and means the first row of the block."""
    text = rowid_text(object_id, (file << FILE_SHIFT) + block)
    assert text == str(Rowid(object_id, file, block, 0))


def test_rowids_of_bigfile_tablespaces() -> None:
    """The one file of a bigfile tablespace, 1024, is not in its ROWIDs; its blocks take 32 bits."""
    assert rowid_text(0x12015, (1024 << FILE_SHIFT) + 20) == "AAASAVAAAAAAAAUAAA"
    wide = rowid_text(1, (1024 << FILE_SHIFT) + (3 << 22) + 7)
    assert wide == rowid_text(1, (3 << FILE_SHIFT) + 7) == "AAAAABAADAAAAAHAAA"


@given(
    st.lists(
        st.text(st.sampled_from("ab/ \N{LATIN SMALL LETTER U WITH DIAERESIS}"), min_size=1),
        min_size=1,
        max_size=2,
    )
)
def test_names_of_leaves_keep_slashes_apart(levels: list[str]) -> None:
    """The last level is found again for any characters in the names, and names stay distinct."""
    name = partition_name(*levels)
    assert last_level(name) == levels[-1]
    other = partition_name("/".join(levels))
    assert (name == other) is (len(levels) == 1)
