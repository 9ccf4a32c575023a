"""The shared library that computes checksums of columns: built, like the encoder's, if it can be.

It is loaded on first use, once a process. A call gives the interpreter up while it computes.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import TYPE_CHECKING

from writers import built_library
from writers.built_library import ArrowArray
from writers.content.forms import Form

if TYPE_CHECKING:
    import pyarrow as pa

ABI_VERSION = 2
"""Of the interface in `column_sum.cpp`, which has the same number."""

NAME = "writers.content._sums"

OVERRIDE = "UNLOADER_NATIVE_SUMS_LIBRARY"
"""An environment variable that names the file of another build, such as one for a sanitizer."""

_UTC, _INFINITE = 1, 2


class _Spec(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_int32) for name in ("form", "width", "digits", "flags"))


class _Result(ctypes.Structure):
    _fields_ = (("sum", ctypes.c_uint64), ("nulls", ctypes.c_int64))


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL | None:
    """Return the library, None where it was not built, or for another version."""
    arguments = (ctypes.POINTER(_Spec), ctypes.POINTER(ArrowArray), ctypes.POINTER(_Result))
    try:
        functions = {"column": (ctypes.c_int32, arguments)}
        return built_library.load(NAME, OVERRIDE, "unloader_sums_", ABI_VERSION, functions)
    except built_library.Unusable:
        return None


def column_sum(loaded: ctypes.CDLL, array: pa.Array, form: Form) -> tuple[int, int]:
    """Return the sum over an array's values, modulo 2**64, and the number of nulls."""
    exported, result = ArrowArray(), _Result()
    flags = _UTC * form.utc | _INFINITE * form.infinite
    spec = _Spec(int(form.kind), form.width, form.digits, flags)
    array._export_to_c(ctypes.addressof(exported))
    status = loaded.unloader_sums_column(spec, exported, result)
    if status == -1:
        raise MemoryError("there is not enough memory for a checksum")
    if status:
        raise ValueError(f"values of {array.type} are not {form.kind.name}")
    return result.sum, result.nulls
