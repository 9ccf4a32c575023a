"""The shared library of the native fetch: where it lies, and whether it can be used.

It is loaded on first use, once a process.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache

from unloader.errors import ConfigError
from writers import built_library
from writers.built_library import ArrowArray

ABI_VERSION = 1
"""Of the interface in `decoder.cpp`, which has the same number."""

NAME = "unloader.sources.oracle.native._fetch"

OVERRIDE = "UNLOADER_NATIVE_FETCH_LIBRARY"
"""An environment variable that names the file of another build, such as one for a sanitizer."""


class Unusable(ConfigError):
    """The library cannot be used; the message says why."""

    def __init__(self, why: str) -> None:
        hint = f"{built_library.advice()}, or use --fetch auto"
        super().__init__(f"the native fetch cannot be used: {why}", hint)
        self.why = why


class Description(ctypes.Structure):
    """What the library has to know of a column; as `columns.h` has it."""

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
    "take": (_STATUS, (_POINTER, ctypes.POINTER(ArrowArray))),
}


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    """Return the library, loaded and of the right version.

    Raises:
        Unusable: There is none, or it cannot be loaded, or it is of another version.
    """
    try:
        return built_library.load(NAME, OVERRIDE, "unloader_fetch_", ABI_VERSION, _FUNCTIONS)
    except built_library.Unusable as error:
        raise Unusable(str(error)) from None


def why_not() -> str | None:
    """Return why the library cannot be used, None if it can."""
    try:
        library()
    except Unusable as error:
        return error.why
    return None
