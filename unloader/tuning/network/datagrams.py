"""The datagram test: what a network carries, loses and reorders, and the advice that follows.

A listener answers senders; a sender has a socket and a thread for each target. Packets flow from
the side that publishes to the side that counts, which acknowledges them four times a second. A
publisher without acknowledgements for three seconds stops.
"""

from __future__ import annotations

import hashlib
import hmac
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from unloader.errors import ConfigError, UnloaderError
from unloader.tuning.network import packets
from unloader.tuning.network.packets import HEADER, MAGIC, SMALL, VERSION, Address, Wire

SILENCE_SECONDS = 3.0
_ACK_NS = 250_000_000
_HELLO_SECONDS = 0.2
_MOST_FLOWS = 256
_GAPS = 1 << 17
"""Missing packets that a listener remembers, to tell a late packet from a repeated one."""
_COUNTS = struct.Struct("!10Q")
_TERMS = struct.Struct("!IQQQ")
"""Of START: packet size, bytes a second (0: no limit), nanoseconds, packets (0: no limit)."""


class Settings(Struct, frozen=True, kw_only=True):
    """How packets are sent, and when a test ends."""

    rate: int = 100_000_000
    """Bytes per second to each target; 0 sets no limit."""
    seconds: float = 10.0
    packet_size: int = 1468
    burst: int = 0
    """Most packets of one system call; 0 is as many as the kernel takes."""
    count: int = 0
    """Packets to each target; 0 sets no limit."""
    buffer: int = 4 << 20
    wait_seconds: float = 10.0
    polite: bool = False
    two_way: bool = False


class Flow(Struct, frozen=True, kw_only=True):
    """Packets of one direction between this host and another, as their receiver counted them."""

    peer: str
    direction: str
    """out: from here to the peer. in: from the peer to here."""
    seconds: float = 0.0
    sent: int = 0
    received: int = 0
    bytes: int = 0
    missing: int = 0
    out_of_order: int = 0
    offset: int = 0
    """Sum of the places by which packets were late."""
    duplicates: int = 0
    overruns: int = 0
    """Packets, or groups of packets, that the buffer of the receiver had no room for."""
    buffer: int = 0
    delay_seconds: float = 0.0
    """Mean time in queues: the delay above the least delay of the test."""
    round_trip_seconds: float | None = None
    error: str | None = None

    @property
    def success_rate(self) -> float:
        return self.received / self.sent if self.sent else 0.0

    @property
    def bytes_per_second(self) -> float:
        return self.bytes / self.seconds if self.seconds > 0 else 0.0

    @property
    def average_offset(self) -> float:
        return self.offset / self.out_of_order if self.out_of_order else 0.0

    def since(self, before: Flow) -> Flow:
        """Return the part of the test after an earlier state of the same flow."""
        names = ("seconds", "sent", "received", "bytes", "out_of_order", "offset", "duplicates")
        parts = {name: max(0, getattr(self, name) - getattr(before, name)) for name in names}
        missing = max(0, parts["sent"] - parts["received"])
        overruns = self.overruns - before.overruns
        return replace(self, **parts, missing=missing, overruns=overruns)


