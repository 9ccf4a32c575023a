"""PostgreSQL sessions through libpq: reading, exporting a snapshot, counting other sessions.

The habits of psql work here: service files, `.pgpass`, `PG...` variables, several hosts,
`target_session_attrs`, keepalives. The socket is read only while its owner waits, so a slow
consumer stops the server and needs no memory.

Other sessions enter an exported snapshot while the first session's transaction is open. After a
restart the server numbers snapshots from the start, so a session that enters one compares the start
time of the server, and the transactions that the snapshot sees.

TLS to a server on the network is verified by default, with the CAs of the system if no file of CAs
is named. libpq's own default, `sslmode=prefer`, checks no certificate: any host that answers gets
the password or the rows. Sockets and addresses of this machine need no TLS.
"""

from __future__ import annotations

import hashlib
import ipaddress
import os
import re
import ssl
from collections.abc import Callable, Iterator, Sequence
from configparser import ConfigParser, Error
from contextlib import closing, contextmanager, suppress
from typing import Any, TypeVar
from urllib.parse import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict

from unloader.errors import (
    ConfigError,
    ConnectFailed,
    SessionsRefused,
    SnapshotGone,
    SourceError,
    UnloaderError,
)
from unloader.model import Snapshot, SourceSpec
from unloader.redaction import learn
from unloader.sources.base import Text
from unloader.sources.postgres import errors
from unloader.sources.postgres.libpq.connection import Connection, native
from unloader.sources.postgres.statement import EXPORTED, SNAPSHOT_VALUE, CopyDialect, text_form
from unloader.sources.registry import password_of
from unloader.sources.statement import literal, quoted

T = TypeVar("T")

SETTINGS = """
SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0; SET exit_on_error = off;
SET default_transaction_read_only = on; SET default_transaction_deferrable = off;
SET default_transaction_isolation = 'read committed'; SET row_security = {policies};
SET TimeZone = 'UTC'; SET DateStyle = 'ISO, YMD'; SET IntervalStyle = 'postgres';
SET bytea_output = 'hex'; SET extra_float_digits = 1; SET quote_all_identifiers = off;
SET standard_conforming_strings = on; SET array_nulls = on; SET gin_fuzzy_search_limit = 0;
SET max_parallel_workers_per_gather = {gather}; SET jit = off; SET synchronize_seqscans = off;
SET enable_tidscan = on; SET application_name = '{name}'; SET search_path = {path}
"""
"""What a role, a database or PGOPTIONS may have set otherwise, and would change a run without an
error. Limits of time come first: the server may end the session while it reads the others. A limit
of GIN indexes leaves out rows of a condition. Without `enable_tidscan` each range of blocks reads
the whole table. A read-only session keeps a function in a condition or a query of the user from
writing. With row_security off a policy that may hide rows is an error: the user did not ask for the
rows that it lets through. Without synchronized scans rows come in the order of the heap, the same
on each run. `max_parallel_workers_per_gather`: a TRUNCATE may wait for the parent's lock. A
parallel worker that meets it would wait forever: no server sees that the parent waits for it."""

SETTINGS_SINCE = {14: "idle_session_timeout = 0", 17: "transaction_timeout = 0"}
"""Further ones, by the version that brought them."""

OWN_PATH = "pg_catalog, pg_temp"
"""The search path of our statements. No user can put a function, type or operator there."""

PARENT_GATHER = 2
"""PostgreSQL's own default; workers get 0, as our processes are the parallelism."""

LONGEST_LOCK_MILLISECONDS = 2**31 - 1
"""The server refuses a longer lock_timeout; this one is 24 days."""

CHECKING_VERSION = 14
"""First major version with `client_connection_check_interval`."""


def session_name(spec: SourceSpec, program: str = "unloader") -> str:
    """Return the name of our session in the server's list; within a run it has the run's id."""
    return f"{program}:{spec.session.run_id}" if spec.session.run_id else program


