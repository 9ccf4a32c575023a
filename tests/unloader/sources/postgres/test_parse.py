"""COPY's text into batches: distinctions, refusals, and rows that are read in pieces."""

from __future__ import annotations

import math
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unloader.errors import OutputFailed, SourceError
from unloader.sources.postgres.reader import CopyParser, WideRows, records
from writers.held_values import LEAST_BYTES, PIECE_BYTES
from writers.large_rows import LargeRow


def rows_of(data: bytes, **types: pa.DataType) -> list[tuple[object, ...]]:
    """Return the rows that a parser for these columns makes of the text."""
    schema = pa.schema(list(types.items()))
    batch = CopyParser(schema).parse(data)
    batch.validate(full=True)
    assert batch.schema.equals(schema)
    return list(zip(*(column.to_pylist() for column in batch.columns), strict=True))


def refusal_of(data: bytes, **types: pa.DataType) -> OutputFailed:
    """Return the error that the text is refused with."""
    with pytest.raises(OutputFailed) as caught:
        rows_of(data, **types)
    assert not caught.value.retryable
    return caught.value


def test_null_and_the_empty_string_stay_apart() -> None:
    """Nothing between two delimiters is NULL, two quotes are the empty string."""
    data = b',""\n"",\n"NULL",NULL\n'
    assert rows_of(data, a=pa.string(), b=pa.string()) == [(None, ""), ("", None), ("NULL", "NULL")]


def test_one_column_of_nulls() -> None:
    """An empty line is a record with a NULL, not the lack of a record."""
    assert rows_of(b'\n""\n\nx\n\n', a=pa.string()) == [(None,), ("",), (None,), ("x",), (None,)]
    assert rows_of(b"\n1\n", a=pa.int64()) == [(None,), (1,)]


@given(st.lists(st.none() | st.text(alphabet=st.characters(codec="utf-8")), min_size=1))
def test_any_text_comes_out_as_it_was(values: list[str | None]) -> None:
    """Any UTF-8 text arrives as COPY encloses it, with NULLs between."""
    values = [value.replace("\0", "") if value is not None else None for value in values]
    lines = ['"' + v.replace('"', '""') + '"' if v is not None else "" for v in values]
    data = "".join(f"{line},1\n" for line in lines).encode()
    assert [row[0] for row in rows_of(data, a=pa.string(), b=pa.int32())] == values


def test_values_of_every_type() -> None:
    """What PostgreSQL prints is read as the type says, edges included, NULL in each."""
    columns = {
        "flag": (pa.bool_(), "t", True),
        "whole": (pa.int64(), "-9223372036854775808", -(2**63)),
        "real": (pa.float32(), "1.5", 1.5),
        "double": (pa.float64(), "5e-324", 5e-324),
        "infinite": (pa.float64(), "-Infinity", -math.inf),
        "money": (pa.decimal128(5, 2), "-999.99", Decimal("-999.99")),
        "wide": (pa.decimal128(38, 0), "9" * 38, Decimal("9" * 38)),
        "day": (pa.date32(), "9999-12-31", date(9999, 12, 31)),
        "moment": (pa.timestamp("us"), "0001-01-01 00:00:00.000001", datetime(1, 1, 1, 0, 0, 0, 1)),
        "zoned": (
            pa.timestamp("us", "UTC"),
            "1969-12-31 23:59:59.5Z",
            datetime(1969, 12, 31, 23, 59, 59, 500000, UTC),
        ),
        "bytes": (pa.binary(), "00ff0a", b"\x00\xff\n"),
    }
    texts = ",".join(text for _, text, _ in columns.values())
    data = f"{texts}\n{',' * (len(columns) - 1)}\n".encode()
    types = {name: kind for name, (kind, _, _) in columns.items()}
    values, nulls = rows_of(data, **types)
    assert values == tuple(value for _, _, value in columns.values())
    assert nulls == (None,) * len(columns)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.date32(), "infinity"),
        (pa.timestamp("us"), "-infinity"),
        (pa.timestamp("us"), "294247-01-10 04:00:54.775808"),
        (pa.timestamp("us"), "294276-12-31 23:59:59"),
        (pa.timestamp("us", "UTC"), "infinity"),
        (pa.decimal128(5, 2), "NaN"),
        (pa.decimal128(5, 2), "1000.00"),
        (pa.int16(), "32768"),
        (pa.int32(), "1.0"),
        (pa.bool_(), "yes"),
    ],
)
def test_what_a_type_cannot_hold_is_refused(kind: pa.DataType, text: str) -> None:
    """Nothing is rounded, cut or made NULL: column, value and the way out are named."""
    error = refusal_of(f"1,{text}\n".encode(), good=pa.int64(), bad=kind)
    assert "column bad" in error.message
    assert "good" not in error.message
    assert text in error.message
    assert "--as-text bad" in error.hint


