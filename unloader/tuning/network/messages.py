"""The message test: throughput and latency of TCP connections between hosts.

Each thread of a test has a connection to each peer. The side that connected first sends its
settings. Then it sends messages, or the other side does with `reverse`. The receiver answers some
messages with a receipt, so that all times are of the sender's clock. A sender with more bytes
without a receipt than the backlog allows waits.

Both sides first send a greeting with the version. A receiver gets nothing more before its greeting
is known.
"""

from __future__ import annotations

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
from msgspec.structs import replace

from unloader.errors import ConfigError
from unloader.tuning.network import wire as wires
from unloader.tuning.network.flows import SILENCE_SECONDS, MessageFlow, Settings
from unloader.tuning.network.wire import VERSION

LARGEST = 64 << 20
_MAGIC = b"ULNM"
_GREETING = struct.Struct("!4sB3x")
_FRAME = struct.Struct("!IBxxxQQ")
"""Bytes after this header, kind, time of the sender in nanoseconds, bytes received so far."""
_PLAIN, _SAMPLED, _REQUEST, _RECEIPT, _END, _TERMS = 0, 1, 2, 3, 5, 6
_MOST_CONNECTIONS = 256
_PIECE = 1 << 17
"""Bytes of one system call. Larger buffers leave the cache of a core: 256 KiB took 1.7 times the
CPU time for the same bytes."""
_ZEROS = memoryview(bytes(_PIECE))


class Connection:
    """One TCP connection of the test; both sides read it, and one side sends messages."""

    def __init__(
        self, link: socket.socket, peer: str, settings: Settings, *, serves: bool = False
    ) -> None:
        """Count nothing yet; the side that `serves` was called by the other one."""
        self.link, self.peer, self.settings, self.serves = link, peer, settings, serves
        self.sends = not serves and not settings.reverse
        self.messages = self.bytes = self.first = self.last = 0
        self.receipts = self.sent = self.acked = self.backlog = 0
        self.times = Counter[int]()
        """Round trips in nanoseconds, rounded to 9 bits, so that memory does not grow."""
        self.error: str | None = None
        self.changed = threading.Condition()
        self.ended = threading.Event()
        self._room, self._begin, self._end = memoryview(bytearray(_PIECE)), 0, 0
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Reads and writes fail after this time; a timeout of Python would poll before each call.
        link.settimeout(None)
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            self._limit(option, int(SILENCE_SECONDS) + 2)

    def _limit(self, option: int, seconds: int) -> None:
        self.link.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", seconds, 0))

    def run(self, stop: Callable[[], bool]) -> None:
        """Send messages, or count the messages that come in, until the test ends."""
        self._finish(partial(self._work, stop))

    def _work(self, stop: Callable[[], bool]) -> None:
        if self.serves:
            self._agree()
        else:
            asked = msgspec.msgpack.encode(self.settings)
            self.link.sendall(_FRAME.pack(len(asked), _TERMS, 0, 0) + asked)
        if not self.sends:
            self._count()
            return
        # A slow sender gets few receipts, and `_wait` limits their time.
        self._limit(socket.SO_RCVTIMEO, 0)
        threading.Thread(target=self._finish, args=(self._take_receipts,), daemon=True).start()
        self._send(stop)

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

    def _agree(self) -> None:
        """Take the settings of the other side, within the limits of this host."""
        try:
            size, kind, _, _ = self._frame()
            if kind != _TERMS or size > 1024:
                raise msgspec.MsgspecError
            asked = msgspec.msgpack.decode(self._next(size), type=Settings)
        except msgspec.MsgspecError as error:
            raise OSError(0, "it asks for something unknown") from error
        own = self.settings
        self.settings = replace(
            asked,
            message_size=max(1, min(asked.message_size, asked.message_size_max, LARGEST)),
            message_size_max=max(1, min(asked.message_size_max, LARGEST)),
            duration=min(own.duration, asked.duration),
            warm_up_seconds=min(own.duration, asked.warm_up_seconds),
            rate=min(filter(lambda rate: rate > 0, (own.rate, asked.rate)), default=0),
            sample_every=max(1, asked.sample_every),
        )
        self.sends = asked.reverse

    def _receive(self, room: memoryview, flags: int) -> int:
        got = self.link.recv_into(room, 0, flags)
        if not got:
            raise ConnectionResetError(104, "the connection was closed")
        return got

    def _next(self, size: int) -> memoryview:
        """Return the next bytes, and read as many more as have arrived."""
        while self._end - self._begin < size:
            unread = self._room[self._begin : self._end]
            self._room[: len(unread)] = unread
            self._begin, self._end = 0, len(unread)
            self._end += self._receive(self._room[self._end :], 0)
        self._begin += size
        return self._room[self._begin - size : self._begin]

    def _skip(self, size: int) -> None:
        """Read the bytes of a message, which have no meaning."""
        done = min(size, self._end - self._begin)
        self._begin += done
        while done < size:
            # The kernel wakes this thread once for a whole piece.
            done += self._receive(self._room[: size - done], socket.MSG_WAITALL)

    def _frame(self) -> tuple[int, int, int, int]:
        """Return the header of the next frame: size, kind, time and bytes."""
        size, kind, stamp, total = _FRAME.unpack(self._next(_FRAME.size))
        if size > LARGEST or kind > _TERMS:
            raise OSError(0, "it sends something else than messages")
        return size, kind, stamp, total

    def _count(self) -> None:
        """Read messages, and answer them, until the other side has sent the last one."""
        while True:
            size, kind, stamp, _ = self._frame()
            if kind == _END:
                self._put(_END, 0, 0)
                return
            # When a message begins: the first one is long, compared with a short test.
            self.first = self.first or time.monotonic_ns()
            self._skip(size)
            self.last = time.monotonic_ns()
            self.messages += 1
            self.bytes += size
            if kind != _PLAIN:
                self._put(_RECEIPT, size if kind == _REQUEST else 0, stamp)

    def _take_receipts(self) -> None:
        """Read receipts until the other side has read all messages."""
        while True:
            size, kind, stamp, total = self._frame()
            self._skip(size)
            if kind == _END:
                return
            with self.changed:
                self.receipts += 1
                self.acked = total
                trip = time.monotonic_ns() - stamp
                dropped = max(0, trip.bit_length() - 9)
                self.times[trip >> dropped << dropped] += 1
                self.changed.notify()

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
        warm, due = began + settings.warm_up_seconds, began
        end = warm + settings.duration
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
                    self.times.clear()
                start = self.first = time.monotonic_ns()
            size = settings.message_size
            if settings.message_size_max > size:
                size = random_size(size, settings.message_size_max)
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
        self._wait(-1)
        self.last = time.monotonic_ns()

    def _wait(self, wanted: int) -> None:
        """Wait until at most `wanted` bytes have no receipt, or the test ends."""
        with self.changed:
            while self.sent - self.acked > wanted and not self.ended.is_set():
                if not self.changed.wait(SILENCE_SECONDS):
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
            raise wires.other_version(peer, version)
        if magic.strip(b"\0") or time.monotonic() > end or stop():
            raise wires.no_answer(peer, "message", "TCP")
        time.sleep(0.2)


