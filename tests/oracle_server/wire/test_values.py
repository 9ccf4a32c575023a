"""Encoders of every Oracle type: against bytes of real servers and an independent decoder."""

from __future__ import annotations

import math
import struct
from decimal import Decimal

import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from long_tests import OTHER_ROUTES
from oracle.reply import Reply, fields, number
from oracle_server.data.moments import shifted
from oracle_server.model import DaySecond, Moment, Rowid, Type, YearMonth
from oracle_server.wire.values.bind_values import decode_bind
from oracle_server.wire.values.by_type import WIRE_TYPES, cell
from oracle_server.wire.values.forms import clr, dalc, read_clr, read_dalc, read_ub, sb, ub
from oracle_server.wire.values.numbers import decode_number, encode_number
from oracle_server.wire.values.temporal import (
    decode_moment,
    encode_date,
    encode_timestamp,
    encode_timestamp_tz,
)

QUICK = settings(max_examples=examples(150), deadline=None)


@st.composite
def numbers(draw: st.DrawFn) -> Decimal:
    """Return what NUMBER holds: up to 38 digits anywhere, at most 40 in pairs."""
    digits = draw(
        st.text("0123456789", min_size=1, max_size=38).filter(lambda text: text.strip("0"))
    )
    exponent = draw(st.integers(-130, 125 - len(digits)))
    sign = draw(st.sampled_from(("", "-")))
    return Decimal(f"{sign}{digits}E{exponent}")


moments = st.builds(
    Moment,
    year=st.one_of(st.integers(-4712, -1), st.integers(1, 9999)),
    month=st.integers(1, 12),
    day=st.integers(1, 28),
    hour=st.integers(0, 23),
    minute=st.integers(0, 59),
    second=st.integers(0, 59),
    nanos=st.integers(0, 999_999_999),
    zone=st.none(),
)


@pytest.mark.parametrize(
    ("value", "recorded"),
    [
        (0, "80"),
        (1, "c102"),
        (100, "c202"),
        (101, "c20202"),
        (1516, "c21011"),
        (1000000, "c402"),
        (Decimal("1234567.89"), "c402182e445a"),
        (12345678901234, "c70d23394f5b0d23"),
        (Decimal("12.34"), "c10d23"),
        (Decimal("0.25"), "c01a"),
        (-42, "3e3b66"),
        (-1000000, "3b6466"),
        (Decimal("-99.99"), "3e020266"),
        (Decimal("-0.25"), "3f4c66"),
        (Decimal("-3.14"), "3e625766"),
    ],
)
def test_number_recorded(value: int | Decimal, recorded: str) -> None:
    """NUMBER has the bytes recorded from 19c and 23ai servers."""
    assert encode_number(value).hex() == recorded


@pytest.mark.parametrize(
    ("value", "published"),
    [
        (Decimal("1E-130"), "8002"),
        (Decimal("-1E-130"), "7f6466"),
        (Decimal("9.99E125"), "ff645b"),
        (-(10**38 - 1), "2c" + "02" * 19 + "66"),
        (int("9" * 40), "d4" + "64" * 20),
        (-int("9" * 40), "2b" + "02" * 20),
        (Decimal("-0." + "9" * 40), "3f" + "02" * 20),
    ],
)
def test_number_edges(value: int | Decimal, published: str) -> None:
    """The ends of NUMBER's range and 40 digits fit; a negative of 20 pairs has no end byte."""
    assert number(encode_number(value)) == value
    assert encode_number(value).hex() == published


@QUICK
@given(numbers())
def test_number_exact(value: Decimal) -> None:
    """Every NUMBER is exact to its last digit, read by both decoders."""
    data = encode_number(value)
    assert number(data) == value
    assert decode_number(data) == value


@pytest.mark.parametrize(
    "value", [Decimal("1E126"), Decimal("1E-132"), int("9" * 41), Decimal("NaN")]
)
def test_number_refused(value: int | Decimal) -> None:
    """What no NUMBER can hold is an error, never rounded."""
    with pytest.raises(ValueError, match="NUMBER cannot hold"):
        encode_number(value)


@pytest.mark.parametrize(
    ("value", "recorded"),
    [
        (Moment(2024, 1, 2, 3, 4, 5), "787c0102040506"),
        (Moment(1988, 12, 31, 23, 59, 58), "77bc0c1f183c3b"),
        (Moment(2024, 1, 2, 3, 4, 5, 123456000), "787c0102040506075bca00"),
        (Moment(1988, 12, 31, 23, 59, 58, 999999000), "77bc0c1f183c3b3b9ac618"),
        (Moment(-4712, 1, 1), "35580101010101"),
    ],
)
def test_moment_recorded(value: Moment, recorded: str) -> None:
    """DATE and TIMESTAMP have the bytes recorded from servers, the first day the published ones."""
    assert encode_timestamp(value).hex() == recorded


@QUICK
@given(moments)
def test_moment_exact(value: Moment) -> None:
    """Every moment keeps all its fields, BC years included, and a zero fraction takes 7 bytes."""
    data = encode_timestamp(value)
    assert fields(data) == tuple(value)[:7]
    assert decode_moment(data) == value
    assert len(data) == (11 if value.nanos else 7)
    assert fields(encode_date(value))[:6] == tuple(value)[:6]


