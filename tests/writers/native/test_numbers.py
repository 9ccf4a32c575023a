"""Native texts of integers, decimals and floats: those of the plain functions, byte for byte."""

from __future__ import annotations

import random
import struct

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from amounts import examples
from encoders.native_texts import native_decimals, native_floats
from hypothesis import given, settings
from hypothesis import strategies as st

from writers.text.number_texts import decimal_texts, float_texts

WIDEST = {32: 9, 64: 18, 128: 38, 256: 76}
"""Most digits by the bits of a decimal."""


def decimal_kind(bits, precision, scale):
    """A decimal type, None where this pyarrow has none of that width."""
    make = getattr(pa, f"decimal{bits}", None)
    return make and make(precision, scale)


def decimals(kind, unscaled):
    """An array of unscaled integers under a decimal type."""
    width = kind.bit_width // 8
    data = b"".join(number.to_bytes(width, "little", signed=True) for number in unscaled)
    return pa.Array.from_buffers(kind, len(unscaled), [None, pa.py_buffer(data)])


def edges(precision):
    """Numbers where a digit, a sign or a limb of 64 bits is added, of at most so many digits."""
    most = 10**precision - 1
    steps = [10**k + by for k in range(precision + 1) for by in (-1, 0, 1)]
    steps += [2**k + by for k in (31, 32, 63, 64, 127, 128, 191, 192) for by in (-1, 0, 1)]
    return [sign * step for step in steps for sign in (1, -1) if step <= most]


def check_floats(array):
    """Both sides agree on every value; a library that cannot write floats writes none."""
    found = native_floats(array)
    if found[0] is None:
        assert not any(found)
        pytest.skip("the library was built without std::to_chars of floats")
    expected = float_texts(array).to_pylist()
    assert [pair for pair in zip(found, expected, strict=True) if pair[0] != pair[1]] == []


@pytest.mark.parametrize("bits", sorted(WIDEST))
def test_decimals_of_every_precision(bits):
    """Every width, precision and kind of scale, negative ones and those past the digits too."""
    if decimal_kind(bits, 1, 0) is None:
        pytest.skip(f"this pyarrow has no decimal{bits}")
    chance = random.Random(bits)
    for precision in range(1, WIDEST[bits] + 1):
        most = 10**precision - 1
        values = [0, *edges(precision), *(chance.randint(-most, most) for _ in range(5))]
        scales = {-3, 0, 1, 2, 6, 7, 8, 17, precision - 1, precision, precision + 3}
        for scale in sorted(scales):
            array = decimals(decimal_kind(bits, precision, scale), values)
            assert native_decimals(array) == decimal_texts(array).to_pylist()


@settings(max_examples=examples(150), deadline=None)
@given(st.data(), st.sampled_from([128, 256]), st.sampled_from([",", ".", "::", ""]))
def test_any_decimal(data, bits, separator):
    """Any number under any scale, with any separator."""
    precision = data.draw(st.integers(1, WIDEST[bits]))
    most = 10**precision - 1
    values = data.draw(st.lists(st.integers(-most, most), min_size=1, max_size=5))
    array = decimals(decimal_kind(bits, precision, data.draw(st.integers(-40, 80))), values)
    expected = pc.replace_substring(decimal_texts(array), ".", separator).to_pylist()
    assert native_decimals(array, separator) == expected


def random_bits(bits, count, seed):
    """Floats of random bit patterns."""
    data = random.Random(seed).randbytes(count * bits // 8)
    kind = pa.float64() if bits == 64 else pa.float32()
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(data)])


@pytest.mark.parametrize("bits", [64, 32])
def test_floats_of_any_bits(bits):
    """Random bit patterns, infinities and what is not a number among them."""
    check_floats(random_bits(bits, 20_000, 3))


@pytest.mark.parametrize("bits", [64, 32])
def test_powers_of_two_and_their_neighbours(bits):
    """Every power of two, subnormal ones too, has a neighbour below half as far as above."""
    code, mantissa, exponents = ("<Q", 52, 2047) if bits == 64 else ("<I", 23, 255)
    middles = [e << mantissa for e in range(exponents)] + [1 << k for k in range(mantissa)]
    patterns = [max(m + by, 0) for m in middles for by in (-1, 0, 1)]
    data = b"".join(struct.pack(code, pattern) for pattern in patterns)
    kind = pa.float64() if bits == 64 else pa.float32()
    check_floats(pa.Array.from_buffers(kind, len(patterns), [None, pa.py_buffer(data)]))


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
def test_floats_of_few_digits(kind):
    """Round numbers: some lie in the middle between two floats, where PostgreSQL prints others."""
    last = 309 if kind == pa.float64() else 38
    few = [float(f"{d}e{e}") for e in range(-last - 14, last) for d in (1, 2, 5, 9, 85, 98)]
    chance = random.Random(5)
    even = [float(f"{chance.randrange(1, 10**6)}e{chance.randrange(10, 24)}") for _ in range(9000)]
    check_floats(pa.array([1e23, -1e23, 9.8e9, 8.5e9, -0.0, 0.0, *few, *even], kind))
