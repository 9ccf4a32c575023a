"""The native decoder beside a plain one, over responses of the test server's encoder and worse."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from amounts import tries
from hypothesis import given
from hypothesis import strategies as st
from oracle.responses import PlainDecoder, on_the_wire, payload, responses
from oracle_server.model import Moment, Type
from oracle_server.wire.errors import Outcome

from unloader.sources.oracle.native import decoder
from unloader.sources.oracle.native.decoder import NO_MORE_ROWS, Description, Refused, RowDecoder
from writers import built_library

pytestmark = pytest.mark.skipif(
    built_library.reason(decoder.library) is not None,
    reason=f"the native fetch cannot be used: {built_library.reason(decoder.library)}",
)

_EPOCH = datetime(1970, 1, 1)


def number(digits: int, places: int) -> tuple[Type, Description, pa.DataType]:
    """Return a NUMBER with a scale."""
    made = Description(kind=decoder.DECIMAL, digits=digits, places=places, limit=22)
    return Type(name="NUMBER", precision=digits, scale=places), made, pa.decimal128(digits, places)


COLUMNS: dict[str, tuple[Type, Description, pa.DataType]] = {
    "int32": (
        Type(name="NUMBER", precision=9, scale=0),
        Description(kind=decoder.INT32, digits=9, limit=22),
        pa.int32(),
    ),
    "int64": (
        Type(name="NUMBER", precision=18, scale=0),
        Description(kind=decoder.INT64, digits=18, limit=22),
        pa.int64(),
    ),
    "money": number(12, 2),
    "odd": number(20, 5),
    "whole": number(38, 0),
    "wide": number(38, 9),
    "small": number(38, 38),
    "text": (
        Type(name="VARCHAR2", length=1000),
        Description(kind=decoder.TEXT, limit=4000),
        pa.string(),
    ),
    "national": (
        Type(name="NVARCHAR2", length=1000),
        Description(kind=decoder.WIDE_TEXT, limit=4000),
        pa.string(),
    ),
    "raw": (Type(name="RAW", length=600), Description(kind=decoder.BYTES, limit=600), pa.binary()),
    "date": (
        Type(name="DATE"),
        Description(kind=decoder.MOMENT, places=0, limit=11),
        pa.timestamp("s"),
    ),
    "stamp": (
        Type(name="TIMESTAMP", scale=6),
        Description(kind=decoder.MOMENT, places=6, limit=11),
        pa.timestamp("us"),
    ),
    "double": (Type(name="BINARY_DOUBLE"), Description(kind=decoder.DOUBLE, limit=8), pa.float64()),
    "float": (Type(name="BINARY_FLOAT"), Description(kind=decoder.FLOAT, limit=8), pa.float32()),
}


def scaled(digits: int, places: int) -> st.SearchStrategy[Decimal]:
    most = 10**digits - 1
    whole = st.one_of(
        st.integers(-most, most),
        st.integers(-999, 999),
        st.sampled_from([0, 1, -1, most, -most, 10 ** (digits - 1)]),
        st.integers(0, digits - 1).map(lambda power: 10**power),
    )
    # Arithmetic would round to the digits of a context.
    return whole.map(lambda value: Decimal(f"{value}E-{places}"))


def moment(micros: bool) -> st.SearchStrategy[Moment]:
    """Return moments of the years 1 to 9999."""
    return st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59)).map(
        lambda at: Moment(
            at.year,
            at.month,
            at.day,
            at.hour,
            at.minute,
            at.second,
            at.microsecond * 1000 if micros else 0,
        )
    )


_TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=90)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int32": st.integers(-(10**9) + 1, 10**9 - 1),
    "int64": st.integers(-(10**18) + 1, 10**18 - 1),
    "money": scaled(12, 2),
    "odd": scaled(20, 5),
    "whole": scaled(38, 0),
    "wide": scaled(38, 9),
    "small": scaled(38, 38),
    "text": _TEXT | st.integers(200, 300).map("x".__mul__),
    "national": _TEXT,
    "raw": st.binary(min_size=1, max_size=10) | st.integers(250, 600).map(b"\xfe".__mul__),
    "date": moment(micros=False),
    "stamp": moment(micros=True),
    "double": st.floats(allow_nan=False),
    "float": st.floats(allow_nan=False, width=32),
}


@st.composite
def statements(draw: st.DrawFn) -> tuple[list[str], list[tuple[Any, ...]], list[int], int]:
    """Return columns, rows with repeats and NULLs, sizes of fetches, and of packets."""
    names = draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=11))
    pools = [draw(st.lists(VALUES[name] | st.none(), min_size=1, max_size=4)) for name in names]
    row = st.tuples(*(st.sampled_from(pool) for pool in pools))
    rows = [
        each
        for each, times in draw(st.lists(st.tuples(row, st.integers(1, 4)), max_size=25))
        for _ in range(times)
    ]
    sizes = draw(st.lists(st.integers(1, 40), min_size=1, max_size=4))
    return names, rows, sizes, draw(st.sampled_from([64, 200, 512, 8192, 65535]))


def decoded(
    decoder: RowDecoder, wire: bytes, kinds: Sequence[pa.DataType], pieces: Iterator[int]
) -> tuple[list[list[Any]], bytes, int]:
    passed, at = b"", 0
    while at < len(wire):
        size = next(pieces)
        decoder.feed(wire[at : at + size])
        passed += decoder.passed_on()
        at += size
    error = decoder.finish().error
    arrays = decoder.take(kinds)
    for array in arrays:
        array.validate(full=True)
    return [list(row) for row in zip(*map(python, arrays), strict=True)], passed, error


def python(array: pa.Array) -> list[Any]:
    if not pa.types.is_timestamp(array.type):
        return [Decimal(v) if isinstance(v, int) else v for v in array.to_pylist()]
    unit = 1_000_000 if array.type.unit == "s" else 1
    ticks = array.cast(pa.int64()).to_pylist()
    return [None if t is None else _EPOCH + timedelta(microseconds=t * unit) for t in ticks]


def expected(name: str, value: Any) -> Any:
    """Return what `python` makes of a value of the server."""
    if isinstance(value, Moment):
        return datetime(*value[:6], value.nanos // 1000)
    return Decimal(value) if isinstance(value, int) else value


def cycled(sizes: Sequence[int]) -> Iterator[int]:
    """Yield sizes for ever."""
    while True:
        yield from sizes


@tries(600)
@given(statements(), st.lists(st.integers(1, 700), min_size=1, max_size=5))
def test_rows_are_those_of_the_server_and_of_the_plain_decoder(
    statement: tuple[list[str], list[tuple[Any, ...]], list[int], int], pieces: list[int]
) -> None:
    """For any repeats, and any cuts into packets and pieces."""
    names, rows, sizes, sdu = statement
    types = [COLUMNS[name][0] for name in names]
    kinds = [COLUMNS[name][2] for name in names]
    native, plain = RowDecoder([COLUMNS[name][1] for name in names]), PlainDecoder(types)
    cut, found, error = cycled(pieces), [], 0
    for turn, wire in enumerate(responses(types, rows, sizes, sdu)):
        native.begin(sizes[min(turn, len(sizes) - 1)])
        ours, passed, error = decoded(native, wire, kinds, cut)
        assert ours == plain.rows(wire)
        # The driver gets the rest as it was, in packets that begin with it.
        assert payload(wire).endswith(payload(passed))
        assert payload(passed)[0] == 4
        found += ours
    assert found == [[expected(n, v) for n, v in zip(names, r, strict=True)] for r in rows]
    assert error == NO_MORE_ROWS


@pytest.mark.parametrize("kept", [0, 1, 3])
def test_arrays_keep_their_values_while_others_are_let_go(kept: int) -> None:
    """Memory serves the next batch only once its array is gone."""
    rows = [(number, f"{number} {'x' * (number % 90)}") for number in range(30_000)]
    types = [COLUMNS[name][0] for name in ("int64", "text")]
    kinds = [COLUMNS[name][2] for name in ("int64", "text")]
    decoder = RowDecoder([COLUMNS[name][1] for name in ("int64", "text")])
    held: list[tuple[int, list[pa.Array]]] = []
    count = 0
    for wire in responses(types, rows, [10_000], 65_535):
        decoder.begin(10_000)
        decoder.feed(wire)
        decoder.passed_on()
        decoder.finish()
        held.append((count, decoder.take(kinds)))
        count += len(held[-1][1][0])
        for first, arrays in held:
            numbers, texts = (array.to_pylist() for array in arrays)
            assert list(zip(numbers, texts, strict=True)) == rows[first : first + len(texts)]
            del arrays
        del held[: max(0, len(held) - kept)]
    assert count == len(rows)


ROW_HEADER = bytes.fromhex("06 22 01 01 00 01 0a 00 00 00")
END = Outcome(rows=1, kind="select").encode(24) + b"\x1d"


def message(cell: bytes, header: bytes = ROW_HEADER, end: bytes = END) -> bytes:
    """Return a response of one row with one cell."""
    return on_the_wire(header + b"\x07" + cell + end)


def refusal(name: str, wire: bytes, most_rows: int = 10) -> Refused:
    """Return why a response is refused."""
    decoder = RowDecoder([COLUMNS[name][1]])
    decoder.begin(most_rows)
    try:
        decoder.feed(wire)
        decoder.finish()
    except Refused as refused:
        return refused
    raise AssertionError("the response was taken")


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("money", "03 c1 00 02"),  # a leading zero
        ("money", "03 c1 02 01"),  # a trailing zero
        ("money", "03 c1 02 66"),  # no digit
        ("money", "03 c0 02 02"),  # four places
        ("money", "02 c7 02"),  # thirteen digits
        ("money", "03 3e 64 05"),  # a negative number without its end
        ("money", "01 00"),  # infinity below
        ("money", "02 ff 65"),  # infinity above
        ("int32", "02 c0 33"),  # a half
        ("int32", "02 c6 02"),  # ten digits
        ("whole", "15 d4 0b 0b 0b 0b 0b 0b 0b 0b 0b 0b 0b 0b 0b 0b 0b 0b 0b 0b 0b 0b"),
        ("whole", "14 d3 ff" + 18 * "64"),  # no digit, of a number beyond 128 bits
        ("whole", "03 2d ff 66"),  # the same, negative
        ("raw", "fe 02 02 59" + 601 * "00" + "00"),
        ("national", "01 41"),  # half a character
        ("national", "02 d8 00"),  # half a pair
        ("national", "04 dc 00 d8 00"),  # a pair the wrong way about
        ("double", "04 bf 80 00 00"),
        ("float", "08 bf f0 00 00 00 00 00 00"),
    ],
)
def test_a_value_that_is_none_is_refused(name: str, cell: str) -> None:
    """It is never made into another one."""
    assert refusal(name, message(bytes.fromhex(cell))).column == 0


@pytest.mark.parametrize(
    "cell",
    [
        "07 64 64 01 01 01 01 01",  # the year 0
        "07 63 64 01 01 01 01 01",  # before Christ
        "07 78 7c 02 1e 01 01 01",  # February 30
        "07 73 64 02 1d 01 01 01",  # 1500-02-29, of the Julian calendar
        "07 78 7c 0d 01 01 01 01",
        "07 78 7c 01 00 01 01 01",
        "07 78 7c 01 01 00 01 01",
        "07 78 7c 01 01 19 01 01",
        "07 78 7c 01 01 01 3d 01",
        "07 78 7c 01 01 01 01 3d",
        "0b 78 7c 01 01 01 01 01 00 00 03 e8",  # a fraction in a column of seconds
        "0b 78 7c 01 01 01 01 01 3b 9a ca 00",
        "06 78 7c 01 01 01 01",
    ],
)
def test_a_date_that_timestamps_do_not_hold_is_told_apart(cell: str) -> None:
    """The unit is then read with dates as text."""
    assert refusal("date", message(bytes.fromhex(cell))).is_moment


@pytest.mark.parametrize(
    ("wire", "reason"),
    [
        (message(b"\x01x", end=Outcome(rows=2, kind="select").encode(24) + b"\x1d"), "count of rows"),
        (message(b"\x01x", end=b"\x17" + END), "message"),
        (message(b"\x01x", header=b""), "message"),
        (message(b"\x01x", header=ROW_HEADER * 2), "message"),
        (message(b"\x01x", header=bytes.fromhex("06 22 01 01 00 01 0a 00 01 02 02 01 00 00")), "vector"),
        (message(b"\x01x", header=bytes.fromhex("06 22 01 01 00 01 0a 00 01 01 01 00 00")), "vector"),
        # A vector that leans on a row which is not there.
        (message(b"", header=bytes.fromhex("06 22 00 00 01 0a 00 01 01 01 00 00")), "vector"),
        (message(b"\x01x", header=ROW_HEADER + bytes.fromhex("15 01 01 01 15 01 01 01")), "vector"),
        (on_the_wire(ROW_HEADER + bytes.fromhex("15 01 01 01") + END), "vector"),
        (message(b"\xfd"), "longer"),
        (message(b"\xfe\x02\x0f\xff"), "longer"),
        (message(b"\xfe\x05" + 5 * b"\xff"), "longer"),
        (message(b"\x02\xc3\x28"), "UTF-8"),
        (message(b"\x03\xed\xa0\x80"), "UTF-8"),
        (on_the_wire(ROW_HEADER + b"\x07\x05abc"), "ended"),
        (on_the_wire(ROW_HEADER[:4]), "ended"),
        (struct.pack(">IBBH", 7, 6, 0, 0), "packet"),
        (struct.pack(">IBBHH", 2**31, 6, 0, 0, 0), "packet"),
        (struct.pack(">IBBH", 8, 6, 0, 0), "packet"),
    ],
)  # fmt: skip
def test_a_response_that_contradicts_itself_is_refused(wire: bytes, reason: str) -> None:
    """Structure, counts and lengths are checked before a row is believed."""
    assert reason in refusal("text", wire).reason


def test_text_of_two_values_is_no_character() -> None:
    """A character may not begin in one value and end in the next."""
    rows = ROW_HEADER + b"\x07\x01\xc3\x07\x01\xa4"
    end = Outcome(rows=2, kind="select").encode(24) + b"\x1d"
    assert "UTF-8" in refusal("text", on_the_wire(rows + end)).reason


def test_packets_that_are_no_data_go_to_the_driver() -> None:
    """With a marker the server stops, and the driver answers it."""
    marker = bytes.fromhex("0000000b 0c 00 0000 010001")
    decoder = RowDecoder([COLUMNS["text"][1]])
    decoder.begin(10)
    half = on_the_wire(ROW_HEADER + b"\x07\x05abc", flags=0)
    error = on_the_wire(b"\x04 whatever an error has")
    decoder.feed(half + marker + error)
    assert decoder.passed_on() == marker + error
    assert decoder.passed_on() == b""
    with pytest.raises(Refused):
        decoder.finish()


def test_what_came_of_a_packet_can_be_given_back() -> None:
    """A driver that takes over reads on where the tap has stopped."""
    wire = message(b"\x01x")
    decoder = RowDecoder([COLUMNS["text"][1]])
    decoder.begin(10)
    decoder.feed(wire[:-3])
    assert decoder.partial() == wire[:-3]


@tries(400)
@given(st.data())
def test_changed_bytes_never_crash_nor_hang(data: st.DataObject) -> None:
    """A changed response is refused, or read as the plain decoder reads it."""
    names, rows, _, sdu = data.draw(statements())
    types, kinds = [COLUMNS[n][0] for n in names], [COLUMNS[n][2] for n in names]
    wire = bytearray(next(responses(types, rows, [40], sdu)))
    for at, value in data.draw(
        st.lists(st.tuples(st.integers(0, len(wire) - 1), st.integers(0, 255)), max_size=3)
    ):
        wire[at] = value
    decoder = RowDecoder([COLUMNS[name][1] for name in names])
    decoder.begin(40)
    try:
        ours, _, _ = decoded(decoder, bytes(wire), kinds, cycled([len(wire)]))
    except Refused:
        return
    assert comparable(ours) == comparable(PlainDecoder(types).rows(bytes(wire)))


def comparable(rows: list[list[Any]]) -> list[list[Any]]:
    return [["NaN" if value != value else value for value in row] for row in rows]
