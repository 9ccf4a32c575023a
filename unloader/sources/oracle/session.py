"""One Oracle session: its settings, its place in V$SESSION, and what becomes of its errors.

The settings make the texts of values and the order of keys independent of the user's environment,
the server's defaults and logon triggers. After an error that cost the connection nothing of it is
touched any more: the driver has been seen to crash the process where that was done.

docs/oracle.md has the forms of a URL. Its settings have the names of Oracle's Easy Connect Plus;
the settings of an alias or a descriptor have priority. Any part may be percent-encoded. A URL is
read without the driver. Secrets come from the environment or from files, never from the URL. A
token has priority over a password; OAuth 2.0 tokens need no key.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from contextlib import contextmanager, suppress
from functools import partial
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote

from msgspec import Struct

from unloader.errors import (
    ConfigError,
    SourceError,
    TransientSourceError,
    UnloaderError,
    UsageError,
)
from unloader.model import SourceSpec
from unloader.redaction import TOKEN_VARIABLE, WALLET_PASSWORD_VARIABLE, redact
from unloader.secrets.secret_places import check_private, secret_in
from unloader.sources.oracle.errors import code_of, is_dead, one_line, translated
from unloader.sources.registry import (
    TOKEN_FILE,
    TOKEN_KEY_FILE,
    WALLET_PASSWORD_FILE,
    in_thread,
    password_of,
)
from writers.files.regular import read_regular

if TYPE_CHECKING:
    import oracledb


T = TypeVar("T")

logger = logging.getLogger(__name__)

SETTINGS = """ALTER SESSION SET
NLS_CALENDAR = 'GREGORIAN' NLS_DATE_LANGUAGE = 'AMERICAN' NLS_NUMERIC_CHARACTERS = '.,'
NLS_COMP = 'BINARY' NLS_SORT = 'BINARY' NLS_NCHAR_CONV_EXCP = 'TRUE' TIME_ZONE = '+00:00'"""
"""NLS_NCHAR_CONV_EXCP makes a character that a conversion would lose an error."""

NO_PARALLEL_QUERY = "ALTER SESSION DISABLE PARALLEL QUERY"
"""Our processes are the parallelism."""

DIRECT_READ = 'ALTER SESSION SET "_serial_direct_read" = ALWAYS'
"""A hint: full scans that neither fill nor wait for the buffer cache."""

MAX_ACTION_BYTES = 32
MAX_IDENTIFIER_BYTES = 64
"""Widths of ACTION and CLIENT_IDENTIFIER in V$SESSION."""

FETCH_ROWS = 5000
"""Rows of one answer to a question about the dictionary."""

Binds = Sequence[Any] | Mapping[str, Any]


def client_identifier(spec: SourceSpec) -> str:
    """Return the CLIENT_IDENTIFIER of our sessions in V$SESSION; the run's own within a run."""
    name = f"{PROGRAM}:{spec.session.run_id}" if spec.session.run_id else PROGRAM
    return name.encode()[:MAX_IDENTIFIER_BYTES].decode(errors="ignore")


STATEMENTS_KEPT = 2
"""Statements that the driver caches in a session that reads units: the unit's statement, and the
statement that finds its long values. Each unit has a different statement, which runs once and keeps
the memory of its fetched rows. With the driver's default of 20, a worker grew by 17 MB."""


