"""One connection from its first packet to its end, and what all connections share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from oracle_server.model import OracleError, SessionState
from oracle_server.session.login import Handshake, Host
from oracle_server.session.session import Reply, Session
from oracle_server.wire import requests as calls
from oracle_server.wire.channel import (
    BREAK,
    DATA,
    END_OF_FILE,
    MARKER,
    RESET,
    Broken,
    Channel,
    Disconnected,
)
from oracle_server.wire.errors import (
    CANCELLED,
    DEAD_SESSION,
    FatalError,
    answer_break,
    known_error,
    send_error,
    status,
    version,
)
from oracle_server.wire.oracle_values import ub
from oracle_server.wire.requests import Head, Piggybacks, Reader

if TYPE_CHECKING:
    import socket


_KILLED = 28
_TOKEN = b"\x21"


class Connection(threading.Thread):
    """The server's side of one connection."""

    def __init__(
        self,
        host: Host,
        sock: socket.socket,
        *,
        is_redirected: bool,
        opened: Callable[[Connection, SessionState], None],
        closed: Callable[[Connection], None],
    ) -> None:
        """Take over a connected socket.

        Args:
            sock: Closed when the thread ends.
            is_redirected: It came to the port that the listener redirects to.
            opened: Called with a new session before the client gets its answer.
            closed: Called when the connection has ended.
        """
        super().__init__(name="oracle-connection", daemon=True)
        self.channel = Channel(sock, self._check)
        self.session: Session | None = None
        self.is_killed = False
        """An administrator has ended the session; the client gets to know with its next call."""
        self._host = host
        self._opened, self._closed = opened, closed
        self._is_redirected = is_redirected
        self._in_pipeline = False

    def run(self) -> None:
        """Serve the client until one side goes."""
        try:
            handshake = Handshake(self._host, self.channel, lambda state: self._opened(self, state))
            if handshake.connect(is_redirected=self._is_redirected):
                self.session = handshake.login()
                while self.session is not None and self._serve():
                    pass
        except (Disconnected, Broken):
            pass
        except Exception as error:
            self._host.report(error)
        finally:
            self.channel.close()
            self._closed(self)

    def _check(self) -> None:
        if self._host.is_closing:
            raise Disconnected("the server is closing")
        if self.is_killed:
            raise known_error(_KILLED)

    def _serve(self) -> bool:
        """Answer one request; False is the end."""
        packet = self.channel.read()
        if packet.type == MARKER:
            if packet.body[2] != RESET:
                self._open_session.begin()
                self._answer_break(Head(function=0, call=0))
            return True
        if packet.type != DATA:
            raise ValueError(f"packet of type {packet.type} in a session")
        if int.from_bytes(packet.body[:2], "big") & END_OF_FILE:
            return False
        head = Head(function=0, call=0)
        try:
            reader = Reader(packet.body[2:], self.channel.read_data)
            reader.bare_texts = self._open_session.bare_texts
            piggybacks = Piggybacks()
            kind = reader.u8()
            while kind == calls.PIGGYBACK:
                piggybacks.read(reader, self._field_version)
                kind = reader.u8()
            head = Head.read(reader, self._field_version)
            return self._answer(head, kind, reader, piggybacks)
        except Broken:
            self._answer_break(head)
        except OracleError as error:
            return self._fail(head, error)
        return True

    def _answer(self, head: Head, kind: int, reader: Reader, piggybacks: Piggybacks) -> bool:
        session = self._open_session
        if kind == calls.ONE_WAY:
            reader.skip("bbu")
            return True
        if kind != calls.FUNCTION:
            raise NotImplementedError(f"message {kind}")
        session.begin()
        answer = self._parsed(head, reader)
        if reader.left:
            raise ValueError(
                f"{len(reader.left)} bytes after function {head.function}: {reader.left!r}"
            )
        if self.is_killed:
            raise known_error(_KILLED)
        self._in_pipeline |= piggybacks.begins_pipeline
        session.apply(piggybacks)
        # Who has logged off may look at the others before this thread continues.
        session.state.is_active = head.function != calls.LOGOFF
        try:
            reply = answer()
            if self.channel.break_pending():
                raise Broken
            self._deliver(head, reply)
        finally:
            session.state.is_active = False
        return head.function != calls.LOGOFF

    def _parsed(self, head: Head, reader: Reader) -> Callable[[], Reply]:
        session = self._open_session
        function = head.function
        if function == calls.EXECUTE:
            request = calls.read_execute(reader, self._field_version, session.locators)
            return lambda: session.execute(head, request)
        if function in (calls.REEXECUTE, calls.REEXECUTE_AND_FETCH):
            again = calls.read_reexecute(reader, function, session.bind_types, session.locators)
            return lambda: session.execute(head, again)
        if function == calls.FETCH:
            cursor, rows = calls.read_fetch(reader)
            return lambda: session.fetch(head, cursor, rows)
        if function == calls.LOB_OPERATION:
            operation = calls.read_lob_operation(reader)
            return lambda: session.operate(head, operation)
        if function == calls.VERSION:
            calls.read_version(reader, self._field_version)
            return self._version
        if function == calls.PIPELINE_END:
            reader.skip("u")
        return lambda: self._simple(function)

    def _version(self) -> Reply:
        session, mode = self._open_session, self._host.mode
        answer = version(mode.version_text, mode.version, bare=session.bare_texts)
        return Reply(pieces=[answer, status(session.status, session.calls)])

    def _simple(self, function: int) -> Reply:
        session = self._open_session
        value = session.status
        if function in (calls.COMMIT, calls.ROLLBACK):
            value = session.finish("COMMIT" if function == calls.COMMIT else "ROLLBACK")
        elif function == calls.PIPELINE_END:
            self._in_pipeline = False
        elif function not in (calls.PING, calls.LOGOFF):
            raise NotImplementedError(f"function {function}")
        return Reply(pieces=[status(value, session.calls)])

    def _deliver(self, head: Head, reply: Reply) -> None:
        pieces = reply.pieces
        if head.token:
            pieces = [_TOKEN + ub(head.token), *pieces]
        fault = reply.fault
        if fault is not None and fault.kind in ("cut", "reset"):
            self.channel.send_torn(pieces)
            self.channel.close(reset=fault.kind == "reset")
            raise Disconnected("cut on order")
        self.channel.send_reply(pieces, pace=0 if fault is None else fault.pace)

    def _fail(self, head: Head, error: OracleError) -> bool:
        """Report an error; False if it ends the session."""
        reply = self._open_session.fail(head, error)
        if self._in_pipeline:
            self.channel.send_marker(BREAK)
            token = _TOKEN + ub(head.token) if head.token else b""
            self.channel.send_reply([token + reply])
        else:
            send_error(self.channel, reply)
        return not isinstance(error, FatalError) and error.code not in DEAD_SESSION

    def _answer_break(self, head: Head) -> None:
        answer_break(self.channel, self._open_session.fail(head, known_error(CANCELLED)))

    @property
    def _open_session(self) -> Session:
        assert self.session is not None
        return self.session

    @property
    def _field_version(self) -> int:
        return self._open_session.field_version
