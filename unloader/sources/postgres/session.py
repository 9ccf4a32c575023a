"""One PostgreSQL session through asyncpg, used from ordinary (synchronous) code.

asyncpg strips COPY's message frames in C, many at a time; measured per million rows of 150 bytes it
took less than half the CPU of psycopg's COPY and a third of ADBC. Each session owns an event loop
that only runs while its owner waits, so a slow consumer stops the socket, not memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from unloader.errors import ConnectFailed, SessionsRefused, SourceError, TransientSourceError
from unloader.model import SourceSpec
from unloader.records import dataclass
from unloader.sources.base import Text
from unloader.sources.password import password_of
from unloader.sources.postgres.errors import Phase, is_loss, translated
from unloader.sources.postgres.tls import refusal, verified
from unloader.sources.registry import missing_driver

T = TypeVar("T")

SETTINGS = """
SET default_transaction_read_only = on;
SET TimeZone = 'UTC'; SET DateStyle = 'ISO, YMD'; SET IntervalStyle = 'postgres';
SET bytea_output = 'hex'; SET extra_float_digits = 1; SET row_security = {policies};
SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0;
SET max_parallel_workers_per_gather = {gather}; SET jit = off; SET synchronize_seqscans = off;
SET application_name = '{name}'
"""
"""The first line keeps a function in a condition or a query of the user from writing. The next ones
fix the text of values. With row_security off a policy that may hide rows is an
error: nobody asked for what it lets through. Without synchronized scans the order of rows is that
of the heap, the same on each run. A worker that comes upon a TRUNCATE waiting for the
parent's lock would wait for ever: no server sees that the parent waits for the worker."""

PARENT_GATHER = 2
"""PostgreSQL's own default; workers get 0, as our processes are the parallelism."""

LONGEST_LOCK_MILLISECONDS = 2**31 - 1
"""The server refuses a longer lock_timeout; this one is 24 days."""

CONNECT_SECONDS = 60
CHECKING_VERSION = 14
LIMITING_VERSION = 17

NAP_SECONDS = 0.001
SMALL_PIECE_BYTES = 64 * 1024
"""The server sends 8 KiB at a time. Waking up for each costs more CPU than the data does; a nap
after a small piece lets the socket fill, and measured halves the client's CPU."""
WIDE_CHUNK_BYTES = 1024 * 1024
"""More than the socket gives at a time, so that such a chunk is a wide row and few others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyDialect:
    """The options of COPY's CSV form."""

    delimiter: str = ","
    quote: str = '"'
    null: str = ""
    force_quote: tuple[str, ...] | bool = False
    """Columns whose every value but NULL is quoted; True is all."""


def session_name(spec: SourceSpec, program: str = "unloader") -> str:
    """Return what the server's list of sessions calls ours; the run's own within a run."""
    return f"{program}:{spec.session.run_id}" if spec.session.run_id else program


