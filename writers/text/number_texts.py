"""Texts of floats and decimals: exact, and for floats byte for byte PostgreSQL's texts.

Source of truth: PostgreSQL's float8out and float4out, tried over millions of values. They print
the shortest text that lies strictly inside the interval of numbers rounding to the float. Most
printers, Arrow's and Python's too, also take a text on the interval's edge: the double nearest to
1e23 is `1e+23` there and `9.999999999999999e+22` here.

Infinite dates and timestamps, in columns whose metadata (`INFINITE`) allows infinity.

Arrow has no infinity; PostgreSQL and DuckDB have, and write it `infinity` and `-infinity`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

import pyarrow as pa
from msgspec import Struct

from writers.schema import pc
from writers.text.string_arrays import Place, joined


class _Width(Struct, frozen=True, kw_only=True):
    """What differs between float4out and float8out."""

    integer: pa.DataType
    fixed_digits: int
    """Numbers of at least 10 to this power, and those below 1e-4, have an exponent."""
    most_digits: int
    edges: tuple[float, float]
    """Only between these can a text of few enough digits lie on the edge of the interval: the
    middle of two neighbours is an odd mantissa one bit longer, so 5**k divides it for few k."""


_WIDTHS = {
    64: _Width(integer=pa.int64(), fixed_digits=15, most_digits=17, edges=(2.0**53, 1e41)),
    32: _Width(integer=pa.int32(), fixed_digits=6, most_digits=9, edges=(2.0**24, 1e20)),
}
_ARROW_FIXED_DIGITS = 10
"""Where Arrow turns to exponents (measured: versions 17 to 26); below 1e-5 it does, too."""
_PLAIN_SCALE = 6
"""Arrow writes small decimals with more digits after the point with an exponent."""
_INT64_DIGITS = 18


def float_texts(values: pa.Array) -> pa.Array:
    """Return the shortest round-trip text of floats; a float16 is written as a float32."""
    if pa.types.is_float16(values.type):
        # By value: older Arrow versions lack this cast.
        values = pa.array(
            [None if v is None else float(v) for v in values.to_pylist()], pa.float32()
        )
    width = _WIDTHS[values.type.bit_width]
    texts = pc.cast(values, pa.string())
    size = pc.abs(values)
    plain = pc.and_(
        pc.less(size, 10.0 ** min(width.fixed_digits, _ARROW_FIXED_DIGITS)),
        pc.or_(pc.greater_equal(size, 1e-4), pc.equal(size, 0.0)),
    )
    odd = pc.fill_null(pc.invert(plain), False)
    if not pc.any(odd).as_py():
        return texts
    pairs = zip(pc.filter(values, odd).to_pylist(), pc.filter(texts, odd).to_pylist(), strict=True)
    written = pa.array([_float_text(value, text, width) for value, text in pairs])
    return pc.replace_with_mask(texts, odd, written)


def _float_text(value: float, text: str, width: _Width) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    number = Decimal(text).normalize()
    low, high = width.edges
    inside = not low <= abs(value) < high or _strictly_inside(number, value, width)
    if not inside:
        for digits in range(len(number.as_tuple().digits), width.most_digits + 1):
            number = Decimal(f"{value:.{digits - 1}e}")
            if _strictly_inside(number, value, width):
                break
    sign, digit_tuple, _ = number.as_tuple()
    digits_text, exponent = "".join(map(str, digit_tuple)).rstrip("0"), number.adjusted()
    whole, rest = digits_text[:1], digits_text[1:]
    if exponent < -4 or exponent >= width.fixed_digits:
        rest = f".{rest}" if rest else ""
        return f"{'-' * sign}{whole}{rest}e{exponent:+03}"
    if exponent < 0:
        return "-" * sign + "0." + "0" * (-exponent - 1) + digits_text
    whole = digits_text[: exponent + 1].ljust(exponent + 1, "0")
    rest = digits_text[exponent + 1 :]
    return "-" * sign + (f"{whole}.{rest}" if rest else whole)


def _strictly_inside(number: Decimal, value: float, width: _Width) -> bool:
    """Return whether a text rounds to the float for every way to break ties."""
    exact, found = Fraction(value), Fraction(number)
    if found == exact:
        return True
    above = found > exact
    if width.integer == pa.int64():
        neighbour = math.nextafter(value, math.inf if above else -math.inf)
    else:
        (bits,) = struct.unpack("<i", struct.pack("<f", value))
        bits += 1 if above == (value > 0) else -1
        (neighbour,) = struct.unpack("<f", struct.pack("<i", bits))
    return abs(found - exact) * 2 < abs(Fraction(neighbour) - exact)


def decimal_texts(values: pa.Array) -> pa.Array:
    """Return decimals in plain notation with every digit of their scale, never an exponent."""
    kind = values.type
    precision, scale = kind.precision, kind.scale
    if kind.bit_width < 128:
        values = pc.cast(values, pa.decimal128(precision, scale))
    if scale == 0 and precision <= _INT64_DIGITS:
        return pc.cast(pc.cast(values, pa.int64()), pa.string())
    if 0 <= scale <= _PLAIN_SCALE:
        return pc.cast(values, pa.string())
    # The same integers under scale 0; no digit is touched.
    kind = (pa.decimal256 if values.type.bit_width == 256 else pa.decimal128)(precision, 0)
    same = pa.Array.from_buffers(kind, len(values), values.buffers(), offset=values.offset)
    unscaled = pc.cast(same, pa.string())
    if scale < 0:
        shifted = joined(unscaled, "0" * -scale)
        return pc.if_else(pc.equal(unscaled, "0"), unscaled, shifted)
    digits = pc.ascii_lpad(pc.ascii_ltrim(unscaled, "-"), scale + 1, "0")
    sign = pc.if_else(pc.starts_with(unscaled, "-"), "-", "")
    whole = pc.utf8_slice_codeunits(digits, 0, -scale)
    behind = pc.utf8_slice_codeunits(digits, -scale)
    return joined(sign, whole, ".", behind)


LETTERS = frozenset("-infinity")
_WORDS = ("infinity", "-infinity")


def infinite_texts(
    values: pa.Array, texts_of: Callable[[pa.Array], pa.Array], place: Place, *, masked: bool
) -> pa.Array:
    """Return texts by `texts_of`, and of infinities, which a `masked` column cannot show."""
    if not holds_infinity(values):
        return texts_of(values)
    ticks, greatest = _ticks(values)
    above, below = pc.equal(ticks, greatest), pc.equal(ticks, pc.negate(greatest))
    infinite = pc.or_(above, below)
    if masked:
        place.refuse_where(
            infinite,
            "the value is infinite, which no date format can show",
            f"write the column as exact text with --as-text {place.column}, or leave it out with "
            "--exclude",
        )
    texts = texts_of(pc.if_else(infinite, pa.scalar(None, values.type), values))
    return pc.if_else(above, _WORDS[0], pc.if_else(below, _WORDS[1], texts))


def holds_infinity(values: pa.Array) -> bool:
    ticks, greatest = _ticks(values)
    ends = pc.min_max(ticks).as_py()
    return ends["min"] is not None and greatest.as_py() in (ends["max"], -ends["min"])


def _ticks(values: pa.Array) -> tuple[pa.Array, pa.Scalar]:
    integer = pa.int32() if values.type.bit_width == 32 else pa.int64()
    return values.view(integer), pa.scalar(2 ** (values.type.bit_width - 1) - 1, integer)
