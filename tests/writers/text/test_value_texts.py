"""Texts of values: numbers, dates, times, strings, binary, and nested values."""

from __future__ import annotations

import base64
import json
import math
import struct
import uuid
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from fractions import Fraction
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from amounts import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st

from writers.errors import FormatError, ValueNotRepresentable
from writers.model import TextFormat
from writers.text.text_values import check_field, text_of


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


@pytest.mark.parametrize(("bits", "kind"), [(64, pa.float64()), (32, pa.float32())])
@settings(max_examples=examples(120), deadline=None)
@example([1 << 56])  # A power of two, whose nearest text of 16 digits is another number's.
@given(st.lists(st.none() | st.integers(0, 2**64 - 1), max_size=6))
def test_any_float(bits, kind, patterns):
    """Every bit pattern has PostgreSQL's text."""
    values = [None if p is None else float_of(bits, p % 2**bits) for p in patterns]
    expected = [None if v is None else reference(v, bits) for v in values]
    assert texts(pa.array(values, kind)) == expected


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
    """No exponent, every digit of the scale, for every size; slices too."""
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


DAY_US = 86_400 * 10**6
CYCLE_US = 146_097 * DAY_US


def moment_texts(ticks, kind):
    plain = pa.int32() if kind.bit_width == 32 else pa.int64()
    array = pa.array(ticks, plain).view(kind)
    return text_of(array, pa.field("c", kind), TextFormat()).to_pylist()


def iso(value):
    text = value.isoformat(sep=" ")
    return text.rstrip("0") if value.microsecond else text


@settings(max_examples=examples(100), deadline=None)
@given(st.datetimes(), st.integers(-700, 700))
def test_years_repeat_every_400(value, cycles):
    """Far years, and those before 1, are the years 400 apart with their number shifted."""
    year = value.year + 400 * cycles
    ticks = (value - datetime(1970, 1, 1)) // timedelta(microseconds=1) + cycles * CYCLE_US
    if abs(ticks) >= 2**63:
        return
    rest = iso(value)[4:]
    expected = f"{year:04}{rest}" if year > 0 else f"{1 - year:04}{rest} BC"
    assert moment_texts([ticks], pa.timestamp("us")) == [expected]


@pytest.mark.parametrize(
    ("kind", "ticks", "text"),
    [
        (pa.date32(), 0, "1970-01-01"),
        (pa.date32(), -735_160, "0044-03-15 BC"),
        (pa.date32(), -719_163, "0001-12-31 BC"),
        (pa.date32(), 2_932_897, "10000-01-01"),
        (pa.date32(), 2**31 - 1, "5881580-07-11"),
        (pa.date32(), -(2**31), "5877642-06-23 BC"),
        (pa.date64(), -86_400_000, "1969-12-31"),
        (pa.timestamp("s"), -1, "1969-12-31 23:59:59"),
        (pa.timestamp("ms"), -1, "1969-12-31 23:59:59.999"),
        (pa.timestamp("ns"), -1, "1969-12-31 23:59:59.999999999"),
        (pa.timestamp("ns"), 2**63 - 1, "2262-04-11 23:47:16.854775807"),
        (pa.timestamp("ns"), -(2**63), "1677-09-21 00:12:43.145224192"),
        (pa.timestamp("us"), 2**63 - 1, "294247-01-10 04:00:54.775807"),
        (pa.timestamp("us"), -719_163 * DAY_US, "0001-12-31 00:00:00 BC"),
        (pa.timestamp("s"), 2**63 - 1, "292277026596-12-04 15:30:07"),
        (pa.timestamp("us", "UTC"), 500_000, "1970-01-01 00:00:00.5+00:00"),
        (pa.timestamp("us", "UTC"), -719_163 * DAY_US, "0001-12-31 00:00:00+00:00 BC"),
        (pa.timestamp("s", "-03:30"), 0, "1969-12-31 20:30:00-03:30"),
        (pa.timestamp("s", "Europe/Paris"), -3_000_000_000, "1874-12-07 18:49:21+00:09:21"),
        (pa.time32("s"), 86_399, "23:59:59"),
        (pa.time32("ms"), 1, "00:00:00.001"),
        (pa.time64("us"), 86_400_000_000, "24:00:00"),
        (pa.time64("ns"), 1, "00:00:00.000000001"),
        (pa.duration("s"), 0, "PT0S"),
        (pa.duration("s"), 49 * 3600, "PT49H"),
        (pa.duration("us"), -3_661_500_000, "PT-1H-1M-1.5S"),
        (pa.duration("ns"), -1, "PT-0.000000001S"),
    ],
)
def test_edges(kind, ticks, text):
    """Both ends of every type, the turn of the era, and zones."""
    assert moment_texts([ticks, None], kind) == [text, None]


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        ((14, 3, 14_706_500_000_000), "P1Y2M3DT4H5M6.5S"),
        ((-14, 3, -14_706_500_000_000), "P-1Y-2M3DT-4H-5M-6.5S"),
        ((0, 0, 0), "P0D"),
        ((0, -1, 0), "P-1D"),
        ((0, 0, 100 * 3600 * 10**9), "PT100H"),
        (None, None),
    ],
)
def test_intervals_keep_each_sign(interval, text):
    """Months, days and nanoseconds are not mixed."""
    array = pa.array([interval], pa.month_day_nano_interval())
    assert text_of(array, pa.field("c", array.type), TextFormat()).to_pylist() == [text]


