"""The datagram test: what a network carries, loses and reorders.

A listener answers senders; a sender has a socket and a thread for each target. Packets flow from
the side that publishes to the side that counts, which acknowledges them four times a second. A
publisher without acknowledgements for three seconds stops.

A packet begins with a magic number and the version of this protocol, in all versions alike. No
side sends more than a packet of 128 bytes before the other side has returned its token. The token
is a keyed hash of the address that asked, so that an address that does not listen cannot be named
as the target of a flood. All answers are at most as long as the packet that they answer.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from functools import lru_cache

from msgspec.structs import astuple, replace

from unloader.errors import UnloaderError
from unloader.tuning.network import wire as wires
from unloader.tuning.network.flows import SILENCE_SECONDS, Counts, PacketFlow, Settings
from unloader.tuning.network.wire import VERSION, Address, Wire

SMALL = 128
"""Bytes of a packet that opens a test; the least size of a packet with data."""
_MAGIC = b"ULNT"
_HELLO, _WELCOME, _START, _DATA, _ACK, _BYE, _REFUSED = range(1, 8)
_HEADER = struct.Struct("!4sBBxxQQQ")
"""Magic, version, kind, token, sequence number, time of the sender in nanoseconds."""
_DATA_BEGIN = struct.unpack("!Q", struct.pack("!4sBBxx", _MAGIC, VERSION, _DATA))[0]
_STAMP = struct.Struct("!QQ")
_STAMP_AT = 16
_ACK_NS = 250_000_000
_HELLO_SECONDS = 0.2
_MOST_FLOWS = 256
_GAPS = 1 << 14
"""Missing packets that a listener remembers, to tell a late packet from a repeated one."""
_COUNTS = struct.Struct("!10Q")
_TERMS = struct.Struct("!IQdQ?")
"""Of START: packet size, bytes a second (0: no limit), seconds, packets (0: no limit), two-way."""


@lru_cache(maxsize=8)
def _headers(size: int) -> struct.Struct:
    """Return the form of a packet with data: begin, token, sequence, time, and bytes to skip."""
    return struct.Struct(f"!4Q{size - _HEADER.size}x")


class Incoming:
    """Counts the packets of a flow by their sequence numbers."""

    def __init__(self, wire: Wire) -> None:
        """Count nothing yet."""
        self.counts = Counts(buffer=wire.buffer)
        self.wire, self.overruns_before = wire, wire.overruns
        self.expected = self.first = self.last = self.delays = 0
        self.least: int | None = None
        self.total: int | None = None
        self.gaps = dict[int, None]()

    def take(self, sequences: Sequence[int], stamps: Sequence[int], size: int, now: int) -> None:
        """Count packets that arrived together; those in order cost no step of Python each."""
        counts, count, begin = self.counts, len(sequences), sequences[0]
        self.first, self.last = self.first or now, now
        if begin == self.expected and sequences == (*range(begin, begin + count),):
            self.expected += count
            new = stamps
        else:
            new = [at for one, at in zip(sequences, stamps, strict=True) if self._is_new(one)]
            if not new:
                return
        counts.received += len(new)
        counts.bytes += len(new) * size
        # The clocks differ by a constant, which the least difference removes.
        self.delays += len(new) * now - sum(new)
        least = now - max(new)
        self.least = least if self.least is None else min(self.least, least)

    def _is_new(self, sequence: int) -> bool:
        expected, counts = self.expected, self.counts
        if sequence >= expected:
            self.gaps.update(dict.fromkeys(range(max(expected, sequence - _GAPS), sequence)))
            if len(self.gaps) > _GAPS:
                # Half together: the first key of a dict is slow to find after deletions.
                self.gaps = dict.fromkeys(list(self.gaps)[_GAPS // 2 :])
            self.expected = sequence + 1
        elif sequence in self.gaps:
            del self.gaps[sequence]
            counts.out_of_order += 1
            counts.offset += expected - 1 - sequence
        else:
            counts.duplicates += 1
            return False
        return True

    def counted(self) -> Counts:
        """Return the counts as an acknowledgement has them."""
        received = self.counts.received
        return replace(
            self.counts,
            sent=max(self.total or 0, self.expected),
            overruns=max(0, self.wire.overruns - self.overruns_before),
            nanoseconds=self.last - self.first,
            delay=self.delays // received - (self.least or 0) if received else 0,
        )


class Session:
    """A test between this host and one other: a flow of packets in each direction, or in one."""

    def __init__(
        self, wire: Wire, peer: str, token: int, settings: Settings, to: Address | None
    ) -> None:
        """Join a test whose token both sides have."""
        self.wire, self.peer, self.token, self.settings, self.to = wire, peer, token, settings, to
        self.incoming = Incoming(wire)
        self.counted = Counts()
        self.sends = to is None or settings.two_way
        self.counts = to is not None or settings.two_way
        self.round_trip: float | None = None
        self.published = 0
        self.began = 0.0
        self.done = threading.Event()
        self.confirmed = threading.Event()
        self.error: str | None = None
        self.heard = time.monotonic()
        self.acked = 0

    def publish(self) -> None:
        """Send packets until the test ends, and then wait for the counts of the other side."""
        try:
            self._send_all()
            end = time.monotonic() + SILENCE_SECONDS
            while not (self.error or self.confirmed.is_set()) and time.monotonic() < end:
                # Several, because the count of overruns arrives with the next packet.
                self.send(_BYE, self.published)
                self.confirmed.wait(_HELLO_SECONDS)
            if not self.confirmed.is_set():
                self.error = self.error or f"{self.peer} does not answer any more"
        except OSError as error:
            self.error = f"cannot send to {self.peer}: {error.strerror}"
        finally:
            self.done.set()

    def send(self, kind: int, sequence: int = 0, body: bytes = b"") -> None:
        self.wire.send(_small(kind, self.token, sequence, body), SMALL, self.to)

    def _send_all(self) -> None:
        settings, wire, size = self.settings, self.wire, self.settings.packet_size
        burst = wire.burst(size, settings.burst)
        if settings.rate:
            # Groups of at most 2 ms, so that a slow rate is even.
            burst = max(1, min(burst, int(settings.rate * 0.002 / size)))
        header = _HEADER.pack(_MAGIC, VERSION, _DATA, self.token, 0, 0)
        view = memoryview(bytearray(header.ljust(size, b"\0") * burst))
        places = range(_STAMP_AT, burst * size, size)
        self.began = began = self.heard = time.monotonic()
        end, due, sequence = began + settings.duration, began, 0
        probe = began + 0.5
        step = size / settings.rate if settings.rate else 0.0
        most = settings.count or 1 << 62
        pack, clock = _STAMP.pack_into, time.monotonic
        while sequence < most and self.error is None and not self.done.is_set():
            now = clock()
            if now >= end:
                break
            if now - self.heard > SILENCE_SECONDS:
                self.error = f"{self.peer} does not answer any more"
                break
            if now >= probe:
                # A small packet gets an answer even where no group of packets has room.
                self.send(_START)
                probe = now + 0.5
            if step:
                if due > now:
                    time.sleep(min(due - now, 0.1))
                    continue
                # A pause of more than 100 ms is not made up for.
                due = max(due, now - 0.1)
            group = min(burst if wire.segments else 1, most - sequence)
            stamp = time.monotonic_ns()
            for at, one in zip(places, range(sequence, sequence + group), strict=False):
                pack(view, at, one, stamp)
            wire.send(view[: group * size], size, self.to)
            sequence += group
            self.published = sequence
            due += group * step

    def handle(self, kind: int, sequence: int, body: bytes) -> None:
        """Handle a small packet of the other side."""
        self.heard = time.monotonic()
        if kind == _ACK:
            self.counted = Counts(*_COUNTS.unpack_from(body))
            if sequence:
                self.confirmed.set()
        elif kind in (_BYE, _START):
            if kind == _BYE:
                self.incoming.total = sequence
            self.acknowledge()

    def acknowledge(self) -> None:
        """Send the counts; the sequence number is 1 if they are the last ones."""
        self.acked = time.monotonic_ns()
        body = _COUNTS.pack(*astuple(self.incoming.counted()))
        self.send(_ACK, self.incoming.total is not None, body)

    def flows(self) -> list[PacketFlow]:
        """Return the flows of the test so far."""
        found = list[tuple[str, Counts, float]]()
        if self.sends:
            sent = max(self.counted.sent, self.published if self.done.is_set() else 0)
            found.append(("out", replace(self.counted, sent=sent), self.began))
        if self.counts:
            found.append(("in", self.incoming.counted(), self.incoming.first / 1e9))
        return [
            PacketFlow(
                peer=self.peer,
                direction=direction,
                counts=counts,
                round_trip_seconds=self.round_trip,
                error=self.error,
                began=began,
            )
            for direction, counts, began in found
        ]

    def is_active(self) -> bool:
        """Return whether a direction can still change."""
        silent = time.monotonic() - self.heard > SILENCE_SECONDS
        counts = self.counts and self.incoming.total is None
        if silent and counts and self.incoming.counts.received:
            self.error = self.error or f"{self.peer} stopped without an end"
        return (self.sends and not self.done.is_set()) or (counts and not silent)


def _small(kind: int, token: int, sequence: int = 0, body: bytes = b"") -> bytes:
    """Return a packet of 128 bytes that opens, confirms or ends a test."""
    head = _HEADER.pack(_MAGIC, VERSION, kind, token, sequence, 0)
    return (head + body).ljust(SMALL, b"\0")


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
        self._key = secrets.token_bytes(32)

    def open(self, target: str, ready: threading.Barrier, stop: Callable[[], bool]) -> Session:
        """Return a test with the target of a connected socket, after the target has answered.

        A polite sender asks for packets after all targets are `ready`, and not before.

        Raises:
            ConfigError: No listener answers, or one with another version of the protocol.
        """
        wire, settings, trip = self.wire, self.settings, 0.0
        nonce, token = secrets.randbits(64), 0
        packet = _small(_HELLO, nonce)
        end = time.monotonic() + settings.wait
        while (asked := time.monotonic()) < end and not stop():
            try:
                wire.send(packet, SMALL, None)
                found = wire.receive()
            except ConnectionRefusedError:
                time.sleep(_HELLO_SECONDS)
                continue
            if found is None or len(found[0]) < _HEADER.size:
                continue
            magic, version, kind, echoed, sequence, _ = _HEADER.unpack_from(found[0])
            if magic != _MAGIC or echoed not in (nonce, token):
                continue
            if version != VERSION or kind == _REFUSED:
                raise wires.other_version(target, version)
            if kind == _WELCOME and not token:
                token, trip = sequence, time.monotonic() - asked
                if settings.polite:
                    ready.wait()
                    end = time.monotonic() + settings.wait
                terms = _TERMS.pack(
                    *(settings.packet_size, settings.rate, settings.duration, settings.count),
                    settings.two_way,
                )
                packet = _small(_START, token, nonce, terms)
            elif token and kind in (_ACK, _DATA):
                session = Session(wire, target, token, settings, None)
                session.round_trip = trip
                self.sessions[token] = session
                return session
        raise wires.no_answer(target, "datagram", "UDP")

    def run(self) -> None:
        """Read until `stopping` is set."""
        due = 0
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
                self._read(*found, now)
            if now < due:
                continue
            due = now + _ACK_NS // 10
            for session in list(self.sessions.values()):
                if now / 1e9 - session.heard > SILENCE_SECONDS:
                    # It has ended, and a listener that stays keeps its counts only.
                    session.incoming.gaps.clear()
                elif now - session.acked > _ACK_NS and session.incoming.counts.received:
                    session.acknowledge()

    def _read(self, data: memoryview, size: int, address: Address, now: int) -> None:
        """Count or answer the packets of one call; only the last may be shorter."""
        if size < SMALL:
            return
        whole = len(data) // size * size
        begins, tokens, sequences, stamps = zip(
            *_headers(size).iter_unpack(data[:whole]), strict=True
        )
        session = self.sessions.get(tokens[0])
        if session and begins.count(_DATA_BEGIN) == len(begins) == tokens.count(tokens[0]):
            session.heard = now / 1e9
            session.incoming.take(sequences, stamps, size, now)
        elif len(begins) == 1:
            self._answer(bytes(data[:whole]), address)
        else:
            for at in range(0, whole, size):
                self._read(data[at : at + size], size, address, now)
        self._read(data[whole:], len(data) - whole, address, now)

    def _answer(self, packet: bytes, address: Address) -> None:
        """Answer a small packet; no answer is longer."""
        magic, version, kind, token, sequence, _ = _HEADER.unpack_from(packet)
        body, known = packet[_HEADER.size :], self.sessions.get(token)
        if magic != _MAGIC:
            return
        if known is not None and version == VERSION:
            known.handle(kind, sequence, body)
        elif not self.serves:
            return
        elif version != VERSION:
            self.wire.send(_small(_REFUSED, token), SMALL, address)
        elif kind == _HELLO:
            self.wire.send(_small(_WELCOME, token, self._token(address, token)), SMALL, address)
        elif kind == _START and token == self._token(address, sequence):
            if len(self.sessions) >= _MOST_FLOWS:
                return
            size, rate, duration, count, two_way = _TERMS.unpack_from(body)
            terms = Settings(
                rate=min(filter(None, (rate, self.settings.rate)), default=0),
                duration=min(self.settings.duration, duration),
                packet_size=min(max(size, SMALL), wires.LARGEST),
                count=count,
                two_way=two_way,
            )
            session = Session(self.wire, wires.shown(address), token, terms, address)
            self.sessions[token] = session
            session.acknowledge()
            if two_way:
                threading.Thread(target=session.publish, daemon=True).start()
            else:
                session.done.set()

    def _token(self, address: Address, nonce: int) -> int:
        text = f"{address[0]} {address[1]} {nonce}".encode()
        return int.from_bytes(hmac.digest(self._key, text, hashlib.sha256)[:8], "big")


class DatagramTest:
    """Sends packets to targets, listens, or does both."""

    def __init__(self, settings: Settings, bind: str | None, targets: Sequence[str] = ()) -> None:
        """Bind the address, if there is one; the own address is left out of the targets."""
        self.settings = settings
        self.receivers = list[Receiver]()
        self.listens = bind is not None
        self.mtu: int | None = None
        """The least MTU of the paths to the targets, after the test."""
        self._failed = list[tuple[str, UnloaderError]]()
        bound = None
        if bind is not None:
            wire = Wire(bind, binds=True, buffer=settings.buffer)
            self.receivers.append(Receiver(wire, settings, serves=True))
            bound = wire.socket
        self.targets = wires.others(targets, socket.SOCK_DGRAM, bound)
        self._ready = threading.Barrier(max(1, len(self.targets)))
        self._senders = list[threading.Thread]()

    def start(self, stop: Callable[[], bool]) -> None:
        """Start to listen, and a thread for each target."""
        for receiver in self.receivers:
            receiver.start()
        for target in self.targets:
            sender = threading.Thread(target=self._send, args=(target, stop), daemon=True)
            self._senders.append(sender)
            sender.start()

    def _send(self, target: str, stop: Callable[[], bool]) -> None:
        try:
            wire = Wire(target, binds=False, buffer=self.settings.buffer)
            receiver = Receiver(wire, self.settings, serves=False)
            self.receivers.append(receiver)
            session = receiver.open(target, self._ready, stop)
        except UnloaderError as error:
            self._failed.append((target, error))
            self._ready.abort()
        except threading.BrokenBarrierError:
            return
        else:
            receiver.start()
            session.publish()

    def is_active(self) -> bool:
        """Return whether a flow can still change; `ConfigError` if no target answers."""
        if self._failed and (self.settings.polite or len(self._failed) == len(self.targets)):
            raise self._failed[0][1]
        opening = any(each.is_alive() for each in self._senders)
        return opening or any(session.is_active() for session in self._sessions())

    def _sessions(self) -> list[Session]:
        return [each for receiver in list(self.receivers) for each in [*receiver.sessions.values()]]

    def flows(self) -> list[PacketFlow]:
        """Return the flows of all targets and senders; a target that failed has an error."""
        failed = [
            PacketFlow(peer=target, direction="out", counts=Counts(), error=error.message)
            for target, error in list(self._failed)
        ]
        return [*failed, *(flow for each in self._sessions() for flow in each.flows())]

    def close(self) -> None:
        """Stop all threads and close all sockets."""
        self.mtu = min((m for each in self.receivers if (m := each.wire.mtu)), default=None)
        for receiver in self.receivers:
            receiver.stopping.set()
            for session in receiver.sessions.values():
                session.done.set()
        for receiver in self.receivers:
            if receiver.ident is not None:
                receiver.join(2)
            receiver.wire.socket.close()
