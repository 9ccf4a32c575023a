"""The message test: throughput and latency of TCP connections between hosts.

Each thread of a sender has a connection to each peer. A receiver answers some messages with a
receipt, so that all times are of the sender's clock. A sender with more bytes without a receipt
than the backlog allows waits.
"""

from __future__ import annotations

import math
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress

from msgspec import Struct

from unloader.errors import ConfigError
from unloader.tuning.network import packets
from unloader.tuning.network.datagrams import other_version
from unloader.tuning.network.packets import VERSION

_MAGIC = b"ULNM"
_HELLO = struct.Struct("!4sB3x")
_FRAME = struct.Struct("!IBxxxQQ")
"""Bytes after this header, kind, time of the sender in nanoseconds, bytes received so far."""
_PLAIN, _SAMPLED, _REQUEST, _RECEIPT, _RESPONSE, _END = range(6)
LARGEST = 64 << 20
_MOST_CONNECTIONS = 256
_SILENCE_SECONDS = 5.0
_RECEIVE = 1 << 18


class MessageSettings(Struct, frozen=True, kw_only=True):
    """How messages are sent, and when a test ends."""

    least: int = 65_536
    most: int = 65_536
    """Sizes of messages, evenly distributed from `least` to `most` bytes."""
    threads: int = 1
    rate: int = 0
    """Bytes per second of each thread; 0 sets no limit."""
    seconds: float = 10.0
    warm_up: float = 0.0
    count: int = 0
    backlog: int = 64 << 20
    sample_every: int = 10
    blocking: bool = False
    """Each message waits for a response of the same size."""
    relay: bool = False
    """Connections to this host are passed on to the peer."""
    wait_seconds: float = 10.0


class MessageFlow(Struct, frozen=True, kw_only=True):
    """Messages of one direction; times are in seconds, and zero if nothing was sampled."""

    peer: str
    direction: str
    connections: int = 0
    seconds: float = 0.0
    messages: int = 0
    bytes: int = 0
    receipts: int = 0
    backlog: int = 0
    """Most bytes without a receipt."""
    minimum: float = 0.0
    average: float = 0.0
    p50: float = 0.0
    p99: float = 0.0
    p999: float = 0.0
    maximum: float = 0.0
    errors: tuple[str, ...] = ()

    @property
    def bytes_per_second(self) -> float:
        return self.bytes / self.seconds if self.seconds > 0 else 0.0


class Latencies:
    """Round trips in buckets that are 2 % wide, so that memory does not grow with their number."""

    def __init__(self) -> None:
        """Know no round trip."""
        self.buckets = Counter[int]()
        self.count = self.total = self.most = 0
        self.least = 1 << 62

    def add(self, ns: int) -> None:
        self.buckets[int(math.log2(max(1, ns)) * 32)] += 1
        self.count += 1
        self.total += ns
        self.least, self.most = min(self.least, ns), max(self.most, ns)

    def percentile(self, share: float) -> float:
        """Return the seconds that this share of the round trips did not exceed."""
        seen = 0
        for bucket in sorted(self.buckets):
            seen += self.buckets[bucket]
            if seen >= share * self.count:
                middle = 2 ** ((bucket + 0.5) / 32)
                return min(self.most, max(self.least, middle)) / 1e9
        return 0.0


