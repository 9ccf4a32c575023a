"""Batches of a statement's rows by the native fetch; the driver decodes a part of them, too.

A tap on the driver's socket sees the responses to fetches before the driver reads them. The driver
calls `recv` of its socket by name. So a subclass replaces the socket's class while a statement is
fetched, and the first class is restored afterwards. The driver's requests are never changed.

Compared rows come through the driver, and the decoder sees a copy of the response. The witness says
which rows are compared.
"""

from __future__ import annotations

import gc
import logging
import select
import socket
import ssl
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from unloader.sources.oracle.arrow import CheckedText, Fetched, arrow_batches, type_handler
from unloader.sources.oracle.native.decoder import (
    NO_MORE_ROWS,
    Description,
    Refused,
    RowDecoder,
    descriptions,
    library,
)
from unloader.sources.oracle.statement import NATIVE, FetchPlan, driver_version
from unloader.sources.readings import type_named
from writers import built_library
from writers.schema import pc

if TYPE_CHECKING:
    import oracledb


Batches = Callable[["oracledb.Connection", str, "FetchPlan", int], Generator[Fetched, None, None]]

FIRST_ROWS = 32
"""Rows of each statement that the driver decodes, too. A guess: enough to reveal a column that is
decoded as the wrong type, and negligible in the time of a unit."""


PREFETCHED = 0
"""Rows that come with the response to an execute: they would pass by."""


WITNESSED_ROWS = 20_000
"""The first rows of a table that the driver decodes, too, unless the native fetch was asked for."""

_FIRST_SIZES = (1, 2, 3, 50)
"""Rows of the first compared responses: values repeat across each of their boundaries."""

_WITNESSED_SIZE = 1000
"""Most rows of one compared response: the driver takes ten times the CPU for a row."""


class Witness:
    """Decides which responses of a table the driver decodes, too, and counts their rows.

    `first` rows are compared, and then one response in `every`; 0 compares none.
    """

    def __init__(self, first: int, every: int) -> None:
        self._first, self._every = first, every
        self._rows = self._compared = self._taken = 0
        self._new = 0

    def next(self, rows: int) -> int:
        """Return the size of the next response if it is to be compared, else 0."""
        if self._rows < self._first:
            size = (*_FIRST_SIZES, _WITNESSED_SIZE)[min(self._compared, len(_FIRST_SIZES))]
            return min(size, rows, self._first - self._rows)
        self._taken += 1
        return min(_WITNESSED_SIZE, rows) if self._every and self._taken % self._every == 0 else 0

    def saw(self, rows: int) -> None:
        self._compared += 1
        self._rows += rows
        self._new += rows

    def take(self) -> int:
        """Return the rows that were compared since the last call."""
        new, self._new = self._new, 0
        return new


class NotForNative(Exception):
    """A statement that the native fetch leaves to the driver; says why."""


def tap_on(connection: oracledb.Connection) -> Tap | str:
    """Return a tap on a connection, or why its rows cannot be fetched natively."""
    installed = driver_version()
    if installed not in NATIVE:
        tested = " or ".join(sorted(NATIVE))
        return f"python-oracledb {installed} was not tested with it. Install version {tested}"
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
        self._unknown = [False] * len(self._kinds)
        """Columns whose last value the driver did not see. The server can ask to repeat it."""

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
        if way == "taken":
            self._unknown = [True] * len(self._kinds)
            return decoder.take(self._kinds), progress.error != NO_MORE_ROWS
        repeats, arrays = decoder.repeats_before(), decoder.take(self._kinds)
        theirs = zip(*found, strict=True) if found else ((),) * len(arrays)
        for index, (ours, values) in enumerate(zip(arrays, theirs, strict=True)):
            start = repeats[index] if self._unknown[index] else 0
            self._unknown[index] = self._unknown[index] and start == len(ours)
            if not _is_equal(ours[start:], values[start:]):
                raise Refused("the driver decodes some rows to other values", index)
        return arrays, progress.error != NO_MORE_ROWS


def _is_equal(ours: pa.Array, theirs: Sequence[Any]) -> bool:
    """Return whether the driver's values equal ours; the driver returns numbers as text."""
    kind = ours.type
    try:
        if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
            return bool(ours.equals(pa.array(theirs, pa.string()).cast(kind)))
        made = pa.array(theirs, kind)
        if pa.types.is_floating(kind):
            nans = pc.is_nan(made)
            if not pc.is_nan(ours).equals(nans):
                return False
            # NaN equals nothing.
            ours, made = (pc.if_else(nans, 0.0, each) for each in (ours, made))
        return bool(ours.equals(made))
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return False


def native_batches(
    tap: Tap,
    sql: str,
    plan: FetchPlan,
    rows: int,
    witness: Witness,
    ordinary: Batches = arrow_batches,
) -> Generator[Fetched, None, None]:
    """Yield the values that a statement fetches, `rows` rows at a time unless they are compared.

    A statement that is left to the driver is fetched in the ordinary way. After `Refused` the
    yielded rows and the connection must not be used any more. `ValueError` for a date that the
    driver cannot make.
    """
    try:
        with NativeStatement(tap, plan) as statement:
            statement.execute(sql)
            size, more = min(rows, FIRST_ROWS), True
            while more:
                arrays, more = statement.fetch(size or rows, "copied" if size else "taken")
                if size:
                    witness.saw(len(arrays[0]))
                # The decoder refuses a response with text that is not UTF-8.
                if len(arrays[0]):
                    yield CheckedText(arrays)
                size = witness.next(rows)
            return
    except NotForNative as error:
        logger.info("the driver fetches the rows: %s", error)
    yield from ordinary(tap.connection, sql, plan, rows)


logger = logging.getLogger(__name__)

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
