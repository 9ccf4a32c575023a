"""The server: listening sockets, shared state of connections, and a clean end."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

from oracle_server.model import SessionState
from oracle_server.session.connection import Connection
from oracle_server.session.login import Accounts, Host

_JOIN_SECONDS = 60


class OracleServer(Host):
    """An Oracle server as the wire shows it, in threads of the process that opens it.

    A context manager. Leaving it ends every connection; it raises if a connection ended in a way
    that no client can cause.
    """

    def __init__(
        self,
        database: Accounts,
        *,
        tls: Path | None = None,
        listener: socket.socket | None = None,
        **settings: Any,
    ) -> None:
        """Set the kind of the server.

        Args:
            tls: PEM file of a certificate and its key; clients must speak TLS then.
            listener: Listens already; other processes may accept its connections too.
        """
        super().__init__(database, **settings)
        self._listener = listener
        self._tls = _context(tls) if tls is not None else None
        self._connections: set[Connection] = set()
        self._by_sid: dict[int, Connection] = {}
        self._listeners: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> OracleServer:
        self.port = self._listen(
            self._listener or socket.create_server((self.host, self.port), backlog=128),
            is_redirected=False,
        )
        if self.redirects:
            self.second_port = self._listen(
                socket.create_server((self.host, 0), backlog=128), is_redirected=True
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close, and report what went wrong in the server unless something else did already."""
        self.close()
        if kind is None and self.problems:
            raise AssertionError("the test server failed:\n" + "\n".join(self.problems))

    @property
    def dsn(self) -> str:
        scheme = "tcps://" if self._tls is not None else ""
        return f"{scheme}{self.host}:{self.port}/{self.service}"

    def url(self, user: str) -> str:
        protocol = "?protocol=tcps" if self._tls is not None else ""
        return f"oracle://{user}@{self.host}:{self.port}/{self.service}{protocol}"

    @property
    def open_connections(self) -> int:
        """Connections there are now, logged in or not."""
        with self._lock:
            return len(self._connections)

    @property
    def connected(self) -> tuple[int, ...]:
        """Numbers of the sessions that are connected, oldest first."""
        with self._lock:
            return tuple(sorted(self._by_sid))

    def kill(self, sid: int) -> None:
        """End a session as ALTER SYSTEM KILL SESSION does: its next call fails with ORA-00028.

        Raises:
            KeyError: The session does not exist now.
        """
        with self._lock:
            self._by_sid[sid].is_killed = True

    def drop(self, sid: int) -> None:
        """Close a session's connection without a word, as a lost network does."""
        with self._lock:
            self._by_sid[sid].channel.interrupt()

    def drop_login(self) -> bool:
        """Close a connection that has not logged in yet; False if all have."""
        with self._lock:
            found = next((each for each in self._connections if each.session is None), None)
            if found is not None:
                found.channel.interrupt()
            return found is not None

    def close(self) -> None:
        """End every connection and thread.

        Raises:
            RuntimeError: A thread does not end.
        """
        self.is_closing = True
        for listener in self._listeners:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        for thread in self._threads:
            thread.join(_JOIN_SECONDS)
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            connection.channel.interrupt()
        for connection in connections:
            connection.join(_JOIN_SECONDS)
            if connection.is_alive():
                raise RuntimeError(f"{connection.name} does not end")

    def _opened(self, connection: Connection, state: SessionState) -> None:
        with self._lock:
            self._by_sid[state.sid] = connection
        seen = getattr(self.database, "sessions", None)
        if seen is not None:
            seen[state.sid] = state

    def _closed(self, connection: Connection) -> None:
        """Forget a connection; its session is gone from V$SESSION too."""
        with self._lock:
            self._connections.discard(connection)
            if connection.session is None:
                return
            sid = connection.session.state.sid
            self._by_sid.pop(sid, None)
        seen = getattr(self.database, "sessions", None)
        if seen is not None:
            seen.pop(sid, None)

    def _listen(self, listener: socket.socket, *, is_redirected: bool) -> int:
        self._listeners.append(listener)
        thread = threading.Thread(
            target=self._accept, args=(listener, is_redirected), name="oracle-listener", daemon=True
        )
        self._threads.append(thread)
        thread.start()
        bound: int = listener.getsockname()[1]
        return bound

    def _accept(self, listener: socket.socket, is_redirected: bool) -> None:
        while not self.is_closing:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                try:
                    client = self._tls.wrap_socket(
                        client, server_side=True, do_handshake_on_connect=False
                    )
                except OSError:
                    client.close()
                    continue
            connection = Connection(
                self, client, is_redirected=is_redirected, opened=self._opened, closed=self._closed
            )
            with self._lock:
                self._connections.add(connection)
            connection.start()


def _context(pem: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    return context
