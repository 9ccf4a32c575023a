"""Checksums of columns: native and plain agree, and match the definition."""

from __future__ import annotations

import hashlib
import random
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pytest

from writers.content import sums
from writers.content.sums import ColumnSums, Form, Kind, column_sum, form_of, plain_sum
from writers.held_values import HeldValue
from writers.large_rows import LargeRow
from writers.model import ContentSums, hexadecimal

CHANCE = random.Random(7)
NUMBERS = {
    "0": "0", "-0": "0", "0.0": "0", ".5": "0.5", "-.5": "-0.5", "+7": "7", "007": "7",
    "1.50": "1.5", "100": "100", "-1.000": "-1", "1.": "1", "00.10": "0.1", "1e5": "1e5",
    "NaN": "NaN", "Infinity": "Infinity", "": "", ".": ".", "-": "-", "1.2.3": "1.2.3",
    "12345678901234567890123456789012345678901234567890.1200":
        "12345678901234567890123456789012345678901234567890.12",
}  # fmt: skip


def whole(low: int, high: int) -> int:
    """Return a number of a range, its ends often."""
    return CHANCE.choice((low, high, 0, CHANCE.randint(low, high)))


def ticks(kind: pa.DataType, *, near: bool) -> pa.Array:
    """Return dates or times of any number."""
    bits = kind.bit_width
    edge = 10**4 if near else 2 ** (bits - 1) - 1
    values = [None if CHANCE.random() < 0.1 else whole(-edge, edge) for _ in range(150)]
    return pa.array(values, pa.int32() if bits == 32 else pa.int64()).view(kind)


def arrays() -> list[pa.Array]:
    """Return arrays of every kind of values with a form."""
    found = []
    for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64()):
        edge = 2 ** (kind.bit_width - 1)
        found.append(pa.array([whole(-edge, edge - 1) for _ in range(90)] + [None], kind))
    for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()):
        found.append(pa.array([whole(0, 2**kind.bit_width - 1) for _ in range(90)], kind))
    for precision, scale in ((38, 0), (38, 38), (38, 10), (5, 2), (20, 19), (18, 18), (20, 20)):
        most = 10**precision - 1
        digits = Context(prec=60)
        values = [Decimal(whole(-most, most)).scaleb(-scale, digits) for _ in range(90)]
        found.append(pa.array([*values, None], pa.decimal128(precision, scale)))
    for kind in (pa.float32(), pa.float64()):
        odd = [0.0, -0.0, float("nan"), float("inf"), float("-inf"), 1.5, None]
        found.append(pa.array([*odd, *(CHANCE.gauss(0, 1e30) for _ in range(50))], kind))
    found.append(pa.array([True, False, None] * 20))
    zoned = [pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC")]
    for kind in (pa.date32(), *zoned):
        found += [ticks(kind, near=near) for near in (False, True)]
    found.append(pa.array([0, 86399999999, 500000, None] * 9).view(pa.time64("us")))
    sizes = (0, 1, 2, 54, 55, 56, 57, 63, 64, 65, 119, 120, 121, 1000)
    for kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary()):
        texts = ["x" * CHANCE.choice(sizes) for _ in range(100)] + ["ä" * 28, None]
        found.append(pa.array(texts, pa.string()).cast(kind))
    return found


@pytest.mark.parametrize("array", arrays(), ids=lambda array: str(array.type))
def test_native_and_plain_agree(array: pa.Array) -> None:
    """On values of every type, slices included; the native library is built here."""
    assert sums.library() is not None, "build it: pip install -e ."
    forms = [form_of(array.type)]
    if pa.types.is_date(array.type) or pa.types.is_timestamp(array.type):
        forms.append(form_of(array.type, infinite=True))
    for form in forms:
        assert form is not None
        for part in (array, array[3:11], array[-1:], array[:0]):
            assert column_sum(part, form) == plain_sum(part, form)


@pytest.mark.parametrize("kind", [Kind.NUMBER_TEXT, Kind.HEX_TEXT])
def test_native_and_plain_agree_on_texts_for_values(kind: Kind) -> None:
    """Texts of numbers in any spelling, and of bytes."""
    assert sums.library() is not None, "build it: pip install -e ."
    if kind is Kind.NUMBER_TEXT:
        array = pa.array([*NUMBERS, None] * 3)
        form = Form(kind=kind, width=4)
    else:
        array = pa.array([f"\\x{CHANCE.randbytes(size).hex()}" for size in range(70)] + [None])
        form = Form(kind=kind, width=4, digits=2)
    assert column_sum(array, form) == plain_sum(array, form)
    if kind is Kind.HEX_TEXT:
        with pytest.raises(ValueError, match="HEX_TEXT"):
            column_sum(pa.array(["\\x6"]), form)


@pytest.mark.parametrize(("text", "number"), NUMBERS.items())
def test_a_number_has_one_text(text: str, number: str) -> None:
    """Zeros that say nothing go, and so does a plus; other texts stay."""
    assert sums.number_text(text.encode()) == number.encode()


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (-5, pa.int8(), "-5"),
        (Decimal("1.50"), pa.decimal128(9, 2), "1.5"),
        (1.5, pa.float64(), "3ff8000000000000"),
        (1.5, pa.float32(), "3fc00000"),
        (float("nan"), pa.float64(), "NaN"),
        (True, pa.bool_(), "true"),
        ("ä", pa.string(), "ä"),
        (-735160, pa.date32(), "0044-03-15 BC"),
        (500, pa.timestamp("ms"), "1970-01-01 00:00:00.5"),
        (-1, pa.timestamp("s", "UTC"), "1969-12-31 23:59:59+00:00"),
        (1, pa.time64("us"), "00:00:00.000001"),
    ],
)
def test_the_text_of_a_value(value: Any, kind: pa.DataType, text: str) -> None:
    """As docs/verification.md has them: the first eight bytes of the MD5 of this text."""
    expected = hashlib.md5(text.encode()).hexdigest()[:16]
    array = pa.array([value], kind)
    schema = pa.schema([("a", kind)])
    found = ColumnSums(schema)
    found.add([array], 1)
    assert found.result().sums == (expected,)


def test_order_and_cuts_make_no_difference_and_repeats_do() -> None:
    """Parts add up, in any order; a value that comes twice counts twice."""
    schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
    columns = [pa.array([3, None, 1]), pa.array(["x", "y", None])]

    def sums_of(*places: list[int]) -> Any:
        parts = []
        for place in places:
            part = ColumnSums(schema)
            part.add([column.take(pa.array(place, pa.int64())) for column in columns], len(place))
            parts.append(part.result())
        return ContentSums.total(parts)

    assert sums_of([0, 1, 2]) == sums_of([2], [1, 0]) == sums_of([], [2, 1, 0])
    assert sums_of([0, 0]).sums != sums_of([0]).sums
    assert sums_of([0, 1, 2]).nulls == (1, 1)
    assert hexadecimal(-1) == "f" * 16


def test_values_in_pieces_count_once_like_whole_ones() -> None:
    """However often a writer reads them."""
    schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
    row = pa.record_batch([pa.array([1]), pa.array([None], pa.string())], schema=schema)
    data = memoryview(b"ab" * 400_000)
    value = HeldValue(data=data, binary=False, column="b")
    pieces = ColumnSums(schema)
    hashed = pieces.hashed(LargeRow(row=row, values=((1, value),)))
    for _ in range(2):
        assert "".join(hashed.values[0][1].pieces()) == bytes(data).decode()
    whole_value = ColumnSums(schema)
    whole_value.add([pa.array([1]), pa.array([bytes(data).decode()])], 1)
    assert pieces.result() == whole_value.result()
