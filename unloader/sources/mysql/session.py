"""Sessions of MySQL and MariaDB through PyMySQL: connecting, settings, statements and rows.

PyMySQL connects, signs in and sends statements. It reads one row at a time in Python, which takes
fifteen times the CPU of the server. So the packets of a large result are read from its buffered
socket in blocks, and `rows` finds the values in them.

TLS to a server on the network is verified by default. Sockets and addresses of this machine need no
TLS.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from socket import socket
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pymysql
from msgspec import Struct
from pymysql.connections import Connection
from pymysql.constants import COMMAND

from unloader.errors import ConfigError
from unloader.model import SourceSpec
from unloader.sources.mysql.errors import translated
from unloader.sources.mysql.statement import (
    READ_ONLY,
    SETTINGS,
    SETTINGS_OF_MARIADB,
    SETTINGS_OF_MYSQL,
)
from unloader.sources.registry import password_of

PORT = 3306
_CONNECT_SECONDS = 30
_SOCKETS = ("/run/mysqld/mysqld.sock", "/var/lib/mysql/mysql.sock", "/tmp/mysql.sock")
"""Where Debian, Red Hat and MySQL's own builds have the socket."""

_AHEAD_BYTES = 4096
_ERROR = 0xFF
"""First byte of the packet of an error."""


class Address(Struct, frozen=True, kw_only=True):
    """Where a URL leads."""

    host: str
    port: int
    socket: str
    """The path of a socket, or empty."""
    user: str
    database: str
    tls: ssl.SSLContext | None


def address_of(location: str) -> Address:
    """Read `mysql://USER@HOST:PORT/DATABASE?NAME=VALUE`; `ConfigError` where it cannot be used."""
    parts = urlsplit(location)
    settings = dict(parse_qsl(parts.query))
    known = {"socket", "ssl-mode", "ssl-ca"}
    if unknown := settings.keys() - known:
        raise ConfigError(
            f"the URL has the unknown setting {sorted(unknown)[0]}",
            f"use only these: {', '.join(sorted(known))}",
        )
    host, path = parts.hostname or "", settings.get("socket", "")
    if "," in parts.netloc:
        raise ConfigError("the URL has several hosts", "name one server")
    if not host and not path:
        paths = (os.environ.get("MYSQL_UNIX_PORT", ""), *_SOCKETS)
        path = next((each for each in paths if each and os.path.exists(each)), "")
        if not path:
            raise ConfigError(
                "the URL names no host, and no socket of a server is in a usual place",
                "name the host, or the socket: mysql://USER@/DATABASE?socket=/path/to/mysqld.sock",
            )
    return Address(
        host=host,
        port=parts.port or PORT,
        socket=path,
        user=unquote(parts.username or "") or os.environ.get("USER", ""),
        database=unquote(parts.path.lstrip("/")),
        tls=_context(settings, is_local=bool(path) or _is_local(host)),
    )


def _context(settings: Mapping[str, str], *, is_local: bool) -> ssl.SSLContext | None:
    usual = "DISABLED" if is_local else "VERIFY_IDENTITY"
    mode = settings.get("ssl-mode", usual).upper()
    if mode == "DISABLED":
        return None
    if mode not in ("REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY"):
        raise ConfigError(
            f"ssl-mode={mode} is not known", "use DISABLED, REQUIRED, VERIFY_CA or VERIFY_IDENTITY"
        )
    try:
        context = ssl.create_default_context(cafile=settings.get("ssl-ca") or None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"the file of ssl-ca cannot be read: {error}", "check its path"
        ) from error
    context.check_hostname = mode == "VERIFY_IDENTITY"
    if mode == "REQUIRED":
        context.verify_mode = ssl.CERT_NONE
    return context


