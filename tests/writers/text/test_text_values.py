"""Canonical texts of strings, binary, UUIDs, nested values and wrapped types."""

import base64
import json
import uuid
from decimal import Decimal

import pyarrow as pa
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from writers.errors import ValueNotRepresentable
from writers.model import TextFormat
from writers.text.text_values import text_of

UUIDS = [
    uuid.UUID(int=0),
    uuid.UUID(int=2**128 - 1),
    uuid.UUID("12345678-1234-5678-9abc-def012345678"),
]


def texts(array, **options):
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
    assert texts(array) == [v if v is None else "\\x" + v.hex() for v in values]
    assert texts(array, binary="hex") == [v if v is None else v.hex() for v in values]
    expected = [v if v is None else base64.b64encode(v).decode() for v in values]
    assert texts(array, binary="base64") == expected


def test_uuids_are_canonical():
    """UUIDs have their dashes and lower-case digits; nulls and slices stay in place."""
    storage = pa.array([u.bytes for u in UUIDS] + [None], pa.binary(16))
    if not hasattr(pa, "uuid"):
        pytest.skip("this pyarrow has no UUID type")
    array = pa.ExtensionArray.from_storage(pa.uuid(), storage)
    assert texts(array) == [str(u) for u in UUIDS] + [None]
    assert texts(array.slice(2)) == [str(UUIDS[2]), None]
    assert texts(array.slice(1, 0)) == []


class Wrapped(pa.ExtensionType):
    """An extension type nobody knows."""

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
    assert texts(pa.ExtensionArray.from_storage(Wrapped(), decimals)) == ["1.50", None]
    encoded = pa.DictionaryArray.from_arrays(
        pa.array([1, 0, None, 1], pa.int8()), pa.array([True, None])
    )
    assert texts(encoded) == [None, "true", None, None]
    runs = pa.RunEndEncodedArray.from_arrays([2, 5], pa.array(["x", None]))
    assert texts(runs.slice(1, 3)) == ["x", None, None]
    assert texts(pa.nulls(2)) == [None, None]


def test_unused_dictionary_values_are_not_refused():
    """A value that cannot be written counts only where it is used."""
    midday = pa.array([0, 43_200_000], pa.int64()).view(pa.date64())
    unused = pa.DictionaryArray.from_arrays(pa.array([0, 0], pa.int8()), midday)
    assert texts(unused) == ["1970-01-01"] * 2
    used = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), midday)
    with pytest.raises(ValueNotRepresentable, match="column c, row 2: "):
        texts(used)


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
    assert texts(array) == expected


def test_maps():
    """Text keys make an object in the order of the entries, others an array of pairs."""
    words = pa.array(
        [[("z", 1), ("a", None)], None, [], [('"', 2)]], pa.map_(pa.string(), pa.int8())
    )
    assert texts(words) == ['{"z":1,"a":null}', None, "{}", '{"\\"":2}']
    assert texts(words.slice(2)) == ["{}", '{"\\"":2}']
    numbers = pa.array([[(1, "x"), (2, None)], []], pa.map_(pa.int8(), pa.string()))
    assert texts(numbers) == ['[[1,"x"],[2,null]]', "[]"]


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
    assert texts(pa.array(rows, kind), decimal_separator=",") == [
        '{"d":12345678901234567890.0000000001,"f":"NaN",'
        '"t":"1970-01-01 00:00:00.000000001","b":"\\\\x01","n":null}',
        '{"d":0.0000000001,"f":"-Infinity","t":null,"b":null,"n":null}',
        '{"d":-1.0000000000,"f":1e+20,"t":"1970-01-01 00:00:00","b":"\\\\x","n":null}',
    ]


def test_masks_do_not_reach_into_json():
    """Inside JSON dates are ISO whatever the masks."""
    array = pa.array([[0]], pa.list_(pa.int32())).cast(pa.list_(pa.date32()))
    assert texts(array, date_format="YY") == ['["1970-01-01"]']


def test_a_refused_value_inside_a_list_is_named_by_its_row():
    """The row is that of the list, not the position inside."""
    inner = pa.array([0, 0, 0, 1], pa.int64()).view(pa.date64())
    array = pa.ListArray.from_arrays(pa.array([0, 3, 3, 4], pa.int32()), inner)
    with pytest.raises(
        ValueNotRepresentable, match=r"column c, row 3: a value inside it .*time of day"
    ):
        texts(array)


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
    shown = texts(whole.take(pa.array([0, 2])))
    assert texts(hidden) == [shown[0], None, shown[1]]
    assert texts(hidden.slice(1)) == [None, shown[1]]


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