@QUICK
@given(moments, st.integers(-899, 899))
def test_offset(value: Moment, minutes: int) -> None:
    """A zone's offset is stored beside the fields in UTC, and comes back as it was."""
    zone = f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"
    data = encode_timestamp_tz(value._replace(zone=zone))
    assert len(data) == 13
    assert fields(data)[7] == minutes
    utc = shifted(value, -60 * minutes * 10**9)
    assert fields(data)[:7] == tuple(utc)[:7]
    assert decode_moment(data) == value._replace(zone=zone)


def test_region() -> None:
    """A region has its bit, and the fields are in UTC; of an hour that came twice it is the second."""
    data = encode_timestamp_tz(Moment(2024, 10, 27, 2, 30, zone="Europe/Berlin"))
    assert data[11] & 0x80
    assert fields(data[:7])[:5] == (2024, 10, 27, 1, 30)


@pytest.mark.parametrize(
    ("value", "utc"),
    [
        (Moment(1582, 10, 15, 1, zone="+02:00"), (1582, 10, 4, 23)),
        (Moment(1, 1, 1, zone="+01:00"), (-1, 12, 31, 23)),
        (Moment(1500, 2, 28, 23, zone="-01:00"), (1500, 2, 29, 0)),
        (Moment(1900, 2, 28, 23, zone="-01:00"), (1900, 3, 1, 0)),
    ],
)
def test_zone_calendar(value: Moment, utc: tuple[int, ...]) -> None:
    """UTC across midnight follows Oracle's calendar: Julian days, the gap, no year 0."""
    assert fields(encode_timestamp_tz(value))[:4] == utc


@pytest.mark.parametrize(
    ("name", "value", "data"),
    [
        ("BINARY_DOUBLE", 2.5, "c004000000000000"),
        ("BINARY_DOUBLE", -1.5, "4007ffffffffffff"),
        ("BINARY_DOUBLE", -0.0, "7fffffffffffffff"),
        ("BINARY_DOUBLE", 0.0, "8000000000000000"),
        ("BINARY_DOUBLE", math.inf, "fff0000000000000"),
        ("BINARY_DOUBLE", -math.inf, "000fffffffffffff"),
        ("BINARY_DOUBLE", math.nan, "fff8000000000000"),
        ("BINARY_FLOAT", 0.5, "bf000000"),
        ("BINARY_FLOAT", -2.0, "3fffffff"),
        ("BINARY_FLOAT", math.nan, "ffc00000"),
        ("BOOLEAN", True, "0101"),
        ("BOOLEAN", False, "00"),
        ("RAW", bytes(range(4)), "00010203"),
        ("VARCHAR2", "é\U0001f600", "c3a9f09f9880"),
        ("NVARCHAR2", "é\U0001f600", "00e9d83dde00"),
        ("CHAR", "ab   ", "6162202020"),
        ("INTERVAL YEAR TO MONTH", YearMonth(-14), "7fffffff3a"),
        ("INTERVAL DAY TO SECOND", DaySecond(-1), "800000003c3c3c7fffffff"),
        ("INTERVAL DAY TO SECOND", DaySecond(86_400_000_000_001), "800000013c3c3c80000001"),
    ],
)
def test_scalars(name: str, value: object, data: str) -> None:
    """Scalars are a length and their bytes; doubles as recorded from a server."""
    content = bytes.fromhex(data)
    assert cell(Type(name=name), value) == bytes((len(content),)) + content


@QUICK
@given(st.floats(allow_nan=False))
def test_floats_sort(value: float) -> None:
    """Binary doubles are exact, and floats are the nearest float."""
    assert Reply(cell(Type(name="BINARY_DOUBLE"), value)).cell("BINARY_DOUBLE") == value
    single = Reply(cell(Type(name="BINARY_FLOAT"), value)).cell("BINARY_FLOAT")
    try:
        nearest = struct.unpack(">f", struct.pack(">f", value))[0]
    except OverflowError:
        nearest = math.copysign(math.inf, value)
    assert single == nearest


@QUICK
@given(st.integers(-(10**18), 10**18), st.integers(-(10**10), 10**10))
def test_intervals(nanos: int, months: int) -> None:
    """Intervals of either sign are exact."""
    day_second = cell(Type(name="INTERVAL DAY TO SECOND"), DaySecond(nanos))
    assert Reply(day_second).cell("INTERVAL DAY TO SECOND") == nanos
    year_month = cell(Type(name="INTERVAL YEAR TO MONTH"), YearMonth(months))
    assert Reply(year_month).cell("INTERVAL YEAR TO MONTH") == months


@pytest.mark.parametrize("length", [1, 252, 253, 254, 255, 32767, 32768, 100_000])
def test_text_lengths(length: int) -> None:
    """Text of any length comes back, beyond 252 bytes in chunks."""
    for name in ("VARCHAR2", "LONG", "RAW", "LONG RAW"):
        value: str | bytes = "x" * length if name in ("VARCHAR2", "LONG") else b"\x00\xfe" * length
        reply = Reply(cell(Type(name=name), value))
        assert reply.cell(name) == value
        assert not reply.left()


