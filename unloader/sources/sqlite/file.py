"""Where a SQLite database is, and what its complaints mean.

Nothing in this process but SQLite opens the file itself: POSIX drops every lock that a process has
on a file as soon as the process closes any descriptor of it.
"""

from __future__ import annotations

import os
from urllib.parse import quote_from_bytes, unquote_to_bytes, urlsplit

from unloader.errors import ConfigError, SourceError, TransientSourceError
from unloader.model import SourceSpec
from unloader.sources.file_state import header_of, state_of

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
"""SQLITE_BUSY, SQLITE_LOCKED, SQLITE_SCHEMA and SQLITE_PROTOCOL. By their texts: the drivers of all
supported versions of Python tell those, and not all tell the codes."""


def database_path(spec: SourceSpec) -> str:
    """Return the absolute path that `sqlite:///absolute/path.db` names, percent-decoded.

    Raises:
        ConfigError: The URL has a host, a relative path or anything behind the path.
        SourceError: There is no such file, or it is not a regular one.
    """
    parts = urlsplit(spec.location)
    path = os.fsdecode(unquote_to_bytes(parts.path))
    plain = not (parts.netloc or parts.query or parts.fragment)
    if not plain or not path.strip("/") or not path.startswith("/") or "\0" in path:
        raise ConfigError(
            f"{spec.location} does not name a SQLite file",
            "write sqlite:///absolute/path.db, with %3F for ? and %23 for # in the path",
        )
    if not os.path.exists(path):
        raise SourceError(f"the file {path} does not exist", "check the path in the URL")
    if not os.path.isfile(path):
        raise SourceError(f"{path} is not a file", "give the path of a SQLite database file")
    return path


def database_uri(path: str, mode: str) -> str:
    """Return the URI under which SQLite opens `path` in mode `ro` or `rw`; neither creates it."""
    return f"file://{quote_from_bytes(os.fsencode(path))}?mode={mode}"


def database_state(path: str) -> str:
    """Return what distinguishes the state of the data from any other.

    With a rollback journal each commit moves the counter in the header. In WAL mode it does not, so
    the time of the inode's last change stands in for it there.
    """
    header = header_of(path, HEADER_BYTES)
    in_wal_mode = WAL_MODE in header[_FORMATS]
    return state_of(path, header, "-wal", with_ctime=in_wal_mode)


def state_while_read(state: str) -> str:
    """Return what must not change of a state while the file is reserved.

    The frames of a WAL stay in it then, but any program may copy them into the file.
    """
    return state.partition(" wal=")[2] or state


def driver_error(doing: str, text: str) -> SourceError:
    """Return the user's error for SQLite's own text, which may have the statement behind it."""
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