class Session:
    """A connection and the event loop that drives it."""

    def __init__(self, spec: SourceSpec, *, gather: int = 0, program: str = "unloader") -> None:
        """Connect and fix the settings that decide how values are printed.

        Args:
            spec: The database.
            gather: Parallel workers that the server may use for a query.
            program: What the list of sessions calls it, with the run's id behind it.

        Raises:
            ConfigError: asyncpg is missing, or the password file cannot be read.
            SourceError: The server refused; transient where a retry may help.
        """
        try:
            import asyncpg
        except ImportError as error:
            raise missing_driver(error, "postgres") from error
        self._asyncpg = asyncpg
        self._loop = asyncio.new_event_loop()
        self._connection: Any = None
        self._cancelled = self._lost = False
        self._lock_timeout = "DEFAULT"
        self._rows_copied = 0
        try:
            self._connection = self._connect(spec)
            policies = "on" if spec.session.enable_row_security else "off"
            name = session_name(spec, program)
            self.execute(SETTINGS.format(gather=gather, name=name, policies=policies))
            if spec.session.lock_timeout_seconds:
                self._lock_timeout = str(_lock_timeout(spec))
                self.execute(f"SET lock_timeout = {self._lock_timeout}")
            self._watch_connection()
        except BaseException:
            self.close()
            raise

    def _watch_connection(self) -> None:
        """Let the server end a query whose client was killed; where it cannot, it finds out later.

        The setting exists from PostgreSQL 14 on, and on systems that can poll a socket's end. From
        17 on the server may also set an end to whole transactions: ours last as long as the run.
        """
        if self.version[0] >= CHECKING_VERSION:
            with suppress(SourceError):
                self.execute("SET client_connection_check_interval = '10s'")
        if self.version[0] >= LIMITING_VERSION:
            with suppress(SourceError):
                self.execute("SET transaction_timeout = 0")

    def _connect(self, spec: SourceSpec) -> Any:
        password, location = password_of(spec), verified(spec.location)
        try:
            return self._run(
                self._asyncpg.connect(location, password=password, timeout=CONNECT_SECONDS)
            )
        except SessionsRefused:
            raise
        except TransientSourceError as error:
            refused = refusal(error, spec.location)
            if refused is not None:
                raise refused from error
            # The system's own words name neither a socket nor a host that nobody knows.
            raise ConnectFailed(
                f"{error.message}, for {spec.location}",
                "check host and port in the URL, and that the server is up",
            ) from error

    @property
    def alive(self) -> bool:
        """Whether the connection stands; a `copy` that was broken off ends it."""
        return not (self._lost or self._connection.is_closed())

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, such as that of a snapshot."""
        return bool(self._connection.is_in_transaction())

    @property
    def version(self) -> tuple[int, int]:
        """Major and minor version of the server."""
        found = self._connection.get_server_version()
        return found.major, found.minor

    @property
    def rows_copied(self) -> int:
        """Rows of the last finished `copy`, from the server's own `COPY n`."""
        return self._rows_copied

    def execute(self, sql: str) -> None:
        """Run statements without a result."""
        self._run(self._connection.execute(sql))

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Keep an open transaction usable, with its snapshot and locks, where the block fails.

        After an error the server refuses every further statement of a transaction, unless it goes
        back to a savepoint. Locks that the block has taken are released with it.

        Raises:
            SourceError: What the block raised.
        """
        self.execute("SAVEPOINT unloader")
        try:
            yield
        except Exception:
            if self.alive:
                with suppress(SourceError):
                    self.execute("ROLLBACK TO SAVEPOINT unloader; RELEASE SAVEPOINT unloader")
            raise
        self.execute("RELEASE SAVEPOINT unloader")

    @contextmanager
    def waiting(self, seconds: float) -> Iterator[None]:
        """Wait no longer than that for a lock within the block, inside a transaction."""
        milliseconds = max(1, min(round(seconds * 1000), LONGEST_LOCK_MILLISECONDS))
        self.execute(f"SET LOCAL lock_timeout = {milliseconds}")
        try:
            yield
        finally:
            if self.alive:
                with suppress(SourceError):
                    self.execute(f"SET LOCAL lock_timeout = {self._lock_timeout}")

    def rows(self, sql: str, *arguments: object) -> list[Any]:
        """Return all rows of a query, as records with attributes by name."""
        return list(self._run(self._connection.fetch(sql, *arguments)))

    def value(self, sql: str, *arguments: object) -> Any:
        """Return the first value of the first row."""
        return self._run(self._connection.fetchval(sql, *arguments))

    def column_names(self, sql: str) -> list[tuple[str, int]]:
        """Return names and type OIDs of a query's columns without running it."""
        statement = self._run(self._connection.prepare(sql))
        return [(item.name, item.type.oid) for item in statement.get_attributes()]

    def copy(self, sql: str, dialect: CopyDialect, piece_bytes: int) -> Iterator[tuple[Text, ...]]:
        """Yield the result of a query as CSV text, in pieces of one or more chunks.

        PostgreSQL sends one record a message and asyncpg hands out whole messages, so a chunk never
        ends inside a record. The socket is read only while the caller waits for a piece.

        A chunk from `WIDE_CHUNK_BYTES` on is a view. If nobody has one of it any more when the next
        piece is asked for, its memory is free from then on; asyncpg would keep it for longer.
        """
        gathered = _Gathered(piece_bytes)
        task = self._loop.create_task(self._copy_into(sql, dialect, gathered))
        try:
            while True:
                self._run(gathered.wait(task))
                piece = gathered.take()
                if piece:
                    yield tuple(map(_as_view, piece))
                    _let_go(piece)
                elif task.done():
                    break
            status = self._run(task)
            self._rows_copied = int(status.rpartition(" ")[2])
        finally:
            if not task.done():
                task.cancel()
                self._abandon()

    def close(self) -> None:
        """Close the connection; never raises."""
        if self._loop.is_closed():
            return
        try:
            if self._connection is not None and asyncio.all_tasks(self._loop):
                self._connection.terminate()  # goodbye would wait for the end of an open COPY
            elif self._connection is not None:
                self._loop.run_until_complete(self._connection.close(timeout=5))
        except (Exception, asyncio.CancelledError):  # A late cancel reaches the goodbye, too.
            self._connection.terminate()
        finally:
            self._drain()
            self._loop.close()

    async def _copy_into(self, sql: str, dialect: CopyDialect, gathered: _Gathered) -> str:
        forced = dialect.force_quote
        status: str = await self._connection.copy_from_query(
            sql,
            output=gathered.add,
            format="csv",
            delimiter=dialect.delimiter,
            null=dialect.null,
            quote=dialect.quote,
            force_quote=list(forced) if isinstance(forced, tuple) and forced else forced or None,
        )
        return status

    def _run(self, awaitable: Awaitable[T]) -> T:
        try:
            return self._loop.run_until_complete(awaitable)
        except (Exception, asyncio.CancelledError) as error:
            phase = self._phase
            cancelled = self._cancelled and isinstance(error, asyncio.CancelledError)
            self._lost = self._lost or is_loss(error, phase)
            raise translated(error, phase=phase, cancelled=cancelled) from error

    @property
    def _phase(self) -> Phase:
        if self._connection is None:
            return "connecting"
        return "open" if self.alive else "closed"

    def cancel(self) -> None:
        """Stop the call that another thread waits for; never raises."""
        self._cancelled = True
        with suppress(RuntimeError):  # The loop is closed.
            self._loop.call_soon_threadsafe(self._cancel_tasks)

    def _cancel_tasks(self) -> None:
        for task in asyncio.all_tasks(self._loop):
            task.cancel()

    def _abandon(self) -> None:
        # A COPY cut short cannot be resumed: the connection goes with it.
        self._connection.terminate()
        self._drain()

    def _drain(self) -> None:
        pending = asyncio.all_tasks(self._loop)
        for task in pending:
            task.cancel()
        if pending:
            self._loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())