class Session(Connection):
    """A connection, fit for reading; its errors are the user's."""

    def __init__(self, spec: SourceSpec, *, gather: int = 0, program: str = "unloader") -> None:
        """Connect and fix the settings that decide how values are printed.

        `gather`: parallel workers that the server may use for a query. `program`: its name in the
        server's list of sessions, followed by the run's id.
        """
        self._lost = False
        self._lock_timeout = "DEFAULT"
        self.rows_copied = 0
        """Rows of the last finished `copied`, from the server's own `COPY n`."""
        self._wants_own_path = self._has_own_path = True
        try:
            super().__init__(verified(spec.location), password_of(spec))
        except errors.LibpqError as error:
            failed = errors.translated(error, phase="connecting")
            failed.__cause__ = error
            if refused := refusal(failed, spec.location):
                raise refused from failed
            if isinstance(failed, SessionsRefused) or not failed.retryable:
                raise failed from error
            # The system's message names neither the socket nor an unknown host.
            text = f"{failed.message}, for {spec.location}"
            raise ConnectFailed(text, failed.hint) from failed
        try:
            policies = "on" if spec.session.enable_row_security else "off"
            name = session_name(spec, program)
            settings = SETTINGS.format(gather=gather, name=name, policies=policies, path=OWN_PATH)
            since = [each for first, each in SETTINGS_SINCE.items() if self.version[0] >= first]
            self._run("; SET ".join([settings, *since]))
            if spec.session.lock_timeout_seconds:
                self._lock_timeout = _milliseconds(spec.session.lock_timeout_seconds)
                self._run(f"SET lock_timeout = {self._lock_timeout}")
            if self.version[0] >= CHECKING_VERSION:
                # The server ends a query whose client was killed; where it cannot, it finds out
                # later. The setting works on systems that can poll a socket's end.
                with suppress(SourceError):
                    self._run("SET client_connection_check_interval = '10s'")
        except BaseException:
            self.close()
            raise

    @property
    def alive(self) -> bool:
        """Whether the connection is open; an interrupted `copied` ends it."""
        return not self._lost and self.is_open

    def execute(self, sql: str) -> None:
        self._set_path()
        self._run(sql)

    @contextmanager
    def users_path(self) -> Iterator[None]:
        """Resolve names in the block by the search path that the user's own sessions have.

        It is for statements that contain text or a name of the user, or read rows: a function in a
        view resolves names as it runs. There our own names and operators have their schema. In all
        other statements names come from `pg_catalog`.
        """
        before, self._wants_own_path = self._wants_own_path, False
        try:
            yield
        finally:
            self._wants_own_path = before

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Keep an open transaction usable, with its snapshot and locks, where the block fails.

        After an error the server refuses every further statement of a transaction, unless it goes
        back to a savepoint, which releases the locks that the block has taken.
        """
        self._run("SAVEPOINT unloader")
        has_own_path = self._has_own_path
        try:
            yield
        except Exception:
            if self.alive:
                with suppress(SourceError):
                    self._run("ROLLBACK TO SAVEPOINT unloader; RELEASE SAVEPOINT unloader")
                    self._has_own_path = has_own_path
            raise
        self._run("RELEASE SAVEPOINT unloader")

    @contextmanager
    def waiting(self, seconds: float) -> Iterator[None]:
        """Wait no longer than that for a lock within the block, inside a transaction."""
        self._run(f"SET LOCAL lock_timeout = {_milliseconds(seconds)}")
        try:
            yield
        finally:
            if self.alive:
                with suppress(SourceError):
                    self._run(f"SET LOCAL lock_timeout = {self._lock_timeout}")

    def rows(self, sql: str, *arguments: object, binary: bool = False) -> list[Any]:
        self._set_path()
        return self._calling(lambda: self.query(sql, arguments, binary=binary))

    def value(self, sql: str, *arguments: object) -> Any:
        rows = self.rows(sql, *arguments)
        return rows[0][0] if rows else None

    def column_names(self, sql: str) -> list[tuple[str, int]]:
        """Return names and type OIDs of a query's columns without running it."""
        self._set_path()
        return self._calling(lambda: self.describe(sql))

    def copied(
        self, sql: str, dialect: CopyDialect | None, piece_bytes: int, columns: Sequence[str] = ()
    ) -> Iterator[tuple[Text, ...]]:
        """Yield the result of a query as CSV text, in pieces of less than `piece_bytes`.

        None as the dialect is COPY's binary form.

        Names are resolved as in `users_path`. A row that may have `piece_bytes` or more is a
        separate piece, and is in memory twice while it is read. The socket is read only while the
        caller waits for a piece. An interrupted copy ends the connection. With the names of all
        columns, the server may be asked for its text form, which is converted to the CSV form as it
        comes.
        """
        with self.users_path():
            self._set_path()
        self.rows_copied = 0
        binary = dialect is None
        form = text_form(dialect, columns) if dialect and native() is not None else None
        options = ["FORMAT binary" if binary else "FORMAT text"]
        if dialect is not None and form is None:
            options = ["FORMAT csv", f"DELIMITER {literal(dialect.delimiter)}"]
            options += [f"NULL {literal(dialect.null)}", f"QUOTE {literal(dialect.quote)}"]
            forced = dialect.force_quote
            if forced:
                columns_of = isinstance(forced, tuple) and ", ".join(map(quoted, forced))
                names = f"({columns_of})" if columns_of else "*"
                options.append(f"FORCE_QUOTE {names}")
        statement = f"COPY ({sql}) TO STDOUT ({', '.join(options)})"
        with closing(self.copy(statement, piece_bytes, form, binary=binary)) as chunks:
            while True:
                try:
                    chunk = self._calling(lambda: next(chunks))
                except StopIteration as end:
                    self.rows_copied = int(end.value)
                    return
                yield (chunk,)
                del chunk

    def _set_path(self) -> None:
        if self._has_own_path != self._wants_own_path:
            own = self._wants_own_path
            # What a reset goes back to is the path of the role, the database or the URL.
            self._run(f"SET search_path = {OWN_PATH}" if own else "RESET search_path")
            self._has_own_path = own

    def _run(self, sql: str) -> None:
        """Run statements in which no name is resolved."""
        self._calling(lambda: super(Session, self).execute(sql))

    def _calling(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except errors.LibpqError as error:
            phase: errors.Phase = "open" if self.alive else "closed"
            self._lost = self._lost or errors.is_loss(error, phase)
            raise errors.translated(error, phase=phase) from error


def _milliseconds(seconds: float) -> str:
    return str(max(1, min(round(seconds * 1000), LONGEST_LOCK_MILLISECONDS)))


_BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

_STATE = "SELECT concat_ws(' ', pg_postmaster_start_time(), txid_current_snapshot())"
"""PostgreSQL prints a snapshot as two numbers and a list. The snapshot sees transactions before the
first number, and transactions before the second number that are not in the list."""


def export(session: Session) -> str:
    """Begin a transaction, export its snapshot, and return what `enter` takes."""
    session.execute(_BEGIN)
    number = session.value("SELECT pg_export_snapshot()")
    return f"{number} state={_state(session)}"


def enter(session: Session, value: str) -> None:
    """Begin a transaction in an exported snapshot; `SnapshotGone` if it does not exist."""
    found = SNAPSHOT_VALUE.fullmatch(value)
    number = found["number"] if found else value
    try:
        session.execute(f"{_BEGIN}; SET TRANSACTION SNAPSHOT {literal(number)}")
    except UnloaderError as error:
        if error.retryable or errors.state_of(error.__cause__) not in errors.NOT_EXPORTED:
            raise  # Of this session only; whether the snapshot is still held is the parent's.
        raise SnapshotGone(
            f"snapshot {number} cannot be imported, because the connection that holds the "
            f"snapshot is lost: {error.message}",
            errors.AGAIN,
        ) from error
    if found is not None and _state(session) != found["state"]:
        raise SnapshotGone(
            f"snapshot {number} is now a different snapshot: the server was restarted after the "
            "run began",
            errors.AGAIN,
        )


def session_in(spec: SourceSpec, snapshot: Snapshot | None) -> Session:
    session = Session(spec)
    if snapshot is not None and snapshot.kind == EXPORTED:
        try:
            enter(session, snapshot.value)
        except UnloaderError:
            session.close()
            raise
    return session


def _state(session: Session) -> str:
    return hashlib.sha256(session.value(_STATE).encode()).hexdigest()[:16]


_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
"""Where Debian, Red Hat, SUSE and Alpine keep the CAs of the system in one file."""

_SYSTEM = re.compile(r"([?&]sslrootcert=)system(?=&|$)")

_UNTRUSTED = re.compile(
    "certificate verify failed|does not match host name|root certificate file|"
    "host name must be specified"
)
_NO_TLS = "does not support SSL"


def verified(location: str) -> str:
    """Return the URL that the driver gets: the user's, with what makes TLS verified by default.

    `sslrootcert=system` is understood as in libpq. `ConfigError` without the system's CAs.
    """
    if _SYSTEM.search(location):
        location = _SYSTEM.sub(lambda match: match[1] + quote(_system_bundle()), location)
    given = _given(location)
    names = given.get("host") or os.environ.get("PGHOST") or ""
    addresses = given.get("hostaddr") or os.environ.get("PGHOSTADDR") or ""
    hosts = filter(None, f"{names},{addresses}".split(","))  # None is a socket of this machine.
    if given.get("sslmode") or os.environ.get("PGSSLMODE") or all(map(_is_local, hosts)):
        return location
    added = "sslmode=verify-full"
    own_bundle = os.path.expanduser("~/.postgresql/root.crt")
    named = given.get("sslrootcert") or os.environ.get("PGSSLROOTCERT")
    if not (named or os.path.exists(own_bundle)):
        added += f"&sslrootcert={quote(_system_bundle())}"
    return f"{location}{'&' if '?' in location else '?'}{added}"


def refusal(error: BaseException | None, location: str) -> SourceError | None:
    """Return the user's error where TLS is not there or not to be trusted, None for others."""
    while error is not None:
        if _UNTRUSTED.search(str(error)):
            return SourceError(
                f"the certificate of {location} is not trusted: "
                + str(error).strip().splitlines()[-1].rpartition(" failed: ")[2],
                "give the file of its CA as sslrootcert=FILE in the URL, and the host name that "
                "is in the certificate; sslmode=require encrypts without checking the server",
            )
        if _NO_TLS in str(error):
            mode = _given(location).get("sslmode") or os.environ.get("PGSSLMODE")
            asked = f"sslmode={mode} requires" if mode else "is required by default on a network"
            return SourceError(
                f"{location} does not offer TLS, which {asked}",
                "switch TLS on in the server (ssl = on); if the network is trusted, write "
                "sslmode=disable into the URL",
            )
        error = error.__cause__ or error.__context__
    return None


def _given(location: str) -> dict[str, str]:
    """Return the settings of a URL, and the settings of the service that it names."""
    try:
        settings = {name: str(value) for name, value in conninfo_to_dict(location).items()}
    except psycopg.ProgrammingError:
        return {}  # The session reports the error.
    service = settings.get("service") or os.environ.get("PGSERVICE")
    if not service:
        return settings
    services = ConfigParser()
    try:
        services.read(os.environ.get("PGSERVICEFILE") or os.path.expanduser("~/.pg_service.conf"))
        found = dict(services[service])
    except (Error, KeyError, OSError, UnicodeDecodeError):
        return settings  # The driver finds no such service, either.
    for name in ("password", "sslpassword"):
        learn(found.get(name))
    return {**found, **settings}


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.startswith(("/", "@")) or host.lower() == "localhost"


def _system_bundle() -> str:
    named = ssl.get_default_verify_paths().cafile
    for path in (named, *_BUNDLES):
        if path and os.path.isfile(path):
            return path
    raise ConfigError(
        "the file with the CAs of this system was not found, and the server's certificate cannot "
        "be checked without it",
        "name the file with sslrootcert=FILE in the URL, or with SSL_CERT_FILE",
    )
