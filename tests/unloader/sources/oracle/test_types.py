"""Oracle types: their names, and the columns that they become."""

from __future__ import annotations

from dataclasses import replace

import pytest
from routes.runs import OneOutput, oracle_projection

from partition_planner.model import ColumnInfo, TableInfo
from unloader.errors import SourceError
from unloader.model import ReadColumn, ValueOptions
from unloader.sources.oracle.types import TYPES
from writers.model import TextFormat
from writers.schema import read_schema, text_class

CSV = OneOutput(text=TextFormat())
PARQUET = OneOutput(text=None)


def read_columns(column: ColumnInfo, output: OneOutput) -> tuple[ReadColumn, ...]:
    """Return what a column becomes in an output."""
    table = TableInfo(
        schema="S", name="T", columns=(column,), named_partitions=True, row_ranges=True
    )
    return oracle_projection(table, output).columns


def one(native: str, target: OneOutput) -> tuple[str, str]:
    """Return output type and expression of a column C."""
    (read,) = read_columns(ColumnInfo(name="C", native_type=native), target)
    return read.output_type, read.expression


@pytest.mark.parametrize(
    ("native", "output"),
    [
        ("NUMBER(9)", "int32"),
        ("NUMBER(10)", "int64"),
        ("NUMBER(18)", "int64"),
        ("NUMBER(19)", "decimal128(19, 0)"),
        ("NUMBER(38)", "decimal128(38, 0)"),
        ("NUMBER(*,0)", "decimal128(38, 0)"),
        ("NUMBER(12,2)", "decimal128(12, 2)"),
        ("NUMBER(3,5)", "decimal128(5, 5)"),
        ("NUMBER(5,38)", "decimal128(38, 38)"),
        ("BINARY_FLOAT", "float"),
        ("BINARY_DOUBLE", "double"),
        ("DATE", "timestamp[s]"),
        ("TIMESTAMP(0)", "timestamp[us]"),
        ("TIMESTAMP(6)", "timestamp[us]"),
        ("BOOLEAN", "bool"),
        ("RAW(16)", "binary"),
    ],
)
@pytest.mark.parametrize("target", [CSV, PARQUET], ids=["csv", "parquet"])
def test_types_that_hold_every_value_are_read_as_such(
    native: str, output: str, target: OneOutput
) -> None:
    """A column whose Arrow type holds all its values is read as it is, for every format."""
    assert one(native, target) == (output, '"C"')


@pytest.mark.parametrize(
    "native", ["NUMBER", "FLOAT(126)", "NUMBER(10,-2)", "NUMBER(2,60)"], ids=str
)
def test_numbers_without_a_decimal_are_text(native: str) -> None:
    """A NUMBER that no decimal holds is exact text, never a double, unless the user asks for it."""
    text = ("string", "TO_CHAR(\"C\",'TM9','NLS_NUMERIC_CHARACTERS=''.,''')")
    assert one(native, CSV) == one(native, PARQUET) == text
    for form, output in (("decimal(38,10)", "decimal128(38, 10)"), ("double", "double")):
        values = ValueOptions(number_without_precision=form)
        assert one(native, replace(PARQUET, values=values)) == (output, '"C"')
        assert one(native, replace(CSV, values=values)) == text


def test_only_what_loses_something_says_so() -> None:
    """Doubles of NUMBERs and instants without their zone are not lossless; all else is."""
    values = ValueOptions(number_without_precision="double")
    rounded = read_columns(
        ColumnInfo(name="C", native_type="NUMBER"), replace(PARQUET, values=values)
    )
    assert [(c.lossless, bool(c.note)) for c in rounded] == [(False, True)]
    for native in TYPES:
        for target in (CSV, PARQUET):
            for read in read_columns(ColumnInfo(name="C", native_type=native), target):
                zone_lost = native.endswith("WITH TIME ZONE") and target is PARQUET
                assert read.lossless is not zone_lost, native


