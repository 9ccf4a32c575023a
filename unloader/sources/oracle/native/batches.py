"""Batches of a statement's rows by the native fetch; the driver decodes the first rows, too.

A tap on the driver's socket sees the responses to fetches before the driver reads them. The driver
calls `recv` of its socket by name. So a subclass replaces the socket's class while a statement is
fetched, and the first class is restored afterwards. The driver's requests are never changed.

A server is confirmed when rows of a table, fetched both ways, agree cell by cell. The results are
in one file in the user's state directory, which is replaced as a whole. They hold for a server's
address and version, for the driver's version, and for the compared sorts of columns.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import select
import socket
import ssl
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from unloader.errors import ConfigError, SourceError
from unloader.sources.oracle.arrow import CheckedText, Fetched, arrow_batches, type_handler
from unloader.sources.oracle.native.decoder import (
    ABI_VERSION,
    NO_MORE_ROWS,
    Refused,
    RowDecoder,
    check_library,
    descriptions,
    library,
    may_be_native,
    sorts_of,
)
from unloader.sources.oracle.session import parse_location
from unloader.sources.oracle.statement import NATIVE, driver_version
from unloader.sources.readings import type_named
from unloader.sources.registry import state_directory
from writers import built_library
from writers.files.regular import read_regular

if TYPE_CHECKING:
    import oracledb

    from unloader.model import SourceSpec
    from unloader.sources.oracle.native.decoder import Description
    from unloader.sources.oracle.session import Session
    from unloader.sources.oracle.statement import FetchPlan


Batches = Callable[["oracledb.Connection", str, "FetchPlan", int], Generator[Fetched, None, None]]

FIRST_ROWS = 32
"""Rows of each statement that the driver decodes, too. A guess: enough to reveal a column that is
decoded as the wrong type, and negligible in the time of a unit."""


PREFETCHED = 0
"""Rows that come with the response to an execute: they would pass by."""


class NotForNative(Exception):
    """A statement that the native fetch leaves to the driver; says why."""


def tap_on(connection: oracledb.Connection) -> Tap | str:
    """Return a tap on a connection, or why its rows cannot be fetched natively."""
    installed = driver_version()
    if installed not in NATIVE:
        return f"python-oracledb {installed} was not tested with it"
    if not connection.thin:
        return "Oracle's client library fetches the rows (thick mode)"
    if (why := built_library.reason(library)) is not None:
        return why
    tapped = driver_socket(connection)
    if tapped is None:
        return "the driver's connection does not use exactly one separate socket"
    return Tap(connection, tapped)


class NativeStatement:
    """One statement while its rows are fetched; the connection does nothing else then."""

    def __init__(self, tap: Tap, plan: FetchPlan) -> None:
        self._plan = plan
        self._kinds = [type_named(item.fetched) for item in plan.items]
        self._tap = tap
        self._cursor = tap.connection.cursor()
        self._decoder: RowDecoder | None = None

    def __enter__(self) -> NativeStatement:
        self._tap.__enter__()
        return self

    def __exit__(self, *failure: object) -> None:
        self._tap.__exit__(None, None, None)
        if self._tap.refusal is None:
            self._cursor.close()

    def execute(self, sql: str) -> None:
        """Execute without fetching; `NotForNative` where a column is left to the driver."""
        cursor = self._cursor
        cursor.prefetchrows = PREFETCHED
        cursor.arraysize = FIRST_ROWS
        cursor.outputtypehandler = type_handler(self._plan.items)
        cursor.execute(sql)
        found: list[Description] | None = descriptions(cursor.description, self._plan.items)
        if found is None:
            raise NotForNative("some columns have types that it does not decode")
        self._decoder = RowDecoder(found)

    def fetch(self, rows: int, way: Literal["copied", "taken"]) -> tuple[list[pa.Array], bool]:
        """Fetch rows natively; return them and whether there may be more.

        Rows that are copied are fetched both ways, and every cell is compared. `Refused` where a
        response is not read natively or a cell differs; `ValueError` for a date that the driver
        cannot make.
        """
        decoder, tap = self._decoder, self._tap
        assert decoder is not None
        decoder.begin(rows)
        tap.decoder, tap.way, tap.refusal = decoder, way, None
        self._cursor.arraysize = rows
        try:
            found = self._cursor.fetchmany(rows) if way == "copied" else self._cursor.fetchone()
        finally:
            if tap.refusal is not None:
                raise tap.refusal
        if way == "taken" and found is not None:
            raise Refused("the driver received a row")
        progress = decoder.finish()
        arrays = decoder.take(self._kinds)
        if way == "copied":
            theirs = zip(*found, strict=True) if found else ((),) * len(arrays)
            for index, (ours, values) in enumerate(zip(arrays, theirs, strict=True)):
                if not _is_equal(ours, values):
                    raise Refused("the driver decodes the first rows to other values", index)
        return arrays, progress.error != NO_MORE_ROWS


def _is_equal(ours: pa.Array, theirs: Sequence[Any]) -> bool:
    """Return whether the driver's values equal ours; the driver returns numbers as text."""
    kind = ours.type
    if pa.types.is_integer(kind):
        theirs = [None if value is None else int(value) for value in theirs]
    elif pa.types.is_decimal(kind):
        theirs = [None if value is None else Decimal(value) for value in theirs]
    try:
        return bool(ours.equals(pa.array(theirs, kind)))
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return False


