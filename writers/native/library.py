"""The shared library of the native encoder: where it lies, and whether it can be used.

It is built when the package is installed, if there is a C++ compiler, and otherwise missing. It is
loaded on first use, once a process.
"""

from __future__ import annotations

import ctypes
import os
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from writers.errors import FormatError

ABI_VERSION = 3
"""Of the interface in `encoder.cpp`, which has the same number."""

NAME = "writers.native._encoder"

NEXT = "install a C++ compiler (g++ or clang++) and install unloader again, or use --encoder plain"


class Unusable(FormatError):
    """The library cannot be used; the message says why, as a part of a sentence."""


class Progress(ctypes.Structure):
    """How far the encoder came in a batch; as `records.h` has it."""

    _fields_ = (
        ("rows", ctypes.c_int64),
        ("bytes", ctypes.c_uint64),
        ("needed", ctypes.c_uint64),
        ("column", ctypes.c_int64),
    )


class ArrowArray(ctypes.Structure):
    """An array of Arrow's C data interface, of which only the size matters here."""

    _fields_ = (("content", ctypes.c_uint64 * 10),)


OVERRIDE = "UNLOADER_NATIVE_LIBRARY"
"""An environment variable that names the file of another build, such as one for a sanitizer."""


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
        version = loaded.unloader_abi_version()
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
    pointer = ctypes.c_void_p
    functions = {
        "open": (pointer, (ctypes.c_char_p, ctypes.c_size_t)),
        "close": (None, (pointer,)),
        "begin": (pointer, (pointer, ctypes.POINTER(ArrowArray), ctypes.c_char_p)),
        "fill": (
            ctypes.c_int32,
            (pointer, pointer, ctypes.c_size_t, ctypes.c_int64, ctypes.POINTER(Progress)),
        ),
        "end": (None, (pointer,)),
        "count_records": (
            ctypes.c_int64,
            (ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char, ctypes.POINTER(ctypes.c_uint8)),
        ),
    }
    for name, (result, arguments) in functions.items():
        function = getattr(loaded, f"unloader_{name}")
        function.restype, function.argtypes = result, arguments