class Connection:
    """One TCP connection of the test; both sides read it, and one side sends messages."""

    def __init__(self, link: socket.socket, peer: str, direction: str) -> None:
        """Count nothing yet."""
        self.link, self.peer, self.direction = link, peer, direction
        self.messages = self.bytes = self.first = self.last = 0
        self.receipts = self.sent = self.acked = self.backlog = 0
        self.latencies = Latencies()
        self.error: str | None = None
        self.changed = threading.Condition()
        self.ended = threading.Event()
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.settimeout(_SILENCE_SECONDS)

    def read(self) -> None:
        """Read frames until the other side has ended."""
        buffer = memoryview(bytearray(_RECEIVE))
        head = memoryview(bytearray(_FRAME.size))
        try:
            while True:
                self._fill(head)
                size, kind, stamp, total = _FRAME.unpack(head)
                if size > LARGEST or kind > _END:
                    raise OSError(0, "it sends something else than messages")
                rest = size
                while rest:
                    got = self.link.recv_into(buffer, min(rest, _RECEIVE))
                    if not got:
                        raise ConnectionResetError(104, "the connection was closed")
                    rest -= got
                now = time.monotonic_ns()
                if kind == _END:
                    if self.direction == "in":
                        self.link.sendall(_FRAME.pack(0, _END, 0, self.bytes))
                    return
                if kind in (_RECEIPT, _RESPONSE):
                    with self.changed:
                        self.receipts += 1
                        self.acked = total
                        self.latencies.add(now - stamp)
                        self.changed.notify()
                    continue
                self.first = self.first or now
                self.last = now
                self.messages += 1
                self.bytes += size
                if kind == _SAMPLED:
                    self.link.sendall(_FRAME.pack(0, _RECEIPT, stamp, self.bytes))
                elif kind == _REQUEST:
                    self.link.sendall(_FRAME.pack(size, _RESPONSE, stamp, self.bytes))
                    self.link.sendall(bytes(size))
        except OSError as error:
            if self.error is None:
                self.error = f"the connection to {self.peer} failed: {error.strerror or error}"
        finally:
            self.ended.set()
            with self.changed:
                self.changed.notify()

    def _fill(self, view: memoryview) -> None:
        at = 0
        while at < len(view):
            got = self.link.recv_into(view[at:])
            if not got:
                raise ConnectionResetError(104, "the connection was closed")
            at += got

    def send(self, settings: MessageSettings, stop: Callable[[], bool]) -> None:
        """Send messages until the time, the number or `stop` ends the test."""
        data = memoryview(bytearray(_FRAME.size + settings.most))
        random_size = random.Random(7).randint
        began = time.monotonic()
        warm, due = began + settings.warm_up, began
        end = warm + settings.seconds
        number, flagged = 0, 0
        most = settings.count or 1 << 62
        start = 0
        try:
            while number < most and not self.ended.is_set() and not stop():
                now = time.monotonic()
                if now >= end:
                    break
                if settings.rate and due > now:
                    time.sleep(min(due - now, 0.1))
                    continue
                if not start and now >= warm:
                    with self.changed:
                        self.messages = self.bytes = self.receipts = self.backlog = 0
                        self.latencies = Latencies()
                    start = self.first = time.monotonic_ns()
                size = random_size(settings.least, settings.most)
                kind = _REQUEST if settings.blocking else _PLAIN
                due_receipt = self.sent + size - flagged >= settings.backlog // 4
                if kind == _PLAIN and (due_receipt or number % settings.sample_every == 0):
                    kind, flagged = _SAMPLED, self.sent + size
                wanted = 0 if settings.blocking else settings.backlog
                _FRAME.pack_into(data, 0, size, kind, time.monotonic_ns(), 0)
                self.link.sendall(data[: _FRAME.size + size])
                self.sent += size
                number += 1
                self.messages += 1
                self.bytes += size
                due = max(due, now - 0.1) + (size / settings.rate if settings.rate else 0)
                with self.changed:
                    self.backlog = max(self.backlog, self.sent - self.acked)
                    silent = time.monotonic() + _SILENCE_SECONDS
                    while self.sent - self.acked > wanted and not self.ended.is_set():
                        if not self.changed.wait(0.1) and time.monotonic() > silent:
                            raise TimeoutError(110, "it sends no receipts any more")
                self.last = time.monotonic_ns()
            self.link.sendall(_FRAME.pack(0, _END, 0, 0))
            # The other side has read all messages when it answers.
            self.ended.wait(_SILENCE_SECONDS)
            self.last = time.monotonic_ns()
        except OSError as error:
            self.error = self.error or (
                f"the connection to {self.peer} failed: {error.strerror or error}"
            )
        finally:
            self.ended.set()
            with suppress(OSError):
                self.link.shutdown(socket.SHUT_RDWR)


def _dialled(peer: str, settings: MessageSettings, stop: Callable[[], bool]) -> socket.socket:
    """Return a connection whose other side has answered, or raise a `ConfigError`."""
    family, address = packets.resolved_address(peer, socket.SOCK_STREAM)
    end = time.monotonic() + settings.wait_seconds
    while True:
        link = socket.socket(family, socket.SOCK_STREAM)
        link.settimeout(2.0)
        try:
            link.connect(address)
            link.sendall(_HELLO.pack(_MAGIC, VERSION))
            reply = link.recv(_HELLO.size, socket.MSG_WAITALL)
        except OSError:
            reply = b""
        if len(reply) == _HELLO.size:
            magic, version = _HELLO.unpack(reply)
            if magic == _MAGIC and version == VERSION:
                return link
            link.close()
            if magic == _MAGIC:
                raise other_version(peer, version)
            break
        link.close()
        if time.monotonic() > end or stop():
            break
        time.sleep(0.2)
    raise ConfigError(
        f"{peer} does not answer the message test",
        f"start unloader network messages --bind {peer} there, and open its TCP port",
    )


