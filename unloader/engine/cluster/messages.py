"""Messages as the processes of a Dask cluster exchange them, in bytes.

A message is a value that msgpack holds, and values that it does not hold, each in frames of its
own: the number of all bytes, of the frames, and the size of each go before the frames (`Comm.write`
and `protocol.core` of the library). Only what answers to our own calls consist of is known here.
"""

from __future__ import annotations

import asyncio
import builtins
import io
import pickle
import struct
from collections.abc import Sequence
from typing import Any

import msgpack

_NUMBER = struct.Struct("Q")
_MOST_FRAMES = 1 << 16
"""No answer has so many: what says so is no such message."""


class Unknown(Exception):
    """A message that is not of the kinds that are known here."""


class Raised(Exception):
    """What a function, or the library, has raised in another process."""

    def __init__(self, name: str, text: str) -> None:
        """Take the name of its class, and its text."""
        super().__init__(text or name)
        self.name = name
        self.text = text


def message(value: object) -> bytes:
    """Return the bytes of a message that msgpack holds."""
    body: bytes = msgpack.packb(value, use_bin_type=True)
    sizes = struct.pack("2Q", 1, len(body))
    return _NUMBER.pack(len(sizes) + len(body)) + sizes + body


async def received(reader: asyncio.StreamReader) -> Any:
    """Return the next message.

    Raises:
        EOFError: There is none any more.
        Unknown: It is of another kind.
    """
    total, count = struct.unpack("2Q", await reader.readexactly(2 * _NUMBER.size))
    # The first number counts the frames that can be read at once: all of them, or some.
    if not 0 < count < _MOST_FRAMES or total < _NUMBER.size * (1 + count):
        raise Unknown(f"a message of {count} frames in {total} bytes")
    sizes = struct.unpack(f"{count}Q", await reader.readexactly(count * _NUMBER.size))
    return _value([await reader.readexactly(size) for size in sizes])


def raised(data: bytes) -> Raised:
    """Return what an error that was pickled says; its class need not be known here.

    Raises:
        Unknown: It is none.
    """
    try:
        error = _Reader(io.BytesIO(data)).load()
        while type(error).__name__.startswith("unpickle_exception"):
            # Of the package that keeps tracebacks: the class, its arguments, and the traceback.
            kind, args, *_ = error.args
            error = kind(*args)
        return Raised(type(error).__name__, str(error))
    # Bytes that are no such error raise anything.
    except Exception as error:
        raise Unknown(f"an error that cannot be read: {error}") from error


class _Reader(pickle.Unpickler):
    """Loads errors of the language as they are, with an empty class in place of any other."""

    def find_class(self, module: str, name: str) -> Any:
        found = getattr(builtins, name, None) if module == "builtins" else None
        if isinstance(found, type) and issubclass(found, Exception):
            return found
        return type(name, (Exception,), {})


def _value(frames: Sequence[bytes]) -> Any:
    def put_in(found: dict[Any, Any]) -> Any:
        if "__Serialized__" in found:
            return _in_frames(frames, found["__Serialized__"])
        if any(isinstance(key, str) and key.startswith("__") for key in found):
            raise Unknown(f"a value of an unknown kind: {', '.join(map(str, found))}")
        return found

    try:
        return msgpack.unpackb(
            frames[0], object_hook=put_in, use_list=False, strict_map_key=False, raw=False
        )
    except ValueError as error:  # All that msgpack says of bytes that it does not know.
        raise Unknown(str(error)) from error


def _in_frames(frames: Sequence[bytes], number: int) -> Any:
    """Return the value whose description is in a frame, and its bytes in those behind that."""
    if number is True or not 0 < number < len(frames):
        raise Unknown("a value that is missing from the frames")
    described = msgpack.unpackb(frames[number], use_list=False, strict_map_key=False, raw=False)
    kind, count = described.get("serializer"), described.get("num-sub-frames")
    if any(described.get("compression", ())) or not isinstance(count, int):
        raise Unknown("a value that is compressed, or is in an unknown number of frames")
    parts = frames[number + 1 : number + 1 + count]
    if kind == "dask" and described.get("type") == "bytes" and len(parts) == count:
        return b"".join(parts)
    if kind == "pickle" and len(parts) == 1:
        return pickle.loads(parts[0])
    raise Unknown(f"a value that is written by {kind}")