def native_batches(
    tap: Tap, sql: str, plan: FetchPlan, rows: int, ordinary: Batches = arrow_batches
) -> Generator[Fetched, None, None]:
    """Yield the values that a statement fetches, `rows` rows at a time after the first few.

    A statement that is left to the driver is fetched in the ordinary way. After `Refused` the
    yielded rows and the connection must not be used any more. `ValueError` for a date that the
    driver cannot make.
    """
    try:
        with NativeStatement(tap, plan) as statement:
            statement.execute(sql)
            arrays, more = statement.fetch(min(rows, FIRST_ROWS), "copied")
            # The decoder refuses a response with text that is not UTF-8.
            if len(arrays[0]):
                yield CheckedText(arrays)
            while more:
                arrays, more = statement.fetch(rows, "taken")
                if len(arrays[0]):
                    yield CheckedText(arrays)
            return
    except NotForNative as error:
        logger.info("the driver fetches the rows: %s", error)
    yield from ordinary(tap.connection, sql, plan, rows)


Way = Literal["through", "copied", "taken"]
"""What becomes of the rows of a response: they go to the driver, and the decoder sees nothing or
the same; or they go to the decoder alone."""

IDLE_SECONDS = 120.0
"""Guess: longest silence within a response. After a misread, the decoder may wait forever."""

_RECEIVE_BYTES = 256 * 1024
_DRIVER_PACKAGE = "oracledb"
_SOCKETS = (socket.socket, ssl.SSLSocket)


def driver_socket(connection: oracledb.Connection) -> socket.socket | None:
    """Return the socket of a connection of the thin driver, None unless there is just one."""
    found: dict[int, socket.socket] = {}
    seen: set[int] = set()
    todo: list[Any] = [getattr(connection, "_impl", None)]
    while todo:
        for inner in gc.get_referents(todo.pop()):
            if id(inner) in seen:
                continue
            seen.add(id(inner))
            if type(inner) in _SOCKETS:
                found[id(inner)] = inner
            elif type(inner).__module__.partition(".")[0] == _DRIVER_PACKAGE:
                todo.append(inner)
    return next(iter(found.values())) if len(found) == 1 else None