ZONES = ["Europe/Paris", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "Etc/GMT+3"]


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(st.none() | st.datetimes(datetime(1850, 1, 2), datetime(9998, 1, 1)), max_size=5),
    st.sampled_from(ZONES),
)
def test_zones_are_those_of_the_system(values, zone):
    """Local time and offset are zoneinfo's in every year, summer time after 2037 included."""
    array = pa.array(values, pa.timestamp("us")).view(pa.timestamp("us", zone))
    got = text_of(array, pa.field("c", array.type), TextFormat()).to_pylist()
    local = [v and v.replace(tzinfo=UTC).astimezone(ZoneInfo(zone)) for v in values]
    assert [t and datetime_of(t) for t in got] == [
        v and (v.replace(tzinfo=None), v.utcoffset()) for v in local
    ]


def datetime_of(text):
    """Take a written timestamp apart into local time and offset."""
    sign = max(text.rfind("+"), text.rfind("-"))
    hours, minutes, *seconds = text[sign + 1 :].split(":")
    offset = timedelta(
        hours=int(hours), minutes=int(minutes), seconds=int(seconds[0]) if seconds else 0
    )
    local, _, fraction = text[:sign].partition(".")
    when = datetime.strptime(local, "%Y-%m-%d %H:%M:%S").replace(
        microsecond=int(fraction.ljust(6, "0")) if fraction else 0
    )
    return when, -offset if text[sign] == "-" else offset


def test_unknown_zone_is_refused_before_any_row():
    """A zone the system does not know is named."""
    with pytest.raises(FormatError, match="'Mars/Olympus' is unknown"):
        check_field(pa.field("c", pa.timestamp("us", "Mars/Olympus")), TextFormat())


@pytest.mark.parametrize(
    ("kind", "ticks", "words"),
    [
        (pa.date64(), 1, "has a time of day"),
        (pa.time32("s"), -1, "not within a day"),
        (pa.time64("us"), DAY_US + 1, "not within a day"),
        (pa.timestamp("us", "+01:00"), 2**63 - 1, "out of range"),
        (pa.timestamp("us", "Asia/Tokyo"), 2**63 - 1, "out of range"),
        (pa.timestamp("ns", "America/New_York"), -(2**63), "out of range"),
    ],
)
def test_values_outside_their_type_are_refused(kind, ticks, words):
    """A value that has no exact text is refused with its row."""
    with pytest.raises(ValueNotRepresentable, match=f"column c, row 3: .*{words}"):
        moment_texts([0, None, ticks], kind)


UUIDS = [
    uuid.UUID(int=0),
    uuid.UUID(int=2**128 - 1),
    uuid.UUID("12345678-1234-5678-9abc-def012345678"),
]


def value_texts(array, **options):
    found = text_of(array, pa.field("c", array.type), TextFormat(**options))
    assert found.type in (pa.string(), pa.large_string())
    assert len(found) == len(array)
    return found.to_pylist()


def compact(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


BINARY_KINDS = [pa.binary(), pa.large_binary(), pa.binary_view()]


@settings(max_examples=examples(80), deadline=None)
@given(
    st.sampled_from(BINARY_KINDS),
    st.lists(st.none() | st.binary(max_size=20), max_size=6),
    st.integers(0, 3),
    st.integers(0, 6),
)
def test_binary_in_its_three_forms(kind, values, start, length):
    """Prefixed hex, hex and base64 of every binary type, sliced."""
    array = pa.array(values, kind).slice(start, length)
    values = values[start : start + length]
    assert value_texts(array) == [v if v is None else "\\x" + v.hex() for v in values]
    assert value_texts(array, binary="hex") == [v if v is None else v.hex() for v in values]
    expected = [v if v is None else base64.b64encode(v).decode() for v in values]
    assert value_texts(array, binary="base64") == expected


def test_uuids_are_canonical():
    """UUIDs have their dashes and lower-case digits; nulls and slices stay in place."""
    storage = pa.array([u.bytes for u in UUIDS] + [None], pa.binary(16))
    if not hasattr(pa, "uuid"):
        pytest.skip("this pyarrow has no UUID type")
    array = pa.ExtensionArray.from_storage(pa.uuid(), storage)
    assert value_texts(array) == [str(u) for u in UUIDS] + [None]
    assert value_texts(array.slice(2)) == [str(UUIDS[2]), None]
    assert value_texts(array.slice(1, 0)) == []


class Wrapped(pa.ExtensionType):
    def __init__(self):
        super().__init__(pa.decimal128(5, 2), "test.wrapped")

    def __arrow_ext_serialize__(self):
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type, serialized):
        return cls()


