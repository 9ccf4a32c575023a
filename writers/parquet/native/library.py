"""The shared library that encodes pages: where it lies, whether it can be used, and its structures.

It is loaded on first use, once a process. A call gives the interpreter up while it encodes.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache

from writers import built_library
from writers.built_library import ArrowArray, Unusable

ABI_VERSION = 1
"""Of the interface in `pages.cpp`, which has the same number."""

NAME = "writers.parquet.native._pages"

OVERRIDE = "UNLOADER_NATIVE_PAGES_LIBRARY"
"""An environment variable that names the file of another build, such as one for a sanitizer."""


class ColumnSpec(ctypes.Structure):
    """What the library is told of a column; as `page.h` has it."""

    _fields_ = tuple(
        (name, ctypes.c_int32)
        for name in (
            *("source", "physical", "encoding", "width"),
            *("nullable", "is_signed", "bounds", "factor"),
        )
    )


class PageOut(ctypes.Structure):
    """A page that is ready; as `page.h` has it."""

    _fields_ = (
        ("memory", ctypes.c_void_p),
        ("data", ctypes.c_void_p),
        ("size", ctypes.c_uint64),
        ("rows", ctypes.c_int64),
        ("nulls", ctypes.c_int64),
        ("column", ctypes.c_int32),
        ("kind", ctypes.c_int32),
        ("encoding", ctypes.c_int32),
        ("bounded", ctypes.c_int32),
        ("least", ctypes.c_void_p),
        ("greatest", ctypes.c_void_p),
        ("least_size", ctypes.c_uint64),
        ("greatest_size", ctypes.c_uint64),
    )


_POINTER, _NUMBER = ctypes.c_void_p, ctypes.c_int32
_FUNCTIONS = {
    "open": (_POINTER, (ctypes.POINTER(ColumnSpec), ctypes.c_size_t, ctypes.c_uint64)),
    "close": (None, (_POINTER,)),
    "append": (
        _NUMBER,
        (_POINTER, ctypes.POINTER(ArrowArray), ctypes.POINTER(ctypes.c_int64)),
    ),
    "finish": (_NUMBER, (_POINTER,)),
    "take": (_NUMBER, (_POINTER, ctypes.POINTER(PageOut))),
    "free": (None, (_POINTER,)),
}


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    """Return the library, loaded and of the right version.

    Raises:
        Unusable: There is none, or it cannot be loaded, or it is of another version.
    """
    return built_library.load(NAME, OVERRIDE, "unloader_pages_", ABI_VERSION, _FUNCTIONS)


def why_not() -> str | None:
    """Return why the library cannot be used, None if it can."""
    try:
        library()
    except Unusable as error:
        return str(error)
    return None
