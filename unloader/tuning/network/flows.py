"""What network tests are asked for, the flows they report, and a sentence that sums them up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, astuple, replace

from unloader.nouns import bytes_per_second

SILENCE_SECONDS = 3.0
"""A side that hears nothing for this time ends the test."""


class Settings(Struct, frozen=True, kw_only=True):
    """What both tests send, and when they end: the options of the command, in bytes and seconds."""

    rate: int = 0
    """Bytes per second to each target or of each thread; 0 sets no limit."""
    duration: float = 10.0
    count: int = 0
    """Packets to each target, or messages of each connection; 0 sets no limit."""
    wait: float = 10.0
    packet_size: int = 1468
    burst: int = 0
    """Most packets of one system call; 0 is as many as the kernel takes."""
    buffer: int = 4 << 20
    polite: bool = False
    two_way: bool = False
    message_size: int = 65_536
    message_size_max: int = 65_536
    """Sizes of messages are evenly distributed from `message_size` to this size."""
    threads: int = 1
    warm_up_seconds: float = 0.0
    backlog: int = 64 << 20
    sample_every: int = 10
    blocking: bool = False
    """Each message waits for a response of the same size."""
    relay: bool = False
    """Connections to this host are passed on to the peer."""
    reverse: bool = False
    """The peers send messages, and this host counts."""


class Counts(Struct):
    """Packets of one direction, in the order of an acknowledgement."""

    sent: int = 0
    received: int = 0
    bytes: int = 0
    out_of_order: int = 0
    offset: int = 0
    """Sum of the places by which packets were late."""
    duplicates: int = 0
    overruns: int = 0
    """Packets, or groups of packets, that the buffer of the receiver had no room for."""
    nanoseconds: int = 0
    """From the first packet to the last."""
    buffer: int = 0
    delay: int = 0
    """Mean nanoseconds in queues: the delay above the least delay of the test."""


class PacketFlow(Struct, frozen=True, kw_only=True):
    """Packets of one direction between this host and another, as their receiver counted them."""

    peer: str
    direction: str
    """out: from here to the peer. in: from the peer to here."""
    counts: Counts
    round_trip_seconds: float | None = None
    error: str | None = None
    began: float = 0.0
    """Seconds of this host's monotonic clock."""

    @property
    def missing(self) -> int:
        return max(0, self.counts.sent - self.counts.received)

    @property
    def bytes_per_second(self) -> float | None:
        """None if all that arrived has arrived at one moment."""
        return (
            self.counts.bytes * 1e9 / self.counts.nanoseconds if self.counts.nanoseconds else None
        )

    @property
    def figures(self) -> dict[str, Any]:
        """The flow with its rates, as JSON and the log have it."""
        counts, rate = asdict(self.counts), self.bytes_per_second
        return {
            **{"test": "datagrams", "peer": self.peer, "direction": self.direction},
            "seconds": counts.pop("nanoseconds") / 1e9,
            "bytes_per_second": None if rate is None else round(rate),
            **counts,
            "missing": self.missing,
            "success_rate": round(self.counts.received / max(1, self.counts.sent), 6),
            "average_offset": round(self.counts.offset / max(1, self.counts.out_of_order), 3),
            "delay_seconds": counts.pop("delay") / 1e9,
            **{"round_trip_seconds": self.round_trip_seconds, "error": self.error},
        }

    def since(self, before: Counts) -> PacketFlow:
        """Return the part of the test after an earlier state of the counts."""
        pairs = zip(astuple(self.counts), astuple(before), strict=True)
        parts = Counts(*(max(0, now - then) for now, then in pairs))
        kept = {"buffer": self.counts.buffer, "delay": self.counts.delay}
        return replace(self, counts=replace(parts, **kept))


class MessageFlow(Struct, frozen=True, kw_only=True):
    """Messages of one direction; times are in seconds, and zero if nothing was sampled."""

    peer: str
    direction: str
    connections: int
    seconds: float
    messages: int
    bytes: int
    receipts: int
    backlog: int
    """Most bytes without a receipt."""
    minimum: float
    average: float
    p50: float
    p99: float
    p999: float
    maximum: float
    error: str | None = None
    began: float = 0.0
    """Seconds of this host's monotonic clock."""

    @property
    def bytes_per_second(self) -> float:
        return self.bytes / self.seconds if self.seconds > 0 else 0.0

    @property
    def figures(self) -> dict[str, Any]:
        """The flow with its rate, as JSON and the log have it."""
        figures = {"test": "messages"} | asdict(self)
        del figures["began"]
        return figures | {"bytes_per_second": round(self.bytes_per_second)}


Flow = PacketFlow | MessageFlow


def verdict(flows: Sequence[Flow], rate: int, packet_size: int, mtu: int | None) -> str:
    """Return a sentence on the rate, the loss, and the settings to change."""
    datagrams = [each for each in flows if isinstance(each, PacketFlow) and each.counts.sent]
    carried, seconds = _carried(flows)
    if not carried:
        return "No data arrived."
    amount = f"{carried:,} bytes, too few for a rate,"
    text = f"The network carried {bytes_per_second(carried / seconds) if seconds else amount}"
    if not datagrams:
        middle = max(each.p50 for each in flows if isinstance(each, MessageFlow)) * 1e3
        waits = f", and half of the messages had a receipt in {middle:,.3f} ms" if middle else ""
        return f"{text}{waits}."
    sent = sum(each.counts.sent for each in datagrams)
    lost = sum(each.missing for each in datagrams) / sent
    advice = []
    worst = max(datagrams, key=lambda each: each.counts.overruns)
    if worst.counts.overruns:
        where = "this host" if worst.direction == "in" else worst.peer
        advice.append(
            f"the receive buffer of {where}, {worst.counts.buffer:,} bytes, was full: raise "
            "net.core.rmem_max and --buffer there, or lower --rate"
        )
    elif lost > 0.001:
        halves_found = ", ".join(_half_duplex())
        duplex = f": {halves_found} is half duplex" if halves_found else ""
        advice.append(f"check duplex, cables and switches between the hosts{duplex}")
    if mtu is not None and packet_size > mtu - 28:
        advice.append(
            f"packets are split, because the MTU is {mtu:,}: give --packet-size {mtu - 28} or less"
        )
    if sum(each.counts.out_of_order for each in datagrams) / sent > 0.01:
        advice.append("packets overtake each other: check bonded links and routes")
    if lost < 0.01 and any(
        each.counts.bytes < 0.9 * rate * each.counts.nanoseconds / 1e9
        for each in datagrams
        if each.counts.nanoseconds > 1e9
    ):
        advice.append("the sending host did not reach --rate")
    advice = advice or ["nothing needs a change"]
    return f"{text} and lost {lost:.2%} of the packets; {'; '.join(advice)}."


def _carried(flows: Sequence[Flow]) -> tuple[int, float]:
    """Return the bytes of all flows, and the seconds that at least one of them took."""
    carried, seconds, end = 0, 0.0, 0.0
    for each in sorted(flows, key=lambda flow: flow.began):
        figures = each.figures
        last = each.began + figures["seconds"]
        seconds += max(0.0, last - max(each.began, end))
        end = max(end, last)
        carried += figures["bytes"]
    return carried, seconds


def _half_duplex() -> Iterator[str]:
    """Yield the interfaces of this host that are up and cannot send and receive together."""
    for path in sorted(Path("/sys/class/net").glob("*/duplex")):
        with suppress(OSError):
            up = (path.parent / "operstate").read_text().strip() == "up"
            if up and path.read_text().strip() == "half":
                yield path.parent.name
