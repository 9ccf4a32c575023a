"""TNS packets: what they are called, and replies cut into them at the session data unit."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterable, Iterator
from typing import NamedTuple

CONNECT = 1
ACCEPT = 2
REFUSE = 4
REDIRECT = 5
DATA = 6
RESEND = 11
MARKER = 12

BREAK = 1
RESET = 2
INTERRUPT = 3
"""Markers: what a server or a client breaks with, the answer to it, a client's cancel."""

END_OF_FILE = 0x0040
END_OF_RESPONSE = 0x2000
"""Flags of DATA packets."""
TEXT_FOLLOWS = 0x02
"""Flag of a REDIRECT: its text comes in a DATA packet."""
REDIRECTED = 0x04
"""Flag of a CONNECT that follows a REDIRECT."""
MARKER_FLAG = 0x20
"""Flag of a server's markers once end-of-response is agreed on."""

END_MESSAGE = b"\x1d"
"""Last message of a reply, where end-of-response is agreed on."""

HEADER_BYTES = 8
_DATA_HEADER_BYTES = 10

Buffer = bytes | memoryview


class Packet(NamedTuple):
    """One packet; `body` is what follows the header of 8 bytes."""

    type: int
    flags: int
    body: bytes


class Pause(NamedTuple):
    """An item of a reply: send all that was before it, then nothing for a while."""

    seconds: float | None
    """None is for ever."""
    deaf: bool = False
    """Breaks are not noticed either, as if the network had gone."""
    over: threading.Event | None = None
    """It ends when this is set, if that is sooner."""


Piece = Buffer | Pause


def header(type: int, length: int, flags: int, *, wide: bool) -> bytes:
    """Return the header of a packet of `length` bytes, itself included.

    Args:
        type: One of this module's constants.
        length: Of the whole packet.
        flags: Of the packet, not of what is in it.
        wide: The length has 32 bits, as after an ACCEPT of version 315 or higher.
    """
    if wide:
        return struct.pack(">IBBH", length, type, flags, 0)
    return struct.pack(">HHBBH", length, 0, type, flags, 0)


def packetise(
    pieces: Iterable[Piece], *, sdu: int, wide: bool, flags: int = 0, torn: bool = False
) -> Iterator[list[Buffer] | Pause]:
    """Yield the parts of each DATA packet of a reply, and its pauses where they are.

    What is in the pieces is not copied: rows can be hundreds of megabytes.

    Args:
        pieces: Taken one by one as packets fill up.
        sdu: Bytes of a full packet.
        wide: As of `header`.
        flags: Data flags of the last packet.
        torn: The last packet's header says that it is full, whatever is in it.
    """
    room = sdu - _DATA_HEADER_BYTES
    full = header(DATA, sdu, 0, wide=wide) + b"\x00\x00"
    parts: list[Buffer] = []
    size = 0
    for piece in pieces:
        if isinstance(piece, Pause):
            if size:
                short = header(DATA, _DATA_HEADER_BYTES + size, 0, wide=wide)
                yield [short, b"\x00\x00", *parts]
                parts, size = [], 0
            yield piece
            continue
        view = memoryview(piece)
        # A packet that is just full waits: it may be the last one, which has the flags.
        while size + len(view) > room:
            taken = room - size
            yield [full, *parts, view[:taken]]
            parts, size = [], 0
            view = view[taken:]
        if view:
            parts.append(view)
            size += len(view)
    length = sdu if torn else _DATA_HEADER_BYTES + size
    yield [header(DATA, length, 0, wide=wide), flags.to_bytes(2, "big"), *parts]