class Session:
    def __init__(self, spec: SourceSpec, *, action: str, scans: bool = True) -> None:
        """Connect, name the session and fix its settings.

        `action`: the purpose of the session, as V$SESSION.ACTION shows it. `scans`: it reads whole
        units; a session that asks the dictionary does better with the buffer cache.
        """
        import oracledb

        self._errors = (oracledb.Error, OSError)
        self._dead = self._busy = False
        self._connection = open_connection(spec)
        if spec.session.call_timeout_seconds > 0:
            # Only here: on a connection that has failed, setting it ends the process.
            # 0 would be no limit.
            milliseconds = ceil(spec.session.call_timeout_seconds * 1000)
            self._connection.call_timeout = milliseconds
        if scans:
            self._connection.stmtcachesize = STATEMENTS_KEPT
        self._connection.module = PROGRAM
        self._connection.client_identifier = client_identifier(spec)
        self.act(action)
        try:
            hints = [] if spec.session.parallel_query else [NO_PARALLEL_QUERY]
            hints += [DIRECT_READ] if scans and spec.session.direct_read else []
            for hint in hints:
                # It may be refused: the run is right without it.
                found = self.allowed(partial(self.run, hint))
                if isinstance(found, SourceError):
                    logger.info("%s was refused: %s", hint, found.message)
            for statement in spec.session.session_sql:
                try:
                    self.run(statement)
                except UnloaderError as error:
                    raise type(error)(
                        f"--session-sql {redact(statement)} failed: {error.message}",
                        "correct the statement, or grant the user the missing right",
                    ) from error
            # Last, so that nothing overrules them: texts and the order of keys depend on them.
            self.run(SETTINGS)
        except BaseException:
            self.close()
            raise

    @property
    def connection(self) -> oracledb.Connection:
        """The driver's connection; `TransientSourceError` where it is lost."""
        if self._dead:
            raise TransientSourceError("Oracle: the connection was lost before", "run again")
        return self._connection

    @property
    def alive(self) -> bool:
        return not self._dead

    @property
    def version(self) -> tuple[int, ...]:
        """Version of the server, such as (19, 22, 0, 0, 0)."""
        return tuple(int(part) for part in self.connection.version.split("."))

    def act(self, action: str) -> None:
        """Set V$SESSION.ACTION; the driver sends it with the next statement."""
        self.connection.action = action.encode()[:MAX_ACTION_BYTES].decode(errors="ignore")

    @contextmanager
    def cursor(self) -> Iterator[oracledb.Cursor]:
        """Open a cursor for the context; its errors are to be handed to `translate`.

        The cursor is always closed on exit. If an error's traceback kept it, the garbage collector
        might close it while the driver prepares the next statement. Then both wait for the same
        lock of the connection forever (python-oracledb 26.1).
        """
        cursor = self.connection.cursor()
        try:
            yield cursor
        finally:
            # On a connection that is lost it cannot be closed, and need not be.
            with suppress(*self._errors):
                cursor.close()

    def run(self, sql: str, binds: Binds = ()) -> list[tuple[Any, ...]]:
        """Run one statement and return all its rows; an empty list if it is not a query."""
        with self.translating(), self.cursor() as cursor:
            cursor.arraysize, cursor.prefetchrows = FETCH_ROWS, FETCH_ROWS + 1
            cursor.execute(sql, binds)
            rows: list[tuple[Any, ...]] = cursor.fetchall() if cursor.description else []
            return rows

    def allowed(self, call: Callable[[], T]) -> T | SourceError:
        """Return the result of a call, or the database's refusal; raise if the session is lost."""
        try:
            return call()
        except SourceError as error:
            if not self.alive:
                raise
            return error

    def value(self, sql: str, binds: Binds = ()) -> Any:
        rows = self.run(sql, binds)
        return rows[0][0] if rows else None

    def parse(self, sql: str) -> tuple[oracledb.FetchInfo, ...]:
        """Return a query's columns without running it; `SourceError` where it is wrong or has bind
        variables.
        """
        with self.translating(), self.cursor() as cursor:
            cursor.parse(sql)
            columns = tuple(cursor.description or ())
            binds = cursor.bindnames()
        if binds:
            raise SourceError(
                f"the statement has the bind variable :{binds[0]}",
                "write the value itself into the statement",
            )
        return columns

    @contextmanager
    def translating(self) -> Iterator[None]:
        self._busy = True
        try:
            yield
        except self._errors as error:
            raise self.translate(error) from error
        finally:
            self._busy = False

    def translate(self, error: BaseException) -> UnloaderError:
        """Return the user's error for one of the driver's, and give up a connection it cost."""
        if is_dead(error):
            self._dead = True
        return translated(error)

    def cancel(self) -> None:
        """Stop the statement that another thread waits for, if there is one; never raises."""
        # Without a running statement, a break would stop the next statement instead.
        if self._busy and not self._dead:
            try:
                self._connection.cancel()
            except self._errors as error:
                self._dead = self._dead or is_dead(error)

    def close(self) -> None:
        """Close the connection unless it is lost; never raises."""
        if not self._dead:
            self._dead = True
            try:
                self._connection.close()
            except self._errors as error:
                logger.info("closing the session: %s", translated(error).message)


PROGRAM = "unloader"

PATIENCE_SECONDS = 300.0
"""Guess: as long as a worker may be silent by default."""

