"""Widths of fields: by type, by declared length, by the user, and none at all."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from unloader.errors import UsageError
from unloader.model import Projection, ReadColumn
from unloader.resolve.columns import fixed_fields
from unloader.sources.registry import source_of
from writers.model import FixedField, TextFormat
from writers.schema import schema_text

TEXT = pa.string()


def laid_out(
    *columns: tuple[str, str, pa.DataType] | tuple[str, str, pa.DataType, str],
    given: tuple[tuple[str, int], ...] = (),
    source: str = "",
    base_types: dict[str, str] | None = None,
    **options: Any,
) -> dict[str, FixedField]:
    """Return the fields of columns given by name, source type, Arrow type and text class."""
    fields, read = [], []
    # As Oracle writes its types, in capitals, or as PostgreSQL does.
    source = source or ("oracle" if columns[0][1][:1].isupper() else "postgresql")
    for name, source_type, kind, *carried in columns:
        metadata = {"text_class": carried[0]} if carried else {}
        if name in (base_types or {}):
            metadata["base_type"] = (base_types or {})[name]
        fields.append(pa.field(name, kind, metadata=metadata))
        read.append(
            ReadColumn(
                name=name,
                source_type=source_type,
                expression=name,
                output_type=str(kind),
                nullable=True,
                lossless=True,
            )
        )
    found = fixed_fields(
        Projection(columns=tuple(read), route="arrow", schema=schema_text(pa.schema(fields))),
        TextFormat(header=False, **options),
        given,
        declared=source_of(source).declared,
        folding="any",
    )
    return dict(zip((column[0] for column in columns), found, strict=True))


def width_of(source_type: str, kind: pa.DataType = TEXT, *carried: str, **options: Any) -> int:
    """Return the width of one column."""
    return laid_out(("c", source_type, kind, *carried), **options)["c"].width  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("source_type", "encoding", "width"),
    [
        ("VARCHAR2(15 BYTE)", "utf-8", 15),
        ("VARCHAR2(15 BYTE)", "cp932", 15),
        ("VARCHAR2(15 BYTE)", "euc_jp", 23),
        ("VARCHAR2(15 BYTE)", "utf-16-le", 30),
        ("VARCHAR2(15 BYTE)", "gb18030", 30),
        ("VARCHAR2(15 CHAR)", "utf-8", 60),
        ("VARCHAR2(15 CHAR)", "latin-1", 15),
        ("VARCHAR2(15 CHAR)", "cp932", 30),
        ("VARCHAR2(15 CHAR)", "utf-16", 60),
        ("NVARCHAR2(15)", "gb18030", 60),
        ("NCHAR(3)", "cp1252", 3),
        ("CHAR(8 BYTE)", "utf-8", 8),
        ("character varying(15)", "utf-8", 60),
        ("character(8)", "iso8859-15", 8),
        ("varchar(20)", "ascii", 20),
        ("name", "utf-8", 63),
    ],
)
def test_a_declared_length_is_one_of_characters_or_bytes(
    source_type: str, encoding: str, width: int
) -> None:
    """Characters take as many bytes as the output encoding may need for them."""
    assert width_of(source_type, encoding=encoding) == width


@pytest.mark.parametrize(
    ("source_type", "kind", "carried", "width"),
    [
        ("NUMBER(9)", pa.int32(), (), 11),
        ("NUMBER(12,2)", pa.decimal128(12, 2), (), 14),
        ("NUMBER(5,-2)", TEXT, ("number",), 8),
        ("NUMBER(*,0)", TEXT, ("number",), 39),
        ("numeric(50,10)", TEXT, ("number",), 52),
        ("money", TEXT, ("number",), 21),
        ("RAW(16)", pa.binary(), (), 34),
        ("DATE", pa.timestamp("s"), ("date",), 19),
        ("TIMESTAMP(9)", TEXT, ("timestamp",), 29),
        ("TIMESTAMP(9) WITH LOCAL TIME ZONE", TEXT, ("timestamp",), 35),
        ("INTERVAL YEAR(2) TO MONTH", TEXT, (), 6),
        ("INTERVAL DAY(2) TO SECOND(6)", TEXT, (), 19),
        ("ROWID", TEXT, (), 18),
        ("uuid", TEXT, (), 36),
        ("time(3) without time zone", TEXT, (), 15),
    ],
)
def test_other_types_are_as_wide_as_their_longest_text(
    source_type: str, kind: pa.DataType, carried: tuple[str, ...], width: int
) -> None:
    """Typed or carried as text."""
    assert width_of(source_type, kind, *carried) == width


@pytest.mark.parametrize(
    ("source", "source_type", "width"),
    [
        ("sqlite", "VARCHAR (20)", 20),
        ("sqlite", "nvarchar(20)", 20),
        ("sqlite", "UUID", 36),
        ("duckdb", "UHUGEINT", 39),
        ("duckdb", "HUGEINT", 40),
        ("duckdb", "UUID", 36),
        ("duckdb", "TIME WITH TIME ZONE", 24),
    ],
)
def test_each_source_knows_its_own_types(source: str, source_type: str, width: int) -> None:
    """The lengths that a source's types declare are that source's."""
    assert width_of(source_type, source=source, encoding="ascii") == width


def test_fields_follow_one_another_without_gaps() -> None:
    """Numbers stand right; CHAR is padded where the source pads it."""
    columns = (("id", "NUMBER(9)", pa.int32()), ("c", "CHAR(3 BYTE)", TEXT), ("v", "TEXT", TEXT))
    fields = laid_out(*columns, given=(("V", 5),))
    assert fields == {
        "id": FixedField(start=0, width=11, right=True),
        "c": FixedField(start=11, width=3, padded=True),
        "v": FixedField(start=14, width=5),
    }
    assert not laid_out(*columns, given=(("v", 5),), source="sqlite")["c"].padded


def test_every_field_has_room_for_null() -> None:
    """Where the user gave no width."""
    assert width_of("BOOLEAN", pa.bool_(), null="UNKNOWN") == 7
    assert laid_out(("c", "x", TEXT), given=(("c", 2),), null="UNKNOWN")["c"].width == 2


def test_what_the_user_gives_comes_first() -> None:
    """Over a width that is known; quotes tell columns apart that only differ in case."""
    columns = (("A", "NUMBER(9)", pa.int32()), ("a", "CHAR(3)", TEXT))
    fields = laid_out(*columns, given=(('"a"', 30), ('"A"', 40)))
    assert [fields["A"].width, fields["a"].width] == [40, 30]


def test_one_error_names_all_columns_without_a_width() -> None:
    """And how to give them one."""
    columns = [("n", "NUMBER", TEXT, "number"), ("i", "NUMBER(9)", pa.int32()), ("b", "BLOB", TEXT)]
    with pytest.raises(UsageError) as error:
        laid_out(*columns)  # type: ignore[arg-type]
    assert "no width for n, b:" in error.value.message
    assert "--width n=BYTES" in error.value.hint
    assert "--exclude" in error.value.hint


@pytest.mark.parametrize(
    "source_type",
    ["TIMESTAMP(9) WITH TIME ZONE", "FLOAT(126)", "text", "character varying", "CLOB"],
)
def test_a_type_of_any_length_has_no_width(source_type: str) -> None:
    """Nor has a zoned timestamp whose region is a part of the text."""
    carried = {"T": "timestamp", "F": "number"}.get(source_type[0])
    with pytest.raises(UsageError):
        width_of(source_type, TEXT, *([carried] if carried else []))


def test_a_domain_is_as_wide_as_the_type_behind_it() -> None:
    """Its own name says nothing."""
    assert width_of("zip_code", encoding="latin-1", base_types={"c": "character varying(5)"}) == 5


@pytest.mark.parametrize(
    ("given", "said"), [((("x", 3),), "unknown column 'x'"), ((("c", 3), ("C", 4)), "'c' twice")]
)
def test_a_width_for_no_column_or_twice_is_refused(
    given: tuple[tuple[str, int], ...], said: str
) -> None:
    """A typing mistake does not pass."""
    with pytest.raises(UsageError, match=said):
        laid_out(("c", "x", TEXT), given=given)