def test_years_far_from_ours_are_right() -> None:
    """Years before 1 and of five digits are the days that PostgreSQL counts, among ordinary ones."""
    days = {
        "0044-03-15 BC": -735_160,
        "4713-01-01 BC": -2_440_550,
        "1970-01-02": 1,
        "12000-02-29": 3_663_441,
        "5874897-12-31": 2_145_042_905,
    }
    data = "".join(f"{text}\n\n" for text in days).encode()
    batch = CopyParser(pa.schema([("d", pa.date32())])).parse(data)
    found = batch.column(0).view(pa.int32()).to_pylist()
    assert found == [each for day in days.values() for each in (day, None)]
    parser = CopyParser(pa.schema([("t", pa.timestamp("us", "UTC"))]))
    for text in (
        "294247-01-10 04:00:54.775807Z",
        "2000-01-01 00:00:00.5Z",
        "0001-12-31 00:00:00Z BC",
    ):
        batch = parser.parse(f"{text}\n".encode())
        expected = {"2": 2**63 - 1, "20": 946_684_800_500_000, "0": -62_135_683_200_000_000}
        key = "20" if text.startswith("2000") else text[0]
        assert batch.column(0).view(pa.int64()).to_pylist() == [expected[key]]


def test_all_columns_that_do_not_fit_are_named_at_once() -> None:
    """One run tells every column to write as text, not one a run."""
    data = b"1,infinity,x,NaN\n2,2024-01-01,y,1.00\n"
    types = {"k": pa.int64(), "d": pa.date32(), "s": pa.string(), "n": pa.decimal128(5, 2)}
    error = refusal_of(data, **types)
    assert "column d" in error.message
    assert "column n" in error.message
    assert "--as-text d,n" in error.hint


def test_a_column_with_an_odd_name_is_told_by_it() -> None:
    """The name in the error is the column's own, with any characters."""
    error = refusal_of(b"x\n", **{'In CSV column #7: "a,b"': pa.int64()})
    assert 'column In CSV column #7: "a,b"' in error.message


@pytest.mark.parametrize("kind", [pa.string(), pa.int64()])
def test_text_that_is_no_utf8_is_refused(kind: pa.DataType) -> None:
    """Bytes of another encoding are refused with the column's name, never replaced."""
    error = refusal_of(b"1,caf\xe9\n", k=pa.int64(), v=kind)
    assert "column v" in error.message
    assert "\ufffd" not in error.message


def test_a_record_of_another_width_is_the_sources_fault() -> None:
    """Text that COPY never sends is not reported as a wrong value."""
    with pytest.raises(SourceError, match="cannot be parsed"):
        rows_of(b"1,2\n1\n", a=pa.int64(), b=pa.int64())


SCHEMA = pa.schema([("a", pa.string()), ("b", pa.binary()), ("n", pa.int64())])


def field(text: str | None, *, quoted: bool) -> str:
    """Return a text as COPY writes it."""
    if text is None:
        return ""
    return '"' + text.replace('"', '""') + '"' if quoted else text


def wide_rows_of(text: str) -> list[dict[str, Any]]:
    """Return the rows that a text gives, each wide one put together again."""
    found = []
    wide = WideRows(SCHEMA, CopyParser(SCHEMA), 2 * LEAST_BYTES)
    for item in wide.rows(memoryview(text.encode())):
        if not isinstance(item, LargeRow):
            found += item.to_pylist()
            continue
        (row,) = item.row.to_pylist()
        for index, value in item.values:
            empty: Any = b"" if value.binary else ""
            row[SCHEMA.field(index).name] = empty.join(value.pieces())
        found.append(row)
    return found


@pytest.mark.parametrize("seed", range(20))
def test_rows_are_those_of_the_whole_text(seed: int) -> None:
    """Quotes, line ends and characters of several bytes may lie across any two pieces."""
    rng = random.Random(seed)
    expected, text = [], ""
    for number in range(6):
        size = rng.choice([0, 5, LEAST_BYTES, PIECE_BYTES, 2 * PIECE_BYTES + 1])
        units = rng.choice(['"', '""é', "€,\n", "\U0001f600", 'x"', "plain"])
        long = "x" * rng.randrange(4) + (units * size)[:size] + '"' * rng.randrange(4)
        data = rng.randbytes(rng.choice([0, 3, LEAST_BYTES]))
        row = {"a": long or None, "b": data or None, "n": number}
        quoted = bool(set(long) & set('",\n'))
        fields = (field(row["a"], quoted=quoted), row["b"].hex() if row["b"] else "", str(number))
        expected.append(row)
        text += ",".join(fields) + "\n"
    assert wide_rows_of(text) == expected


def test_fields_of_records() -> None:
    """NULL and the empty text are distinguished, and a line end inside quotes ends nothing."""
    text = b'a,"b ""\n"",",,""\n\n"",c\n'
    found = [[bytes(text[f[0] : f[1]]) for f in row] for row in records(memoryview(text))]
    assert found == [[b"a", b'"b ""\n"","', b"", b'""'], [b""], [b'""', b"c"]]
