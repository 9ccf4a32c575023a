"""Requests to the driver, and the use of its batches."""

from __future__ import annotations

import pyarrow as pa
import pytest
from long_tests import OTHER_ROUTES, also
from routes.runs import OneOutput, oracle_projection

from partition_planner.model import ColumnInfo, TableInfo
from unloader.model import Extract, SourceSpec, ValueOptions
from unloader.sources.oracle.columns.types import TYPES
from unloader.sources.oracle.reading.arrow import BatchMaker, requested_schema
from unloader.sources.oracle.reading.fetch import FetchPlan, batch_rows, fetch_plan
from writers.model import TextFormat
from writers.schema import read_schema

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
    batch = BatchMaker(plan=plan, schema=schema).batch(
        [texts, lengths, nothing, data, lengths, nothing]
    )
    assert batch.column(0).to_pylist() == ["", None, "x"]
    assert batch.column(1).to_pylist() == [b"", None, b"x"]


def projection_of(*natives: str) -> bytes:
    """Return the schema of a table with columns of these types."""
    columns = tuple(ColumnInfo(name=f"C{n}", native_type=t) for n, t in enumerate(natives))
    table = TableInfo(schema="S", name="T", columns=columns, named_partitions=True, row_ranges=True)
    return oracle_projection(table, CSV).schema
