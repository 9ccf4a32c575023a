"""Arrow string arrays as raw text: their bytes, their limit, and joining them row by row.

A string array reaches 2 GiB with its 32-bit offsets; beyond that it must be a large_string one,
and Arrow's functions do not take the two together.

Texts looked up by integer key: how small domains (years, minutes, lengths) become text.

Formatting a key costs a microsecond, taking a ready text a few nanoseconds; so each text is
made once and kept.

Where a value stands, and how one that cannot be written is refused.

Messages name the column and the row, counted from 1 within the work unit. They do not hold the
value itself, which may be confidential; a text that is not what its column's metadata says (a
timestamp) is the exception, for nothing else would explain it.

Arrow's own CSV writer, used where it is known to write exactly the bytes that are wanted.

It joins columns of text in two thirds of the time that `binary_join_element_wise` takes, and puts a
mark around every value of a column in a third (measured, ten columns, 133 bytes a row). It only
copies: it refuses values that hold its marks of structure, and they are joined the other way.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable
from functools import lru_cache

import pyarrow as pa
from msgspec import Struct
from pyarrow.csv import WriteOptions, write_csv

from writers.errors import ValueNotRepresentable
from writers.model import BinaryForm
from writers.schema import pc

STRING_LIMIT = 2**31 - 1
"""Bytes that the 32-bit offsets of a string array can reach."""


def value_bytes(values: pa.Array) -> memoryview:
    """Return the bytes of a string or binary array's values, the slice's only, not copied."""
    data = values.buffers()[2]
    if data is None or not len(values):
        return memoryview(b"")
    large = pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type)
    end = values.offset + len(values)
    raw = memoryview(values.buffers()[1]).cast("b")[: (8 if large else 4) * (end + 1)]
    offsets = raw.cast("q" if large else "i")
    return memoryview(data)[offsets[values.offset] : offsets[end]]


def without_views(values: pa.Array) -> pa.Array:
    """Return string and binary views as large_string and large_binary arrays."""
    kind = pa.large_string() if pa.types.is_string_view(values.type) else pa.large_binary()
    try:
        return pc.cast(values, kind)
    except pa.ArrowNotImplementedError:
        # Older Arrow versions lack this cast.
        return pa.array(values.to_pylist(), kind)


def with_room(texts: pa.Array, *, factor: int = 1, more: int = 0) -> pa.Array:
    """Return texts that may grow to `factor` times their bytes and `more` a row.

    They are large_string where that is out of reach of a string array, else unchanged.
    """
    if factor * len(value_bytes(texts)) + more * len(texts) > STRING_LIMIT:
        return pc.cast(texts, pa.large_string())
    return texts


def compact(texts: pa.Array) -> pa.Array:
    """Return texts as a string array where they fit into one."""
    if pa.types.is_large_string(texts.type) and len(value_bytes(texts)) <= STRING_LIMIT:
        return pc.cast(texts, pa.string())
    return texts


def joined(*pieces: pa.Array | pa.Scalar | str) -> pa.Array:
    """Concatenate row by row; a row is null where a piece is.

    Args:
        pieces: Text for every row, or arrays of equal length, at least one; large_string if any
            of them is, and so is the result.
    """
    kind = pa.string()
    if any(isinstance(p, pa.Array) and pa.types.is_large_string(p.type) for p in pieces):
        kind = pa.large_string()
    same = [
        pa.scalar(piece, kind) if isinstance(piece, str) else pc.cast(piece, kind)
        for piece in pieces
    ]
    return pc.binary_join_element_wise(*same, pa.scalar("", kind))


_UUID_TEXT_BYTES = 36
_UUID_DASHES = frozenset({8, 13, 18, 23})


def binary_texts(values: pa.Array, form: BinaryForm) -> pa.Array:
    """Return the text of binary, large, view or fixed-size binary values, null for null."""
    if form == "base64":
        return _base64_texts(values)
    if pa.types.is_binary_view(values.type):
        values = without_views(values)
    elif pa.types.is_fixed_size_binary(values.type):
        values = pc.cast(values, pa.binary())
    texts = _hex_texts(values)
    return texts if form == "hex" else joined("\\x", texts)


def _hex_texts(values: pa.Array) -> pa.Array:
    if not len(values):
        return pa.array([], pa.string())
    data = value_bytes(values)
    # Room for the prefix, too.
    large = 2 * (len(data) + len(values)) > STRING_LIMIT
    offset_type, text_type = (pa.int64(), pa.large_string()) if large else (pa.int32(), pa.string())
    # The array's own offsets, since there may be bytes under a null.
    width = pa.int64() if pa.types.is_large_binary(values.type) else pa.int32()
    starts = pa.Array.from_buffers(
        width, len(values) + 1, [None, values.buffers()[1]], offset=values.offset
    )
    from_zero = pc.cast(pc.subtract(starts, starts[0]), offset_type)
    offsets = pc.multiply(from_zero, pa.scalar(2, offset_type))
    digits = pa.py_buffer(binascii.hexlify(data))
    texts = pa.Array.from_buffers(text_type, len(values), [None, offsets.buffers()[1], digits])
    if not values.null_count:
        return texts
    return pc.if_else(values.is_valid(), texts, pa.scalar(None, text_type))


def _base64_texts(values: pa.Array) -> pa.Array:
    texts = [
        None if value is None else binascii.b2a_base64(value, newline=False).decode()
        for value in values.to_pylist()
    ]
    return compact(pa.array(texts, pa.large_string()))


def uuid_texts(values: pa.Array) -> pa.Array:
    """Return 16-byte values as 8-4-4-4-12 lower-case hexadecimal digits, null for null."""
    start, data = 16 * values.offset, values.buffers()[1]
    digits = binascii.hexlify(memoryview(data)[start : start + 16 * len(values)] if data else b"")
    texts = bytearray(b"-") * (_UUID_TEXT_BYTES * len(values))
    digit = 0
    for position in range(_UUID_TEXT_BYTES):
        if position not in _UUID_DASHES:
            texts[position::_UUID_TEXT_BYTES] = digits[digit::32]
            digit += 1
    buffers = [None, pa.py_buffer(bytes(texts))]
    fixed = pa.Array.from_buffers(pa.binary(_UUID_TEXT_BYTES), len(values), buffers)
    strings = pc.cast(pc.cast(fixed, pa.binary()), pa.string())
    if not values.null_count:
        return strings
    return pc.if_else(values.is_valid(), strings, pa.scalar(None, pa.string()))


_DENSE_KEYS = 20_000
"""Widest range kept as a table; above it only the distinct keys of a batch are formatted."""
_MARGIN = 500
_FEW_KEYS = 256
"""Fewer keys than this are not worth a table."""


class LookupTable:
    """A text for each integer key, made on first use.

    Safe for several threads: a kept table is replaced as a whole, never changed.

    Args:
        text: Gives the text of a key.
        domain: First and last key there can be, a few thousand apart at most; None if any can.
    """

    def __init__(self, text: Callable[[int], str], domain: tuple[int, int] | None = None) -> None:
        self._text = text
        self._domain = domain
        self._kept: tuple[int, int, pa.Array] = (0, -1, pa.array([], pa.string()))

    def take(self, keys: pa.Array) -> pa.Array:
        """Return the text of each key, null for null."""
        bounds = pc.min_max(keys).as_py()
        low, high = bounds["min"], bounds["max"]
        if low is None:
            return pa.nulls(len(keys), pa.string())
        first, last, texts = self._kept
        if low < first or high > last:
            if high - low > _DENSE_KEYS or len(keys) < _FEW_KEYS:
                return self._take_distinct(keys)
            first, last, texts = self._grown(low, high)
        return texts.take(pc.subtract(keys, pa.scalar(first, keys.type)))

    def _take_distinct(self, keys: pa.Array) -> pa.Array:
        encoded = keys.dictionary_encode()
        texts = pa.array([self._text(key) for key in encoded.dictionary.to_pylist()], pa.string())
        return texts.take(encoded.indices)

    def _grown(self, low: int, high: int) -> tuple[int, int, pa.Array]:
        first, last, _ = self._kept
        if self._domain is not None:
            low, high = self._domain
        elif first <= last and max(high, last) - min(low, first) <= _DENSE_KEYS:
            low = min(first, low - _MARGIN if low < first else first)
            high = max(last, high + _MARGIN if high > last else last)
        texts = pa.array([self._text(key) for key in range(low, high + 1)], pa.string())
        self._kept = (low, high, texts)
        return self._kept


_THREE_DIGITS = LookupTable("{:03}".format, (0, 999))
_TWO_DIGITS = LookupTable("{:02}".format, (0, 99))
_ONE_DIGIT = LookupTable(str, (0, 9))
_LEADING = {0: _THREE_DIGITS, 1: _ONE_DIGIT, 2: _TWO_DIGITS}


def zero_padded(numbers: pa.Array, digits: int) -> list[pa.Array]:
    """Return the numbers as texts of `digits` digits, in pieces to be joined from left to right.

    Args:
        numbers: int64, each at least 0 and below 10**digits; null stays null.
        digits: 1 or more.
    """
    pieces: list[pa.Array] = []
    left = digits
    while left > 3:
        upper = pc.divide(numbers, 1000)
        pieces.insert(0, _THREE_DIGITS.take(pc.subtract(numbers, pc.multiply(upper, 1000))))
        numbers, left = upper, left - 3
    pieces.insert(0, _LEADING[left % 3].take(numbers))
    return pieces


class Place(Struct, frozen=True, kw_only=True):
    """The column of an array, and the row of its first value."""

    column: str
    first_row: int = 1
    """Counted from 1 within the work unit."""
    rows: pa.Array | None = None
    """Where the values are only some of the rows: the index of each, from `first_row` on."""

    def at(self, rows: pa.Array) -> Place:
        """Return the place of an array that was taken at these indices."""
        return Place(column=self.column, first_row=self.first_row, rows=rows)

    def refusal(self, index: int, reason: str, hint: str) -> ValueNotRepresentable:
        """Return the error for the value at `index` of the array."""
        row = self.first_row + (index if self.rows is None else self.rows[index].as_py())
        return ValueNotRepresentable(f"column {self.column}, row {row}: {reason}.", f"{hint}.")

    def no_character(self, index: int, character: str, encoding: str) -> ValueNotRepresentable:
        """Return the error for a value with a character that the output encoding has not."""
        what = f"U+{ord(character):04X}" if character else "for a part of the value"
        return self.refusal(
            index,
            f"{encoding} has no character {what}",
            "use --encoding utf-8, or give a replacement for such characters with --substitute",
        )

    def refuse_where(self, bad: pa.Array, reason: str, hint: str) -> None:
        """Raise for the first true element of a boolean array, if there is one.

        Raises:
            ValueNotRepresentable: An element is true.
        """
        index = pc.index(bad, pa.scalar(True)).as_py()
        if index >= 0:
            raise self.refusal(index, reason, hint)


def too_long(row: int, length: int, digits: int) -> ValueNotRepresentable:
    """Return the error for a record of more bytes than its length prefix can say."""
    return ValueNotRepresentable(
        f"row {row}: the record has {length} bytes, too many for a record length of {digits} "
        "digits.",
        "raise --record-length.",
    )


_BATCH_ROWS = 2048
"""Rows that it lays out at a time: measured, its text then stays in the processor's cache."""
_UNLIKELY = "\x01"


