"""The message test: throughput and latency of TCP connections between hosts.

Each thread of a test has a connection to each peer. One side of a connection sends messages: the
side that connected, or the other one with `reverse`. The receiver answers some messages with a
receipt, so that all times are of the sender's clock. A sender with more bytes without a receipt
than the backlog allows waits.

Both sides first send a greeting with the version. A receiver gets nothing more before its greeting
is known.
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
from functools import partial

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from unloader.errors import ConfigError
from unloader.tuning.network import wire as wires
from unloader.tuning.network.datagrams import other_version
from unloader.tuning.network.flows import SILENCE_SECONDS, MessageFlow
from unloader.tuning.network.wire import VERSION

LARGEST = 64 << 20
_MAGIC = b"ULNM"
_GREETING = struct.Struct("!4sB3x")
_FRAME = struct.Struct("!IBxxxQQ")
"""Bytes after this header, kind, time of the sender in nanoseconds, bytes received so far."""
_PLAIN, _SAMPLED, _REQUEST, _RECEIPT, _RESPONSE, _END, _TERMS = range(7)
_DATA = (_PLAIN, _SAMPLED, _REQUEST)
_MOST_CONNECTIONS = 256
_PIECE = 1 << 17
"""Bytes of one system call. Larger buffers leave the cache of a core: 256 KiB took 1.7 times the
CPU time for the same bytes."""
_ZEROS = memoryview(bytes(_PIECE))


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
    reverse: bool = False
    """The peers send, and this host counts."""
    wait_seconds: float = 10.0


class Latencies:
    """Round trips in buckets that are 2 % wide, so that memory does not grow with their number."""

    def __init__(self) -> None:
        """Know no round trip."""
        self.buckets = Counter[int]()
        self.total = self.most = 0
        self.least = 1 << 62

    def add(self, ns: int) -> None:
        self.buckets[int(math.log2(max(1, ns)) * 32)] += 1
        self.total += ns
        self.least, self.most = min(self.least, ns), max(self.most, ns)

    def join(self, other: Latencies) -> None:
        self.buckets.update(other.buckets)
        self.total += other.total
        self.least, self.most = min(self.least, other.least), max(self.most, other.most)

    def percentile(self, share: float) -> float:
        """Return the seconds that this share of the round trips did not exceed."""
        seen, most = 0, share * self.buckets.total()
        for bucket in sorted(self.buckets):
            seen += self.buckets[bucket]
            if seen >= most:
                middle = 2 ** ((bucket + 0.5) / 32)
                return min(self.most, max(self.least, middle)) / 1e9
        return 0.0


class Connection:
    """One TCP connection of the test; both sides read it, and one side sends messages."""

    def __init__(
        self, link: socket.socket, peer: str, settings: MessageSettings, *, serves: bool = False
    ) -> None:
        """Count nothing yet; the side that `serves` was called by the other one."""
        self.link, self.peer, self.settings, self.serves = link, peer, settings, serves
        self.sends = not serves and not settings.reverse
        self.messages = self.bytes = self.first = self.last = 0
        self.receipts = self.sent = self.acked = self.backlog = 0
        self.latencies = Latencies()
        self.error: str | None = None
        self.changed = threading.Condition()
        self.ended = threading.Event()
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Reads and writes fail after this time; a timeout of Python would poll before each call.
        link.settimeout(None)
        wait = struct.pack("ll", int(SILENCE_SECONDS) + 2, 0)
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            link.setsockopt(socket.SOL_SOCKET, option, wait)

    def run(self, stop: Callable[[], bool]) -> None:
        """Count the messages of the other side, or send messages until the test ends."""
        if self.sends:
            threading.Thread(target=self._finish, args=(self._read,), daemon=True).start()
        self._finish(partial(self._send, stop) if self.sends else self._read)

    def _finish(self, work: Callable[[], None]) -> None:
        """Read or send until the test ends, and end the connection."""
        try:
            work()
        except OSError as error:
            if self.error is None and not self.ended.is_set():
                text = "it is silent" if isinstance(error, BlockingIOError) else error.strerror
                self.error = f"the connection to {self.peer} failed: {text or error}"
        finally:
            self.ended.set()
            with self.changed:
                self.changed.notify()
            with suppress(OSError):
                self.link.shutdown(socket.SHUT_RDWR)

    def _read(self) -> None:
        """Read frames until the other side has ended."""
        room = memoryview(bytearray(_PIECE))
        begin = end = rest = 0
        size, kind, stamp, total = 0, _TERMS, 0, 0
        if not (self.sends or self.serves):
            asked = msgspec.msgpack.encode(self.settings)
            self.link.sendall(_FRAME.pack(len(asked), _TERMS, 0, 0) + asked)
        terms = bytearray()
        while True:
            if begin == end or (not rest and end - begin < _FRAME.size):
                room[: end - begin] = room[begin:end]
                begin, end = 0, end - begin
                try:
                    # Within a message the kernel wakes this thread once for a whole piece.
                    most, flags = (min(rest, _PIECE - end), socket.MSG_WAITALL) if rest else (0, 0)
                    got = self.link.recv_into(room[end:], most, flags)
                except BlockingIOError:
                    # A slow sender gets few receipts, and `_wait` limits their time.
                    if self.sends and not self.ended.is_set():
                        continue
                    raise
                if not got:
                    raise ConnectionResetError(104, "the connection was closed")
                end += got
                if not rest and end < _FRAME.size:
                    continue
            if not rest:
                size, kind, stamp, total = _FRAME.unpack_from(room, begin)
                begin += _FRAME.size
                if size > LARGEST or kind > _TERMS or (kind == _TERMS and size > 1024):
                    raise OSError(0, "it sends something else than messages")
                rest = size
                if not self.first and kind in _DATA:
                    # When a message begins: the first one is long, compared with a short test.
                    self.first = time.monotonic_ns()
            part = min(rest, end - begin)
            if kind == _TERMS:
                terms += room[begin : begin + part]
            begin += part
            rest -= part
            if rest:
                continue
            now = time.monotonic_ns()
            if kind in _DATA:
                self.last = now
                self.messages += 1
                self.bytes += size
                if kind == _SAMPLED:
                    self._put(_RECEIPT, 0, stamp)
                elif kind == _REQUEST:
                    self._put(_RESPONSE, size, stamp)
            elif kind in (_RECEIPT, _RESPONSE):
                with self.changed:
                    self.receipts += 1
                    self.acked = total
                    self.latencies.add(now - stamp)
                    self.changed.notify()
            elif kind == _TERMS:
                self._agree(bytes(terms))
            else:
                if not self.sends:
                    self._put(_END, 0, 0)
                return

    def _agree(self, terms: bytes) -> None:
        """Send the messages that the other side requests, within the limits of this host."""
        try:
            if self.sends or not self.serves:
                raise msgspec.MsgspecError
            asked = msgspec.msgpack.decode(terms, type=MessageSettings)
        except msgspec.MsgspecError as error:
            raise OSError(0, "it asks for something unknown") from error
        own = self.settings
        self.settings = replace(
            asked,
            least=max(1, min(asked.least, asked.most, LARGEST)),
            most=max(1, min(asked.most, LARGEST)),
            seconds=min(own.seconds, asked.seconds),
            warm_up=min(own.seconds, asked.warm_up),
            rate=min(filter(lambda rate: rate > 0, (own.rate, asked.rate)), default=0),
            sample_every=max(1, asked.sample_every),
        )
        self.sends = True
        send = partial(self._send, lambda: False)
        threading.Thread(target=self._finish, args=(send,), daemon=True).start()

    def _put(self, kind: int, size: int, stamp: int) -> None:
        """Send a frame; a large one in pieces of the same memory."""
        head = _FRAME.pack(size, kind, stamp, self.bytes)
        if size <= _PIECE // 8:
            self.link.sendall(head + _ZEROS[:size])
            return
        self.link.sendall(head, socket.MSG_MORE)
        for at in range(0, size, _PIECE):
            self.link.sendall(_ZEROS[: size - at])

    def _send(self, stop: Callable[[], bool]) -> None:
        """Send messages until the time, the number or `stop` ends the test."""
        settings = self.settings
        random_size = random.Random(7).randint
        began = time.monotonic()
        warm, due = began + settings.warm_up, began
        end = warm + settings.seconds
        number, flagged, start = 0, 0, 0
        most = settings.count or 1 << 62
        wanted = 0 if settings.blocking else settings.backlog
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
            size = settings.least
            if settings.most > size:
                size = random_size(size, settings.most)
            kind = _REQUEST if settings.blocking else _PLAIN
            due_receipt = self.sent + size - flagged >= settings.backlog // 4
            if kind == _PLAIN and (due_receipt or number % settings.sample_every == 0):
                kind, flagged = _SAMPLED, self.sent + size
            self._put(kind, size, time.monotonic_ns())
            self.sent += size
            number += 1
            self.messages += 1
            self.bytes += size
            if settings.rate:
                due = max(due, now - 0.1) + size / settings.rate
            self.backlog = max(self.backlog, self.sent - self.acked)
            if self.sent - self.acked > wanted:
                self._wait(wanted)
            self.last = time.monotonic_ns()
        self._put(_END, 0, 0)
        # The other side has read all messages when it answers.
        self.ended.wait(SILENCE_SECONDS)
        self.last = time.monotonic_ns()

    def _wait(self, wanted: int) -> None:
        """Wait until at most `wanted` bytes have no receipt."""
        with self.changed:
            silent = time.monotonic() + SILENCE_SECONDS
            while self.sent - self.acked > wanted and not self.ended.is_set():
                if not self.changed.wait(0.1) and time.monotonic() > silent:
                    raise TimeoutError(110, "it sends no receipts any more")


def _greet(link: socket.socket) -> tuple[bytes, int]:
    """Send the greeting, and return magic and version of the other side's."""
    link.settimeout(2.0)
    link.sendall(_GREETING.pack(_MAGIC, VERSION))
    reply = link.recv(_GREETING.size, socket.MSG_WAITALL)
    return _GREETING.unpack(reply.ljust(_GREETING.size, b"\0"))


