"""One session of libpq, driven without blocking, so that another thread can stop a call.

Waits are polls of the session's socket and of a descriptor that `cancel` writes to. A call that is
stopped asks the server to cancel, and takes what is left of its answer, so that the session can be
used again.
"""

from __future__ import annotations

import ctypes
import os
import select
import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any

from unloader.sources.postgres.libpq.copying import (
    FIRST_LOOK_SECONDS,
    LAST_LOOK_SECONDS,
    Ended,
    Rows,
)
from unloader.sources.postgres.libpq.errors import (
    BadSetting,
    Broken,
    Cancelled,
    LibpqError,
    ServerError,
    refused,
)
from unloader.sources.postgres.libpq.library import NoticeReceiver, libpq
from unloader.sources.postgres.libpq.text_form import TextForm
from unloader.sources.postgres.libpq.values import Row, c_text, reader, written

CONNECTION_OK, CONNECTION_BAD = 0, 1
POLLING_FAILED, POLLING_READING, POLLING_OK = 0, 1, 3
COPY_OUT = 3
BAD_RESPONSE, FATAL_ERROR = 5, 7
ACTIVE, IN_TRANSACTION, IN_ERROR = 1, 2, 3
VERBOSE = 2

SEVERITY, SQLSTATE, PRIMARY = ord("V"), ord("C"), ord("M")
"""Fields of an error; the severity is the one that is never translated."""

CLOSED = "the connection is closed"

CONNECT_SECONDS = 60.0
"""For each host, where neither the URL nor the environment has a connect_timeout."""

CANCEL_SECONDS = 10.0
"""For the server to end what it was asked to cancel; then the connection is given up."""

ASK_AGAIN_SECONDS = 1.0
"""Guess: a server that had the request has ended most calls by then."""


