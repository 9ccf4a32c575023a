"""Random batches and formats, and the encoders that write them."""

from __future__ import annotations

import string
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume
from hypothesis import strategies as st

from writers.errors import FormatError
from writers.model import TextFormat
from writers.text.delimited import PlainEncoder
from writers.text.dialects import DIALECTS, check
from writers.text.masks import GROUPS

NAMES = ("plain", "native")


def encoder(name: str, schema: pa.Schema, format: TextFormat) -> Any:
    """Return an encoder; a test that asks for a native one is skipped where none was built."""
    if name == "plain":
        return PlainEncoder(schema, format)
    native_or_skip()
    from writers.native.encoder import NativeEncoder

    return NativeEncoder(schema, format)


def native_or_skip() -> None:
    """Skip the test, with the reason, where the native encoder cannot be used."""
    from writers.native import encoder as library

    if reason := library.why_not():
        pytest.skip(f"no native encoder: {reason}")


def written(name: str, batch: pa.RecordBatch, format: TextFormat) -> bytes:
    """Return a whole file of one batch: preamble, header and records."""
    made = encoder(name, batch.schema, format)
    return bytes(made.preamble()) + bytes(made.header()) + bytes(made.encode(batch))


DELIMITERS = (*",;\t|\x01-", "||", "|~|", "aba", "<|", "é", "日本", ",\t", " ", "1", "\\", ":")
ENCLOSURES = ('"', "'", "~~", "<>", '"a"', "``", "«", "~~~", "xyx", "0", "", "")
ENDS = ("\n", "\n", "\r\n", "\r", "\x02", ".\n", ";;", "\n\n", "zz", "ö", "\\\n")
NULLS = ("", "", "\\N", "NULL", "0", "true", "\\\\", "b", "-", "∅", "\\", "1970-01-01", "NaN", "\t")
UTF_8 = ("utf-8", "utf8", "UTF-8", "utf-8-sig")
OTHERS = (
    *("latin-1", "cp1252", "ascii", "koi8-r", "cp037", "cp932", "shift_jis", "euc_jp"),
    *("gb18030", "gbk", "big5", "euc_kr", "utf-16", "utf-16-be", "utf-32", "iso8859-15"),
    *("euc_jis_2004", "big5hkscs", "cp1258", "mac_roman"),
)
_ELEMENTS = tuple(sorted(name for name in GROUPS if not name.startswith("ISO-")))
_ZONED = ("TZH", "TZM", "TZR")
_MARK = st.text(st.sampled_from('ab|~"<>;\t\x01é日-. '), min_size=1, max_size=4)


@st.composite
def masks(draw: st.DrawFn, *, zone: bool = False) -> str | None:
    """Draw an Oracle mask, or None for ISO 8601."""
    if draw(st.integers(0, 2)) == 0:
        return None
    known = draw(
        st.sampled_from(
            ("YYYYMMDDHH24MISS", "YYYY-MM-DD", "SYYYY-MM-DD HH24:MI:SS.FF", "DD-MON-RR", "YYYY", "")
        )
    )
    if known:
        return known + ("TZH:TZM" if zone and draw(st.booleans()) else "")
    names = st.sampled_from([n for n in _ELEMENTS if zone or n not in _ZONED])
    piece = st.one_of(
        names,
        names,
        names.map(str.lower),
        names.map(str.capitalize),
        st.sampled_from(
            (*"-/,.;: ", "FF3", "FF6", "FF9", "FF1", "FM", "X", '"T"', '"Größe"', '"""')
        ),
        st.sampled_from(string.punctuation),
    )
    return "".join(draw(st.lists(piece, min_size=1, max_size=8)))