def csv_bytes(
    columns: list[pa.Array],
    delimiter: str,
    end: str,
    null: str,
    most_bytes: int,
    start: bytes = b"",
) -> memoryview | None:
    """Join columns row by row.

    Args:
        columns: string or large_string.
        delimiter: Between two columns.
        end: After the last column, without its delimiter.
        null: The text for a null.
        most_bytes: At least the size of the rows.
        start: The text before the columns.

    Returns:
        The bytes, or None if they have to be made in another way: the delimiter has several
        bytes, a value holds a structural character, or the version of Arrow cannot do it.
    """

    # Of the characters that are one byte it refuses NUL as a delimiter.
    if len(delimiter.encode()) != 1 or delimiter == "\0" or '"' in null:
        return None
    options = {"delimiter": delimiter}
    if (end, null) != ("\n", ""):
        if not _can_end_lines():
            return None
        options |= {"eol": end, "null_string": null}
    batch = pa.RecordBatch.from_arrays(columns, [""] * len(columns))
    buffer = pa.allocate_buffer(len(start) + most_bytes)
    sink = pa.FixedSizeBufferWriter(buffer)
    sink.write(start)
    try:
        write_csv(
            batch,
            sink,
            WriteOptions(
                include_header=False, quoting_style="none", batch_size=_BATCH_ROWS, **options
            ),
        )
    except pa.ArrowInvalid:
        return None
    return memoryview(buffer)[: sink.tell()]