DEFAULTS: dict[str, Any] = {"tcp_connect_timeout": 20.0, "sdu": 65535, "expire_time": 2}
"""Options of `oracledb.connect`. The seconds and the minutes are guesses.

tcp_connect_timeout: seconds until a host counts as unreachable. sdu: the largest packet that every
version accepts; the server may choose a smaller one. expire_time: minutes between probes of a
silent connection, which detect a lost peer.
"""


def open_connection(
    spec: SourceSpec, patience_seconds: float = PATIENCE_SECONDS
) -> oracledb.Connection:
    """Return a new connection, within `patience_seconds` for all hosts and retries.

    `ConfigError` where the URL, a file with a secret or the client library is not usable.
    """
    import oracledb

    address = parse_location(spec.location)
    library = spec.session.client_library
    if library is not None:
        # Switch the process to Oracle's client library; a second time it is the same one.
        folders = {"lib_dir": library, "config_dir": dict(address.settings).get("config_dir")}
        try:
            oracledb.init_oracle_client(**{key: path for key, path in folders.items() if path})
        except oracledb.Error as error:
            where = f"in {library}" if library else "where the system looks for libraries"
            raise ConfigError(
                f"cannot load Oracle's client library {where}: {one_line(error)}",
                "give --client-library the directory of libclntsh.so, or leave --client-library out"
                if code_of(error) != "DPY-2019"
                else "leave --client-library out, or give it from the beginning",
            ) from error
    arguments = {**DEFAULTS, "program": PROGRAM, **dict(address.settings)}
    if "wallet_location" in arguments:
        # Only the current user may use the keys of a wallet.
        wallet = Path(arguments["wallet_location"])
        check_private(wallet / AUTO_LOGIN, "wallet")
        text = b""
        with suppress(OSError):  # The driver reports the error.
            text = read_regular(wallet / TEXT, follow=True)
        if text.count(_KEY) > text.count(_PROTECTED):
            check_private(wallet / TEXT, "wallet")
    arguments.update({"user": address.user} if address.user else {})
    wallet_password = _secret(
        WALLET_PASSWORD_VARIABLE, WALLET_PASSWORD_FILE, "wallet's password file"
    )
    if wallet_password is not None:
        arguments["wallet_password"] = wallet_password
    token = _secret(TOKEN_VARIABLE, TOKEN_FILE, "token file")
    if token is not None:
        arguments["access_token"] = token
        if key_file := os.environ.get(TOKEN_KEY_FILE):
            key = secret_in(Path(key_file), "token's key file", f"correct {TOKEN_KEY_FILE}")
            if not oracledb.is_thin_mode():
                # The client library wants the key without the lines around it.
                lines = (line.strip() for line in key.splitlines() if not line.startswith("-----"))
                key = "".join(lines)
            arguments["access_token"] = token, key
    elif address.user and not address.user.startswith("["):
        arguments["password"] = password_of(spec)
    else:
        arguments["externalauth"] = True
    if address.pooled:
        arguments.setdefault("cclass", PROGRAM)
    if not oracledb.is_thin_mode():
        # The client library looks names up itself, in a directory server for instance.
        arguments["thick_mode_dsn_passthrough"] = (
            "/" not in address.connect_string and not address.connect_string.startswith("(")
        )
    try:
        # In a thread that may be abandoned: the driver limits only the time until a host accepts
        # the connection. It would wait forever for a silent listener, and ignore Ctrl-C.
        connecting = in_thread(lambda: oracledb.connect(address.connect_string, **arguments))
        if not wait([connecting], patience_seconds).done:
            raise TimeoutError(f"no answer in {patience_seconds:g} s")
        return connecting.result()
    except (oracledb.Error, OSError) as error:
        known = translated(error, connecting=True)
        raise type(known)(f"{known.message}, for {spec.location}", known.hint) from error
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"a setting of {spec.location} is not valid: {error}",
            "correct the settings after the question mark",
        ) from error


def _secret(variable: str, file_variable: str, what: str) -> str | None:
    path = os.environ.get(file_variable)
    if path:
        return secret_in(Path(path), what, f"correct {file_variable}").strip()
    return os.environ.get(variable) or None


_KEY = b"PRIVATE KEY-----"
_PROTECTED = b"ENCRYPTED PRIVATE KEY-----"

AUTO_LOGIN = "cwallet.sso"
"""Opens without a password; Oracle's client library reads it."""

TEXT = "ewallet.pem"
"""Certificates, and perhaps a key; the driver reads it."""