@st.composite
def formats(draw: st.DrawFn, *, encodings: bool = True) -> TextFormat:
    """Draw a dialect: one of the named ones, changed a little, or any other."""
    options: dict[str, Any] = {
        "date_format": draw(masks()),
        "timestamp_format": draw(masks()),
        "timestamp_tz_format": draw(masks(zone=True)),
        "fractions": draw(st.sampled_from(("mask", "mask", "keep"))),
        "decimal_separator": draw(st.sampled_from("." * 3 + ",;_'é|")),
        "boolean": draw(st.sampled_from(("true/false", "t/f", "1/0"))),
        "binary": draw(st.sampled_from(("prefixed-hex", "hex", "base64"))),
        "substitute": draw(st.sampled_from((None, None, "?", "", "<,?>"))),
        "header": draw(st.booleans()),
        "trailing_delimiter": draw(st.booleans()),
        "record_length_digits": draw(st.sampled_from((0, 0, 0, 2, 3, 10, 20))),
    }
    if encodings:
        group = draw(st.sampled_from((UTF_8, UTF_8, OTHERS)))
        options["encoding"] = draw(st.sampled_from(group))
    if draw(st.integers(0, 3)) == 0:
        named = DIALECTS[draw(st.sampled_from(sorted(DIALECTS)))]
        chosen = {name: getattr(named, name) for name in TextFormat.__struct_fields__}
        kept = draw(st.sets(st.sampled_from(sorted(options))))
        options = {**chosen, **{name: options[name] for name in kept}}
    else:
        options |= {
            "delimiter": draw(st.sampled_from(DELIMITERS) | _MARK),
            "enclosure": draw(st.sampled_from(ENCLOSURES) | _MARK),
            "enclose": draw(st.sampled_from(("minimal", "minimal", "strings", "all", "none"))),
            "escape": draw(st.sampled_from(("double", "double", "backslash", "none"))),
            "null": draw(st.sampled_from(NULLS)),
            "eol": draw(st.sampled_from(ENDS)),
        }
    chosen_format = TextFormat(**options)
    try:
        check(chosen_format)
    except FormatError:
        assume(False)
    return chosen_format


Columns = tuple[pa.Field, st.SearchStrategy[Any]]
ZONES = (
    "UTC",
    "+00:00",
    "+05:30",
    "-12:00",
    "Z",
    "Europe/Berlin",
    "America/New_York",
    "Asia/Kolkata",
)
INDEXES = (
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
)
CHARACTERS = st.sampled_from("ab ,;|~\"'<>\t\r\n\\.N0-é日😀\x00\x7f\u0301\u2028\uffff¥～")
DAY = 86_400
YEAR_1, YEAR_10000 = -719_162, 2_932_897
"""Days of 0001-01-01 and 10000-01-01, counted from 1970-01-01."""


def texts(format: TextFormat) -> st.SearchStrategy[str]:
    """Draw texts that are made of a dialect's marks, among other characters."""
    marks = [m for m in (format.delimiter, format.enclosure, format.eol, format.null) if m]
    halves = [mark[:1] for mark in marks] + [mark[-1:] for mark in marks]
    pieces = st.one_of(st.sampled_from([*marks, *halves, *marks, "\\", "\\."]), CHARACTERS)
    return st.one_of(
        st.lists(pieces, max_size=6).map("".join),
        st.text(st.characters(exclude_categories=("Cs",)), max_size=8),
        st.sampled_from(("", format.null, "\\.", "x" * 300, "0010", " ", "a" * 13)),
    )


def _ints(bits: int, *, signed: bool = True) -> st.SearchStrategy[int]:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    near = st.sampled_from((low, high, 0, 1, low + 1, high - 1, 9, 10, 99, 100))
    powers = st.integers(0, 19).map(lambda power: min(max(10**power, low), high))
    return near | powers | st.integers(low, high) | st.integers(0, 1)