class MessageTest:
    """Sends messages to peers, receives them, relays them, or several of these."""

    def __init__(self, settings: Settings, bind: str | None, peers: Sequence[str] = ()) -> None:
        """Bind the address, if there is one; the own address is left out of the peers."""
        self.settings = settings
        self.connections = list[Connection]()
        self.stopping = threading.Event()
        self.server: socket.socket | None = None
        self.listens = bind is not None
        if bind is not None:
            self.server = wires.opened(bind, socket.SOCK_STREAM, binds=True)
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
                link = _dialled(peer, settings.wait, stop)
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
            return
        try:
            onward = _dialled(self.peers[0], self.settings.wait, self.stopping.is_set)
        except ConfigError as error:
            connection.error = error.message
        else:
            with onward:
                onward.settimeout(None)
                back = threading.Thread(target=_copy, args=(onward, link), daemon=True)
                back.start()
                _copy(link, onward, connection)
                back.join(SILENCE_SECONDS)
        connection.ended.set()
        link.close()

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
    times = Counter[int]()
    for each in members:
        with each.changed:
            times += each.times
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
        minimum=min(times, default=0) / 1e9,
        average=sum(trip * number for trip, number in times.items()) / max(1, times.total()) / 1e9,
        p50=_percentile(times, 0.5),
        p99=_percentile(times, 0.99),
        p999=_percentile(times, 0.999),
        maximum=max(times, default=0) / 1e9,
        error="; ".join(dict.fromkeys(each.error for each in members if each.error)) or None,
        began=first / 1e9,
    )


def _percentile(times: Counter[int], share: float) -> float:
    """Return the seconds that this share of the round trips did not exceed."""
    seen, wanted = 0, share * times.total()
    for trip in sorted(times):
        seen += times[trip]
        if seen >= wanted:
            return trip / 1e9
    return 0.0


def _copy(origin: socket.socket, target: socket.socket, counted: Connection | None = None) -> None:
    """Pass bytes on until one side closes the connection."""
    buffer = memoryview(bytearray(_PIECE))
    with suppress(OSError):
        while size := origin.recv_into(buffer):
            target.sendall(buffer[:size])
            if counted is not None:
                counted.last = time.monotonic_ns()
                counted.first = counted.first or counted.last
                counted.bytes += size
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