class Tap:
    """The responses to the fetches of a statement; a context manager around each statement."""

    def __init__(
        self,
        connection: oracledb.Connection,
        tapped: socket.socket,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self.connection = connection
        self._socket = tapped
        self._plain = type(tapped)
        self._idle_seconds = idle_seconds
        self.decoder: RowDecoder | None = None
        self.way: Way = "through"
        """Of the next responses to fetches."""
        self._active = False
        self._begun = False
        self._pending = b""
        """The start of a packet; the driver reads the rest directly from the socket."""
        self._memory = memoryview(bytearray(_RECEIVE_BYTES))
        self.refusal: Refused | None = None

    def __enter__(self) -> Tap:
        plain, receive = self._plain, self._receive

        def recv(tapped: Any, size: int, flags: int = 0) -> bytes:
            return receive(plain.recv, size, flags)

        self.connection.round_trip_callback = self._before
        # A class for each socket: an object of a class without slots has no place for more.
        names = {"__slots__": (), "recv": recv}
        self._socket.__class__ = type(f"Tapped{plain.__name__}", (plain,), names)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.__class__ = self._plain
        self._active = False
        # On a connection that is lost there is nothing to set any more.
        with suppress(Exception):
            self.connection.round_trip_callback = None

    def _before(self, what: str) -> None:
        """Note the kind of the driver's next request, as its round-trip callback."""
        self._active = what == "fetch" and self.way != "through"
        self._begun = False

    def _receive(self, plain: Callable[..., bytes], size: int, flags: int) -> bytes:
        """Return the part of the next bytes from the server that the driver has to see."""
        decoder = self.decoder
        if not self._active or decoder is None:
            pending, self._pending = self._pending, b""
            return pending or plain(self._socket, size, flags)
        try:
            if self.way == "copied":
                received = plain(self._socket, size, flags)
                decoder.feed(received)
                return received
            while True:
                if self._begun:
                    self._wait()
                try:
                    count = self._plain.recv_into(self._socket, self._memory, 0, flags)
                except BaseException:
                    # After a time limit or an interruption the driver sends a break, then reads.
                    self._active = False
                    self._pending = decoder.partial()
                    raise
                if not count:
                    self._active = False
                    return b""
                self._begun = True
                decoder.feed(self._memory[:count])
                if found := decoder.passed_on():
                    return found
        except Refused as refusal:
            # Shut the connection down: the driver has not seen the bytes that the decoder took.
            self.refusal = refusal
            self._active = False
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()
            raise

    def _wait(self) -> None:
        """Wait for more of a response that has begun; `Refused` if nothing comes."""
        own = self._socket.gettimeout()
        if own is not None and own <= self._idle_seconds:
            return  # The driver's own limit comes first.
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return
        waiting = select.poll()
        waiting.register(self._socket, select.POLLIN)
        if not waiting.poll(self._idle_seconds * 1000):
            raise Refused(f"a response stopped for {self._idle_seconds:g} s")


logger = logging.getLogger(__name__)

CONFIRMED_ROWS = 20_000

_SIZES = (1, 2, 3, 50, 1000)
"""Rows of one response after the other: values repeat across each of their boundaries."""


def confirm_fetch(
    spec: SourceSpec, session: Session, statements: Sequence[str], plan: FetchPlan
) -> None:
    """Fetch rows of a table both ways, and remember that the server of a session agrees.

    The statements of a run's units are read in order until there are enough rows. `SourceError`
    where the two ways differ, which loses the session, or the table is not for the native fetch.
    """
    check_library()
    tap = tap_on(session.connection)
    if not may_be_native(plan):
        tap = "it leaves LOBs, LONGs and some other columns to the driver"
    if isinstance(tap, str):
        raise SourceError(
            f"the native fetch does not work for this run: {tap}", "leave --confirm-fetch out"
        )
    sorts, rows, seen = sorts_of(plan), 0, set[str]()
    try:
        for sql in statements:
            more, turn = rows < CONFIRMED_ROWS, 0
            if not more:
                break
            with session.translating(), NativeStatement(tap, plan) as statement:
                statement.execute(sql)
                while more and rows < CONFIRMED_ROWS:
                    size = _SIZES[min(turn, len(_SIZES) - 1)]
                    arrays, more = statement.fetch(size, "copied")
                    turn += 1
                    rows += len(arrays[0])
                    seen.update(
                        sort
                        for sort, array in zip(sorts, arrays, strict=True)
                        if array.null_count < len(array)
                    )
    except NotForNative as error:
        raise SourceError(
            f"the native fetch does not work for this table: {error}",
            "leave --confirm-fetch out",
        ) from error
    except Refused as refusal:
        where = f" (column {refusal.column + 1})" if refusal.column >= 0 else ""
        raise SourceError(
            f"the native fetch and the driver give different values{where}: {refusal.reason}",
            "continue without --confirm-fetch; the driver's fetch is exact",
        ) from refusal
    except ValueError as error:
        raise SourceError(
            f"the driver cannot read a date of this table: {error}",
            "confirm with another table",
        ) from error
    if not seen:
        raise SourceError(
            "the native fetch cannot be confirmed: no row has a value",
            "leave --confirm-fetch out, or confirm with another table",
        )
    path = confirm(peers_of(spec, session), frozenset(seen), rows)
    logger.info("%d rows agree; remembered in %s", rows, path)


FORMAT = 1


def peers_of(spec: SourceSpec, session: Session) -> dict[str, str | int]:
    """Return the server and the versions for which a confirmation is valid."""
    return {
        "server": parse_location(spec.location).connect_string,
        "server_version": ".".join(map(str, session.version)),
        "driver_version": driver_version(),
        "decoder_version": ABI_VERSION,
    }


def _key(peers: Mapping[str, str | int]) -> str:
    return json.dumps(list(peers.values()))


def place() -> Path:
    return state_directory() / "confirmed-fetches.json"


def confirmed_sorts(peers: Mapping[str, str | int]) -> frozenset[str]:
    """Return the sorts of columns that a server agreed about, none without our own file."""
    entry = _entries().get(_key(peers))
    sorts = entry.get("columns") if isinstance(entry, dict) else None
    return frozenset(map(str, sorts)) if isinstance(sorts, list) else frozenset()


def confirm(peers: Mapping[str, str | int], sorts: frozenset[str], rows: int) -> Path:
    """Add sorts of columns to those of a server; `ConfigError` where the file cannot be written."""
    path = place()
    entries = dict(_entries())
    entries[_key(peers)] = {
        **peers,
        "columns": sorted(confirmed_sorts(peers) | sorts),
        "rows": rows,
        "confirmed": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    text = json.dumps({"format": FORMAT, "servers": entries}, indent=1, ensure_ascii=False)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=".confirmed-", dir=path.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text + "\n")
            os.replace(name, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(name)
            raise
    except OSError as error:
        raise ConfigError(
            f"cannot store the confirmations in {path}: {error}",
            "set XDG_STATE_HOME to a directory that this user may write to",
        ) from error
    return path


def _entries() -> Mapping[str, Any]:
    path = place()
    try:
        found = path.lstat()
        # Only this user may decide which sorts are safe to use.
        if found.st_uid != os.geteuid() or found.st_mode & 0o022:
            return {}
        content = json.loads(read_regular(path))
    except (OSError, ValueError):
        return {}
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        return {}
    servers = content.get("servers")
    return servers if isinstance(servers, dict) else {}
