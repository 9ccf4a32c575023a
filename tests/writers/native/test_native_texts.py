"""Native texts of numbers, moments and characters equal the plain functions' texts."""

from __future__ import annotations

import encodings
import pkgutil
import random
import struct
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from amounts import amount, examples
from encoders.hostile_texts import is_program, native_decimals, native_floats, native_moments
from encoders.random_batches import encoder
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from long_tests import OTHER_ROUTES, also

from writers.errors import FormatError, ValueNotRepresentable
from writers.model import TextFormat
from writers.native.description import charset_description, moment_program
from writers.text.dialects import OutputEncoding
from writers.text.mask_texts import datetime_texts
from writers.text.masks import GROUPS
from writers.text.number_texts import decimal_texts, float_texts
from writers.text.string_arrays import Place

WIDEST = {32: 9, 64: 18, 128: 38, 256: 76}
"""Most digits by the bits of a decimal."""


def decimal_kind(bits, precision, scale):
    make = getattr(pa, f"decimal{bits}", None)
    return make and make(precision, scale)


def decimals(kind, unscaled):
    """An array of unscaled integers under a decimal type."""
    width = kind.bit_width // 8
    data = b"".join(number.to_bytes(width, "little", signed=True) for number in unscaled)
    return pa.Array.from_buffers(kind, len(unscaled), [None, pa.py_buffer(data)])


def edges(precision):
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
    """Random bit patterns, infinities and NaN among them."""
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


TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
FIRST, LAST = -62_135_596_800, 253_402_300_800
"""Seconds from 1970 to the first one of the year 1, and to the end of the year 9999."""
DAY = 86_400
COMPACT = "YYYYMMDDHH24MISS"
ELEMENTS = sorted(name for name in GROUPS if not name.startswith("ISO-") and name != "FF")
ZONED = frozenset({"TZH", "TZM", "TZR"})
quick = settings(
    max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def form(mask, **options):
    return TextFormat(date_format=mask, timestamp_format=mask, timestamp_tz_format=mask, **options)


def column(ticks, kind):
    return pa.array(ticks, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)


def plain(array, format):
    try:
        return datetime_texts(array, format, Place(column="c")).to_pylist()
    except ValueNotRepresentable:
        if len(array) == 1:
            return [None]
        middle = len(array) // 2
        return plain(array.slice(0, middle), format) + plain(array.slice(middle), format)


def check(array, format):
    found, expected = native_moments(array, format), plain(array, format)
    assert [pair for pair in zip(found, expected, strict=True) if pair[0] != pair[1]] == []


def clamped(ticks):
    return max(-(2**63), min(2**63 - 1, ticks))


def edge_ticks(unit):
    """Ends of the 64 bits and of the years 1 to 9999, the turn of 1970, the year 0, and near."""
    per = TICKS[unit]
    marks = [-(2**63), 2**63 - 1, 0, FIRST * per, LAST * per, (FIRST - 366 * DAY) * per]
    marks += [(FIRST - 9999 * 365 * DAY) * per, -(DAY * per), 951_782_400 * per]
    return [clamped(mark + by) for mark in marks for by in (-per, -2, -1, 0, 1, 2, per)]


def ticks_of(unit):
    per = TICKS[unit]
    usual = st.integers(FIRST - 10**8, LAST + 10**8) | st.integers(-(10**9), 3 * 10**9)
    fraction = st.just(0) | st.integers(0, per - 1) | st.integers(0, 999).map(lambda n: n % per)
    some = st.builds(lambda s, f: clamped(s * per + f), usual, fraction)
    return some | st.integers(-(2**63), 2**63 - 1) | st.sampled_from(edge_ticks(unit))


def masks(zoned):
    """Masks of any elements in any case, FM, literals and fractions."""
    elements = [name for name in ELEMENTS if zoned or name not in ZONED]
    cased = st.sampled_from(elements).flatmap(
        lambda name: st.sampled_from([name, name.lower(), name.capitalize()])
    )
    fractions = st.sampled_from(["FF", *(f"FF{digits}" for digits in range(1, 10))])
    other = st.sampled_from(["-", "X", " ", "/", '"T"', '"日é"', '"' + 60 * "=" + '"'])
    usual = st.sampled_from(["YYYY", "MM", "DD", "HH24", "MI", "SS"])
    part = cased | usual | usual | fractions | other
    switched = st.builds(lambda fm, text: "FM" + text if fm else text, st.booleans(), part)
    parts = st.lists(switched, min_size=1, max_size=9)
    return parts.map('""'.join)


@st.composite
def columns(draw):
    """A column of any type with any mask that fits it, and how fractions are treated."""
    shape = draw(st.sampled_from(["timestamp", "timestamp", "date32", "date64"]))
    unit = draw(st.sampled_from(sorted(TICKS)))
    zone = draw(st.sampled_from([None, "UTC", "+05:45", "-00:30", "-1100", "+99:99"]))
    if shape == "date32":
        kind, value = (
            pa.date32(),
            st.integers(-(2**31), 2**31 - 1) | st.integers(-(10**6), 3 * 10**6),
        )
    elif shape == "date64":
        days = st.integers(-(10**6), 3 * 10**6).map(lambda day: day * DAY * 1000)
        kind, value = pa.date64(), days | ticks_of("ms")
    else:
        kind, value = pa.timestamp(unit, zone), ticks_of(unit)
    mask = draw(st.none() | masks(shape == "timestamp" and zone is not None))
    fractions = draw(st.sampled_from(["mask", "keep"]))
    values = draw(st.lists(value, min_size=1, max_size=12))
    return column(values, kind), form(mask, fractions=fractions)


@quick
@given(columns())
@example((column(edge_ticks("us"), pa.timestamp("us")), form("FMSYYYY BC FMIYYY IW WW J SSSSS")))
@example((column(edge_ticks("s"), pa.timestamp("s", "+99:99")), form("SYYYY AD TZH:TZM TZR")))
@example((column(edge_ticks("ms"), pa.date64()), form("B.C. DAY Day MONTH FMMonth Q D W DDD")))
def test_any_mask(drawn):
    """Masks of any elements, over every type and the whole of its range, refusals included."""
    check(*drawn)


@pytest.mark.parametrize("unit", sorted(TICKS))
@pytest.mark.parametrize("zone", [None, *also(OTHER_ROUTES, "UTC", "-00:30")])
@pytest.mark.parametrize("mask", [None, COMPACT, "DD.MM.YY HH24:MI:SSXFF3", "SYYYYMMDD FF9 AD"])
def test_usual_masks(unit, zone, mask):
    """Masks of one layout, at every edge and over the usual years."""
    chance = random.Random(f"{unit} {zone} {mask}")
    per = TICKS[unit]
    seconds = [
        chance.randrange(-(10**9), 9 * 10**9) for _ in range(amount("UNLOADER_TEST_TIMES", 30, 300))
    ]
    ticks = [s * per + chance.choice((0, chance.randrange(per))) for s in seconds]
    for fractions in ("mask", "keep"):
        check(column([*edge_ticks(unit), *ticks], pa.timestamp(unit, zone)),
              form(mask, fractions=fractions))  # fmt: skip


@pytest.mark.parametrize(
    "mask", [None, "YYYYMMDD", "DDD WW IYYY IW J", "Dy DAY D MON Month FMMM FMDD Q W"]
)
def test_every_day_of_centuries(mask):
    """Days from 1899 on, one in 61 or in 9 of them; all about the years 1, 0 and -4712, and 9999.

    Nine divides neither a year nor a week: each day of both is among them.
    """
    step = amount("UNLOADER_TEST_DAYS_APART", 61, 9)
    about = amount("UNLOADER_TEST_DAYS_ABOUT", 10, 300)
    turns = (-719_162, -719_528, 2_932_896, -2_440_588)
    near = [day + by for day in turns for by in range(-about, about)]
    check(column([*range(-26_000, 50_000, step), *near], pa.date32()), form(mask))


@pytest.mark.parametrize("unit", sorted(TICKS))
def test_every_minute_of_a_day(unit):
    """Times of day, 24:00 and values outside, and the clock of a timestamp."""
    per = TICKS[unit]
    kind = pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)
    seconds = [minute * 60 + minute % 60 for minute in range(1440)]
    outside = [-1, -per, DAY * per, DAY * per + 1, 2 ** (kind.bit_width - 1) - 1]
    check(column([s * per + s % per for s in seconds] + outside, kind), form(None))
    clock = form("HH24:MI:SS.FF4 HH12 a.m. PM HH FMHH24 FMMI SS SSSSS")
    check(column([s * per for s in seconds], pa.timestamp(unit)), clock)


def test_named_zones_are_left_to_the_plain_side():
    """A zone whose offset depends on the value has no program, and neither has a wrong mask."""
    assert moment_program(pa.timestamp("us", "Europe/Paris"), TextFormat()) is None
    assert moment_program(pa.timestamp("us"), form("HH24 TZH")) is None


@settings(max_examples=examples(200), deadline=None)
@given(st.data())
def test_malformed_programs_are_refused(data):
    """Bytes that are not a program never crash the library."""
    program = moment_program(pa.timestamp("us"), form("YYYY-MON-DD FF3 J"))
    cut = data.draw(st.integers(0, len(program)))
    assert not is_program(program[: min(cut, 13)])
    is_program(program[:cut] + data.draw(st.binary(max_size=20)))
    at = data.draw(st.integers(0, len(program) - 1))
    is_program(program[:at] + data.draw(st.binary(min_size=1, max_size=1)) + program[at + 1 :])
    assert not is_program(struct.pack("<6B2i", 2, *program[1:6], 0, 0))


