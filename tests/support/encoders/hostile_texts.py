"""Texts and typed values at the edges of what readers understand."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import lru_cache

import pyarrow as pa

from writers import built_library
from writers.model import TextFormat
from writers.native import encoder as library
from writers.native.description import moment_program
from writers.text.enclosing import Enclosing

RUN_CHARACTERS = 64
SURROGATES = range(0xD800, 0xE000)
CONTROLS = (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, 0xFEFF)
FIXED = (
    *(
        "",
        " ",
        "  ",
        " a",
        "a ",
        "\t",
        "a\tb",
        "NULL",
        "null",
        "\\N",
        "N",
        "\\.",
        ".",
        "\\",
        "\\\\",
    ),
    *(
        "\\n",
        "\\t",
        "\\r",
        "\\0",
        "\\x41",
        "a\\",
        "\\a",
        "\\,",
        '\\"',
        '"\\',
        "\\\n",
        "#",
        "#a",
        "-",
    ),
    *("'", "''", "it's", "=1+1", "0010", "1e5", "true", "nan", "inf", "2024-01-31", "x" * 5000),
    *(
        "\r",
        "\n",
        "\r\n",
        "\n\r",
        "\r\r\n",
        "a\rb",
        "a\nb",
        "a\r\nb",
        "\na",
        "a\n",
        "a\r",
        "\r\na\r\n",
    ),
    *(
        "ne\u0301e",
        "\u202eabc",
        "👩\u200d👩\u200d👧",
        "İıßẞ",
        "表ソ能\\",
        "－～〜",
        "\U0001f600" * 20,
    ),
)


def every_plane() -> Iterator[str]:
    """Yield texts with each basic character once, and some of each plane, noncharacters among them."""
    for start in range(0, 0x10000, RUN_CHARACTERS):
        run = "".join(chr(c) for c in range(start, start + RUN_CHARACTERS) if c not in SURROGATES)
        if run:
            yield run
    for plane in range(1, 17):
        first = plane << 16
        for offset in (0, 1, 0x7FFF, 0x8000, 0xFFFD, 0xFFFE, 0xFFFF):
            yield f"p{chr(first + offset)}q"


def placed(piece: str, by: str = "a") -> Iterator[str]:
    """Yield a piece alone, repeated, and in each place of a text."""
    yield from (piece, piece * 2, piece * 3, by + piece, piece + by, by + piece + by)
    yield from (piece + by + piece, by + piece * 2, piece * 2 + by, by + piece * 2 + by)


def of_marks(format: TextFormat) -> Iterator[str]:
    """Yield texts of a dialect's marks: in each place, in halves, doubled, next to one another."""
    marks = [m for m in (format.delimiter, format.enclosure, format.eol, format.null, "\\") if m]
    halves = {mark[:n] for mark in marks for n in range(1, len(mark))}
    halves |= {mark[n:] for mark in marks for n in range(1, len(mark))}
    pieces = [*marks, *sorted(halves)]
    for piece in pieces:
        yield from placed(piece)
        yield from placed(piece, by=" ")
    for one in pieces:
        for other in pieces:
            yield from (one + other, one + "a" + other, other + one + other)


def hostile_texts(format: TextFormat) -> list[str]:
    """Return all texts that a dialect can write, each once.

    It refuses a value whose end cannot be told from the enclosure after it, as with `~~`, and a value
    with a text that the program for the dialect cannot read.
    """
    found: Iterable[str] = (*FIXED, *of_marks(format), *every_plane())
    controls = (text for code in CONTROLS for text in placed(chr(code)))
    unique = dict.fromkeys((*found, *controls))
    refused = Enclosing(format, single=False).refused
    written = [text for text in unique if not any(mark in text for mark in refused)]
    return [text for text in written if not _meets(text, format)]


def _meets(text: str, format: TextFormat) -> bool:
    mark = format.enclosure
    if format.escape == "backslash" or len(mark) < 2:
        return False
    rest, at = text + mark, 0
    while (found := rest.find(mark, at)) >= 0:
        at = found + len(mark)
    return at != len(rest)


