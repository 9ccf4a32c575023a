"""The shared library of the native encoder: where it lies, and whether it can be used.

It is loaded on first use, once a process.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache

from writers import built_library
from writers.built_library import ArrowArray, Unusable

ABI_VERSION = 3
"""Of the interface in `encoder.cpp`, which has the same number."""

NAME = "writers.native._encoder"


class Progress(ctypes.Structure):
    """How far the encoder came in a batch; as `records.h` has it."""

    _fields_ = (
        ("rows", ctypes.c_int64),
        ("bytes", ctypes.c_uint64),
        ("needed", ctypes.c_uint64),
        ("column", ctypes.c_int64),
    )


OVERRIDE = "UNLOADER_NATIVE_LIBRARY"
"""An environment variable that names the file of another build, such as one for a sanitizer."""


_POINTER = ctypes.c_void_p
_FUNCTIONS = {
    "open": (_POINTER, (ctypes.c_char_p, ctypes.c_size_t)),
    "close": (None, (_POINTER,)),
    "begin": (_POINTER, (_POINTER, ctypes.POINTER(ArrowArray), ctypes.c_char_p)),
    "fill": (
        ctypes.c_int32,
        (_POINTER, _POINTER, ctypes.c_size_t, ctypes.c_int64, ctypes.POINTER(Progress)),
    ),
    "end": (None, (_POINTER,)),
    "count_records": (
        ctypes.c_int64,
        (ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char, ctypes.POINTER(ctypes.c_uint8)),
    ),
}


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    """Return the library, loaded and of the right version.

    Raises:
        Unusable: There is none, or it cannot be loaded, or it is of another version.
    """
    return built_library.load(NAME, OVERRIDE, "unloader_", ABI_VERSION, _FUNCTIONS)


def why_not() -> str | None:
    """Return why the library cannot be used, None if it can."""
    try:
        library()
    except Unusable as error:
        return str(error)
    return None