def _dialled(peer: str, wait_seconds: float, stop: Callable[[], bool]) -> socket.socket:
    """Return a connection whose other side has answered, or raise a `ConfigError`."""
    family, address = wires.resolved(peer, socket.SOCK_STREAM)
    end = time.monotonic() + wait_seconds
    while True:
        link = socket.socket(family, socket.SOCK_STREAM)
        magic = b""
        with suppress(OSError):
            link.settimeout(2.0)
            link.connect(address)
            magic, version = _greet(link)
            if magic == _MAGIC and version == VERSION:
                return link
        link.close()
        if magic == _MAGIC:
            raise other_version(peer, version)
        if magic.strip(b"\0") or time.monotonic() > end or stop():
            raise ConfigError(
                f"{peer} does not answer the message test",
                f"start unloader network listen {peer} there, and open its TCP port",
            )
        time.sleep(0.2)


class MessageTest:
    """Sends messages to peers, receives them, relays them, or several of these."""

    def __init__(
        self, settings: MessageSettings, bind: str | None, peers: Sequence[str] = ()
    ) -> None:
        """Bind the address, if there is one; the own address is left out of the peers."""
        self.settings = settings
        self.connections = list[Connection]()
        self.stopping = threading.Event()
        self.server: socket.socket | None = None
        self.listens = bind is not None
        if bind is not None:
            self.server = wires.opened(bind, socket.SOCK_STREAM, binds=True)
            try:
                self.server.listen(64)
            except OSError as error:
                raise ConfigError(
                    f"cannot listen on {bind}: {error.strerror}", "choose another address or port"
                ) from error
            self.server.settimeout(0.1)
        self.peers = wires.others(peers, socket.SOCK_STREAM, self.server)

    def start(self, stop: Callable[[], bool]) -> None:
        """Accept connections, and connect to all peers before the first message."""
        settings = self.settings
        if self.server is not None:
            threading.Thread(target=self._accept, daemon=True).start()
        ours = []
        for peer in () if settings.relay else self.peers:
            for _ in range(settings.threads):
                link = _dialled(peer, settings.wait_seconds, stop)
                ours.append(Connection(link, peer, settings))
        self.connections += ours
        for connection in ours:
            threading.Thread(target=connection.run, args=(stop,), daemon=True).start()

    def _accept(self) -> None:
        assert self.server is not None
        while not self.stopping.is_set():
            try:
                link, address = self.server.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            # Each connection has two threads at most. Some threads wait for a greeting.
            busy = threading.active_count() >= 3 * _MOST_CONNECTIONS
            if busy or len(self.connections) >= _MOST_CONNECTIONS:
                link.close()
                continue
            start = threading.Thread(target=self._answer, args=(link, address[:2]), daemon=True)
            start.start()

    def _answer(self, link: socket.socket, address: wires.Address) -> None:
        greeting = b"", 0
        with suppress(OSError):
            greeting = _greet(link)
        if greeting != (_MAGIC, VERSION):
            link.close()
            return
        connection = Connection(link, wires.shown(address), self.settings, serves=True)
        self.connections.append(connection)
        if not self.settings.relay:
            connection.run(self.stopping.is_set)
            link.close()
            return
        try:
            onward = _dialled(self.peers[0], self.settings.wait_seconds, self.stopping.is_set)
        except ConfigError as error:
            connection.error = error.message
            link.close()
        else:
            counted = Connection(onward, self.peers[0], self.settings)
            back = threading.Thread(target=_copy, args=(counted, connection), daemon=True)
            back.start()
            _copy(connection, counted)
            back.join(SILENCE_SECONDS)
        connection.ended.set()

    def is_active(self) -> bool:
        """Return whether a connection is open."""
        return not all(each.ended.is_set() for each in list(self.connections))

    def flows(self) -> list[MessageFlow]:
        """Return the connections of each peer and direction as one flow."""
        groups = dict[tuple[str, str], list[Connection]]()
        for each in list(self.connections):
            peer = each.peer if each.peer in self.peers else each.peer.rpartition(":")[0]
            groups.setdefault((peer, "out" if each.sends else "in"), []).append(each)
        return [_flow_of(*key, members) for key, members in groups.items()]

    def close(self) -> None:
        """End all connections."""
        self.stopping.set()
        if self.server is not None:
            self.server.close()
        for each in self.connections:
            each.ended.set()
            with suppress(OSError):
                each.link.shutdown(socket.SHUT_RDWR)
            each.link.close()


def _flow_of(peer: str, direction: str, members: Sequence[Connection]) -> MessageFlow:
    times = Latencies()
    for each in members:
        with each.changed:
            times.join(each.latencies)
    count = times.buckets.total()
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
        minimum=times.least / 1e9 if count else 0.0,
        average=times.total / count / 1e9 if count else 0.0,
        p50=times.percentile(0.5),
        p99=times.percentile(0.99),
        p999=times.percentile(0.999),
        maximum=times.most / 1e9,
        error="; ".join(dict.fromkeys(each.error for each in members if each.error)) or None,
        began=first / 1e9,
    )


def _copy(origin: Connection, target: Connection) -> None:
    """Pass bytes on until one side closes the connection."""
    buffer = memoryview(bytearray(_PIECE))
    with suppress(OSError):
        while size := origin.link.recv_into(buffer):
            target.link.sendall(buffer[:size])
            origin.last = time.monotonic_ns()
            origin.first = origin.first or origin.last
            origin.bytes += size
    with suppress(OSError):
        target.link.shutdown(socket.SHUT_WR)
