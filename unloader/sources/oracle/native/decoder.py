"""The decoder of one statement's rows from the server's responses, in a shared library.

The library is loaded once in a process, on first use.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa

from unloader.errors import ConfigError
from unloader.sources.oracle.statement import FetchPlan, Item
from unloader.sources.oracle.types import parse_native
from writers import built_library
from writers.built_library import ArrowArray
from writers.text.mask_texts import UNIT_DIGITS

if TYPE_CHECKING:
    import oracledb


NO_MORE_ROWS = 1403

_NO_MEMORY = -1
_MOMENT = 6
_REASONS = {
    1: "a packet has an impossible length",
    2: "a message arrived where its kind is not allowed",
    3: "a bit vector contradicts itself or the row after it",
    4: "a value is longer than its column",
    5: "the bytes of a value do not fit its type",
    _MOMENT: "a date is outside the years 1 to 9999, or does not exist in the Gregorian calendar",
    7: "more rows arrived than were requested",
    8: "the response ended within its rows",
    9: "the server's count of rows differs from the rows that arrived",
    10: "text is not UTF-8",
}
"""Why a response was refused: `Refusal` in `response.h`."""


class Refused(Exception):
    """A response that is not read natively; nothing of it may be used.

    `reason` is a part of a sentence. `column` is the index of the column with the value, -1 if it
    is not about one. `is_moment`: a date that timestamps of this program cannot hold.
    """

    def __init__(self, reason: str, column: int = -1, *, is_moment: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.column = column
        self.is_moment = is_moment


class RowDecoder:
    """Decodes the responses to the fetches of one statement, one after the other."""

    def __init__(self, columns: Sequence[Description]) -> None:
        self._library = library()
        self._count = len(columns)
        self._progress = Progress()
        self._pointer = ctypes.c_void_p()
        self._decoder: int | None = self._library.unloader_fetch_open(
            (Description * len(columns))(*columns), len(columns)
        )
        if self._decoder is None:
            raise MemoryError("not enough memory to decode rows")

    def __del__(self) -> None:
        if getattr(self, "_decoder", None):
            self._library.unloader_fetch_close(self._decoder)

    def begin(self, most_rows: int) -> None:
        """Expect the response to a fetch of as many rows at most; rows not taken are gone."""
        self._check(self._library.unloader_fetch_begin(self._decoder, most_rows))

    def feed(self, received: memoryview | bytes) -> None:
        """Take bytes as they came from the server; `Refused` where they are not expected."""
        size = len(received)
        if isinstance(received, bytes):
            status = self._library.unloader_fetch_feed(self._decoder, received, size)
        else:
            # A pointer to the first byte: an array type would be a new class for each size.
            start = ctypes.addressof(ctypes.c_char.from_buffer(received))
            status = self._library.unloader_fetch_feed(self._decoder, start, size)
        self._check(status)

    def passed_on(self) -> bytes:
        """Return the bytes that the driver has to receive, each once; may be empty."""
        size = self._library.unloader_fetch_output(self._decoder, ctypes.byref(self._pointer))
        if not size:
            return b""
        found = ctypes.string_at(self._pointer.value or 0, size)
        self._library.unloader_fetch_passed(self._decoder)
        return found

    def partial(self) -> bytes:
        """Return what came of a packet that is not whole yet."""
        size = self._library.unloader_fetch_partial(self._decoder, ctypes.byref(self._pointer))
        return ctypes.string_at(self._pointer.value or 0, size) if size else b""

    def finish(self) -> Progress:
        """Check a response that the driver has read; `Refused` where rows are missing."""
        self._check(self._library.unloader_fetch_finish(self._decoder))
        self._library.unloader_fetch_progress(self._decoder, ctypes.byref(self._progress))
        return self._progress

    def repeats_before(self) -> list[int]:
        """Return for each column how many rows at the start repeat a value of another response."""
        counts = (ctypes.c_int64 * self._count)()
        self._library.unloader_fetch_repeats_before(self._decoder, counts)
        return list(counts)

    def take(self, kinds: Sequence[pa.DataType]) -> list[pa.Array]:
        """Return the rows of the response, an array for each column."""
        arrays = (ArrowArray * self._count)()
        self._check(self._library.unloader_fetch_take(self._decoder, arrays))
        size = ctypes.sizeof(ArrowArray)
        start = ctypes.addressof(arrays)
        return [
            pa.Array._import_from_c(start + index * size, kind) for index, kind in enumerate(kinds)
        ]

    def _check(self, status: int) -> None:
        if status == 0:
            return
        if status == _NO_MEMORY:
            raise MemoryError("not enough memory to decode rows")
        self._library.unloader_fetch_progress(self._decoder, ctypes.byref(self._progress))
        raise Refused(_REASONS[status], self._progress.column, is_moment=status == _MOMENT)


ABI_VERSION = 2
"""Of the interface in `decoder.cpp`, which has the same number."""

NAME = "unloader.sources.oracle.native._fetch"

OVERRIDE = "UNLOADER_NATIVE_FETCH_LIBRARY"
"""An environment variable that names the file of another build, such as one for a sanitizer."""


class Description(ctypes.Structure):
    """The description of a column for the library, with the layout in `columns.h`."""

    _fields_ = (
        ("kind", ctypes.c_uint8),
        ("digits", ctypes.c_uint8),
        ("places", ctypes.c_uint8),
        ("unused", ctypes.c_uint8),
        ("limit", ctypes.c_uint32),
    )


class Progress(ctypes.Structure):
    """How far a response is read; as `response.h` has it."""

    _fields_ = (
        ("rows", ctypes.c_int64),
        ("all_rows", ctypes.c_int64),
        ("counted", ctypes.c_int64),
        ("error", ctypes.c_int64),
        ("column", ctypes.c_int64),
    )


_POINTER, _SIZE, _STATUS = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int32
_PLACE = ctypes.POINTER(ctypes.c_void_p)
_FUNCTIONS = {
    "open": (_POINTER, (ctypes.POINTER(Description), _SIZE)),
    "close": (None, (_POINTER,)),
    "begin": (_STATUS, (_POINTER, ctypes.c_int64)),
    "feed": (_STATUS, (_POINTER, _POINTER, _SIZE)),
    "output": (_SIZE, (_POINTER, _PLACE)),
    "passed": (None, (_POINTER,)),
    "partial": (_SIZE, (_POINTER, _PLACE)),
    "finish": (_STATUS, (_POINTER,)),
    "progress": (None, (_POINTER, ctypes.POINTER(Progress))),
    "repeats_before": (None, (_POINTER, ctypes.POINTER(ctypes.c_int64))),
    "take": (_STATUS, (_POINTER, ctypes.POINTER(ArrowArray))),
}


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    """Return the library, loaded and of the right version; `built_library.Unusable` without one."""
    return built_library.load(NAME, OVERRIDE, "unloader_fetch_", ABI_VERSION, _FUNCTIONS)


def check_library() -> None:
    """Raise `ConfigError` if the library cannot be used."""
    if (why := built_library.reason(library)) is not None:
        hint = f"{built_library.advice()}, or use --fetch auto"
        raise ConfigError(f"the native fetch cannot be used: {why}", hint)


TEXT, WIDE_TEXT, BYTES, INT32, INT64, DECIMAL, MOMENT, FLOAT, DOUBLE = range(9)
"""Kinds of columns: `Kind` in `columns.h`."""

_TEXTS = {
    "DB_TYPE_VARCHAR": TEXT,
    "DB_TYPE_CHAR": TEXT,
    "DB_TYPE_NVARCHAR": WIDE_TEXT,
    "DB_TYPE_NCHAR": WIDE_TEXT,
}
_MOMENTS = ("DB_TYPE_DATE", "DB_TYPE_TIMESTAMP")
_INTEGERS = {"int32": (INT32, 9), "int64": (INT64, 18)}
"""An Arrow type, its kind, and the digits that it surely holds."""
_REALS = {("DB_TYPE_BINARY_FLOAT", "float"): FLOAT, ("DB_TYPE_BINARY_DOUBLE", "double"): DOUBLE}
_LEFT = frozenset({"LONG", "LONG RAW", "BOOLEAN"})
"""Types with other framing, which the driver keeps."""
_DECIMAL_TYPE = re.compile(r"decimal128\((\d+), (\d+)\)")
_TIMESTAMP_TYPE = re.compile(r"timestamp\[(s|ms|us|ns)\]")

_NUMBER_BYTES = 22
_MOMENT_BYTES = 11
_CHARACTER_BYTES = 4
"""Of UTF-8 at most; the described size counts bytes of the database's character set."""


