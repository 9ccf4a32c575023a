"""Replies cut into packets, and packets over a socket."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from oracle_server.wire.channel import Broken, Channel, Disconnected
from oracle_server.wire.packets import (
    BREAK,
    DATA,
    END_OF_RESPONSE,
    INTERRUPT,
    MARKER,
    RESEND,
    RESET,
    Pause,
    header,
    packetise,
)


@pytest.fixture
def pair() -> Iterator[tuple[Channel, Channel]]:
    """The two ends of a connection, after an ACCEPT."""
    left, right = socket.socketpair()
    channels = Channel(left), Channel(right)
    for channel in channels:
        channel.wide = True
    yield channels
    for channel in channels:
        channel.close()


def packets(pieces: list[bytes | Pause], **options: object) -> list[bytes]:
    """Return the packets of a reply."""
    made = packetise(pieces, **{"sdu": 512, "wide": True, **options})
    return [b"".join(parts) for parts in made if not isinstance(parts, Pause)]


def test_header_of_a_resend() -> None:
    """Before the ACCEPT lengths have 16 bits."""
    assert header(RESEND, 8, 0, wide=False) == bytes.fromhex("000800000b000000")


def test_markers_of_23ai(pair) -> None:
    """Markers carry the flag that real servers set once end of response is agreed on."""
    server, client = pair
    server.end_of_response = True
    server.send_marker(BREAK)
    server.send_marker(RESET)
    received = client._socket.recv(100)
    assert received.hex() == "0000000b0c200000010001" + "0000000b0c200000010002"


@pytest.mark.parametrize("size", [0, 1, 501, 502, 503, 1004, 1005, 5000])
def test_packets_hold_everything_in_order(size: int) -> None:
    """The payloads together are the reply; every packet but the last is full."""
    data = bytes(n % 251 for n in range(size))
    made = packets([data[: size // 3], b"", data[size // 3 :]], flags=END_OF_RESPONSE)
    assert b"".join(packet[10:] for packet in made) == data
    assert [int.from_bytes(packet[:4], "big") for packet in made] == [len(p) for p in made]
    assert all(len(packet) == 512 for packet in made[:-1])
    assert [packet[8:10] for packet in made] == [b"\0\0"] * (len(made) - 1) + [b"\x20\x00"]
    assert len(made) == max(1, -(-size // 502))


def test_torn_reply_promises_more_than_it_has() -> None:
    """The last packet of a torn reply says that it is full."""
    made = packets([bytes(600)], torn=True)
    assert [int.from_bytes(packet[:4], "big") for packet in made] == [512, 512]
    assert len(made[-1]) == 10 + 98


def test_pause_comes_after_what_is_before_it() -> None:
    """What stands before a pause leaves in a packet of its own."""
    made = list(packetise([b"before", Pause(1.0), b"after"], sdu=512, wide=True))
    assert made[1] == Pause(1.0)
    assert [b"".join(made[at])[10:] for at in (0, 2)] == [b"before", b"after"]


def test_reply_over_the_wire(pair) -> None:
    """A reply of many packets arrives whole, with its end marked where that is agreed on."""
    server, client = pair
    server.end_of_response = True
    server.send_reply([b"x" * 20_000, b"y"])
    found = b""
    while not found.endswith(b"\x1d"):
        packet = client.read()
        assert packet.type == DATA
        found += packet.body[2:]
    assert found == b"x" * 20_000 + b"y\x1d"


def test_break_is_noticed_without_waiting(pair) -> None:
    """A cancel that has arrived is seen once; a reset is none."""
    server, client = pair
    assert not server.break_pending()
    client.send_marker(RESET)
    client.send_marker(INTERRUPT)
    assert server.break_pending()
    assert not server.break_pending()
    assert server.read().type == MARKER


def test_break_ends_a_pause(pair) -> None:
    """A pause for ever ends when the client breaks in."""
    server, client = pair
    client.send_marker(INTERRUPT)
    with pytest.raises(Broken):
        server.pause(Pause(None))


def test_end_of_the_client(pair) -> None:
    """A read ends when the client has gone."""
    server, client = pair
    client.close()
    with pytest.raises(Disconnected):
        server.read()