class Connection:
    """A session with a server.

    Args:
        settings: Keywords of libpq and their values; a URL may stand for `dbname`.

    Raises:
        BadSetting: A setting is not understood.
        Broken: No server could be had.
        Cancelled: By another thread.
        Missing: There is no libpq.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._libpq = libpq()
        self._handle: int | None = None
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._last_word: ServerError | None = None
        self._receive = NoticeReceiver(self._on_notice)
        try:
            self._connect(settings)
        except BaseException:
            self.close()
            raise

    def _connect(self, settings: Mapping[str, str]) -> None:
        names = (ctypes.c_char_p * (len(settings) + 1))(*map(c_text, settings), None)
        values = (ctypes.c_char_p * (len(settings) + 1))(*map(c_text, settings.values()), None)
        self._handle = self._libpq.PQconnectStartParams(names, values, 1)
        if self._handle is None:
            raise MemoryError("not enough memory for a connection")
        self._libpq.PQsetErrorVerbosity(self._handle, VERBOSE)
        self._libpq.PQsetNoticeReceiver(self._handle, self._receive, None)
        patience = self._patience()
        tried, deadline, wanted = None, 0.0, select.POLLOUT
        while True:
            if self._libpq.PQstatus(self._handle) == CONNECTION_BAD:
                raise refused(self._message())
            host = (self._libpq.PQhost(self._handle), self._libpq.PQport(self._handle))
            if host != tried:
                tried, deadline = host, time.monotonic() + patience
            if not self._poll(wanted, deadline):
                raise Broken(f"no answer within {patience:g} seconds")
            state = self._libpq.PQconnectPoll(self._handle)
            if state == POLLING_OK:
                return
            if state == POLLING_FAILED:
                raise refused(self._message())
            wanted = select.POLLIN if state == POLLING_READING else select.POLLOUT

    def _patience(self) -> float:
        """Return how long to wait for a host, in seconds."""
        found = self._libpq.PQconninfo(self._handle)
        given = ""
        with suppress(ValueError):  # Of a NULL, where there was no memory.
            at = 0
            while found[at].keyword is not None:
                if found[at].keyword == b"connect_timeout":
                    given = (found[at].value or b"").decode()
                at += 1
        self._libpq.PQconninfoFree(found)
        if not given:
            return CONNECT_SECONDS
        try:
            seconds = int(given)
        except ValueError:
            raise BadSetting(f"invalid integer value {given!r} for connect_timeout") from None
        return float(max(seconds, 2)) if seconds > 0 else float("inf")  # as libpq has it

    @property
    def is_open(self) -> bool:
        """Whether the connection stands, as far as is known."""
        return self._handle is not None and self._libpq.PQstatus(self._handle) == CONNECTION_OK

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, be it a failed one."""
        return self._transaction in (IN_TRANSACTION, IN_ERROR)

    @property
    def _transaction(self) -> int:
        return int(self._libpq.PQtransactionStatus(self._handle)) if self._handle else -1

    @property
    def version(self) -> tuple[int, int]:
        """Major and minor version of the server; from 10 on."""
        return divmod(int(self._libpq.PQserverVersion(self._handle)), 10_000)

    def execute(self, sql: str) -> None:
        """Run one or more statements and forget what they return."""
        self._begin()
        self._sent(self._libpq.PQsendQuery(self._handle, c_text(sql)))
        for result in self._results():
            self._libpq.PQclear(result)

    def query(self, sql: str, arguments: Sequence[object] = ()) -> list[Row]:
        """Run one statement and return its rows.

        Args:
            sql: With `$1` and so on for the arguments, cast where their types are not clear.
            arguments: None, numbers, bools, texts, and lists of them for arrays.
        """
        given = [written(each) for each in arguments]
        self._begin()
        values = (ctypes.c_char_p * len(given))(*given)
        self._sent(
            self._libpq.PQsendQueryParams(
                self._handle, c_text(sql), len(given), None, values, None, None, 0
            )
        )
        rows: list[Row] = []
        for result in self._results():
            try:
                rows = self._rows(result)
            finally:
                self._libpq.PQclear(result)
        return rows

    def describe(self, sql: str) -> list[tuple[str, int]]:
        """Return names and object numbers of types of a statement's columns; it is not run.

        Raises:
            ServerError: It is not a statement, or has parameters, for which there are no values.
        """
        self._begin()
        self._sent(self._libpq.PQsendPrepare(self._handle, b"", c_text(sql), 0, None))
        for result in self._results():
            self._libpq.PQclear(result)
        self._sent(self._libpq.PQsendDescribePrepared(self._handle, b""))
        columns: list[tuple[str, int]] = []
        for result in self._results():
            columns = self._columns(result)
            parameters = self._libpq.PQnparams(result)
            self._libpq.PQclear(result)
            if parameters:
                # In the server's words on COPY; a statement without COPY is told otherwise.
                raise ServerError("there is no parameter $1", "42P02")
        return columns

    def copy(
        self, sql: str, chunk_bytes: int, form: TextForm | None = None
    ) -> Generator[memoryview, None, int]:
        """Yield what a `COPY ... TO STDOUT` sends, in chunks of whole rows; return their number.

        The socket is read only while the caller waits for a chunk. A COPY that is broken off closes
        the connection: what is on its way would have to be read.

        Args:
            sql: The statement.
            chunk_bytes: A chunk has less, but for one row that may not be shorter by itself.
            form: What rows that come in the text form are turned into, where the native loop was
                built; None leaves rows as they are.

        Returns:
            The server's own count, which is that of the rows that came.

        Raises:
            Broken: The connection is lost, or the counts differ.
            Malformed: A row is not in the text form.
            ServerError: The server refused, perhaps after some rows.
        """
        handle = self._begin()
        self._sent(self._libpq.PQsendQuery(handle, c_text(sql)))
        self._await_result()
        first = self._libpq.PQgetResult(self._handle)
        is_copy = self._libpq.PQresultStatus(first) == COPY_OUT
        if not is_copy:
            self._raise_of(first)
        self._libpq.PQclear(first)
        with closing(Rows(handle, self._wake, chunk_bytes, form)) as rows:
            try:
                while (chunk := rows.next()) is not None:
                    yield chunk
                    del chunk
            except BaseException:
                self.close()
                raise
        if rows.ended is Ended.WOKEN:
            self._await_cancelled()
        counted = -1
        for result in self._results():
            counted = int(self._libpq.PQcmdTuples(result) or -1)
            self._libpq.PQclear(result)
        if counted != rows.count:
            raise Broken(
                f"{rows.count} rows arrived, but the server reports that it sent {counted}"
            )
        return counted

    def cancel(self) -> None:
        """Stop the call that another thread waits for; never raises."""
        with suppress(OSError):
            os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """End the session; never raises, and nothing is done the second time."""
        handle, self._handle = self._handle, None
        if handle is not None:
            self._libpq.PQfinish(handle)
            del self._receive  # It holds this object.
        wake, self._wake = self._wake, -1
        if wake >= 0:
            os.close(wake)

    def __del__(self) -> None:
        if getattr(self, "_wake", -1) >= 0:
            self.close()

    def _begin(self) -> int:
        """Make ready for a call: what was cancelled before it is none of its business."""
        if self._handle is None:
            raise Broken(CLOSED)
        with suppress(BlockingIOError):
            os.eventfd_read(self._wake)
        if self._transaction == ACTIVE:
            # A call was left by an exception, such as that of a signal.
            with suppress(Cancelled):
                self._await_cancelled()
            if self._handle is None:
                raise Broken(CLOSED)
        self._last_word = None
        return self._handle

    def _sent(self, done: int) -> None:
        if not done:
            raise self._broken()

    def _results(self) -> Iterator[int]:
        """Yield the results of what was sent, then raise the first error among them."""
        failed: LibpqError | None = None
        while True:
            self._await_result()
            result = self._libpq.PQgetResult(self._handle)
            if not result:
                break
            try:
                self._raise_of(result)
            except LibpqError as error:
                failed = failed or error
                continue
            yield result
        if failed is not None:
            raise failed

    def _raise_of(self, result: int) -> None:
        """Free a result that is an error, and raise it."""
        status = self._libpq.PQresultStatus(result)
        if status not in (BAD_RESPONSE, FATAL_ERROR):
            return
        error = self._error_of(result)
        self._libpq.PQclear(result)
        if self._libpq.PQstatus(self._handle) == CONNECTION_BAD:
            raise self._broken(error)
        raise error

    def _await_result(self) -> None:
        look = FIRST_LOOK_SECONDS
        while self._libpq.PQisBusy(self._handle):
            is_ready = self._poll(select.POLLIN, time.monotonic() + look)
            look = FIRST_LOOK_SECONDS if is_ready else min(2 * look, LAST_LOOK_SECONDS)
            if not self._libpq.PQconsumeInput(self._handle):
                raise self._broken()

    def _poll(self, wanted: int, deadline: float = float("inf")) -> bool:
        """Wait until the socket is ready; return whether it is by then.

        Raises:
            Cancelled: Another thread said so, and the server has ended the call.
        """
        waiting = select.poll()
        waiting.register(self._libpq.PQsocket(self._handle), wanted)
        waiting.register(self._wake, select.POLLIN)
        left = None if deadline == float("inf") else max(0.0, deadline - time.monotonic()) * 1000
        ready = [descriptor for descriptor, _ in waiting.poll(left)]
        if self._wake in ready:
            self._await_cancelled()
        return bool(ready)

    def _await_cancelled(self) -> None:
        """Have the server end the call that is running, and raise `Cancelled`."""
        if self._libpq.PQstatus(self._handle) != CONNECTION_OK:
            raise Cancelled
        deadline = time.monotonic() + CANCEL_SECONDS
        asking, again = self._request_cancel(), time.monotonic() + ASK_AGAIN_SECONDS
        while time.monotonic() < deadline:
            if not self._drained(min(again, deadline)):
                if self._libpq.PQstatus(self._handle) != CONNECTION_OK:
                    break
                if not asking.is_alive():
                    # It came before the server had begun the call, and was for nothing.
                    asking = self._request_cancel()
                again = time.monotonic() + ASK_AGAIN_SECONDS
                continue
            result = self._libpq.PQgetResult(self._handle)
            if not result:
                # One that is still under way would end the next call.
                asking.join(max(0.0, deadline - time.monotonic()))
                if asking.is_alive():
                    break
                raise Cancelled
            if self._libpq.PQresultStatus(result) == COPY_OUT:
                self._libpq.PQclear(result)
                break  # All that is on its way would have to be read.
            self._libpq.PQclear(result)
        self.close()
        raise Cancelled

    def _drained(self, deadline: float) -> bool:
        """Return whether a result has come by then."""
        while self._libpq.PQisBusy(self._handle):
            waiting = select.poll()
            waiting.register(self._libpq.PQsocket(self._handle), select.POLLIN)
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            waiting.poll(min(left, FIRST_LOOK_SECONDS) * 1000)
            if not self._libpq.PQconsumeInput(self._handle):
                return False
        return True

    def _request_cancel(self) -> threading.Thread:
        """Ask the server, over a connection of its own, which may take as long as it likes.

        Returns:
            What asks: once it has ended, the server has done what it does about it.
        """
        pq = self._libpq
        if hasattr(pq, "PQcancelBlocking"):
            request = pq.PQcancelCreate(self._handle)
            calls: tuple[Any, ...] = (pq.PQcancelBlocking, pq.PQcancelFinish)
        else:
            request = pq.PQgetCancel(self._handle)
            said = ctypes.create_string_buffer(256)
            calls = (lambda each: pq.PQcancel(each, said, len(said)), pq.PQfreeCancel)

        def ask() -> None:
            for call in calls if request else ():
                call(request)

        asking = threading.Thread(target=ask, name="cancel", daemon=True)
        asking.start()
        return asking

    def _on_notice(self, _: int | None, result: int | None) -> None:
        """Keep what the server says as it ends a session that is idle; other notices go."""
        if result and self._libpq.PQresultErrorField(result, SEVERITY) in (b"FATAL", b"PANIC"):
            self._last_word = self._error_of(result)

    def _error_of(self, result: int) -> ServerError:
        field = self._libpq.PQresultErrorField
        state = (field(result, SQLSTATE) or b"").decode()
        text = field(result, PRIMARY) or self._libpq.PQresultErrorMessage(result) or b""
        ends = field(result, SEVERITY) != b"ERROR"
        return ServerError(text.decode(errors="replace"), state, ends_session=ends)

    def _broken(self, error: LibpqError | None = None) -> Broken:
        """Return the error of a lost connection, in the server's last words if it had any."""
        said = error if error is not None and error.sqlstate else self._last_word or error
        if said is not None:
            return Broken(str(said), said.sqlstate)
        return Broken(self._message())

    def _message(self) -> str:
        return (self._libpq.PQerrorMessage(self._handle) or b"").decode(errors="replace")

    def _columns(self, result: int) -> list[tuple[str, int]]:
        pq = self._libpq
        return [
            (pq.PQfname(result, at).decode(), pq.PQftype(result, at))
            for at in range(pq.PQnfields(result))
        ]

    def _rows(self, result: int) -> list[Row]:
        value, is_null = self._libpq.PQgetvalue, self._libpq.PQgetisnull
        columns = self._columns(result)
        places = {name: at for at, (name, _) in reversed(list(enumerate(columns)))}
        readers = [(at, reader(oid)) for at, (_, oid) in enumerate(columns)]
        rows = []
        for row in range(self._libpq.PQntuples(result)):
            values = []
            for at, read in readers:
                text = value(result, row, at)
                # The text of a NULL is empty; few other texts are.
                values.append(None if not text and is_null(result, row, at) else read(text))
            rows.append(Row(tuple(values), places))
        return rows
