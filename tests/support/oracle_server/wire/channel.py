"""Packets, and the two directions of a connection that they travel on."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
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
    """An item of a reply: send all earlier pieces, then nothing for a while."""

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
        flags: Of the packet, not of its content.
        wide: The length has 32 bits, as after an ACCEPT of version 315 or higher.
    """
    if wide:
        return struct.pack(">IBBH", length, type, flags, 0)
    return struct.pack(">HHBBH", length, 0, type, flags, 0)


def packetise(
    pieces: Iterable[Piece], *, sdu: int, wide: bool, flags: int = 0, torn: bool = False
) -> Iterator[list[Buffer] | Pause]:
    """Yield the parts of each DATA packet of a reply, and its pauses between them.

    The content of the pieces is not copied: rows can be hundreds of megabytes.

    Args:
        pieces: Taken one by one as packets fill up.
        flags: Data flags of the last packet.
        torn: The last packet's header claims that it is full, with any content.
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


_RECEIVE = 1 << 16
_GATHER = 1 << 18
"""Bytes handed to the kernel in one call."""
_GROUP = 512
"""Parts handed to the kernel in one call, which Linux limits to 1024."""
_POLL_SECONDS = 0.05
"""How soon a pause notices that it should end."""


class Disconnected(Exception):
    """The client is gone, or the server is closing."""


class Broken(Exception):
    """The client broke in: what runs is to end with ORA-01013."""


class Channel:
    """One client's socket, as packets."""

    def __init__(self, sock: socket.socket, ended: Callable[[], None] = lambda: None) -> None:
        """Take over a connected socket.

        Args:
            sock: Blocking; the channel closes it.
            ended: Called in every pause; raises what should end it.
        """
        self.sdu = 8192
        self.wide = False
        """Packet lengths have 32 bits, as after an ACCEPT of version 315 or higher."""
        self.end_of_response = False
        self._socket = sock
        self._ended = ended
        self._received = bytearray()
        self._waiting: deque[Packet] = deque()

    def read(self) -> Packet:
        """Return the next packet, waiting for it.

        Raises:
            Disconnected: There will be none.
        """
        while not self._waiting:
            self._receive()
        return self._waiting.popleft()

    def read_data(self) -> bytes:
        """Return the payload of the next packet, which continues a request.

        Raises:
            Broken: It is a marker: the client gives the request up.
            Disconnected: It is something else.
        """
        packet = self.read()
        if packet.type == MARKER:
            raise Broken
        if packet.type != DATA:
            raise Disconnected(f"packet of type {packet.type} within a request")
        return packet.body[2:]

    def read_marker(self, kind: int) -> None:
        while True:
            packet = self.read()
            if packet.type == MARKER and packet.body[2] == kind:
                return

    def break_pending(self) -> bool:
        """Report whether the client has broken in, without waiting, and forget that it has."""
        while self._readable(0):
            self._receive()
        breaks = [
            packet for packet in self._waiting if packet.type == MARKER and packet.body[2] != RESET
        ]
        for packet in breaks:
            self._waiting.remove(packet)
        return bool(breaks)

    def pause(self, pause: Pause) -> None:
        """Wait.

        Raises:
            Broken: The client broke in.
            Disconnected: The client is gone.
        """
        until = None if pause.seconds is None else time.monotonic() + pause.seconds
        while until is None or time.monotonic() < until:
            if pause.over is not None and pause.over.is_set():
                return
            left = _POLL_SECONDS if until is None else min(_POLL_SECONDS, until - time.monotonic())
            self._readable(max(left, 0))
            self._ended()
            if self.break_pending() and not pause.deaf:
                raise Broken

    def send(self, type: int, body: bytes, flags: int = 0) -> None:
        """Send one packet of another kind than DATA."""
        self._send((header(type, HEADER_BYTES + len(body), flags, wide=self.wide), body))

    def send_marker(self, kind: int) -> None:
        self.send(MARKER, bytes((1, 0, kind)), MARKER_FLAG if self.end_of_response else 0)

    def send_reply(self, pieces: Iterable[Piece], *, pace: float = 0) -> None:
        """Send a whole reply in as many packets as it needs.

        Args:
            pieces: Taken one by one as they are sent; the mark of the end is added.
            pace: Seconds to wait before each packet.

        Raises:
            Broken: The client broke in between two packets.
        """
        flags = 0
        if self.end_of_response:
            flags = END_OF_RESPONSE
            pieces = _with_end(pieces)
        if pace:
            self._send_slowly(pieces, flags, pace)
            return
        gathered: list[Buffer] = []
        size = 0
        for item in self._packets(pieces, flags=flags):
            if isinstance(item, Pause):
                self._send(gathered)
                gathered, size = [], 0
                self.pause(item)
                continue
            gathered += item
            size += self.sdu
            if size >= _GATHER:
                self._send(gathered)
                gathered, size = [], 0
                if self.break_pending():
                    raise Broken
        self._send(gathered)

    def send_plain(self, payload: bytes) -> None:
        """Send a reply that has no mark of its end even where one is agreed on."""
        for item in self._packets([payload]):
            if not isinstance(item, Pause):
                self._send(item)

    def send_torn(self, pieces: Iterable[Piece]) -> None:
        """Send a reply whose last packet announces more bytes than follow."""
        for item in self._packets(pieces, torn=True):
            if isinstance(item, Pause):
                self.pause(item)
            else:
                self._send(item)

    def close(self, *, reset: bool = False) -> None:
        """Close the socket, which ends every read in it.

        Args:
            reset: The client is to see a reset connection, not the end of a file.
        """
        with contextlib.suppress(OSError):
            if reset:
                linger = struct.pack("ii", 1, 0)
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            else:
                self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def interrupt(self) -> None:
        """End the reads of another thread without closing its socket."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _send_slowly(self, pieces: Iterable[Piece], flags: int, pace: float) -> None:
        for item in self._packets(pieces, flags=flags):
            if isinstance(item, Pause):
                self.pause(item)
            else:
                self.pause(Pause(pace))
                self._send(item)

    def _packets(
        self, pieces: Iterable[Piece], *, flags: int = 0, torn: bool = False
    ) -> Iterator[list[Buffer] | Pause]:
        return packetise(pieces, sdu=self.sdu, wide=self.wide, flags=flags, torn=torn)

    def _send(self, parts: Iterable[Buffer]) -> None:
        parts = list(parts)
        if not parts:
            return
        try:
            if isinstance(self._socket, ssl.SSLSocket):
                self._socket.sendall(b"".join(parts))
                return
            for start in range(0, len(parts), _GROUP):
                group = parts[start : start + _GROUP]
                sent = self._socket.sendmsg(group)
                if sent < sum(map(len, group)):
                    self._socket.sendall(memoryview(b"".join(group))[sent:])
        except OSError as error:
            raise Disconnected(str(error)) from error

    def _readable(self, seconds: float) -> bool:
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return True
        try:
            return bool(select.select([self._socket], [], [], seconds)[0])
        except (OSError, ValueError) as error:
            raise Disconnected(str(error)) from error

    def _receive(self) -> None:
        try:
            data = self._socket.recv(_RECEIVE)
        except OSError as error:
            raise Disconnected(str(error)) from error
        if not data:
            raise Disconnected("end of the connection")
        self._received += data
        while len(self._received) >= HEADER_BYTES:
            length = int.from_bytes(self._received[: 4 if self.wide else 2], "big")
            if length < HEADER_BYTES:
                raise Disconnected(f"packet of {length} bytes")
            if len(self._received) < length:
                return
            body = bytes(self._received[HEADER_BYTES:length])
            self._waiting.append(Packet(self._received[4], self._received[5], body))
            del self._received[:length]


def _with_end(pieces: Iterable[Piece]) -> Iterator[Piece]:
    yield from pieces
    yield END_MESSAGE
