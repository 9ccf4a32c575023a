"""The shared library of the native fetch: where it lies, and whether it can be used.

It is built when the package is installed, if there is a C++ compiler, and otherwise missing. It is
loaded on first use, once a process.
"""

from __future__ import annotations

import ctypes
import os
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from unloader.errors import ConfigError

ABI_VERSION = 1
"""Of the interface in `decoder.cpp`, which has the same number."""

NAME = "unloader.sources.oracle.native._fetch"

NEXT = "install a C++ compiler (g++ or clang++) and install unloader again, or use --fetch auto"

OVERRIDE = "UNLOADER_NATIVE_FETCH_LIBRARY"
"""An environment variable that names the file of another build, such as one for a sanitizer."""


class Unusable(ConfigError):
    """The library cannot be used; the message says why."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the native fetch cannot be used: {why}", NEXT)
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


class ArrowArray(ctypes.Structure):
    """An array of Arrow's C data interface, of which only the size matters here."""

    _fields_ = (("content", ctypes.c_uint64 * 10),)


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
    try:
        loaded = ctypes.CDLL(str(path))
    except OSError as error:
        raise Unusable(f"it cannot be loaded ({error})") from None
    try:
        version = loaded.unloader_fetch_abi_version()
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
        return error.why
    return None


def _declare(loaded: ctypes.CDLL) -> None:
    pointer, size, status = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int32
    where = ctypes.POINTER(ctypes.c_void_p)
    functions = {
        "open": (pointer, (ctypes.POINTER(Description), size)),
        "close": (None, (pointer,)),
        "begin": (status, (pointer, ctypes.c_int64)),
        "feed": (status, (pointer, pointer, size)),
        "output": (size, (pointer, where)),
        "passed": (None, (pointer,)),
        "partial": (size, (pointer, where)),
        "finish": (status, (pointer,)),
        "progress": (None, (pointer, ctypes.POINTER(Progress))),
        "take": (status, (pointer, ctypes.POINTER(ArrowArray))),
    }
    for name, (result, arguments) in functions.items():
        function = getattr(loaded, f"unloader_fetch_{name}")
        function.restype, function.argtypes = result, arguments
