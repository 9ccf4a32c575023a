"""Opening a SQLite file, the parent's connections to it, and what SQLite's errors mean.

Nothing in this process except SQLite opens the file itself: POSIX drops every lock that a process
has on a file as soon as the process closes any descriptor of it.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any
from urllib.parse import quote_from_bytes

from unloader.errors import SourceError, TransientSourceError
from unloader.sources.file_state import header_of, inode_of, state_of
from unloader.sources.sqlite.statement import add_function

HEADER_BYTES = 100
_FORMATS = slice(18, 20)
"""The bytes of the header for the format that writing and reading need."""
WAL_MODE = 2
"""Their value in WAL mode (https://www.sqlite.org/fileformat.html)."""

BUSY_SECONDS = 5.0
"""How long a statement waits for another program's lock, a commit as a rule."""

_TRANSIENT = (
    "database is locked",
    "database table is locked",
    "database schema is locked",
    "database schema has changed",
    "locking protocol",
)
"""SQLITE_BUSY, SQLITE_LOCKED, SQLITE_SCHEMA and SQLITE_PROTOCOL. ADBC's errors have no code."""


def database_uri(path: str, mode: str) -> str:
    """Return the URI under which SQLite opens `path` in mode `ro` or `rw`; neither creates it."""
    return f"file://{quote_from_bytes(os.fsencode(path))}?mode={mode}"


def database_state(path: str, read_header: Callable[[str, int], bytes] = header_of) -> str:
    """Return a text that differs for each state of the data.

    With a rollback journal each commit changes the counter in the header. In WAL mode it does not,
    so the time of the inode's last change is used instead. A worker reads the header by
    `kept_header_of`.
    """
    header = read_header(path, HEADER_BYTES)
    in_wal_mode = WAL_MODE in header[_FORMATS]
    return state_of(path, header, "-wal", with_ctime=in_wal_mode)


def state_while_read(state: str) -> str:
    """Return what must not change of a state while the file is reserved.

    The frames of a WAL stay in it then, but any program may copy them into the file.
    """
    return state.partition(" wal=")[2] or state


def driver_error(doing: str, text: str) -> SourceError:
    """Return the user's error for SQLite's own text, which may end with the statement."""
    cause = text.partition("\nquery:")[0].strip()
    message = f"{doing}: {cause}"
    if any(mark in cause for mark in _TRANSIENT):
        return TransientSourceError(
            message, "run again when the program that writes the database has finished"
        )
    for mark, hint in _HINTS.items():
        if mark in cause:
            return SourceError(message, hint)
    return SourceError(message)


_HINTS = {
    "file is not a database": "check the path; an encrypted database must be decrypted first",
    "malformed": "check the file with: sqlite3 FILE 'PRAGMA integrity_check'",
    # A file is only ever written to undo what a killed writer left half done.
    "readonly": (
        "a program that writes was killed and left its journal or WAL next to the file: open the "
        "database once with a program that may write, for instance: sqlite3 FILE 'PRAGMA "
        "user_version'"
    ),
    "unable to open database file": (
        "check the permissions of file and folder; a database in WAL mode needs a folder that "
        "this user may write to, or its -wal and -shm files"
    ),
    "no such module": "this SQLite does not have the module of the virtual table: read its plain "
    "tables",
}


class Session:
    """A read-only connection, and the write reservation once it is asked for.

    While the reservation is held, other programs cannot commit, in rollback journal and WAL mode
    alike. The reservation writes nothing, and closing leaves file and WAL unchanged. POSIX drops
    its lock as soon as other code than this SQLite library closes a descriptor of the file in this
    process. `intact` is false if a program wrote after that.
    """

    def __init__(self, path: str) -> None:
        """Open the file read-only; `SourceError` where it is not a readable database."""
        self.path = path
        self._inode = inode_of(path)
        self._reservation: sqlite3.Connection | None = None
        self._version = 0
        self._connection = _connect(path, "ro")
        try:
            self.rows("SELECT count(*) FROM sqlite_master")
        except SourceError:
            self._connection.close()
            raise

    def rows(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        with _driver_errors(self.path):
            return self._connection.execute(sql, parameters).fetchall()

    def add_sampling(self) -> None:
        add_function(self._connection)

    def cancel(self) -> None:
        with suppress(sqlite3.ProgrammingError):  # The file is closed.
            self._connection.interrupt()

    def reserve(self) -> str:
        """Keep every writer out until `close`, and return the state of the file.

        `TransientSourceError` where another program is writing; `SourceError` where this user may
        only read.
        """
        self._reservation = _connect(self.path, "rw")
        try:
            self._reservation.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            self._release()
            if "locked" in str(error):
                raise TransientSourceError(
                    f"another program is writing {self.path}: {error}",
                    "run again when that program has finished, or read without a snapshot: "
                    "--consistency none",
                ) from error
            raise driver_error(f"cannot lock {self.path} against writers", str(error)) from error
        if not self._excludes():
            self._release()
            raise SourceError(
                f"cannot lock {self.path} against writers, because this user may only read it",
                "if no program writes to it during the run, read without a snapshot: "
                "--consistency none",
            )
        # It moves with every commit of another connection, and with nothing else.
        self._version = self._data_version()
        state = database_state(self.path)
        if inode_of(self.path) != self._inode:
            self._release()
            raise TransientSourceError(
                f"{self.path} was replaced by another file while it was opened", "run again"
            )
        return state

    def intact(self) -> bool:
        """Return False if another program wrote although the file is reserved."""
        return self._reservation is None or self._data_version() == self._version

    def close(self) -> None:
        # The last connection that may write copies a WAL into the file and deletes it. A WAL with
        # content must stay as it was found, and does while a reader is open; an empty one goes.
        order = [self._connection, self._reservation]
        with suppress(OSError):
            if os.stat(f"{os.path.realpath(self.path)}-wal").st_size:
                order.reverse()
        for connection in filter(None, order):
            with suppress(sqlite3.Error):
                connection.rollback()
            with suppress(sqlite3.Error):
                connection.close()
        self._reservation = None

    def _excludes(self) -> bool:
        """Return whether a second connection really cannot write.

        On a file that may only be read, SQLite turns BEGIN IMMEDIATE into a plain BEGIN.
        """
        with closing(_connect(self.path, "rw", busy_seconds=0)) as second:
            try:
                second.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return True
            return False

    def _release(self) -> None:
        if self._reservation is not None:
            self._reservation.close()
        self._reservation = None

    def _data_version(self) -> int:
        return int(self.rows("PRAGMA data_version")[0][0])


def _connect(path: str, mode: str, *, busy_seconds: float | None = None) -> sqlite3.Connection:
    with _driver_errors(f"cannot open {path}"):
        return sqlite3.connect(
            database_uri(path, mode),
            uri=True,
            timeout=BUSY_SECONDS if busy_seconds is None else busy_seconds,
            isolation_level=None,
            check_same_thread=False,
        )


@contextmanager
def _driver_errors(doing: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise driver_error(doing, str(error)) from error