@lru_cache(maxsize=1)
def _can_end_lines() -> bool:
    """Whether it takes other ends of line and NULL texts than LF and nothing; 17 does not."""

    return hasattr(WriteOptions(), "eol")


def wrapped(texts: pa.Array, mark: str) -> pa.Array | None:
    """Return each value between two marks, null for null; None if it has to be done otherwise.

    The marks after a value and before the next one end a line here.
    """
    data, rows, mark_bytes = value_bytes(texts), len(texts), len(mark.encode())
    size = len(data) + 2 * mark_bytes * rows
    if not pa.types.is_string(texts.type) or size > STRING_LIMIT or not rows:
        return None
    marked = csv_bytes([texts], _UNLIKELY, mark + mark, "", size, mark.encode())
    # Less where there are bytes under a null.
    if marked is None or len(marked) != size + mark_bytes:
        return None
    starts = pa.Array.from_buffers(
        pa.int32(), rows + 1, [None, texts.buffers()[1]], offset=texts.offset
    )
    added = _multiples(2 * mark_bytes, 1 << rows.bit_length()).slice(0, rows + 1)
    offsets = pc.add(pc.subtract(starts, starts[0]), added)
    result = pa.Array.from_buffers(
        pa.string(), rows, [None, offsets.buffers()[1], pa.py_buffer(marked)]
    )
    if not texts.null_count:
        return result
    return pc.if_else(texts.is_valid(), result, pa.scalar(None, pa.string()))


@lru_cache(maxsize=4)
def _multiples(step: int, count: int) -> pa.Array:
    """Return 0, step, 2 * step, ... as int32, for powers of two only so that few are made."""
    return pc.cumulative_sum(pa.repeat(pa.scalar(step, pa.int32()), count), start=-step)