@pytest.mark.parametrize("name", sorted(WIRE_TYPES.keys() - {"CLOB", "NCLOB", "BLOB"}))
def test_null(name: str) -> None:
    """NULL is a cell of its own in every type; of a LONG it has an indicator and a code."""
    data = cell(Type(name=name), None)
    reply = Reply(data)
    assert reply.cell(name) is None
    assert not reply.left()
    if name == "LONG":
        assert data.hex(" ") == "00 81 01 02 05 7d"


def test_rowids() -> None:
    """ROWIDs are sent as numbers, universal ones as bytes, logical ones too."""
    rowid = Rowid(73038, 24, 36802, 58)
    assert Reply(cell(Type(name="ROWID"), rowid)).cell("ROWID") == tuple(rowid)
    image = bytes.fromhex("01 00011d4e 0018 00008fc2 003a")
    for value in (rowid, str(rowid)):
        assert Reply(cell(Type(name="UROWID"), value)).cell("UROWID") == image
    logical = Reply(cell(Type(name="UROWID"), "*BAEACwoDwgUC/gECAwQF")).cell("UROWID")
    assert logical == bytes.fromhex("02 040100 0b0a03 c20502 fe0102 030405")


json_values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(10**30), 10**30), numbers(), st.floats(allow_nan=False), st.text(max_size=300)
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(st.text(max_size=20), inner, max_size=5)),
    max_leaves=20,
)  # fmt: skip


@QUICK
@given(json_values)
def test_json(value: object) -> None:
    """JSON of any shape comes back from its binary form."""
    reply = Reply(cell(Type(name="JSON"), value))
    found = reply.cell("JSON")
    assert found == value
    assert type(found) is not bool or type(value) is bool


@pytest.mark.long(OTHER_ROUTES)
def test_json_large() -> None:
    """Many names, many elements and long strings take the format's wider fields."""
    value = {
        "names": {f"name {n:04}": n for n in range(700)},
        "elements": list(range(70_000)),
        "strings": ["", "x" * 31, "x" * 32, "x" * 255, "x" * 256, "x" * 65536],
    }
    assert Reply(cell(Type(name="JSON"), value)).cell("JSON") == value
    assert Reply(cell(Type(name="JSON"), "x" * 70_000)).cell("JSON") == "x" * 70_000


@pytest.mark.parametrize(
    ("element", "value"),
    [
        ("FLOAT32", (0.5, -2.0, 0.0)),
        ("FLOAT64", (0.1, -1e300)),
        ("INT8", (-128, 0, 127)),
        ("BINARY", (0, 170, 255)),
    ],
)
def test_vector(element: str, value: tuple[float, ...]) -> None:
    """Vectors of all four formats come back exactly."""
    found = Reply(cell(Type(name="VECTOR", element=element), value)).cell("VECTOR")
    assert tuple(found) == value


def test_xmltype() -> None:
    """XMLTYPE is an object image around its text."""
    for text in ("<a/>", "<a>" + "é" * 40_000 + "</a>"):
        reply = Reply(cell(Type(name="XMLTYPE"), text))
        assert reply.cell("XMLTYPE") == text
        assert not reply.left()


@QUICK
@given(st.integers(-(2**63), 2**63 - 1), st.binary(max_size=400))
def test_forms(value: int, data: bytes) -> None:
    """Integers take as few bytes as hold them (three is normal), byte strings their own lengths."""
    assert read_ub(sb(value), 0) == (value, len(sb(value)))
    assert len(ub(abs(value))) == 1 + (abs(value).bit_length() + 7) // 8
    assert read_clr(clr(data) + b"after", 0) == (data or None, len(clr(data)))
    assert read_dalc(dalc(data) + b"after", 0) == (data or None, len(dalc(data)))


@pytest.mark.parametrize(
    ("number", "form", "data", "value"),
    [
        (1, 1, b"\xc3\xa9", "é"),
        (1, 2, b"\x00\xe9", "é"),
        (1, 1, b"", None),
        (2, 0, b"\xc1\x02", 1),
        (2, 0, b"\xc1\x02\x33", Decimal("1.5")),
        (23, 0, b"\x00\xff", b"\x00\xff"),
        (12, 0, b"\x78\x7c\x01\x02\x04\x05\x06", Moment(2024, 1, 2, 3, 4, 5)),
        (
            181,
            0,
            bytes.fromhex("787c0102040506000000001955"),
            Moment(2024, 1, 2, 8, 29, 5, zone="+05:25"),
        ),
        (101, 0, bytes.fromhex("c004000000000000"), 2.5),
        (252, 0, b"\x01\x01", True),
        (252, 0, b"\x00", False),
        (208, 1, b"AAAR1OAAAAAAI/CAA6", "AAAR1OAAAAAAI/CAA6"),
    ],
)
def test_binds(number: int, form: int, data: bytes, value: object) -> None:
    """Bind variables are read as the driver writes them."""
    found = decode_bind(data or None, number, form)
    assert found == value
    assert type(found) is type(value)
