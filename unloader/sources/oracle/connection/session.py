"""One Oracle session: its settings, its place in V$SESSION, and what becomes of its errors.

The settings make the texts of values and the order of keys independent of the user's environment,
the server's defaults and logon triggers. After an error that cost the connection nothing of it is
touched any more: the driver has been seen to crash the process where that was done.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from math import ceil
from typing import TYPE_CHECKING, Any

from unloader.errors import SourceError, TransientSourceError, UnloaderError
from unloader.model import SourceSpec
from unloader.redaction import redact
from unloader.sources.oracle.connection.connect import PROGRAM, open_connection
from unloader.sources.oracle.connection.errors import is_dead, translated

if TYPE_CHECKING:
    import oracledb

logger = logging.getLogger(__name__)

SETTINGS = """ALTER SESSION SET
NLS_CALENDAR = 'GREGORIAN' NLS_DATE_LANGUAGE = 'AMERICAN' NLS_NUMERIC_CHARACTERS = '.,'
NLS_COMP = 'BINARY' NLS_SORT = 'BINARY' NLS_NCHAR_CONV_EXCP = 'TRUE' TIME_ZONE = '+00:00'"""
"""NLS_NCHAR_CONV_EXCP makes a character that a conversion would lose an error."""

NO_PARALLEL_QUERY = "ALTER SESSION DISABLE PARALLEL QUERY"
"""Our processes are the parallelism."""

DIRECT_READ = 'ALTER SESSION SET "_serial_direct_read" = ALWAYS'
"""A hint: full scans that neither fill nor wait for the buffer cache."""

MAX_MODULE_BYTES = 48
MAX_ACTION_BYTES = 32
MAX_IDENTIFIER_BYTES = 64
"""Widths of MODULE, ACTION and CLIENT_IDENTIFIER in V$SESSION."""

FETCH_ROWS = 5000
"""Rows of one answer to a question about the dictionary."""

Binds = Sequence[Any] | Mapping[str, Any]


def client_identifier(spec: SourceSpec) -> str:
    """Return the CLIENT_IDENTIFIER of our sessions in V$SESSION; the run's own within a run."""
    name = f"{PROGRAM}:{spec.session.run_id}" if spec.session.run_id else PROGRAM
    return _cut(name, MAX_IDENTIFIER_BYTES)


STATEMENTS_KEPT = 2
"""Statements that the driver caches in a session that reads units: the unit's statement, and the
statement that finds its long values. Each unit has a different statement, which runs once and keeps
the memory of its fetched rows. With the driver's default of 20, a worker grew by 17 MB."""


class Session:
    """A connection that is ready to read."""

    def __init__(self, spec: SourceSpec, *, action: str, scans: bool = True) -> None:
        """Connect, name the session and fix its settings.

        Args:
            action: The purpose of the session, as V$SESSION.ACTION shows it.
            scans: The session reads whole units; one that asks the dictionary does better with the
                buffer cache.

        Raises:
            ConfigError: The URL, a secret or the client library is not usable.
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
            if not spec.session.parallel_query:
                self._ask_for(NO_PARALLEL_QUERY)
            if scans and spec.session.direct_read:
                self._ask_for(DIRECT_READ)
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
        """The driver's connection.

        Raises:
            SourceError: It is lost.
        """
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
        self.connection.action = _cut(action, MAX_ACTION_BYTES)

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

    def value(self, sql: str, binds: Binds = ()) -> Any:
        rows = self.run(sql, binds)
        return rows[0][0] if rows else None

    def parse(self, sql: str) -> tuple[oracledb.FetchInfo, ...]:
        """Return a query's columns; the database parses the statement and does not run it.

        Raises:
            SourceError: The statement is not valid, or has bind variables.
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

    def _ask_for(self, statement: str) -> None:
        """Run a statement that may be refused: the run is right without it."""
        try:
            self.run(statement)
        except SourceError as error:
            if not self.alive:
                raise
            logger.info("%s was refused: %s", statement, error.message)


def _cut(text: str, size: int) -> str:
    return text.encode()[:size].decode(errors="ignore")