LARGE = ("big5", "cp932", "euc_jp", "euc_kr", "gb18030", "gbk", "shift_jis")
WIDE = ("utf-16", "utf-16-be", "utf-32", "utf-32-be", "utf-8-sig")
SMALL = ("ascii", "cp037", "cp1252", "koi8-r", "latin-1")
_FEW = ("cp932", "gb18030", "utf-16", "utf-8-sig", "cp1252")
_OTHERS = (each for each in (*LARGE, *WIDE, *SMALL) if each not in _FEW)
EVERY = [*_FEW, *also(OTHER_ROUTES, *_OTHERS)]
SURROGATES = range(0xD800, 0xE000)


def plain_format(encoding: str) -> TextFormat:
    """Return a format in which a value of one column stands as it is."""
    return TextFormat(
        delimiter="\x01", enclosure="", enclose="none", header=False, encoding=encoding, null="\x02"
    )


def written(name: str, values: list[str], encoding: str) -> bytes:
    """Return the records of one column of text."""
    batch = pa.record_batch([pa.array(values, pa.string())], ["text"])
    return bytes(encoder(name, batch.schema, plain_format(encoding)).encode(batch))


@lru_cache(maxsize=2)
def characters(encoding: str) -> list[str]:
    found = OutputEncoding(encoding)
    numbers = [*range(32, 0x10000), *range(0x10000, 0x110000, 9973), 0x10FFFF]
    tried = [chr(number) for number in numbers if number not in SURROGATES]
    return [character for character in tried if found.holds(character)]


@pytest.mark.parametrize("encoding", EVERY)
def test_every_character_has_the_codes_of_the_codec(encoding: str) -> None:
    """Each character that the encoding holds, in runs of many, is written as the codec does."""
    held = characters(encoding)
    rows = ["".join(held[start : start + 97]) for start in range(0, len(held), 97)]
    found = OutputEncoding(encoding)
    assert written("native", rows, encoding) == b"".join(found.encode(row + "\n") for row in rows)


@pytest.mark.parametrize("encoding", EVERY)
def test_ascii_and_other_characters_may_stand_in_any_order(encoding: str) -> None:
    """Runs of ASCII of every length between other characters do not change a byte."""
    draw = random.Random(encoding)
    held = [each for each in characters(encoding) if ord(each) > 127] or ["x"]
    rows = [
        "".join("a" * draw.randrange(20) + draw.choice(held) for _ in range(draw.randrange(6)))
        for _ in range(200)
    ]
    rows.append("ends in ascii")
    assert written("native", rows, encoding) == written("plain", rows, encoding)


@pytest.mark.parametrize("encoding", [*LARGE, *SMALL])
def test_a_character_without_a_code_is_refused_as_by_the_plain_encoder(encoding: str) -> None:
    """The error is the same, for every character."""
    found = OutputEncoding(encoding)
    lacking = [each for each in "ÿ€Жあ한Ⅷ𝄞\ue000" if not found.holds(each)]
    for character in lacking:
        messages = []
        for name in ("native", "plain"):
            with pytest.raises(ValueNotRepresentable) as error:
                written(name, ["fits", f"no {character}"], encoding)
            messages.append(str(error.value))
        assert messages[0] == messages[1]
        assert f"U+{ord(character):04X}" in messages[0]


def test_what_reads_back_joined_with_its_neighbours_is_refused() -> None:
    """A Hangul filler begins a syllable to a reader of EUC-KR, which takes the next letters to it."""
    for name in ("native", "plain"):
        with pytest.raises(ValueNotRepresentable, match="euc_kr"):
            written(name, ["\u3164\u3131\u314f\u3134"], "euc_kr")


def test_encodings_with_states_or_shared_codes_are_left_to_the_plain_encoder() -> None:
    """Where a character's bytes depend on its neighbours no description exists."""
    for encoding in ("iso2022_jp", "euc_jis_2004", "euc_jisx0213", "big5hkscs"):
        assert charset_description(TextFormat(encoding=encoding)) is None
        text = ["か゚x", "か"] if encoding == "euc_jis_2004" else ["か", "x"]
        assert written("native", text, encoding) == written("plain", text, encoding)


def test_every_other_encoding_that_records_can_be_written_in_has_a_description() -> None:
    """All single-byte sets of Python are among them, EBCDIC as well."""
    stateful = ("iso2022", "big5hkscs", "euc_jis", "shift_jis_2004", "shift_jisx0213", "charmap")
    named = sorted(module.name for module in pkgutil.iter_modules(encodings.__path__))
    described = 0
    for name in named:
        try:
            OutputEncoding(name)
        except FormatError:
            continue
        if not name.startswith(stateful):
            assert charset_description(TextFormat(encoding=name)) is not None, name
            described += 1
    assert described > 80
