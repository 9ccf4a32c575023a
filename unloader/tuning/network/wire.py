"""Addresses of the network tests, and a UDP socket that takes many packets in one system call."""

from __future__ import annotations

import errno
import ipaddress
import re
import socket
import struct
import sys
from collections.abc import Sequence
from contextlib import suppress

from unloader.errors import ConfigError, UsageError

VERSION = 2
PORT = 7077
LARGEST = 65_507
"""Bytes of the largest datagram."""

_SO_RXQ_OVFL = 40
_UDP_SEGMENT = 103
_UDP_GRO = 104
_MTU = {socket.AF_INET: (socket.IPPROTO_IP, 14), socket.AF_INET6: (socket.IPPROTO_IPV6, 24)}
_SEGMENTS = 64
"""Most segments of one call: UDP_MAX_SEGMENTS of Linux before 6.9."""
_ADDRESS = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^:\[\]\s]+)):(?P<port>\d{1,5})")

Address = tuple[str, int]


def resolved(text: str, kind: socket.SocketKind) -> tuple[socket.AddressFamily, Address]:
    """Return the family and the numeric address of `HOST:PORT` or `[IPv6]:PORT`.

    Raises:
        UsageError: The text is not an address.
        ConfigError: The host is unknown.
    """
    parts = _ADDRESS.fullmatch(text.strip())
    if parts is None or int(parts["port"]) > 65_535:
        raise UsageError(f"{text!r} is not an address", f"write HOST:PORT, such as 10.0.0.2:{PORT}")
    try:
        found = socket.getaddrinfo(parts["six"] or parts["host"], int(parts["port"]), type=kind)[0]
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"the host of {text} has no address: {reason}", "check the name of the host"
        ) from error
    return found[0], (str(found[4][0]), int(found[4][1]))


def shown(address: Address) -> str:
    return f"[{address[0]}]:{address[1]}" if ":" in address[0] else f"{address[0]}:{address[1]}"


def others(
    targets: Sequence[str], kind: socket.SocketKind, bound: socket.socket | None
) -> list[str]:
    """Return the different targets without the address that this host is bound to."""
    own = bound.getsockname()[:2] if bound else None
    return [each for each in dict.fromkeys(targets) if not _is_own(*resolved(each, kind), own)]


def _is_own(family: socket.AddressFamily, address: Address, bound: Address | None) -> bool:
    if bound is None or address[1] != bound[1]:
        return False
    if not ipaddress.ip_address(bound[0].partition("%")[0]).is_unspecified:
        return address[0] == bound[0]
    with socket.socket(family, socket.SOCK_DGRAM) as trial:
        try:
            trial.bind((address[0], 0))
        except OSError:
            return False
    return True


def opened(text: str, kind: socket.SocketKind, *, binds: bool) -> socket.socket:
    """Return a socket that is bound to an address, or connected; `ConfigError` if refused."""
    family, address = resolved(text, kind)
    found = socket.socket(family, kind)
    try:
        if not binds:
            found.connect(address)
            return found
        if kind == socket.SOCK_STREAM:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        if kind == socket.SOCK_STREAM:
            found.listen(64)
    except OSError as error:
        found.close()
        verb, hint = "reach", "check the address and the route"
        if binds:
            verb, hint = "listen on", "choose another address or port"
        raise ConfigError(f"cannot {verb} {text}: {error.strerror}", hint) from error
    return found


def no_answer(target: str, test: str, protocol: str) -> ConfigError:
    return ConfigError(
        f"{target} does not answer the {test} test",
        f"start unloader network listen {target} there, and open its {protocol} port",
    )


def other_version(target: str, version: int) -> ConfigError:
    return ConfigError(
        f"{target} has version {version} of the network test, but this program has {VERSION}",
        "install the same unloader on both hosts",
    )


class Wire:
    """A UDP socket; groups of equal packets go out in one call and come in in one call.

    Where the kernel cannot segment (UDP_SEGMENT, Linux 4.18) or join packets (UDP_GRO, 5.0), each
    packet is a call.
    """

    def __init__(self, address: str, *, binds: bool, buffer: int) -> None:
        """Bind to an address or connect to one; `ConfigError` if the system refuses it."""
        self.socket = link = opened(address, socket.SOCK_DGRAM, binds=binds)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            link.setsockopt(socket.SOL_SOCKET, option, buffer)
        link.setsockopt(socket.SOL_SOCKET, _SO_RXQ_OVFL, 1)
        # receive returns after 0.1 seconds without a packet.
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 100_000))
        self.segments = self._set(_UDP_SEGMENT, 0)
        self._set(_UDP_GRO, 1)
        # The kernel doubles the number for its own bookkeeping: socket(7).
        self.buffer = link.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2
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
            return self.socket.getsockopt(*_MTU[self.socket.family])
        return None

    def receive(self) -> tuple[memoryview, int, Address] | None:
        """Return the bytes that arrived, the size of each packet in them, and the sender.

        None after 0.1 seconds without a packet. `ConnectionRefusedError` if a connected socket got
        the message that no program listens at the other end.
        """
        try:
            size, ancillary, _, address = self.socket.recvmsg_into([self._view], self._room)
        except (BlockingIOError, InterruptedError):
            return None
        each = size
        for level, kind, data in ancillary:
            if level == socket.IPPROTO_UDP and kind == _UDP_GRO:
                each = int.from_bytes(data[:4], sys.byteorder)
            elif level == socket.SOL_SOCKET and kind == _SO_RXQ_OVFL:
                self.overruns = int.from_bytes(data[:4], sys.byteorder)
        return self._view[:size], each, address[:2] if address else ("", 0)

    def burst(self, packet: int, asked: int) -> int:
        """Return the most packets of one size that a call can send."""
        headers = 28 if self.socket.family == socket.AF_INET else 48
        if not self.segments or packet > (self.mtu or 1500) - headers:
            return 1
        return max(1, min(asked or _SEGMENTS, _SEGMENTS, LARGEST // packet))

    def send(self, data: memoryview | bytes, packet: int, address: Address | None) -> None:
        """Send bytes as packets of one size; the last may be shorter.

        A full queue of the interface counts as sent: such a packet is lost on this host.
        """
        rest = [data]
        while rest:
            part, extra = rest.pop(), []
            if len(part) > packet:
                extra = [(socket.IPPROTO_UDP, _UDP_SEGMENT, struct.pack("H", packet))]
            try:
                self.socket.sendmsg([part], extra, 0, *([address] if address else []))
            except (BlockingIOError, InterruptedError):
                continue
            except OSError as error:
                if extra and error.errno in (errno.EIO, errno.EINVAL, errno.EMSGSIZE):
                    # The interface cannot segment: udp(7).
                    self.segments = False
                    rest = [part[at : at + packet] for at in range(0, len(part), packet)][::-1]
                elif error.errno != errno.ENOBUFS:
                    raise