def hostile_batch(texts: list[str], *, nulls: bool = True) -> pa.RecordBatch:
    """Return the texts in three columns, so that each stands first, between others and last.

    A number that counts the rows stands before the last; every fifth value is NULL, if any are.
    """
    values: list[str | None] = []
    for at, text in enumerate(texts):
        values += [None, text] if nulls and at % 4 == 0 else [text]
    columns = {
        "first": pa.array(values, pa.string()),
        "between": pa.array(values[::-1], pa.large_string()),
        "n": pa.array(range(len(values)), pa.int64()),
        "last": pa.array(values[3:] + values[:3], pa.string()),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def rows_of(batch: pa.RecordBatch) -> list[tuple[str | None, ...]]:
    """Return the rows of a batch, each value as its text."""
    columns = [column.to_pylist() for column in batch.columns]
    return [
        tuple(None if value is None else str(value) for value in row)
        for row in zip(*columns, strict=True)
    ]


COLUMNS: tuple[tuple[str, pa.DataType, tuple[object, ...], tuple[str | None, ...]], ...] = (
    (
        "whole",
        pa.int64(),
        (2**63 - 1, -(2**63), 0, None, -1),
        ("9223372036854775807", "-9223372036854775808", "0", None, "-1"),
    ),
    (
        "wide",
        pa.decimal128(38, 0),
        (Decimal("9" * 38), Decimal("-" + "9" * 38), None, Decimal(0), Decimal(10)),
        ("9" * 38, "-" + "9" * 38, None, "0", "10"),
    ),
    (
        "money",
        pa.decimal128(12, 2),
        (Decimal("-0.01"), Decimal("9999999999.99"), Decimal("0.10"), Decimal("100.00"), None),
        ("-0.01", "9999999999.99", "0.10", "100.00", None),
    ),
    (
        "ratio",
        pa.float64(),
        (0.1, -1.7976931348623157e308, 5e-324, 123456789.125, None),
        ("0.1", "-1.7976931348623157e+308", "5e-324", "123456789.125", None),
    ),
    (
        "day",
        pa.date32(),
        (date(1, 1, 1), date(9999, 12, 31), None, date(1582, 10, 10), date(2000, 2, 29)),
        ("0001-01-01", "9999-12-31", None, "1582-10-10", "2000-02-29"),
    ),
    (
        "moment",
        pa.timestamp("us"),
        (
            datetime(1, 1, 1),
            datetime(9999, 12, 31, 23, 59, 59, 999999),
            datetime(1969, 12, 31, 23, 59, 59, 500000),
            None,
            datetime(3844, 11, 27, 2, 57, 31),
        ),
        (
            "0001-01-01 00:00:00",
            "9999-12-31 23:59:59.999999",
            "1969-12-31 23:59:59.5",
            None,
            "3844-11-27 02:57:31",
        ),
    ),
    (
        "instant",
        pa.timestamp("us", "UTC"),
        (
            datetime(1, 1, 2, tzinfo=UTC),
            None,
            datetime(9999, 12, 31, 23, 59, 59, 1, tzinfo=UTC),
            datetime(2024, 3, 31, 1, tzinfo=UTC),
            datetime(1900, 1, 1, tzinfo=UTC),
        ),
        (
            "0001-01-02 00:00:00+00:00",
            None,
            "9999-12-31 23:59:59.000001+00:00",
            "2024-03-31 01:00:00+00:00",
            "1900-01-01 00:00:00+00:00",
        ),
    ),
    (
        "clock",
        pa.time64("us"),
        (time(0), time(23, 59, 59, 999999), time(12, 0, 0, 100), None, time(1, 2, 3)),
        ("00:00:00", "23:59:59.999999", "12:00:00.0001", None, "01:02:03"),
    ),
    (
        "raw",
        pa.binary(),
        (b"", b"\x00\xff", None, b"\\x,\"\r\n", bytes(range(256))),
        ("\\x", "\\x00ff", None, "\\x5c782c220d0a", "\\x" + bytes(range(256)).hex()),
    ),
)  # fmt: skip


def batch() -> pa.RecordBatch:
    """Return all columns."""
    arrays = [pa.array(values, kind) for _, kind, values, _ in COLUMNS]
    return pa.RecordBatch.from_arrays(arrays, [name for name, *_ in COLUMNS])


def texts() -> list[tuple[str | None, ...]]:
    """Return the rows of `batch`, each value as its text."""
    return list(zip(*(texts for *_, texts in COLUMNS), strict=True))


REFUSED = 0xFFFF_FFFF
_BEHIND = b"\xa5" * 24


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL:
    loaded = ctypes.CDLL(str(built_library.find(library.NAME, library.OVERRIDE)))
    for name in ("moments", "decimal", "float"):
        getattr(loaded, f"unloader_{name}_bound").restype = ctypes.c_size_t
    return loaded


class _Slots:
    """Room for the texts of some values."""

    def __init__(self, bound: int, count: int) -> None:
        self._bound, self._count = bound, count
        self.stride = ctypes.c_size_t(bound + len(_BEHIND))
        self._data = bytearray((bytes(bound) + _BEHIND) * count)
        self.out = (ctypes.c_char * len(self._data)).from_buffer(self._data)
        self.lengths = (ctypes.c_uint32 * count)()

    def texts(self) -> list[str | None]:
        """The written text, or None for a refused value."""
        texts: list[str | None] = []
        for index, length in enumerate(self.lengths):
            slot = self._data[index * self.stride.value : (index + 1) * self.stride.value]
            assert slot[self._bound :] == _BEHIND
            assert length == REFUSED or length <= self._bound
            texts.append(None if length == REFUSED else slot[:length].decode())
        return texts


def _values(array: pa.Array) -> ctypes.c_void_p:
    data = array.buffers()[1]
    return ctypes.c_void_p(data.address + array.offset * (array.type.bit_width // 8))


def native_moments(array: pa.Array, format: TextFormat) -> list[str | None]:
    """Texts of dates, times or timestamps; nulls have what their bits say."""
    program = moment_program(array.type, format)
    assert program is not None
    size = ctypes.c_size_t(len(program))
    bound = _library().unloader_moments_bound(program, size)
    assert bound
    slots, count = _Slots(bound, len(array)), ctypes.c_size_t(len(array))
    all_written = _library().unloader_format_moments(
        program, size, _values(array), count, slots.out, slots.stride, slots.lengths
    )
    texts = slots.texts()
    assert all_written == (None not in texts)
    return texts


def is_program(program: bytes) -> bool:
    """Whether the library takes these bytes for a mask."""
    return bool(_library().unloader_moments_bound(program, ctypes.c_size_t(len(program))))


def native_decimals(array: pa.Array, separator: str = ".") -> list[str | None]:
    """Texts of decimals of any width."""
    mark, kind = separator.encode(), array.type
    width, scale = kind.bit_width // 8, kind.scale
    bound = _library().unloader_decimal_bound(width, scale, ctypes.c_size_t(len(mark)))
    slots, count = _Slots(bound, len(array)), ctypes.c_size_t(len(array))
    _library().unloader_format_decimals(
        _values(array), count, width, scale, mark, slots.out, slots.stride, slots.lengths
    )
    return slots.texts()


def native_floats(array: pa.Array, separator: str = ".") -> list[str | None]:
    """Texts of float32 or float64; None where the library's compiler had no printer of floats."""
    mark = separator.encode()
    bound = _library().unloader_float_bound(ctypes.c_size_t(len(mark)))
    slots, count = _Slots(bound, len(array)), ctypes.c_size_t(len(array))
    width = array.type.bit_width // 8
    _library().unloader_format_floats(
        _values(array), count, width, mark, slots.out, slots.stride, slots.lengths
    )
    return slots.texts()
