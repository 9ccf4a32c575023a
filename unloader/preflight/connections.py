"""What the kernel knows of the network connections of this process: tcp(7), TCP_INFO.

Nothing of the database's driver is needed. Connections within the machine by a socket of the file
system have no such figures, and neither have systems other than Linux.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress

from msgspec import Struct

_ROUND_TRIP_AT = 68  # tcpi_rtt, in microseconds: linux/tcp.h, struct tcp_info
_RECEIVED_AT = 128  # tcpi_bytes_received, from Linux 4.1 on
_INFO_BYTES = 192


class Traffic(Struct, frozen=True, kw_only=True):
    """All TCP connections of this process together."""

    received: int
    """Bytes so far."""
    round_trip_seconds: float
    """Of the connection that has received most, as the kernel smoothes it."""


def traffic() -> Traffic | None:
    """Return what this process has received; None without a connection whose figures are known."""
    found = list(_connections())
    if not found:
        return None
    busiest = max(found)
    return Traffic(received=sum(size for size, _ in found), round_trip_seconds=busiest[1])


def _connections() -> Iterator[tuple[int, float]]:
    """Yield of each established connection the bytes received and the round trip in seconds."""
    try:
        descriptors = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        return
    for descriptor in descriptors:
        with suppress(OSError, struct.error):
            if not os.readlink(f"/proc/self/fd/{descriptor}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(descriptor)) as each:
                if each.family not in (socket.AF_INET, socket.AF_INET6):
                    continue
                each.getpeername()  # Raises unless it is connected.
                info = each.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
                (received,) = struct.unpack_from("=Q", info, _RECEIVED_AT)
                (microseconds,) = struct.unpack_from("=I", info, _ROUND_TRIP_AT)
                yield received, microseconds / 1e6