def test_extensions_dictionaries_and_runs_are_what_they_hold():
    """Wrapping types are looked through, nulls in dictionaries included."""
    decimals = pa.array([Decimal("1.50"), None], pa.decimal128(5, 2))
    assert value_texts(pa.ExtensionArray.from_storage(Wrapped(), decimals)) == ["1.50", None]
    encoded = pa.DictionaryArray.from_arrays(
        pa.array([1, 0, None, 1], pa.int8()), pa.array([True, None])
    )
    assert value_texts(encoded) == [None, "true", None, None]
    runs = pa.RunEndEncodedArray.from_arrays([2, 5], pa.array(["x", None]))
    assert value_texts(runs.slice(1, 3)) == ["x", None, None]
    assert value_texts(pa.nulls(2)) == [None, None]


def test_unused_dictionary_values_are_not_refused():
    """A value that cannot be written counts only where it is used."""
    midday = pa.array([0, 43_200_000], pa.int64()).view(pa.date64())
    unused = pa.DictionaryArray.from_arrays(pa.array([0, 0], pa.int8()), midday)
    assert value_texts(unused) == ["1970-01-01"] * 2
    used = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), midday)
    with pytest.raises(ValueNotRepresentable, match="column c, row 2: "):
        value_texts(used)


JSON_VALUES = (
    st.none() | st.text(max_size=4) | st.sampled_from(["\x00\x1f\x7f", '"\\/', "\b\f\n\r\t", "日"])
)
NESTED = {
    "list": (pa.list_(pa.string()), st.lists(JSON_VALUES, max_size=3)),
    "large": (pa.large_list(pa.int32()), st.lists(st.none() | st.integers(-9, 9), max_size=3)),
    "fixed": (pa.list_(pa.bool_(), 2), st.lists(st.none() | st.booleans(), min_size=2, max_size=2)),
    "struct": (
        pa.struct([("a", pa.string()), ('q"', pa.list_(pa.int8()))]),
        st.tuples(JSON_VALUES, st.none() | st.lists(st.integers(0, 9), max_size=2)).map(
            lambda pair: {"a": pair[0], 'q"': pair[1]}
        ),
    ),
    "deep": (
        pa.list_(pa.list_(pa.string())),
        st.lists(st.none() | st.lists(JSON_VALUES, max_size=2), max_size=3),
    ),
}  # fmt: skip


@settings(max_examples=examples(150), deadline=None)
@given(st.sampled_from(sorted(NESTED)), st.data(), st.integers(0, 3), st.integers(0, 5))
def test_nested_values_are_the_json_of_python(name, data, start, length):
    """Lists and structs, nulls on every level, sliced, are compact JSON."""
    kind, strategy = NESTED[name]
    values = data.draw(st.lists(st.none() | strategy, max_size=5))
    array = pa.array(values, kind).slice(start, length)
    expected = [v if v is None else compact(v) for v in values[start : start + length]]
    assert value_texts(array) == expected


def test_maps():
    """Text keys make an object in the order of the entries, others an array of pairs."""
    words = pa.array(
        [[("z", 1), ("a", None)], None, [], [('"', 2)]], pa.map_(pa.string(), pa.int8())
    )
    assert value_texts(words) == ['{"z":1,"a":null}', None, "{}", '{"\\"":2}']
    assert value_texts(words.slice(2)) == ["{}", '{"\\"":2}']
    numbers = pa.array([[(1, "x"), (2, None)], []], pa.map_(pa.int8(), pa.string()))
    assert value_texts(numbers) == ['[[1,"x"],[2,null]]', "[]"]


def test_numbers_inside_json_are_exact():
    """Decimals keep all digits, what JSON has no number for is a string, `.` stays."""
    kind = pa.struct(
        [
            ("d", pa.decimal128(38, 10)),
            ("f", pa.float64()),
            ("t", pa.timestamp("ns")),
            ("b", pa.binary()),
            ("n", pa.null()),
        ]
    )
    rows = [
        {"d": Decimal("12345678901234567890.0000000001"), "f": float("nan"), "t": 1, "b": b"\x01"},
        {"d": Decimal("0.0000000001"), "f": float("-inf"), "t": None, "b": None},
        {"d": Decimal("-1"), "f": 1e20, "t": 0, "b": b""},
    ]
    assert value_texts(pa.array(rows, kind), decimal_separator=",") == [
        '{"d":12345678901234567890.0000000001,"f":"NaN",'
        '"t":"1970-01-01 00:00:00.000000001","b":"\\\\x01","n":null}',
        '{"d":0.0000000001,"f":"-Infinity","t":null,"b":null,"n":null}',
        '{"d":-1.0000000000,"f":1e+20,"t":"1970-01-01 00:00:00","b":"\\\\x","n":null}',
    ]


