"""One snapshot for all workers: sessions that were opened at one moment, and are lent to workers.

A session of MySQL cannot enter the snapshot of another one. So the parent opens a session for each
worker, and begins their transactions while no session can commit. Each worker borrows a session
over a socket of this machine: it receives the descriptor of the open connection. A connection with
TLS has keys in the parent, so the parent passes its bytes on.

A worker that dies leaves a statement that runs and rows that were not read. The parent ends the
statement, reads the rest, and lends the same session to the next worker. The snapshot is kept.
"""

from __future__ import annotations

import json
import os
import queue
import secrets
import select
import socket
import ssl
import struct
import threading
from collections.abc import Sequence
from contextlib import suppress

from unloader.errors import SessionsRefused, SnapshotGone, SourceError
from unloader.model import SourceSpec
from unloader.sources.mysql.errors import AGAIN, DENIED, code_of
from unloader.sources.mysql.session import Session

KIND = "consistent-snapshot"
_PREFIX = "lender="

_PATIENCE_SECONDS = 10.0
"""A session of a worker that has died is free again after this time, as a rule."""
_EMPTYING_SECONDS = 60.0
_BLOCK_BYTES = 256 * 1024
_END_BYTES = 9
"""The packet that ends the rows of a result."""
_CLEAN = b"1"


def begin_together(parent: Session, others: Sequence[Session], *, lock: bool) -> None:
    """Begin a transaction in each session, with `lock` all at one moment.

    The lock stops commits in the whole server, for as long as the transactions need to begin: a
    fraction of a millisecond each.
    """
    if lock:
        try:
            parent.execute("FLUSH TABLES WITH READ LOCK")
        except SourceError as error:
            if code_of(error.__cause__) not in DENIED:
                raise
            user = parent.value("SELECT current_user()")
            raise SourceError(
                f"user {user} may not stop commits while the workers' snapshots begin: "
                f"{error.message}",
                f"GRANT RELOAD ON *.* TO {_account(user)}, or read rows of different moments with "
                "--consistency none",
            ) from error
    try:
        for session in (parent, *others):
            session.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
    finally:
        if lock:
            parent.execute("UNLOCK TABLES")


def _account(user: str) -> str:
    name, _, host = user.rpartition("@")
    return f"'{name}'@'{host}'"


class Lender:
    """Lends sessions to workers of this user on this machine until it is closed."""

    def __init__(self, sessions: Sequence[Session]) -> None:
        self.name = secrets.token_hex(8)
        self._all = list(sessions)
        self._lent: set[Session] = set()
        self._free: queue.SimpleQueue[Session] = queue.SimpleQueue()
        for session in sessions:
            self._free.put(session)
        self._closed = False
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(_path(self.name))
        self._socket.listen(128)
        threading.Thread(target=self._accept, name="lender", daemon=True).start()

    @property
    def value(self) -> str:
        return f"{_PREFIX}{self.name}"

    @property
    def alive(self) -> int:
        """How many sessions still have the snapshot."""
        return len(self._all)

    def close(self) -> None:
        """Close all sessions; the statements of lent ones are ended."""
        self._closed = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for session in self._all:
            if session in self._lent:
                session.kill_query()
            session.end()

    def _accept(self) -> None:
        while True:
            try:
                control, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._lend, args=(control,), daemon=True).start()

    def _lend(self, control: socket.socket) -> None:
        with control, suppress(OSError):
            found = control.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            if struct.unpack("3i", found)[1] != os.geteuid():
                return
            try:
                session = self._free.get(timeout=_PATIENCE_SECONDS)
            except queue.Empty:
                return
            self._lent.add(session)
            returned = False
            try:
                state = {"version": session.server_version, "thread": session.thread_id()}
                text = json.dumps(state).encode()
                if isinstance(session.channel, ssl.SSLSocket):
                    ours, theirs = socket.socketpair()
                    with ours:
                        with theirs:
                            socket.send_fds(control, [text], [theirs.fileno()])
                        _pass_on(session.channel, ours)
                else:
                    socket.send_fds(control, [text], [session.channel.fileno()])
                returned = control.recv(1) == _CLEAN
            finally:
                if self._closed or returned or _is_emptied(session):
                    self._free.put(session)
                else:
                    session.end()
                    self._all.remove(session)
                self._lent.discard(session)


def _pass_on(server: ssl.SSLSocket, worker: socket.socket) -> None:
    """Pass bytes on in both directions until the worker closes its end."""
    while True:
        ready = [server] if server.pending() else select.select([server, worker], [], [])[0]
        if worker in ready:
            if not (data := worker.recv(_BLOCK_BYTES)):
                return
            server.sendall(data)
        if server in ready:
            if not (data := server.recv(_BLOCK_BYTES)):
                return
            worker.sendall(data)


def _is_emptied(session: Session) -> bool:
    """End what a session runs, and read what a worker has left; return whether it can be used."""
    session.kill_query()
    # The answer to this statement follows everything that was not read.
    mark = secrets.token_hex(16).encode()
    try:
        session.channel.settimeout(_EMPTYING_SECONDS)
        session.send(f"SELECT '{mark.decode()}' AS mark")
        tail = b""
        while True:
            data = session.channel.recv(_BLOCK_BYTES)
            tail = (tail + data)[-4096:]
            at = tail.find(mark)
            if at >= 0 and len(tail) - at - len(mark) >= _END_BYTES:
                session.channel.settimeout(None)
                return True
            if not data:
                return False
    except (OSError, SourceError):
        return False


class Loan:
    """A session that a worker has borrowed."""

    def __init__(self, spec: SourceSpec, value: str) -> None:
        """Borrow a session; `SnapshotGone` if the run that lends it has ended."""
        self._control = socket.socket(socket.AF_UNIX)
        try:
            self._control.connect(_path(value.partition(_PREFIX)[2].partition(" ")[0]))
            text, descriptors, _, _ = socket.recv_fds(self._control, 4096, 1)
        except OSError as error:
            self._control.close()
            raise SnapshotGone("the process that holds the snapshot has ended", AGAIN) from error
        if not descriptors:
            self._control.close()
            raise SessionsRefused(
                "no session of the snapshot is free",
                "run again with the --parallelism that the run begins with",
            )
        state = json.loads(text)
        self.session = Session(spec, opened=socket.socket(fileno=descriptors[0]))
        self.session.server_version = state["version"]
        self.session.server_thread_id = (state["thread"],)

    def end(self, *, is_clean: bool) -> None:
        """Give the session back; it is clean if all rows of the last result were read."""
        self.session.end()
        with suppress(OSError):
            if is_clean:
                self._control.sendall(_CLEAN)
        self._control.close()


def _path(name: str) -> str:
    """Return the address of a socket without a file."""
    return f"\0unloader-mysql-{name}"