@st.composite
def numbers(draw: st.DrawFn, format: TextFormat) -> Columns:
    """Draw a numeric or boolean column."""
    bits = draw(st.sampled_from((8, 16, 32, 64)))
    form = draw(st.sampled_from(("int", "uint", "float", "decimal", "decimal", "bool")))
    if form == "int":
        return _field(getattr(pa, f"int{bits}")()), _ints(bits)
    if form == "uint":
        return _field(getattr(pa, f"uint{bits}")()), _ints(bits, signed=False)
    if form == "bool":
        return _field(pa.bool_()), st.booleans()
    if form == "float":
        width = draw(st.sampled_from((16, 32, 64)))
        special = (0.0, -0.0, 1e15, 1e16, 123456.0, 0.1, 1e-5, 65504.0, float("nan"), float("-inf"))
        kept = [v for v in special if width > 16 or v in (0.0, 65504.0) or v != v]
        values = st.sampled_from(kept) | st.floats(width=width) | st.integers(0, 999).map(float)  # type: ignore[arg-type]
        return _field(getattr(pa, f"float{width}")()), values
    return draw(_decimals())


@st.composite
def _decimals(draw: st.DrawFn) -> Columns:
    widths = {32: 9, 64: 18, 128: 38, 256: 76}
    bits = draw(st.sampled_from([b for b in widths if hasattr(pa, f"decimal{b}")]))
    precision = draw(st.integers(1, widths[bits]))
    scale = draw(st.integers(-5, precision) | st.sampled_from((0, min(2, precision))))
    most = 10**precision - 1
    digits = st.integers(-most, most) | st.sampled_from((0, 1, -1, most, -most))
    values = digits.map(lambda unscaled: _decimal(unscaled, scale))
    return _field(getattr(pa, f"decimal{bits}")(precision, scale)), values


def _decimal(unscaled: int, scale: int) -> Decimal:
    digits = tuple(map(int, str(abs(unscaled))))
    return Decimal((int(unscaled < 0), digits, -scale))


