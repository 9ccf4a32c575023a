"""Values of a driver as the types of a run: exactly, or with an error that names the column."""

from __future__ import annotations

import re
from binascii import unhexlify
from typing import TYPE_CHECKING

from unloader.sources.moments import MomentRefused, parse_moments
from writers.schema import pc

if TYPE_CHECKING:
    import pyarrow as pa

_SAME = re.compile(
    r"bool|u?int\d+|float|double|string|binary|date32\[day\]|timestamp\[(us|ns)(, tz=UTC)?\]"
)
_MAX_DECIMAL = 38


def generic_type(kind: str) -> str | None:
    """Return the type for the values of an Arrow type, by name; None where none holds them."""
    if _SAME.fullmatch(kind):
        return kind
    if match := re.fullmatch(r"decimal\d+\((\d+), (-?\d+)\)", kind):
        precision, scale = int(match[1]), int(match[2])
        fits = precision <= _MAX_DECIMAL and 0 <= scale <= precision
        return f"decimal128({precision}, {scale})" if fits else "string"
    if match := re.fullmatch(r"timestamp\[(s|ms|us|ns)(, tz=.+)?\]", kind):
        return f"timestamp[{'ns' if match[1] == 'ns' else 'us'}{', tz=UTC' if match[2] else ''}]"
    if kind.startswith("fixed_size_binary"):
        return "binary"
    return {
        "halffloat": "float",
        "large_string": "string",
        "string_view": "string",
        "large_binary": "binary",
        "binary_view": "binary",
        "date64[ms]": "date32[day]",
        "time32[s]": "string",
        "time32[ms]": "string",
        "time64[us]": "string",
        "time64[ns]": "string",
    }.get(kind)


def of_driver(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return values that a driver typed itself."""
    import pyarrow as pa

    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if not pa.types.is_string(kind) or pa.types.is_string(array.type):
        if pa.types.is_timestamp(array.type) and array.type.tz and array.type.tz != "UTC":
            array = array.cast(pa.timestamp(array.type.unit, "UTC"))
        return array.cast(kind)
    if pa.types.is_floating(array.type):
        # Imported on use: they take longer than a small table.
        from writers.text.number_texts import float_texts

        return float_texts(array)
    if pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type):
        shown = [None if each is None else "\\x" + each.hex() for each in array.to_pylist()]
        return pa.array(shown, pa.string())
    return array.cast(pa.string())


def of_text(array: pa.Array, kind: pa.DataType, *, ascii_only: bool) -> pa.Array:
    """Return values that arrive as texts: bytes, and texts with `ascii_only`, in hexadecimal."""
    import pyarrow as pa

    if array.type != pa.string():
        array = array.cast(pa.string())
    if pa.types.is_temporal(kind):
        return parse_moments(array, kind)
    if pa.types.is_binary(kind) or (ascii_only and pa.types.is_string(kind)):
        return _unhexed(array, kind)
    return pc.cast(array, kind)


def _unhexed(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Decode hexadecimal digits into texts or bytes."""
    import pyarrow as pa

    filled = pc.fill_null(array, "")
    _, offsets, data = filled.buffers()
    starts = pa.Array.from_buffers(
        pa.int32(), len(array) + 1, [None, offsets], offset=filled.offset
    )
    first, last = starts[0].as_py(), starts[-1].as_py()
    digits = memoryview(data)[first:last] if data is not None else b""
    halves = pc.divide(pc.subtract(starts, first), 2).cast(pa.int32())
    plain = pa.Array.from_buffers(
        pa.binary(), len(array), [None, halves.buffers()[1], pa.py_buffer(unhexlify(digits))]
    )
    if array.null_count:
        plain = pc.if_else(pc.is_valid(array), plain, pa.scalar(None, pa.binary()))
    return plain if pa.types.is_binary(kind) else plain.cast(kind)


_CLASSES = {"i": "integer", "r": "real", "t": "text", "u": "text", "w": "text", "b": "blob"}
_ENCODINGS = {"t": "utf-8", "u": "utf-16-le", "w": "utf-16-be"}


def of_storage_class(array: pa.Array, kind: pa.DataType, *, exact: bool) -> pa.Array:
    """Return values of SQLite that arrive after the letter of their storage class.

    A value whose class is not the class of the type is refused, unless it is read as exact text.
    """
    import pyarrow as pa

    letters = pc.unique(pc.utf8_slice_codeunits(array, 0, 1)).to_pylist()
    found, rest = set(letters) - {None}, pc.utf8_slice_codeunits(array, 1)
    wanted = {"int64": "i", "double": "r", "binary": "b", "string": "tuw"}[str(kind)]
    wrong = [] if exact else sorted(_CLASSES[each] for each in found if each not in wanted)
    if wrong:
        raise MomentRefused(f"holds a value of storage class {wrong[0]}", f"{kind} cannot hold")
    if found <= {"i"}:
        return pc.cast(rest, kind)
    if found == {"b"} and not exact:
        return _unhexed(rest, kind)
    if found == {"t"}:
        return _unhexed(rest, kind)
    if found == {"r"} and not exact:
        # Python rounds to the nearest value.
        return pa.array([None if each is None else float(each) for each in rest.to_pylist()], kind)
    # Imported on use: they take longer than a small table.
    from writers.text.number_texts import float_texts

    made: list[str | None] = []
    for value in array.to_pylist():
        if value is None:
            made.append(None)
            continue
        letter, shown = value[0], value[1:]
        if letter in _ENCODINGS:
            shown = bytes.fromhex(shown).decode(_ENCODINGS[letter])
        elif letter == "b":
            shown = f"\\x{shown.lower()}"
        elif letter == "r":
            shown = float_texts(pa.array([float(shown)])).to_pylist()[0]
        made.append(shown)
    return pa.array(made, pa.string())
