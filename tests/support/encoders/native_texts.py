"""Columns of numbers and moments as the native library writes them, value by value.

Each slot is longer than the library's bound says, and nothing may be written behind the bound.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache

import pyarrow as pa

from writers import built_library
from writers.model import TextFormat
from writers.native import library
from writers.native.moments import moment_program

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
        """What was written, None for what was refused."""
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


def native_integers(array: pa.Array) -> list[str | None]:
    """Texts of int64 or uint64."""
    slots, count = _Slots(20, len(array)), ctypes.c_size_t(len(array))
    signed = int(pa.types.is_signed_integer(array.type))
    _library().unloader_format_integers(
        _values(array), count, signed, slots.out, slots.stride, slots.lengths
    )
    return slots.texts()
