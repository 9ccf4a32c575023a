"""The native decoder of COPY's text against the plain parser, on ordinary and hostile values."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from amounts import tries
from hypothesis import given
from hypothesis import strategies as st

from unloader.errors import UnloaderError
from unloader.sources.postgres.libpq import connection as copying
from unloader.sources.postgres.reader import CopyParser, Decoder

pytestmark = pytest.mark.skipif(
    copying.native() is None, reason="the native library of COPY is not built"
)


def whole(low: int, high: int) -> st.SearchStrategy[str]:
    """Texts of integers, the extremes among them."""
    return st.sampled_from([low, high, 0]).map(str) | st.integers(low, high).map(str)


def numeric(precision: int, scale: int) -> st.SearchStrategy[str]:
    """Texts of numerics with all digits of their scale."""
    most = 10**precision - 1

    def text(value: int) -> str:
        digits = str(abs(value)).rjust(scale + 1, "0")
        point = len(digits) - scale
        shown = f"{digits[:point]}.{digits[point:]}" if scale else digits
        return f"-{shown}" if value < 0 else shown

    return (st.sampled_from([most, -most, 0, -1]) | st.integers(-most, most)).map(text)


DATES = st.dates().map(str)
MOMENTS = st.datetimes().map(lambda value: value.isoformat(" "))
FLOATS = st.sampled_from(["NaN", "Infinity", "-Infinity", "-0", "1e-45", "5e-324", "1e+300"])
TEXTS = st.text(st.sampled_from('ab,"\n\r\té日😀\\ N'), max_size=6)
COLUMNS: dict[pa.DataType, st.SearchStrategy[str]] = {
    pa.bool_(): st.sampled_from("tf"),
    pa.int16(): whole(-(2**15), 2**15 - 1),
    pa.int32(): whole(-(2**31), 2**31 - 1),
    pa.int64(): whole(-(2**63), 2**63 - 1),
    pa.uint32(): whole(0, 2**32 - 1),
    pa.float32(): FLOATS | st.floats(width=32, allow_infinity=False, allow_nan=False).map(repr),
    pa.float64(): FLOATS | st.floats(allow_infinity=False, allow_nan=False).map(repr),
    **{pa.decimal128(*each): numeric(*each) for each in ((5, 5), (12, 2), (18, 0), (19, 4))},
    **{pa.decimal128(*each): numeric(*each) for each in ((38, 0), (38, 38))},
    pa.date32(): DATES,
    pa.timestamp("us"): MOMENTS,
    pa.timestamp("us", "UTC"): MOMENTS.map(lambda text: f"{text}Z"),
    pa.string(): TEXTS,
    pa.binary(): st.binary(max_size=5).map(bytes.hex),
}
HOSTILE = [
    lambda text: f"{text}0",
    lambda text: text[:-1],
    lambda text: f"-{text}",
    lambda text: f" {text}",
    lambda text: f"{text}x",
    lambda text: f"{text} BC",
    lambda text: f"{text}.0",
    lambda text: text.replace(".", "").replace("-", "/"),
    lambda text: f'"{text}"',
    lambda text: "infinity",
    lambda text: "9" * 40,
    lambda text: "2023-02-29",
    lambda text: "2024-01-01 24:00:00",
]


def enclosed(text: str) -> str:
    """Return a value as COPY writes it."""
    if text and not set(text) & set(',"\n\r'):
        return text
    return '"' + text.replace('"', '""') + '"'


@st.composite
def texts(draw: st.DrawFn) -> tuple[pa.Schema, bytes]:
    """Columns, and records of them with NULLs; in some of them a value is damaged."""
    kinds = draw(st.lists(st.sampled_from(list(COLUMNS)), min_size=1, max_size=4))
    row = st.tuples(*(st.just("") | COLUMNS[kind].map(enclosed) for kind in kinds))
    rows = [list(each) for each in draw(st.lists(row, min_size=1, max_size=6))]
    if draw(st.booleans()):
        damaged = draw(st.sampled_from(rows))
        place = draw(st.integers(0, len(kinds) - 1))
        if kinds[place] != pa.string():
            damaged[place] = draw(st.sampled_from(HOSTILE))(damaged[place])
    data = "".join(f"{','.join(each)}\n" for each in rows).encode()
    return pa.schema([(f"c{n}", kind) for n, kind in enumerate(kinds)]), data


def outcome(schema: pa.Schema, data: bytes, *, is_native: bool) -> Any:
    """Return the values, as numbers where Python has none for them, or the error."""
    parser = CopyParser(schema)
    assert parser._decoder.usable
    parser._decoder.usable = is_native
    try:
        batch = parser.parse(data)
    except (UnloaderError, ValueError) as error:
        return str(error)
    if parser._decoder.usable:
        # Arrow reads the damaged 099999 as a numeric(5,5), which no server sends.
        batch.validate(full=True)
    plain = [
        column.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
        if pa.types.is_temporal(kind := column.type)
        else column
        for column in batch.columns
    ]
    # NaN does not equal itself, and zeros have signs.
    return [list(map(repr, column.to_pylist())) for column in plain]


@tries(1500)
@given(texts())
def test_both_have_the_same_values_and_errors(found: tuple[pa.Schema, bytes]) -> None:
    """Whatever the native code declines, the plain parser reads or refuses."""
    schema, data = found
    assert outcome(schema, data, is_native=True) == outcome(schema, data, is_native=False)


@pytest.mark.parametrize(
    ("kind", "taken", "declined"),
    [
        (pa.date32(), "2024-02-29", "0044-03-15 BC"),
        (pa.timestamp("us"), "9999-12-31 23:59:59.999999", "10000-01-01 00:00:00"),
        (pa.int64(), "-9223372036854775808", "9223372036854775808"),
        (pa.decimal128(38, 0), "9" * 38, "1" + "0" * 38),
        (pa.decimal128(5, 2), "-999.99", "1000.00"),
        (pa.binary(), "00ff", "00fg"),
        (pa.string(), "日本", b"\xed\xa0\x80"),
        (pa.string(), "a", '"a'),
    ],
)
def test_only_ordinary_values_are_decoded(kind: pa.DataType, taken: Any, declined: Any) -> None:
    """Any other value declines the whole text, and so does a record with too few values."""

    def decoded(*records: Any) -> pa.RecordBatch | None:
        lines = (each if isinstance(each, bytes) else each.encode() for each in records)
        text = b"".join(each + b",x\n" for each in lines)
        return Decoder(pa.schema([("a", kind), ("b", pa.string())])).batch(pa.py_buffer(text))

    found = decoded(taken, "", taken)
    assert found is not None
    assert (found.num_rows, found.column(0).null_count) == (3, 1)
    assert decoded(taken, declined) is None
    assert decoded(taken, "\n") is None
    assert decoded() is not None


def test_characters_are_whole_in_each_value() -> None:
    """Two halves of a character in two values are not UTF-8, although they are together."""
    halves = "é".encode()
    text = halves[:1] + b"\n" + halves[1:] + b"\n"
    assert Decoder(pa.schema([("a", pa.string())])).batch(pa.py_buffer(text)) is None


def test_types_that_it_does_not_know_are_left_to_the_plain_parser() -> None:
    """No text of such a schema is given to it."""
    assert not Decoder(pa.schema([("a", pa.int64()), ("b", pa.time64("us"))])).usable