def descriptions(
    described: Sequence[oracledb.FetchInfo], items: Sequence[Item]
) -> list[Description] | None:
    """Describe the items of the SELECT list for the library; None if it cannot decode one."""
    if len(described) != len(items):
        return None
    found: list[Description] = []
    for column, item in zip(described, items, strict=True):
        name, fetched, size = column.type_code.name, item.fetched, column.internal_size or 0
        if item.part != "value":
            return None
        # A column without a size has no bytes in any row.
        if name in _TEXTS and fetched == "string" and size:
            limit = _CHARACTER_BYTES * max(size, column.display_size or size)
            found.append(Description(kind=_TEXTS[name], limit=limit))
        elif name == "DB_TYPE_RAW" and fetched == "binary" and size:
            found.append(Description(kind=BYTES, limit=size))
        elif name == "DB_TYPE_NUMBER" and fetched in _INTEGERS:
            kind, digits = _INTEGERS[fetched]
            found.append(Description(kind=kind, digits=digits, limit=_NUMBER_BYTES))
        elif name == "DB_TYPE_NUMBER" and (match := _DECIMAL_TYPE.fullmatch(fetched)):
            digits, places = int(match[1]), int(match[2])
            found.append(
                Description(kind=DECIMAL, digits=digits, places=places, limit=_NUMBER_BYTES)
            )
        elif name in _MOMENTS and (match := _TIMESTAMP_TYPE.fullmatch(fetched)):
            places = UNIT_DIGITS[match[1]]
            found.append(Description(kind=MOMENT, places=places, limit=_MOMENT_BYTES))
        elif (name, fetched) in _REALS:
            found.append(Description(kind=_REALS[name, fetched], limit=8))
        else:
            return None
    return found or None


def may_be_native(plan: FetchPlan) -> bool:
    """Return whether all columns may suit the native fetch; the server's description decides."""
    return all(
        item.part == "value"
        and item.form not in ("lob", "document")
        and parse_native(plan.columns[item.column].source_type).name not in _LEFT
        for item in plan.items
    )