def test_masks_do_not_reach_into_json():
    """Inside JSON dates are ISO under all masks."""
    array = pa.array([[0]], pa.list_(pa.int32())).cast(pa.list_(pa.date32()))
    assert value_texts(array, date_format="YY") == ['["1970-01-01"]']


def test_a_refused_value_inside_a_list_is_named_by_its_row():
    """The row is the list's, not the position inside."""
    inner = pa.array([0, 0, 0, 1], pa.int64()).view(pa.date64())
    array = pa.ListArray.from_arrays(pa.array([0, 3, 3, 4], pa.int32()), inner)
    with pytest.raises(
        ValueNotRepresentable, match=r"column c, row 3: a value inside it .*time of day"
    ):
        value_texts(array)


HIDDEN = [
    (pa.string(), ["a", 'b"\n', "c"]),
    (pa.binary(), [b"a", b"bcd", b"e"]),
    (pa.binary(2), [b"ab", b"cd", b"ef"]),
    (pa.int64(), [1, 2, 3]),
    (pa.float64(), [1.5, 1e23, 1e5]),
    (pa.float32(), [1.5, 1e7, 2.5]),
    (pa.decimal128(20, 9), [Decimal("1"), Decimal("1E-9"), Decimal("2")]),
    (pa.date64(), [0, 1, 86_400_000]),
    (pa.date32(), [0, 2**31 - 1, 1]),
    (pa.time64("us"), [0, -1, 1]),
    (pa.timestamp("us"), [0, -(2**63), 1]),
    (pa.timestamp("us", "+01:00"), [0, 2**63 - 1, 1]),
    (pa.timestamp("us", "Asia/Tokyo"), [0, 2**63 - 1, 1]),
    (pa.timestamp("ns", "America/New_York"), [0, -(2**63), 1]),
    (pa.list_(pa.int8()), [[1], [2, 3], [4]]),
    (pa.struct([("a", pa.int8())]), [{"a": 1}, {"a": 2}, {"a": 3}]),
    (pa.map_(pa.string(), pa.int8()), [[("a", 1)], [("b", 2)], [("c", 3)]]),
]


@pytest.mark.parametrize(("kind", "values"), HIDDEN, ids=lambda item: str(item)[:30])
def test_what_lies_under_a_null_does_not_matter(kind, values):
    """A null whose slot holds bytes, or an impossible value, is a null and moves nothing."""
    whole = raw_array(kind, values)
    buffers = [pa.py_buffer(b"\x05"), *whole.buffers()[1 : kind.num_buffers]]
    children = []
    if pa.types.is_struct(kind):
        children = [whole.field(0)]
    elif pa.types.is_map(kind):
        children = [pa.StructArray.from_arrays([whole.keys, whole.items], fields=entry_of(kind))]
    elif pa.types.is_list(kind):
        children = [whole.values]
    hidden = pa.Array.from_buffers(kind, 3, buffers, children=children)
    shown = value_texts(whole.take(pa.array([0, 2])))
    assert value_texts(hidden) == [shown[0], None, shown[1]]
    assert value_texts(hidden.slice(1)) == [None, shown[1]]


def raw_array(kind, values):
    ticks = isinstance(values[0], int) and kind != pa.int64()
    if not ticks:
        return pa.array(values, kind)
    return pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)


def entry_of(kind):
    return [pa.field("key", kind.key_type, False), pa.field("value", kind.item_type)]


@pytest.mark.parametrize("kind", [pa.string_view(), pa.binary_view()])
def test_views_in_dictionaries_and_runs(kind):
    """Arrow cannot decode them, so they are decoded as plain text and bytes."""
    values = pa.array(["a", None, "longer than a view is itself"]).cast(pa.binary()).cast(kind)
    words = pa.DictionaryArray.from_arrays(pa.array([2, None, 1, 0, 0]), values)
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3, 5], pa.int32()), values)
    form = TextFormat(binary="hex")
    for array, places in ((words.slice(1), [None, 1, 0, 0]), (runs.slice(1), [0, 1, 2, 2])):
        plain = text_of(values, pa.field("c", kind), form).to_pylist()
        expected = [None if at is None else plain[at] for at in places]
        assert text_of(array, pa.field("c", array.type), form).to_pylist() == expected