class Incoming:
    """Counts the packets of a flow by their sequence numbers."""

    def __init__(self) -> None:
        """Count nothing yet."""
        self.received = self.bytes = self.expected = self.out_of_order = self.offset = 0
        self.duplicates = self.first = self.last = self.delay = 0
        self.least: int | None = None
        self.total: int | None = None
        self.gaps = dict[int, None]()
        self.overruns_before = 0

    def take(self, sequence: int, size: int, sent_ns: int, now: int) -> None:
        if not self.received:
            self.first = now
        self.last = now
        expected = self.expected
        if sequence == expected:
            self.expected = expected + 1
        elif sequence > expected:
            self.gaps.update(dict.fromkeys(range(max(expected, sequence - _GAPS), sequence)))
            if len(self.gaps) > _GAPS:
                # Half together: the first key of a dict is slow to find after deletions.
                self.gaps = dict.fromkeys(list(self.gaps)[_GAPS // 2 :])
            self.expected = sequence + 1
        elif sequence in self.gaps:
            del self.gaps[sequence]
            self.out_of_order += 1
            self.offset += expected - 1 - sequence
        else:
            self.duplicates += 1
            return
        self.received += 1
        self.bytes += size
        # The clocks differ by a constant, which the least difference removes.
        delay = now - sent_ns
        if self.least is None or delay < self.least:
            self.delay += 0 if self.least is None else (self.least - delay) * (self.received - 1)
            self.least = delay
        else:
            self.delay += delay - self.least

    def packed(self, wire: Wire) -> bytes:
        """Return the counts as an acknowledgement has them."""
        sent = self.expected if self.total is None else max(self.total, self.expected)
        return _COUNTS.pack(
            *(sent, self.received, self.bytes, self.out_of_order, self.offset, self.duplicates),
            *(max(0, wire.overruns - self.overruns_before), wire.buffer),
            *(self.last - self.first, self.delay // self.received if self.received else 0),
        )


def _flow(peer: str, direction: str, counts: bytes) -> Flow:
    sent, received, size, late, offset, twice, overruns, buffer, span, delay = _COUNTS.unpack(
        counts
    )
    return Flow(
        peer=peer,
        direction=direction,
        seconds=span / 1e9,
        sent=sent,
        received=received,
        bytes=size,
        missing=max(0, sent - received),
        out_of_order=late,
        offset=offset,
        duplicates=twice,
        overruns=overruns,
        buffer=buffer,
        delay_seconds=delay / 1e9,
    )


class Session:
    """A test between this host and one other: a flow of packets in each direction, or in one."""

    def __init__(
        self, wire: Wire, peer: str, token: int, settings: Settings, to: Address | None
    ) -> None:
        """Join a test whose token both sides have."""
        self.wire = wire
        self.peer = peer
        self.token = token
        self.settings = settings
        self.to = to
        self.incoming = Incoming()
        self.incoming.overruns_before = wire.overruns
        self.counted = bytes(_COUNTS.size)
        self.round_trip: float | None = None
        self.published = 0
        self.publisher: threading.Thread | None = None
        self.done = threading.Event()
        self.confirmed = threading.Event()
        self.error: str | None = None
        self.heard = time.monotonic()
        self.acked = 0

    def publish(self) -> None:
        """Start to send packets in a thread."""
        self.publisher = threading.Thread(target=self._publish, name="publisher", daemon=True)
        self.publisher.start()

    def _publish(self) -> None:
        try:
            self._send_all()
            end = time.monotonic() + SILENCE_SECONDS
            while not self.confirmed.is_set() and time.monotonic() < end:
                # Several, because the count of overruns arrives with the next packet.
                self._send(packets.small(packets.BYE, self.token, self.published))
                self.confirmed.wait(_HELLO_SECONDS)
            if not self.confirmed.is_set() and self.error is None:
                self.error = f"{self.peer} does not answer any more"
        except OSError as error:
            self.error = f"cannot send to {self.peer}: {error.strerror}"
        finally:
            self.done.set()

    def _send(self, packet: bytes) -> None:
        self.wire.send(packet, len(packet), self.to)

    def _send_all(self) -> None:
        settings, wire, size = self.settings, self.wire, self.settings.packet_size
        burst = wire.burst(size, settings.burst)
        if settings.rate:
            # Groups of at most 2 ms, so that a slow rate is even.
            burst = max(1, min(burst, int(settings.rate * 0.002 / size)))
        data = bytearray(burst * size)
        view = memoryview(data)
        pack, token = HEADER.pack_into, self.token
        began = time.monotonic()
        self.heard = began
        end, due, sequence = began + settings.seconds, began, 0
        probe = began + 0.5
        step = size / settings.rate if settings.rate else 0.0
        most = settings.count or 1 << 62
        clock = time.monotonic
        while sequence < most and self.error is None and not self.done.is_set():
            now = clock()
            if now >= end:
                break
            if now - self.heard > SILENCE_SECONDS:
                self.error = f"{self.peer} does not answer any more"
                break
            if now >= probe:
                # A small packet gets an answer even where no group of packets has room.
                self._send(packets.small(packets.START, token))
                probe = now + 0.5
            if step:
                if due > now:
                    time.sleep(min(due - now, 0.1))
                    continue
                # A pause of more than 100 ms is not made up for.
                due = max(due, now - 0.1)
            group = min(burst, most - sequence)
            stamp = time.monotonic_ns()
            for at in range(group):
                pack(data, at * size, MAGIC, VERSION, packets.DATA, 0, token, sequence + at, stamp)
            wire.send(view[: group * size], size, self.to)
            sequence += group
            self.published = sequence
            due += group * step

    def handle(self, kind: int, sequence: int, body: bytes) -> None:
        """Handle a small packet of the other side."""
        self.heard = time.monotonic()
        if kind == packets.ACK:
            self.counted = body[: _COUNTS.size]
            if sequence:
                self.confirmed.set()
        elif kind == packets.BYE:
            self.incoming.total = sequence
            self.acknowledge(1)

    def acknowledge(self, last: int = 0) -> None:
        """Send the counts, no more often than the caller asks."""
        self.acked = time.monotonic_ns()
        body = self.incoming.packed(self.wire)
        self._send(packets.small(packets.ACK, self.token, last, body))

    def flows(self) -> list[Flow]:
        """Return the flows of the test so far."""
        found = []
        if self.publisher is not None:
            flow = _flow(self.peer, "out", self.counted)
            sent = max(flow.sent, self.published if self.done.is_set() else 0)
            flow = replace(
                flow,
                sent=sent,
                missing=max(0, sent - flow.received),
                round_trip_seconds=self.round_trip,
                error=self.error,
            )
            found.append(flow)
        if self.incoming.received or self.publisher is None:
            flow = _flow(self.peer, "in", self.incoming.packed(self.wire))
            found.append(replace(flow, error=None if self.publisher else self.error))
        return found

    @property
    def ended(self) -> bool:
        """Whether neither direction will change any more."""
        silent = time.monotonic() - self.heard > SILENCE_SECONDS
        if silent and self.incoming.total is None and self.incoming.received:
            self.error = self.error or f"{self.peer} stopped without an end"
        counted = self.incoming.total is not None or silent
        asks_both = self.settings.two_way or self.publisher is None
        sends_all = self.publisher is None or self.done.is_set()
        return sends_all and (counted or not asks_both)


class Receiver(threading.Thread):
    """Reads a socket: it counts packets, acknowledges them, and answers hosts that ask."""

    def __init__(self, wire: Wire, settings: Settings, *, serves: bool) -> None:
        """Read nothing until `start`; only a receiver that `serves` opens tests."""
        super().__init__(name="receiver", daemon=True)
        self.wire = wire
        self.settings = settings
        self.serves = serves
        self.sessions = dict[int, Session]()
        self.stopping = threading.Event()
        self.refused = ""
        self._key = packets.random_key()

    def run(self) -> None:
        """Read until `stopping` is set."""
        unpack, head = HEADER.unpack_from, HEADER.size
        while not self.stopping.is_set():
            try:
                found = self.wire.receive()
            except ConnectionRefusedError:
                for session in self.sessions.values():
                    session.error = session.error or f"no program listens at {session.peer}"
                continue
            except OSError:
                return
            now = time.monotonic_ns()
            if found is not None:
                data, size, address = found
                mine: Session | None = None
                counts = False
                for at in range(0, len(data) - head + 1, size):
                    magic, version, kind, flags, token, sequence, stamp = unpack(data, at)
                    if magic != MAGIC:
                        continue
                    if kind == packets.DATA and version == VERSION:
                        if mine is None or mine.token != token:
                            mine = self.sessions.get(token)
                            if mine is None:
                                break
                        mine.incoming.take(sequence, min(size, len(data) - at), stamp, now)
                        counts = True
                    else:
                        body = bytes(data[at + head : at + size])
                        self._control(kind, version, flags, token, sequence, body, address)
                if counts and mine is not None:
                    mine.heard = now / 1e9
            for session in list(self.sessions.values()):
                if now - session.acked > _ACK_NS and session.incoming.received:
                    session.acknowledge(session.incoming.total is not None)

    def _control(
        self,
        kind: int,
        version: int,
        flags: int,
        token: int,
        sequence: int,
        body: bytes,
        address: Address,
    ) -> None:
        known = self.sessions.get(token)
        if known is not None and version == VERSION:
            if kind == packets.START:
                known.heard = time.monotonic()
                known.acknowledge()
            else:
                known.handle(kind, sequence, body)
        elif not self.serves or len(body) + HEADER.size < SMALL:
            return
        elif version != VERSION:
            self.wire.send(packets.small(packets.REFUSED, token), SMALL, address)
        elif kind == packets.HELLO:
            reply = packets.small(packets.WELCOME, token, self._token(address, token))
            self.wire.send(reply, SMALL, address)
        elif kind == packets.START and token == self._token(address, sequence):
            if len(self.sessions) >= _MOST_FLOWS:
                return
            size, rate, span, count = _TERMS.unpack_from(body)
            ours = self.settings
            terms = Settings(
                rate=min(filter(None, (rate, ours.rate)), default=0),
                seconds=min(span / 1e9, ours.seconds),
                packet_size=min(max(size, SMALL), packets.LARGEST),
                count=count,
                two_way=bool(flags & packets.TWO_WAY),
            )
            session = Session(self.wire, packets.shown(address), token, terms, address)
            self.sessions[token] = session
            session.acknowledge()
            if terms.two_way:
                session.publish()

    def _token(self, address: Address, nonce: int) -> int:
        text = f"{address[0]} {address[1]} {nonce}".encode()
        return int.from_bytes(hmac.digest(self._key, text, hashlib.sha256)[:8], "big")


def connected(target: str, settings: Settings, stop: Callable[[], bool]) -> Receiver:
    """Return a receiver with one session, after the target has answered.

    Raises:
        ConfigError: No listener answers, or one with another version of the protocol.
    """
    wire = Wire(connect=target, buffer=settings.buffer)
    try:
        nonce = int.from_bytes(packets.random_key()[:8], "big")
        end = time.monotonic() + settings.wait_seconds
        token, trip = 0, None
        start = b""
        while True:
            asked = time.monotonic()
            if asked > end or stop():
                raise ConfigError(
                    f"{target} does not answer the datagram test",
                    f"start unloader network listen {target} there, and open its UDP port",
                )
            try:
                packet = start or packets.small(packets.HELLO, nonce)
                wire.send(packet, SMALL, None)
                found = wire.receive()
            except ConnectionRefusedError:
                time.sleep(_HELLO_SECONDS)
                continue
            if found is None or len(found[0]) < HEADER.size:
                continue
            magic, version, kind, _, echoed, sequence, _ = HEADER.unpack_from(found[0])
            if magic != MAGIC or echoed not in (nonce, token):
                continue
            if version != VERSION or kind == packets.REFUSED:
                raise other_version(target, version)
            if kind == packets.WELCOME and not start:
                token, trip = sequence, time.monotonic() - asked
                terms = _TERMS.pack(
                    settings.packet_size, settings.rate, int(settings.seconds * 1e9), settings.count
                )
                flags = packets.TWO_WAY if settings.two_way else 0
                start = packets.small(packets.START, token, nonce, terms, flags)
            elif start and kind in (packets.ACK, packets.DATA):
                break
    except BaseException:
        wire.close()
        raise
    receiver = Receiver(wire, settings, serves=False)
    session = Session(wire, target, token, settings, None)
    session.round_trip = trip
    receiver.sessions[token] = session
    return receiver


def other_version(target: str, version: int) -> ConfigError:
    return ConfigError(
        f"{target} has version {version} of the network test, but this program has {VERSION}",
        "install the same unloader on both hosts",
    )


class DatagramTest:
    """Sends to targets, listens, or does both, and reports at intervals."""

    def __init__(
        self, settings: Settings, *, bind: str = "", targets: Sequence[str] = (), waits: float = 0
    ) -> None:
        """Bind the address, if there is one; the own address is left out of the targets."""
        self.settings = settings
        self.receivers = list[Receiver]()
        self.failed = list[Flow]()
        self.listener: Receiver | None = None
        self.waits = waits or settings.wait_seconds
        if bind:
            wire = Wire(bind=bind, buffer=settings.buffer)
            self.listener = Receiver(wire, settings, serves=True)
            self.listener.start()
        own = self.listener.wire.address if self.listener else None
        self.targets = [
            each
            for each in dict.fromkeys(targets)
            if not packets.is_own(packets.resolved_address(each, socket.SOCK_DGRAM)[1], own)
        ]

    def run(
        self, report: Callable[[list[Flow]], None], interval: float, stop: Callable[[], bool]
    ) -> list[Flow]:
        """Return the flows of the whole test; `report` gets them every `interval` seconds.

        A target that fails is a flow with an error. `ConfigError` if no target answered at all.
        """
        errors = list[UnloaderError]()
        lock = threading.Lock()

        def open_one(target: str) -> None:
            try:
                receiver = connected(target, self.settings, stop)
            except UnloaderError as error:
                with lock:
                    errors.append(error)
                    self.failed.append(Flow(peer=target, direction="out", error=error.message))
                return
            receiver.start()
            with lock:
                self.receivers.append(receiver)
            if not self.settings.polite:
                for session in receiver.sessions.values():
                    session.publish()

        openers = [threading.Thread(target=open_one, args=(each,)) for each in self.targets]
        try:
            for each in openers:
                each.start()
            if self.settings.polite or len(openers) == 1:
                for each in openers:
                    each.join()
            if self.settings.polite and not errors:
                for session in self._sessions(own=False):
                    session.publish()
            if errors and (self.settings.polite or len(self.targets) == 1):
                raise errors[0]
            self._watch(report, interval, stop, openers)
            if errors and len(errors) == len(self.targets):
                raise errors[0]
            return self.flows()
        finally:
            self.close()

    def _watch(
        self,
        report: Callable[[list[Flow]], None],
        interval: float,
        stop: Callable[[], bool],
        openers: Sequence[threading.Thread],
    ) -> None:
        """Wait until all tests have ended, for a time that the settings bound."""
        began = time.monotonic()
        due = began + interval
        limit = began + self.waits + self.settings.seconds + 2 * SILENCE_SECONDS
        while not stop():
            now = time.monotonic()
            sessions = self._sessions()
            opening = any(each.is_alive() for each in openers)
            waiting = self.listener is not None and not self.listener.sessions
            ended = not opening and all(each.ended for each in sessions)
            ended = ended and (not waiting or now - began > self.waits)
            # One second more for hosts that begin a little later.
            quiet = self.listener is None or all(now - each.heard > 1.0 for each in sessions)
            if now > limit or (ended and quiet):
                return
            if now >= due:
                report(self.flows())
                due += interval
            time.sleep(0.05)

    def _sessions(self, *, own: bool = True) -> list[Session]:
        listener = [self.listener] if own and self.listener else []
        return [s for each in (*self.receivers, *listener) for s in list(each.sessions.values())]

    def flows(self) -> list[Flow]:
        return [*self.failed, *(flow for each in self._sessions() for flow in each.flows())]

    def close(self) -> None:
        """Stop all threads and close all sockets."""
        listener = [self.listener] if self.listener else []
        for receiver in (*self.receivers, *listener):
            receiver.stopping.set()
            for session in receiver.sessions.values():
                session.done.set()
        for receiver in (*self.receivers, *listener):
            receiver.join(2)
            receiver.wire.close()


def verdict(flows: Sequence[Flow], settings: Settings, mtu: int | None = None) -> str:
    """Return a sentence on the rate, the loss, and the settings to change."""
    answered = [each for each in flows if each.sent]
    if not answered:
        return "No packet arrived."
    rate = sum(each.bytes_per_second for each in answered) / 1e6
    sent = sum(each.sent for each in answered)
    missing = sum(each.missing for each in answered)
    late = sum(each.out_of_order for each in answered)
    text = f"The network carried {rate:,.1f} MB/s and lost {missing / sent:.2%} of the packets"
    advice = []
    small_buffers = [each for each in answered if each.overruns]
    if small_buffers:
        worst = max(small_buffers, key=lambda each: each.overruns)
        where = "this host" if worst.direction == "in" else worst.peer
        advice.append(
            f"the receive buffer of {where}, {worst.buffer:,} bytes, was full: raise "
            "net.core.rmem_max and --buffer there, or lower --rate"
        )
    elif missing / sent > 0.001:
        halves = ", ".join(packets.half_duplex())
        duplex = f": {halves} is half duplex" if halves else ""
        advice.append(f"check duplex, cables and switches between the hosts{duplex}")
    if mtu is not None and settings.packet_size > mtu - 28:
        advice.append(
            f"packets are split, because the MTU is {mtu:,}: give --packet-size {mtu - 28} or less"
        )
    if late / sent > 0.01:
        advice.append("packets overtake each other: check bonded links and routes")
    slow = [e for e in answered if settings.rate and e.bytes_per_second < 0.9 * settings.rate]
    if slow and missing / sent < 0.01 and settings.seconds >= 1:
        advice.append("the sending host did not reach --rate")
    return f"{text}; {'; '.join(advice)}." if advice else f"{text}; nothing needs a change."