def test_nanoseconds_never_come_through_the_driver() -> None:
    """Timestamps of 7 to 9 digits are fetched as text, also where they become timestamp[ns]."""
    finest = replace(PARQUET, values=ValueOptions(nanoseconds="timestamp"))
    text = "TO_CHAR(\"C\",'SYYYY-MM-DD HH24:MI:SS.FF9')"
    assert one("TIMESTAMP(9)", CSV) == one("TIMESTAMP(9)", PARQUET) == ("string", text)
    assert one("TIMESTAMP(9)", finest) == ("timestamp[ns]", text)
    output, expression = one("TIMESTAMP(7) WITH TIME ZONE", finest)
    assert output == "timestamp[ns, tz=UTC]"
    assert "SYS_EXTRACT_UTC" in expression
    assert expression.startswith("TO_CHAR(")


def test_zoned_timestamps_keep_their_zone_where_asked() -> None:
    """CSV has offset and region in the text; Parquet the instant, and a zone column on request."""
    native = "TIMESTAMP(6) WITH TIME ZONE"
    output, expression = one(native, CSV)
    assert output == "string"
    assert "TZH:TZM TZR" in expression
    assert one(native, PARQUET) == ("timestamp[us, tz=UTC]", 'SYS_EXTRACT_UTC("C")')
    zones = replace(PARQUET, values=ValueOptions(zone_columns=True))
    column = ColumnInfo(name="C", native_type=native)
    instant, zone = read_columns(column, zones)
    assert (instant.name, zone.name) == ("C", "C_zone")
    assert zone.expression == "TO_CHAR(\"C\",'TZR')"
    assert instant.lossless
    assert len(read_columns(column, replace(CSV, values=zones.values))) == 1


@pytest.mark.parametrize(
    "native", ["BFILE", "SCOTT.ADDRESS_T", "REF SCOTT.T", "SYS.ANYDATA", "CURSOR"]
)
def test_types_without_exact_text_are_refused_by_name(native: str) -> None:
    """A column that cannot be read exactly stops the run and names `--exclude`."""
    with pytest.raises(SourceError, match=f"column C has the type {native}") as refused:
        read_columns(ColumnInfo(name="C", native_type=native), CSV)
    assert "--exclude C" in refused.value.hint


def test_as_text_makes_text_of_every_type() -> None:
    """`--as-text` gives a string column of any type that can be read, and its mark for numbers."""
    columns = tuple(ColumnInfo(name=f"C{n}", native_type=t) for n, t in enumerate(TYPES))
    table = TableInfo(schema="S", name="T", columns=columns, named_partitions=True, row_ranges=True)
    made = oracle_projection(table, replace(PARQUET, as_text=("c*",)))
    assert {column.output_type for column in made.columns} == {"string"}
    classes = {
        column.source_type: text_class(field)
        for column, field in zip(made.columns, read_schema(made.schema), strict=True)
    }
    assert {name for name, kind in classes.items() if kind == "number"} == {
        "NUMBER",
        "FLOAT",
        "BINARY_FLOAT",
        "BINARY_DOUBLE",
    }
    # No mask may change a column that was requested as exact text.
    assert "timestamp" not in classes.values()


def test_texts_of_numbers_and_timestamps_are_marked() -> None:
    """Values that are carried as text have their kind in the field."""
    columns = tuple(
        ColumnInfo(name=name, native_type=native)
        for name, native in (
            ("N", "NUMBER"),
            ("T", "TIMESTAMP(9)"),
            ("Z", "TIMESTAMP(6) WITH TIME ZONE"),
            ("V", "VARCHAR2(10 CHAR)"),
        )
    )
    table = TableInfo(schema="S", name="T", columns=columns, named_partitions=True, row_ranges=True)
    schema = read_schema(oracle_projection(table, CSV).schema)
    assert [text_class(field) for field in schema] == ["number", "timestamp", "timestamp", ""]


def test_a_zone_column_takes_nobody_else_s_name() -> None:
    """A table that has the name of a zone column already is refused with a way out."""
    columns = (
        ColumnInfo(name="C", native_type="TIMESTAMP(6) WITH TIME ZONE"),
        ColumnInfo(name="C_zone", native_type="NUMBER(1)"),
    )
    table = TableInfo(schema="S", name="T", columns=columns, named_partitions=True, row_ranges=True)
    zones = replace(PARQUET, values=ValueOptions(zone_columns=True))
    with pytest.raises(SourceError, match="C_zone") as refused:
        oracle_projection(table, zones)
    assert "--exclude C_zone" in refused.value.hint