@st.composite
def moments(draw: st.DrawFn, format: TextFormat) -> Columns:
    """Draw a temporal column; most of its values are in the years 1 to 9999, some anywhere."""
    wild = draw(st.integers(0, 5)) == 0
    days = st.integers(YEAR_1, YEAR_10000 - 1) | st.sampled_from((0, -1, YEAR_1, 11_016, 19_782))
    form = draw(st.sampled_from(("date32", "date64", "time", "timestamp", "timestamp", "zoned")))
    if form == "date32":
        return _field(pa.date32()), _ints(32) if wild else days
    if form == "date64":
        return _field(pa.date64()), _ints(64) if wild else days.map(lambda d: d * DAY * 1000)
    unit, per_second = draw(
        st.sampled_from((("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)))
    )
    if form == "time":
        short = unit in ("s", "ms")
        ticks = st.integers(0, DAY * per_second) | st.integers(0, DAY).map(lambda s: s * per_second)
        kind = pa.time32(unit) if short else pa.time64(unit)
        return _field(kind), _ints(32 if short else 64) if wild else ticks
    kind = pa.timestamp(unit, draw(st.sampled_from(ZONES)) if form == "zoned" else None)
    low = max(YEAR_1 * DAY * per_second, -(2**63) + DAY * per_second)
    high = min(YEAR_10000 * DAY * per_second, 2**63 - DAY * per_second) - 1
    whole = days.map(lambda d: min(max(d * DAY * per_second, low), high))
    ticks = st.integers(low, high) | whole | st.integers(-per_second, per_second)
    seconds = ticks.map(lambda t: t // per_second * per_second).filter(lambda t: t >= low)
    kind_class = draw(st.sampled_from(("", "", "date")))
    return _field(kind, kind_class), _ints(64) if wild else ticks | seconds


@st.composite
def strings(draw: st.DrawFn, format: TextFormat) -> Columns:
    """Draw a column of text or bytes, or of numbers and timestamps carried as text."""
    form = draw(st.sampled_from(("text", "text", "text", "bytes", "number", "timestamp", "uuid")))
    if form == "text":
        kind = draw(st.sampled_from((pa.string(), pa.large_string(), pa.string_view())))
        return _field(kind), texts(format)
    if form == "bytes":
        size = draw(st.sampled_from((1, 3, 16)))
        kinds = (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(size))
        kind = draw(st.sampled_from(kinds))
        return _field(kind), (
            st.binary(min_size=size, max_size=size) if kind == kinds[3] else st.binary(max_size=20)
        )
    if form == "uuid":
        return _field(pa.uuid()), st.binary(min_size=16, max_size=16)
    if form == "number":
        values = st.sampled_from(("0.10", "1e-130", "-5", "NaN", "99999999999999999999999.5"))
        return _field(pa.string(), "number"), values
    stamps = ("2024-01-31 23:59:59", "0044-02-29 00:00:00.5", "-0044-03-15 01:02:03")
    zoned = ("2024-07-01 12:00:00.123456789 +02:00[Europe/Berlin]", "1999-12-31 23:59:59 -12:00")
    return _field(pa.string(), "timestamp"), st.sampled_from((*stamps, *zoned))


@st.composite
def odd_ones(draw: st.DrawFn, format: TextFormat) -> Columns:
    """Draw a nested or encoded column, an interval, or one of only nulls."""
    form = draw(st.sampled_from(("null", "duration", "interval", "list", "struct", "map")))
    if form == "null":
        return _field(pa.null()), st.none()
    if form == "duration":
        return _field(pa.duration(draw(st.sampled_from(("s", "ms", "us", "ns"))))), _ints(62)
    if form == "interval":
        part = st.integers(-1000, 1000)
        return _field(pa.month_day_nano_interval()), st.tuples(part, part, part)
    inner, values = draw(numbers(format) | strings(format).filter(lambda c: c[0].metadata is None))
    inner_type = inner.type if inner.type != pa.uuid() else pa.binary(16)
    if pa.types.is_decimal(inner_type) and inner_type.scale < 0:
        inner_type, values = pa.int64(), _ints(64)
    if form == "list":
        makes = (pa.list_, pa.large_list, partial(pa.list_, list_size=2))
        make = draw(st.sampled_from(makes))
        least, most = (2, 2) if make is makes[2] else (0, 3)
        return _field(make(inner_type)), st.lists(st.none() | values, min_size=least, max_size=most)
    if form == "struct":
        kind = pa.struct([("a", inner_type), ("b", pa.string())])
        return _field(kind), st.fixed_dictionaries({"a": st.none() | values, "b": texts(format)})
    return _field(pa.map_(pa.string(), inner_type)), st.lists(st.tuples(texts(format), values))


def _field(kind: pa.DataType, text_class: str = "") -> pa.Field:
    return pa.field("c", kind, metadata={"text_class": text_class} if text_class else None)


@st.composite
def columns(draw: st.DrawFn, format: TextFormat) -> Columns:
    """Draw the field of a column and its values, which are never None."""
    chosen = draw(st.sampled_from((strings, strings, numbers, numbers, moments, odd_ones)))
    found: Columns = draw(chosen(format))
    return found


def _array(draw: st.DrawFn, field: pa.Field, values: st.SearchStrategy[Any], rows: int) -> pa.Array:
    """Return an array of a drawn layout."""
    kind = field.type
    before, behind = draw(st.sampled_from((0, 0, 1, 3, 8, 13))), draw(st.integers(0, 2))
    total = before + rows + behind
    drawn = draw(st.lists(values, min_size=total, max_size=total))
    nulls = draw(st.sampled_from(("none", "some", "some", "bitmap", "all")))
    valid = [nulls in ("none", "bitmap") for _ in range(total)]
    if nulls == "some":
        valid = draw(st.lists(st.booleans(), min_size=total, max_size=total))
    encoded = pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind)
    if encoded or pa.types.is_nested(kind) or pa.types.is_null(kind):
        array = _plain_array(drawn, valid, kind)
    else:
        array = _masked(_plain_array(drawn, [True] * total, kind), valid, nulls != "none")
    return array.slice(before, rows)


def _plain_array(drawn: list[Any], valid: list[bool], kind: pa.DataType) -> pa.Array:
    values = [value if there else None for value, there in zip(drawn, valid, strict=True)]
    if pa.types.is_temporal(kind) and kind != pa.month_day_nano_interval():
        integer = pa.int32() if kind.bit_width == 32 else pa.int64()
        return pa.array(values, integer).view(kind)
    if pa.types.is_decimal(kind):
        return _decimal_array(values, kind)
    if kind == pa.uuid():
        return pa.ExtensionArray.from_storage(kind, pa.array(values, pa.binary(16)))
    if pa.types.is_float16(kind):
        return pa.array(values, pa.float32()).cast(kind)
    return pa.array(values, kind)


def _decimal_array(values: list[Decimal | None], kind: pa.DataType) -> pa.Array:
    """Return decimals from their digits: Arrow takes some of a negative scale only like this."""
    width = kind.bit_width // 8
    signs = [1 if value is None or value.is_signed() == 0 else -1 for value in values]
    digits = [
        int("".join(map(str, value.as_tuple().digits))) if value is not None else 0
        for value in values
    ]
    data = b"".join(
        (sign * number).to_bytes(width, "little", signed=True)
        for sign, number in zip(signs, digits, strict=True)
    )
    array = pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(data)])
    return _masked(array, [value is not None for value in values], True)


def _masked(array: pa.Array, valid: list[bool], bitmap: bool) -> pa.Array:
    """Put a bitmap over an array, so that values remain under its nulls."""
    if not bitmap:
        return array
    bits = pa.array(valid, pa.bool_()).buffers()[1]
    if isinstance(array.type, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(array.type, _masked(array.storage, valid, True))
    buffers = [bits, *array.buffers()[1:]]
    return pa.Array.from_buffers(array.type, len(array), buffers, null_count=-1)


@st.composite
def tables(
    draw: st.DrawFn, format: TextFormat, *, most_rows: int = 8, most_columns: int = 4
) -> list[pa.RecordBatch]:
    """Draw a few batches of one schema, at least one."""
    chosen = [draw(columns(format)) for _ in range(draw(st.integers(1, most_columns)))]
    sizes = draw(st.lists(st.integers(0, most_rows), min_size=1, max_size=3))
    arrays = [[_array(draw, field, values, rows) for field, values in chosen] for rows in sizes]
    wraps = [draw(wrappers()) for _ in chosen]
    wrapped = [
        [_wrapped(array, wrap) for array, wrap in zip(row, wraps, strict=True)] for row in arrays
    ]
    names = draw(st.lists(texts(format) | st.just("a"), min_size=len(chosen), max_size=len(chosen)))
    fields = [
        pa.field(name, array.type, metadata=field.metadata)
        for name, array, (field, _) in zip(names, wrapped[0], chosen, strict=True)
    ]
    schema = pa.schema(fields)
    batches = [pa.RecordBatch.from_arrays(row, schema=schema) for row in wrapped]
    if draw(st.booleans()):
        batches = [batch.slice(draw(st.integers(0, batch.num_rows))) for batch in batches]
    return batches


def wrappers() -> st.SearchStrategy[Any]:
    """Draw how a column is encoded: as it is, mostly, by a dictionary, or by runs."""
    return st.sampled_from(
        (None,) * 8 + INDEXES + (("runs", pa.int16()), ("runs", pa.int32()), ("runs", pa.int64()))
    )


def _wrapped(array: pa.Array, wrap: Any) -> pa.Array:
    kind = array.type
    nested = pa.types.is_nested(kind) or pa.types.is_null(kind)
    if wrap is None or nested or isinstance(kind, pa.BaseExtensionType):
        return array
    rows = len(array)
    if isinstance(wrap, tuple):
        # Arrow makes no runs of times out of their range, which the encoders have to refuse.
        if pa.types.is_date64(kind) or pa.types.is_time(kind):
            return array
        return pa.RunEndEncodedArray.from_arrays(pa.array(range(1, rows + 1), wrap[1]), array)
    # Nulls are in the indices and in the dictionary.
    indices = [None if row % 5 == 4 else rows - 1 - row for row in range(rows)]
    return pa.DictionaryArray.from_arrays(pa.array(indices, wrap), array)
