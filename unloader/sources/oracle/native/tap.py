"""A tap on the driver's socket: responses to fetches are seen before the driver reads them.

The driver calls `recv` of its socket by name, so a subclass takes the place of the socket's class
while a statement is fetched, and its own comes back afterwards. What the driver asks of the server
is never changed.
"""

from __future__ import annotations

import gc
import select
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from unloader.sources.oracle.native.decoder import Refused, RowDecoder

if TYPE_CHECKING:
    import oracledb

Way = Literal["through", "copied", "taken"]
"""What becomes of the rows of a response: they go to the driver, and the decoder sees nothing or
the same; or they go to the decoder alone."""

IDLE_SECONDS = 120.0
"""Guess: longest silence amid a response. What was misread may wait for bytes that never come."""

_RECEIVE_BYTES = 256 * 1024
_DRIVER_PACKAGE = "oracledb"
_SOCKETS = (socket.socket, ssl.SSLSocket)


def driver_socket(connection: oracledb.Connection) -> socket.socket | None:
    """Return the socket of a connection of the thin driver, None unless there is just one."""
    found: dict[int, socket.socket] = {}
    seen: set[int] = set()
    todo: list[Any] = [getattr(connection, "_impl", None)]
    while todo:
        for inner in gc.get_referents(todo.pop()):
            if id(inner) in seen:
                continue
            seen.add(id(inner))
            if type(inner) in _SOCKETS:
                found[id(inner)] = inner
            elif type(inner).__module__.partition(".")[0] == _DRIVER_PACKAGE:
                todo.append(inner)
    return next(iter(found.values())) if len(found) == 1 else None


class Tap:
    """The responses to the fetches of a statement; a context manager around each statement.

    Args:
        connection: The driver's.
        tapped: Its socket.
        idle_seconds: Longest silence amid a response.
    """

    def __init__(
        self,
        connection: oracledb.Connection,
        tapped: socket.socket,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self.connection = connection
        self._socket = tapped
        self._plain = type(tapped)
        self._idle_seconds = idle_seconds
        self._decoder: RowDecoder | None = None
        self._way: Way = "through"
        self._active = False
        self._begun = False
        self._pending = b""
        """The beginning of a packet whose rest the driver reads by itself."""
        self._memory = memoryview(bytearray(_RECEIVE_BYTES))
        self.refusal: Refused | None = None
        """Why the last response was refused, if it was."""

    def __enter__(self) -> Tap:
        self.connection.round_trip_callback = self._before
        # A class for each socket: an object of a class without slots has no place for more.
        self._socket.__class__ = _tapped(self._plain, self._receive)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.__class__ = self._plain
        self._active = False
        # On a connection that is lost there is nothing to set any more.
        with suppress(Exception):
            self.connection.round_trip_callback = None

    def expect(self, decoder: RowDecoder, way: Way) -> None:
        """Say what becomes of the next responses to fetches."""
        self._decoder, self._way = decoder, way
        self.refusal = None

    def _before(self, what: str) -> None:
        """Be told by the driver what it is going to ask."""
        self._active = what == "fetch" and self._way != "through"
        self._begun = False

    def _receive(self, plain: Callable[..., bytes], size: int, flags: int) -> bytes:
        """Return what the driver shall see of what the server sends next."""
        decoder = self._decoder
        if not self._active or decoder is None:
            pending, self._pending = self._pending, b""
            return pending or plain(self._socket, size, flags)
        if self._way == "copied":
            received = plain(self._socket, size, flags)
            self._feed(decoder, received)
            return received
        while True:
            if self._begun:
                self._wait()
            try:
                count = self._plain.recv_into(self._socket, self._memory, 0, flags)
            except BaseException:
                # A time limit or an interruption: the driver breaks off, and reads on by itself.
                self._active = False
                self._pending = decoder.partial()
                raise
            if not count:
                self._active = False
                return b""
            self._begun = True
            self._feed(decoder, self._memory[:count])
            if found := decoder.passed_on():
                return found

    def _feed(self, decoder: RowDecoder, received: memoryview | bytes) -> None:
        try:
            decoder.feed(received)
        except Refused as refusal:
            self._give_up(refusal)
            raise

    def _wait(self) -> None:
        """Wait for more of a response that has begun.

        Raises:
            Refused: Nothing comes.
        """
        own = self._socket.gettimeout()
        if own is not None and own <= self._idle_seconds:
            return  # The driver's own limit comes first.
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return
        waiting = select.poll()
        waiting.register(self._socket, select.POLLIN)
        if not waiting.poll(self._idle_seconds * 1000):
            refusal = Refused(f"a response stopped for {self._idle_seconds:g} s")
            self._give_up(refusal)
            raise refusal

    def _give_up(self, refusal: Refused) -> None:
        """Make sure that nobody reads on: the driver has not seen what was taken."""
        self.refusal = refusal
        self._active = False
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def _tapped(plain: type[Any], receive: Callable[..., bytes]) -> type[Any]:
    def recv(self: Any, size: int, flags: int = 0) -> bytes:
        return receive(plain.recv, size, flags)

    return type(f"Tapped{plain.__name__}", (plain,), {"__slots__": (), "recv": recv})