def _is_local(host: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host.lower() == "localhost"


class Session(Connection):  # type: ignore[misc]
    """A connection, fit for reading; one thread uses it at a time."""

    def __init__(self, spec: SourceSpec, *, opened: socket | None = None) -> None:
        """Connect; or, with `opened`, use a connection that another process has opened."""
        address = address_of(spec.location)
        self.run_id = spec.session.run_id
        self.spec = spec
        self.is_idle = True
        """No rows of a result are left to be read."""
        options: dict[str, Any] = {"ssl_disabled": True}
        if address.tls is not None:
            options = {"ssl": address.tls}
        if address.socket:
            options["unix_socket"] = address.socket
        super().__init__(
            host=address.host,
            port=address.port,
            user=address.user,
            password=(password_of(spec) or "").encode() if opened is None else "",
            database=address.database or None,
            charset="utf8mb4",
            collation="utf8mb4_general_ci",
            connect_timeout=_CONNECT_SECONDS,
            autocommit=None,
            program_name="unloader",
            defer_connect=True,
            **options,
        )
        if opened is not None:
            self._sock, self._rfile = opened, opened.makefile("rb")
            self._current_timeout = None
            return
        with translating(connecting=True):
            self.connect()
        self.execute(SETTINGS)
        self.execute(SETTINGS_OF_MARIADB if self.is_mariadb else SETTINGS_OF_MYSQL)
        self.execute(READ_ONLY)
        if spec.session.lock_timeout_seconds:
            seconds = max(1, round(spec.session.lock_timeout_seconds))
            self.execute(f"SET lock_wait_timeout = {seconds}")

    @property
    def is_mariadb(self) -> bool:
        return "mariadb" in self.server_version.lower()

    @property
    def channel(self) -> socket:
        """The open socket of the connection."""
        return self._sock

    @property
    def result(self) -> Any:
        """The driver's result of the last statement, None without one."""
        return self._result

    def execute(self, sql: str) -> None:
        with translating():
            self.query(self._named(sql))

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the result of a query as Python values."""
        self.execute(sql)
        return list(self.result.rows or ())

    def value(self, sql: str) -> Any:
        rows = self.rows(sql)
        return rows[0][0] if rows else None

    def fields(self, sql: str) -> list[Any]:
        """Run a query and return the driver's descriptions of its columns."""
        self.execute(sql)
        return list(self.result.fields)

    def estimate(self, sql: str) -> int:
        """Return how many rows the server expects to read for a query of one table."""
        (row,) = self.rows(f"EXPLAIN FORMAT=TRADITIONAL {sql}")
        names = [field.name.lower() for field in self.result.fields]
        return int(row[names.index("rows")] or 0)

    def begin_rows(self, sql: str) -> Callable[[memoryview], int]:
        """Send a query; return a function that reads the packets of its rows into a buffer.

        The function waits for the next bytes, and returns how many have come. Before the next
        statement the caller has to read the last packet.
        """
        self.is_idle = True
        with translating():
            self.query(self._named(sql), unbuffered=True)
        self.is_idle = False
        # The driver does not read the rows.
        self.result.unbuffered_active, self.result.connection = False, None
        self._result = None
        ahead = True

        def read(buffer: memoryview) -> int:
            nonlocal ahead
            try:
                if ahead:
                    # The driver has read ahead. A buffered reader waits for more bytes than it has,
                    # unless fewer are wanted than it can hold.
                    wanted = buffer[:_AHEAD_BYTES]
                    size: int = self._rfile.readinto1(wanted)
                    ahead = size == len(wanted)
                else:
                    size = self._sock.recv_into(buffer)
            except OSError as error:
                raise translated(error) from error
            if not size:
                raise translated(EOFError("the server closed the connection"))
            return size

        return read

    def checked_end(self, last: bytes) -> int:
        """Return the number of warnings in the packet after the last row, or raise its error."""
        if last[0] == _ERROR:
            text = last[9:] if last[3:4] == b"#" else last[3:]
            code = int.from_bytes(last[1:3], "little")
            error = pymysql.err.OperationalError(code, text.decode("utf-8", "replace"))
            raise translated(error) from error
        return int.from_bytes(last[1:3], "little")

    def kill_query(self) -> None:
        """End the statement that this session runs, from another session; never raise."""
        with suppress(Exception):
            other = Session(self.spec)
            try:
                other.execute(f"KILL QUERY {self.thread_id()}")
            finally:
                other.end()

    def end(self) -> None:
        """Close the connection; never raise."""
        with suppress(Exception):
            self._force_close()

    def _named(self, sql: str) -> str:
        """Return a statement that SHOW PROCESSLIST shows with the id of the run."""
        return f"/* unloader:{self.run_id} */ {sql}" if self.run_id else sql

    def send(self, sql: str) -> None:
        """Send a query without reading its result."""
        self._result = None
        with translating():
            self._execute_command(COMMAND.COM_QUERY, sql)


@contextmanager
def translating(*, connecting: bool = False) -> Iterator[None]:
    try:
        yield
    except (pymysql.err.MySQLError, OSError) as error:
        raise translated(error, connecting=connecting) from error
    except RuntimeError as error:
        if "cryptography" not in str(error):
            raise
        raise ConfigError(
            "the package cryptography, which signing in without TLS needs, is not installed",
            "pip install 'unloader[mysql]'",
        ) from error
