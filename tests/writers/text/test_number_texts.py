"""Texts of integers, floats and decimals: exact, and floats as PostgreSQL prints them."""

import math
import struct
from decimal import Context, Decimal
from fractions import Fraction

import pyarrow as pa
import pytest
from amounts import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st

from writers.model import TextFormat
from writers.text.text_values import text_of


def texts(array, **options):
    return text_of(array, pa.field("c", array.type), TextFormat(**options)).to_pylist()


def step(value, bits, by):
    """The float whose bit pattern is `by` further from zero."""
    code, integer = ("<d", "<q") if bits == 64 else ("<f", "<i")
    (pattern,) = struct.unpack(integer, struct.pack(code, value))
    return struct.unpack(code, struct.pack(integer, pattern + by))[0]


def reference(value, bits):
    """PostgreSQL's text, found by trying 1, 2, ... digits; strictly inside the interval."""
    if not math.isfinite(value):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    sign = "-" if math.copysign(1, value) < 0 else ""
    size = abs(value)
    if not size:
        return sign + "0"
    # The last float's upper neighbour is infinite; the step below it is as wide.
    above = Fraction(size) + (Fraction(size) - Fraction(step(size, bits, -1)))
    if not math.isinf(up := step(size, bits, 1)):
        above = Fraction(up)
    below = Fraction(step(size, bits, -1))
    for digits in range(1, 18):
        nearest = Decimal(f"{size:.{digits - 1}e}")
        last = Decimal(1).scaleb(nearest.adjusted() - digits + 1)
        # Below a power of two the interval is half as wide, so the nearest may lie outside it.
        inside = [
            each
            for each in (nearest, nearest + last, nearest - last)
            if (below + Fraction(size)) / 2 < Fraction(each) < (above + Fraction(size)) / 2
        ]
        if inside:
            number = inside[0]
            break
    exponent = number.adjusted()
    shown = "".join(map(str, number.as_tuple().digits)).rstrip("0")
    if -4 <= exponent < (15 if bits == 64 else 6):
        return sign + format(Decimal(f"{shown}e{exponent - len(shown) + 1}"), "f")
    mantissa = shown[0] + ("." + shown[1:] if shown[1:] else "")
    return f"{sign}{mantissa}e{'-' if exponent < 0 else '+'}{abs(exponent):02}"


def float_of(bits, pattern):
    return struct.unpack("<d" if bits == 64 else "<f", pattern.to_bytes(bits // 8, "little"))[0]


@settings(max_examples=examples(120), deadline=None)
@example([1 << 56])  # A power of two, whose nearest text of 16 digits is another number's.
@given(st.lists(st.none() | st.integers(0, 2**64 - 1), max_size=6))
def test_any_double(patterns):
    """Every bit pattern has PostgreSQL's text."""
    values = [None if p is None else float_of(64, p) for p in patterns]
    got = texts(pa.array(values, pa.float64()))
    assert got == [None if v is None else reference(v, 64) for v in values]


@settings(max_examples=examples(120), deadline=None)
@given(st.lists(st.none() | st.integers(0, 2**32 - 1), max_size=6))
def test_any_float(patterns):
    """Every bit pattern of 32 bits has PostgreSQL's text."""
    values = [None if p is None else float_of(32, p) for p in patterns]
    got = texts(pa.array(values, pa.float32()))
    assert got == [None if v is None else reference(v, 32) for v in values]


@settings(max_examples=examples(100), deadline=None)
@given(
    st.floats(
        allow_nan=False, allow_infinity=False, width=64, min_value=-(2.0**53), max_value=2.0**53
    )
)
def test_doubles_have_the_digits_of_repr(value):
    """Below 2**53 the digits are those of Python's repr, and they read back exactly."""
    (text,) = texts(pa.array([value]))
    assert Decimal(text) == Decimal(repr(value))
    assert struct.pack("<d", float(text)) == struct.pack("<d", value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e20, "1e+20"), (1e-5, "1e-05"), (1e-4, "0.0001"), (100000.0, "100000"), (0.1, "0.1"),
        (-0.0, "-0"), (0.0, "0"), (1e14, "100000000000000"), (1e15, "1e+15"),
        (123456789012345.6, "123456789012345.6"), (5e-324, "5e-324"), (1e100, "1e+100"),
        (1.7976931348623157e308, "1.7976931348623157e+308"), (1.5e-7, "1.5e-07"),
        (math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity"),
        (1e23, "9.999999999999999e+22"), (-1e23, "-9.999999999999999e+22"),
        (2.0**60, "1.152921504606847e+18"), (2.0**-44, "5.684341886080802e-14"),
    ],
)  # fmt: skip
def test_doubles_as_postgres_prints_them(value, text):
    """Texts printed by PostgreSQL 18 itself."""
    assert texts(pa.array([value])) == [text]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1, "0.1"), (1e5, "100000"), (999999.0, "999999"), (1e6, "1e+06"),
        (1234567.0, "1.234567e+06"), (16777216.0, "1.6777216e+07"),
        (2.0**30, "1.0737418e+09"), (9.8e9, "9.799999e+09"), (8.5e9, "8.4999997e+09"),
        (1e-5, "1e-05"), (54146848.0, "5.4146848e+07"), (math.nan, "NaN"),
    ],
)  # fmt: skip
def test_floats_as_postgres_prints_them(value, text):
    """Texts printed by PostgreSQL 18 itself, as float4."""
    assert texts(pa.array([value], pa.float32())) == [text]


KINDS = [
    pa.decimal128(38, 0), pa.decimal128(10, 0), pa.decimal128(12, 2), pa.decimal128(38, 6),
    pa.decimal128(38, 7), pa.decimal128(38, 38), pa.decimal256(76, 38), pa.decimal256(60, 3),
    pa.decimal128(10, -3), pa.decimal256(70, -5),
]  # fmt: skip


@settings(max_examples=examples(100), deadline=None)
@given(st.sampled_from(KINDS), st.data())
def test_decimals_are_plain_and_complete(kind, data):
    """No exponent, every digit of the scale, whatever the size; slices too."""
    most = 10**kind.precision - 1
    unscaled = data.draw(
        st.lists(st.none() | st.integers(-most, most) | st.integers(-3, 3), max_size=5)
    )
    exact = Context(prec=100)
    values = [None if u is None else exact.scaleb(Decimal(u), -kind.scale) for u in unscaled]
    array = pa.array([None, *values], kind).slice(1)
    expected = [
        None
        if u is None
        else (str(u * 10**-kind.scale) if kind.scale <= 0 else plain(u, kind.scale))
        for u in unscaled
    ]
    assert texts(array) == expected


def plain(unscaled, scale):
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    return ("-" if unscaled < 0 else "") + digits[:-scale] + "." + digits[-scale:]


@pytest.mark.parametrize("make", [pa.decimal128, pa.decimal256, "decimal32", "decimal64"])
def test_decimals_of_every_width(make):
    """All widths write the same texts; the decimal separator is replaced."""
    if isinstance(make, str):
        if not hasattr(pa, make):
            pytest.skip(f"this pyarrow has no {make}")
        make = getattr(pa, make)
    array = pa.array([Decimal("-0.50"), Decimal("0.00"), None], make(9, 2))
    assert texts(array) == ["-0.50", "0.00", None]
    assert texts(array, decimal_separator=",") == ["-0,50", "0,00", None]
    small = pa.array([Decimal("0.0000001")], make(9, 7))
    assert texts(small) == ["0.0000001"]