def _lock_timeout(spec: SourceSpec) -> int:
    milliseconds = round(spec.session.lock_timeout_seconds * 1000)
    return max(1, min(milliseconds, LONGEST_LOCK_MILLISECONDS))


def _as_view(chunk: bytes) -> Text:
    return memoryview(chunk).toreadonly() if len(chunk) >= WIDE_CHUNK_BYTES else chunk


def _let_go(piece: tuple[bytes, ...]) -> None:
    """Give the memory of wide rows back, unless there is a view of it."""
    for chunk in piece:
        if len(chunk) >= WIDE_CHUNK_BYTES and isinstance(chunk, bytearray):
            with suppress(BufferError):
                chunk.clear()


class _Gathered:
    """Pieces between the COPY callback and the generator that hands them out."""

    def __init__(self, piece_bytes: int) -> None:
        self._piece_bytes = piece_bytes
        self._parts: list[bytes] = []
        self._size = 0
        self._full = asyncio.Event()
        self._taken = asyncio.Event()

    async def add(self, data: bytes) -> None:
        """Take one chunk; wait while a whole piece is lying here unread."""
        self._parts.append(data)
        self._size += len(data)
        if self._size >= self._piece_bytes:
            self._taken.clear()
            self._full.set()
            await self._taken.wait()
        elif len(data) < SMALL_PIECE_BYTES and len(self._parts) > 1:
            # Behind the first one most often comes the end: most tables are small.
            await asyncio.sleep(NAP_SECONDS)

    async def wait(self, task: asyncio.Future[str]) -> None:
        """Return once a piece is full or the COPY has ended."""
        self._taken.set()
        full: asyncio.Future[Any] = asyncio.ensure_future(self._full.wait())
        either: set[asyncio.Future[Any]] = {full, task}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        full.cancel()

    def take(self) -> tuple[bytes, ...]:
        """Return what has come so far and forget it."""
        piece = tuple(self._parts)
        self._parts.clear()
        self._size = 0
        self._full.clear()
        return piece
