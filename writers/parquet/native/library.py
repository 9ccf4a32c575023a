"""The shared library that encodes pages: where it lies, whether it can be used, and its structures.

It is built when the package is installed, if there is a C++ compiler, and otherwise missing. It is
loaded on first use, once a process. A call gives the interpreter up while it encodes.
"""

from __future__ import annotations

import ctypes
import os
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from writers.errors import FormatError
from writers.native.library import ArrowArray

ABI_VERSION = 1
"""Of the interface in `pages.cpp`, which has the same number."""

NAME = "writers.parquet.native._pages"

NEXT = "install a C++ compiler (g++ or clang++) and install unloader again, or use --encoder plain"

OVERRIDE = "UNLOADER_NATIVE_PAGES_LIBRARY"
"""An environment variable that names the file of another build, such as one for a sanitizer."""


class Unusable(FormatError):
    """The library cannot be used; the message says why, as a part of a sentence."""


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
    """A page that is ready; as `pages.cpp` has it."""

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


def find() -> Path | None:
    """Return the file of the library, None if it was not built; nothing is loaded."""
    if named := os.environ.get(OVERRIDE):
        return Path(named)
    spec = find_spec(NAME)
    return Path(spec.origin) if spec is not None and spec.origin else None


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    """Return the library, loaded and of the right version.

    Raises:
        Unusable: There is none, or it cannot be loaded, or it is of another version.
    """
    path = find()
    if path is None:
        raise Unusable("it was not built when the package was installed")
    return load(path)


def load(path: Path) -> ctypes.CDLL:
    """Return the library in a file.

    Raises:
        Unusable: It cannot be loaded, or is of another version.
    """
    try:
        loaded = ctypes.CDLL(str(path))
    except OSError as error:
        raise Unusable(f"it cannot be loaded ({error})") from None
    try:
        version = loaded.unloader_pages_abi_version()
    except AttributeError:
        version = None
    if version != ABI_VERSION:
        raise Unusable(
            f"{path.name} has the interface version {version}, and this package needs {ABI_VERSION}"
        )
    _declare(loaded)
    return loaded


def why_not() -> str | None:
    """Return why the library cannot be used, None if it can."""
    try:
        library()
    except Unusable as error:
        return str(error)
    return None


def _declare(loaded: ctypes.CDLL) -> None:
    pointer, number = ctypes.c_void_p, ctypes.c_int32
    functions = {
        "open": (pointer, (ctypes.POINTER(ColumnSpec), ctypes.c_size_t, ctypes.c_uint64)),
        "close": (None, (pointer,)),
        "append": (
            number,
            (pointer, ctypes.POINTER(ArrowArray), ctypes.POINTER(ctypes.c_int64)),
        ),
        "finish": (number, (pointer,)),
        "take": (number, (pointer, ctypes.POINTER(PageOut))),
        "free": (None, (pointer,)),
    }
    for name, (result, arguments) in functions.items():
        function = getattr(loaded, f"unloader_pages_{name}")
        function.restype, function.argtypes = result, arguments
