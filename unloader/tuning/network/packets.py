"""Packets of the datagram test, and UDP sockets that take many packets in one system call.

A packet begins with a magic number and the version of this protocol, in all versions alike. No
side sends more than a packet of 128 bytes before the other side has returned its token. The token
is a keyed hash of the address that asked, so that an address that does not listen cannot be named
as the target of a flood. All answers are at most as long as the packet that they answer.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from unloader.errors import ConfigError, UsageError

VERSION = 1
MAGIC = b"ULNT"
PORT = 7077
HELLO, WELCOME, START, DATA, ACK, BYE, REFUSED = range(1, 8)
HEADER = struct.Struct("!4sBBHQQQ")
"""Magic, version, kind, flags, token, sequence number, time of the sender in nanoseconds."""
SMALL = 128
"""Bytes of a packet that opens a test; the least size of a packet with data."""
LARGEST = 65_507
TWO_WAY = 1

_SO_RXQ_OVFL = 40
_UDP_SEGMENT = 103
_UDP_GRO = 104
_IP_MTU = 14
_SEGMENTS = 64
"""Most segments of one call: UDP_MAX_SEGMENTS of Linux before 6.9."""
_ADDRESS = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^:\[\]\s]+)):(?P<port>\d{1,5})")

Address = tuple[str, int]


def parse_address(text: str) -> Address:
    """Return host and port of `HOST:PORT` or `[IPv6]:PORT`; `UsageError` for another text."""
    found = _ADDRESS.fullmatch(text.strip())
    if found is None or not 0 <= int(found["port"]) <= 65_535:
        raise UsageError(f"{text!r} is not an address", f"write HOST:PORT, such as 10.0.0.2:{PORT}")
    return found["six"] or found["host"], int(found["port"])


def resolved_address(text: str, kind: socket.SocketKind) -> tuple[socket.AddressFamily, Address]:
    """Return the family and the numeric address of `HOST:PORT`; `ConfigError` if unknown."""
    host, port = parse_address(text)
    try:
        found = socket.getaddrinfo(host, port, type=kind)[0]
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"the host of {text} has no address: {reason}", "check the name of the host"
        ) from error
    return found[0], (str(found[4][0]), int(found[4][1]))


def shown(address: Address) -> str:
    return f"[{address[0]}]:{address[1]}" if ":" in address[0] else f"{address[0]}:{address[1]}"


def is_own(address: Address, bound: Address | None) -> bool:
    """Return whether an address is the bound one, also if all addresses of this host are bound."""
    if bound is None or address[1] != bound[1]:
        return False
    if not ipaddress.ip_address(bound[0].partition("%")[0]).is_unspecified:
        return address[0] == bound[0]
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as trial:
        try:
            trial.bind((address[0], 0))
        except OSError:
            return False
    return True


class Wire:
    """A UDP socket; groups of equal packets go out in one call and come in in one call.

    Where the kernel cannot segment (UDP_SEGMENT, Linux 4.18) or join packets (UDP_GRO, 5.0), each
    packet is a call.
    """

    def __init__(
        self, *, bind: str = "", connect: str = "", buffer: int, quiet_seconds: float = 0.1
    ) -> None:
        """Bind to an address or connect to one; `ConfigError` if the system refuses it."""
        where = bind or connect
        family, address = resolved_address(where, socket.SOCK_DGRAM)
        self.socket = socket.socket(family, socket.SOCK_DGRAM)
        try:
            for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
                self.socket.setsockopt(socket.SOL_SOCKET, option, buffer)
            self.socket.setsockopt(socket.SOL_SOCKET, _SO_RXQ_OVFL, 1)
            wait = struct.pack("ll", 0, int(quiet_seconds * 1e6))
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, wait)
            (self.socket.bind if bind else self.socket.connect)(address)
        except OSError as error:
            self.socket.close()
            verb = "listen on" if bind else "send to"
            raise ConfigError(
                f"cannot {verb} {where}: {error.strerror}",
                "choose another address or port" if bind else "check the address and the route",
            ) from error
        self.joins = self._set(_UDP_GRO, 1)
        self.segments = self._set(_UDP_SEGMENT, 0)
        # The kernel doubles the number for its own bookkeeping: socket(7).
        self.buffer = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2
        self.asked_buffer = buffer
        self.address: Address = self.socket.getsockname()[:2]
        self.overruns = 0
        self._view = memoryview(bytearray(1 << 16))
        self._room = socket.CMSG_SPACE(4) * 4

    def _set(self, option: int, value: int) -> bool:
        try:
            self.socket.setsockopt(socket.IPPROTO_UDP, option, value)
        except OSError:
            return False
        return True

    @property
    def mtu(self) -> int | None:
        """The largest packet of the path that the kernel knows, of a connected socket."""
        with suppress(OSError):
            return self.socket.getsockopt(socket.IPPROTO_IP, _IP_MTU)
        return None

    def receive(self) -> tuple[memoryview, int, Address] | None:
        """Return the bytes that arrived, the size of each packet in them, and the sender.

        None after `quiet_seconds` without a packet. `ConnectionRefusedError` if a connected
        socket got the message that no program listens at the other end.
        """
        try:
            size, ancillary, _, address = self.socket.recvmsg_into([self._view], self._room)
        except (BlockingIOError, InterruptedError):
            return None
        each = size
        for level, kind, data in ancillary:
            if level == socket.IPPROTO_UDP and kind == _UDP_GRO:
                each = int.from_bytes(data[:4], "little" if _LITTLE else "big")
            elif level == socket.SOL_SOCKET and kind == _SO_RXQ_OVFL:
                self.overruns = struct.unpack("I", data[:4])[0]
        return self._view[:size], each, address[:2] if address else ("", 0)

    def burst(self, packet: int, asked: int) -> int:
        """Return the most packets of one size that a call can send."""
        if not self.segments or packet > (self.mtu or 1500) - 48:
            return 1
        return max(1, min(asked or _SEGMENTS, _SEGMENTS, LARGEST // packet))

    def send(self, data: memoryview | bytes, packet: int, address: Address | None) -> None:
        """Send bytes as packets of one size; the last may be shorter.

        A full queue of the interface counts as sent: such a packet is lost on this host.
        """
        extra = []
        if len(data) > packet:
            extra = [(socket.IPPROTO_UDP, _UDP_SEGMENT, struct.pack("H", packet))]
        try:
            if address is None:
                self.socket.sendmsg([data], extra)
            else:
                self.socket.sendmsg([data], extra, 0, address)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            if error.errno != 105:  # ENOBUFS
                raise

    def close(self) -> None:
        self.socket.close()


_LITTLE = struct.pack("H", 1)[0] == 1


def small(kind: int, token: int, sequence: int = 0, body: bytes = b"", flags: int = 0) -> bytes:
    """Return a packet of 128 bytes that opens, confirms or ends a test."""
    head = HEADER.pack(MAGIC, VERSION, kind, flags, token, sequence, 0)
    return (head + body).ljust(SMALL, b"\0")


def half_duplex() -> Iterator[str]:
    """Yield the interfaces of this host that are up and cannot send and receive together."""
    for path in sorted(Path("/sys/class/net").glob("*/duplex")):
        with suppress(OSError):
            up = (path.parent / "operstate").read_text().strip() == "up"
            if up and path.read_text().strip() == "half":
                yield path.parent.name


def random_key() -> bytes:
    return os.urandom(32)