URL_SETTINGS = {
    "pool_connection_class": "cclass",
    "pool_purity": "purity",
    "server": "server_type",
    "transport_connect_timeout": "tcp_connect_timeout",
} | {
    name: name
    for name in (
        *("config_dir", "expire_time", "https_proxy", "https_proxy_port", "pool_boundary"),
        *("pool_name", "retry_count", "retry_delay", "sdu", "ssl_server_cert_dn"),
        *("ssl_server_dn_match", "tcp_connect_timeout", "use_sni", "wallet_location"),
    )
}

_IN_STRING = ("enable", "failover", "load_balance", "recv_buf_size", "send_buf_size")
"""Settings that the driver takes as part of an Easy Connect string only."""

_EXAMPLE = "write for instance oracle://user@host:1521/service or oracle://user@ALIAS"
_QUOTED = re.compile(r'"[^"]*"')
_SECRET_FIELD = re.compile(r"(?i)\(\s*\w*(?:password|passwd|pwd)\s*=")
_POOLED = re.compile(r"(?i)(?:\bserver=|/[^/]*:)pooled\b")


class OracleAddress(Struct, frozen=True, kw_only=True):
    user: str
    """Can be `PROXY[TARGET]`; empty with external authentication."""
    connect_string: str
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def pooled(self) -> bool:
        """Whether the URL itself asks for a session of the server's resident pool (DRCP)."""
        by_setting = dict(self.settings).get("server_type", "").lower() == "pooled"
        return by_setting or _POOLED.search(self.connect_string) is not None


def parse_location(location: str) -> OracleAddress:
    """Parse the URL of an Oracle database.

    `UsageError` where it holds a password; `ConfigError` where it lacks a database or a service, or
    names an unknown setting.
    """
    _, found, rest = location.partition("://")
    if not found:
        # The text is not repeated, as it may hold a password: `oracle:scott/tiger@db`.
        raise ConfigError("the text after oracle: is not //user@database", _EXAMPLE)
    head, _, query = rest.partition("?")
    # A descriptor may contain an @, for instance in a certificate's name.
    user, at, target = head.partition("@(") if "@(" in head else head.rpartition("@")
    user = unquote(user).strip("/")
    target = unquote("(" + target if at == "@(" else target).strip("/ ")
    # `user/password`, as SQL*Plus takes it, and a descriptor's password; nothing is repeated. A
    # name that has a slash or a colon itself can only be one in double quotes.
    if re.search("[:/]", _QUOTED.sub("", user)) or _SECRET_FIELD.search(target):
        raise UsageError(
            "the oracle: URL contains a password, which every user of this machine can read in "
            "the list of processes",
            "remove it and set UNLOADER_PASSWORD, or give --password-file or --password-prompt",
        )
    if not target:
        raise ConfigError(f"{location} does not name a database", _EXAMPLE)
    if re.search(r":\d+$", target) and "/" not in target:
        raise ConfigError(f"{location} does not name a service", f"write {location}/SERVICE")
    # Settings of the Easy Connect string, and of the driver.
    passed: list[str] = []
    settings: dict[str, str] = {}
    for item in filter(None, query.split("&")):
        name, found, value = item.partition("=")
        name, value = unquote(name).strip().lower(), unquote(value).strip()
        if not found or not value:
            raise ConfigError(f"the URL's setting {name} has no value", f"write {name}=VALUE")
        if name == "protocol":
            if value.lower() not in ("tcp", "tcps"):
                raise ConfigError(f"the URL's protocol {value} is unknown", "write tcp or tcps")
            settings[name] = value.lower()
        elif name in _IN_STRING:
            passed.append(f"{name}={value}")
        elif name in URL_SETTINGS:
            settings[URL_SETTINGS[name]] = value
        else:
            known = ", ".join(sorted({*URL_SETTINGS, *_IN_STRING, "protocol"}))
            raise ConfigError(f"the URL's setting {name} is unknown", f"use one of: {known}")
    protocol = settings.pop("protocol", "")
    # What only an Easy Connect string can carry is put into it.
    if protocol or passed:
        if "/" not in target or target.startswith("("):
            what = passed[0].partition("=")[0] if passed else "protocol"
            raise ConfigError(
                f"the URL's setting {what} cannot be used with an alias or a descriptor",
                "put the setting into the descriptor",
            )
        if protocol and "://" not in target:
            target = f"{protocol}://{target}"
        if passed:
            target += "?" + "&".join(passed)
    return OracleAddress(user=user, connect_string=target, settings=tuple(settings.items()))