class MessageTest:
    """Sends messages to peers, receives them, relays them, or several of these."""

    def __init__(
        self, settings: MessageSettings, *, bind: str = "", peers: Sequence[str] = ()
    ) -> None:
        """Bind the address, if there is one; the own address is left out of the peers."""
        self.settings = settings
        self.connections = list[Connection]()
        self.stopping = threading.Event()
        self.server: socket.socket | None = None
        own = None
        if bind:
            family, address = packets.resolved_address(bind, socket.SOCK_STREAM)
            self.server = socket.socket(family, socket.SOCK_STREAM)
            self.server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                self.server.bind(address)
                self.server.listen(64)
            except OSError as error:
                self.server.close()
                raise ConfigError(
                    f"cannot listen on {bind}: {error.strerror}", "choose another address or port"
                ) from error
            self.server.settimeout(0.1)
            own = self.server.getsockname()[:2]
        self.peers = [
            each
            for each in dict.fromkeys(peers)
            if not packets.is_own(packets.resolved_address(each, socket.SOCK_STREAM)[1], own)
        ]

    def _accept(self) -> None:
        assert self.server is not None
        while not self.stopping.is_set():
            try:
                link, address = self.server.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            if len(self.connections) >= _MOST_CONNECTIONS:
                link.close()
                continue
            start = threading.Thread(target=self._answer, args=(link, address[:2]), daemon=True)
            start.start()

    def _answer(self, link: socket.socket, address: packets.Address) -> None:
        try:
            link.settimeout(2.0)
            hello = link.recv(_HELLO.size, socket.MSG_WAITALL)
            magic, version = _HELLO.unpack(hello)
            if magic != _MAGIC:
                raise ValueError
            link.sendall(_HELLO.pack(_MAGIC, VERSION))
            if version != VERSION:
                raise ValueError
        except (OSError, ValueError, struct.error):
            link.close()
            return
        connection = Connection(link, packets.shown(address), "in")
        self.connections.append(connection)
        if not self.settings.relay:
            connection.read()
            return
        try:
            onward = _dialled(self.peers[0], self.settings, self.stopping.is_set)
        except ConfigError as error:
            connection.error = error.message
            connection.ended.set()
            link.close()
            return
        onward.settimeout(_SILENCE_SECONDS)
        back = threading.Thread(target=_copy, args=(onward, link, None), daemon=True)
        back.start()
        _copy(link, onward, connection)
        back.join(_SILENCE_SECONDS)
        connection.ended.set()

    def run(
        self, report: Callable[[list[MessageFlow]], None], interval: float, stop: Callable[[], bool]
    ) -> list[MessageFlow]:
        """Return the flows of the test; `report` gets them every `interval` seconds."""
        settings = self.settings
        try:
            if self.server is not None:
                threading.Thread(target=self._accept, daemon=True).start()
            for peer in () if settings.relay else self.peers:
                for _ in range(settings.threads):
                    link = _dialled(peer, settings, stop)
                    self.connections.append(Connection(link, peer, "out"))
            for each in list(self.connections):
                if each.direction == "out":
                    threading.Thread(target=each.read, daemon=True).start()
                    args = (settings, stop)
                    threading.Thread(target=each.send, args=args, daemon=True).start()
            began = time.monotonic()
            due, quiet = began + interval, began
            most = settings.wait_seconds + settings.warm_up + settings.seconds
            while not stop() and time.monotonic() < began + most + 2 * _SILENCE_SECONDS:
                now = time.monotonic()
                found = list(self.connections)
                if not all(each.ended.is_set() for each in found):
                    quiet = now
                incoming = any(each.direction == "in" for each in found)
                waits = self.server is not None and not incoming
                pause = settings.wait_seconds if waits else 1.0 if self.server else 0.0
                if now - quiet >= pause and all(each.ended.is_set() for each in found):
                    break
                if now >= due:
                    report(self.flows())
                    due += interval
                time.sleep(0.05)
            return self.flows()
        finally:
            self.stopping.set()
            if self.server is not None:
                self.server.close()
            for each in self.connections:
                each.ended.set()
                each.link.close()

    def flows(self) -> list[MessageFlow]:
        """Return the connections of each peer and direction as one flow."""
        groups = dict[tuple[str, str], list[Connection]]()
        for each in list(self.connections):
            peer = each.peer if each.direction == "out" else each.peer.rpartition(":")[0]
            groups.setdefault((peer, each.direction), []).append(each)
        return [_flow_of(*key, members) for key, members in groups.items()]


def _flow_of(peer: str, direction: str, members: Sequence[Connection]) -> MessageFlow:
    times = Latencies()
    for each in members:
        with each.changed:
            times.buckets.update(each.latencies.buckets)
            times.count += each.latencies.count
            times.total += each.latencies.total
            times.least = min(times.least, each.latencies.least)
            times.most = max(times.most, each.latencies.most)
    first = min((each.first for each in members if each.first), default=0)
    return MessageFlow(
        peer=peer,
        direction=direction,
        connections=len(members),
        seconds=max(0, max(each.last for each in members) - first) / 1e9 if first else 0.0,
        messages=sum(each.messages for each in members),
        bytes=sum(each.bytes for each in members),
        receipts=sum(each.receipts for each in members),
        backlog=sum(each.backlog for each in members),
        minimum=times.least / 1e9 if times.count else 0.0,
        average=times.total / times.count / 1e9 if times.count else 0.0,
        p50=times.percentile(0.5),
        p99=times.percentile(0.99),
        p999=times.percentile(0.999),
        maximum=times.most / 1e9,
        errors=tuple(each.error for each in members if each.error),
    )


def _copy(origin: socket.socket, target: socket.socket, counted: Connection | None) -> None:
    """Pass bytes on until one side closes the connection."""
    buffer = memoryview(bytearray(_RECEIVE))
    with suppress(OSError):
        while size := origin.recv_into(buffer):
            target.sendall(buffer[:size])
            if counted is not None:
                counted.last = time.monotonic_ns()
                counted.first = counted.first or counted.last
                counted.bytes += size
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
