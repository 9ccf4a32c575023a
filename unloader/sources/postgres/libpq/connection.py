"""One session of libpq, driven without blocking, so that another thread can stop a call.

`psycopg.pq` calls libpq. `psycopg.Connection` is not used: only a signal interrupts its waits, and
it drops the SQLSTATE of a refused connection. Waits are polls of the session's socket and of a
descriptor that `cancel` writes to. A call that is stopped asks the server to cancel, and reads the
rest of the answer, so that the session can be used again.

libpq returns a row of a COPY at a time. The row is copied as it is into a buffer of whole rows, or
converted from COPY's text form into its CSV form. Only the native loop converts: in Python that
would take more CPU than the server saves. The loop in C++ takes a tenth of the CPU of the one in
Python, and releases the interpreter's lock.
"""

from __future__ import annotations

import ctypes
import os
import re
import select
import threading
import time
from collections import namedtuple
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, suppress
from functools import cache, lru_cache
from importlib import import_module
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import capabilities, pq
from psycopg.abc import Buffer
from psycopg.adapt import PyFormat, Transformer
from psycopg.conninfo import make_conninfo
from psycopg.pq import (
    ConnStatus,
    DiagnosticField,
    ExecStatus,
    Format,
    PollingStatus,
    TransactionStatus,
)
from psycopg.pq.abc import PGcancel, PGcancelConn, PGconn, PGresult
from psycopg.pq.misc import find_libpq_full_path

from unloader.sources.postgres.errors import (
    BadSetting,
    Broken,
    Cancelled,
    LibpqError,
    Malformed,
    ServerError,
)
from unloader.sources.postgres.statement import TextForm
from writers import built_library

VERBOSE = 2
"""Of PQsetErrorVerbosity: the message of a refused connection then has the SQLSTATE."""

CONNECT_SECONDS = 60.0
"""For each host, if neither the URL nor the environment has a connect_timeout."""

CANCEL_SECONDS = 10.0
"""For the server to end a cancelled call; after that the connection is closed."""

ASK_AGAIN_SECONDS = 1.0
"""Guess: a server that received the request has ended most calls by then."""

_STATED = re.compile(r"[^\s:]+:\s+(?P<state>(?=[A-Z]*[0-9])[0-9A-Z]{5}):\s+(?P<text>.*)")
"""How libpq reports that a server refused a connection, if its messages are verbose."""

_UNMET = re.compile(
    r"no password supplied|channel binding|authentication method|GSSAPI|SCRAM|SASL|SSPI|"
    r"certificate file|private key file|authentication response"
)
"""Words of libpq if the client cannot do the authentication that the server requires."""

_SETTINGS = re.compile(r"invalid |missing |could not match |definition of service |syntax error")
"""The first words of libpq about settings that it does not understand."""

_HAS_NUL, _NOT_TEXT = "PostgreSQL does not accept text with the character NUL", "22021"
"""The SQLSTATE with which a server refuses a NUL in a text."""


class Connection:
    """A session with a server.

    `location` is a URL, or settings of libpq in one text. Without a password it is left to the
    location and to libpq. `BadSetting`, or `Broken` where no server accepted the connection.
    """

    def __init__(self, location: str, password: str | None = None) -> None:
        try:
            given = make_conninfo(location, password=password, client_encoding="UTF8")
        except psycopg.ProgrammingError as error:
            raise BadSetting(str(error)) from None
        self._pgconn = pq.PGconn.connect_start(_c_text(given))
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._last_word: ServerError | None = None
        try:
            self._connect()
        except BaseException:
            self.close()
            raise

    def _connect(self) -> None:
        pgconn, tried, deadline, wanted = self._pgconn, None, 0.0, select.POLLOUT
        handle = pgconn.pgconn_ptr  # type: ignore[attr-defined]
        libpq().PQsetErrorVerbosity(handle, VERBOSE)

        def on_notice(result: PGresult) -> None:
            """Keep the server's reason for ending an idle session; drop other notices."""
            if result.error_field(DiagnosticField.SEVERITY_NONLOCALIZED) in (b"FATAL", b"PANIC"):
                self._last_word = _error_of(result)

        pgconn.notice_handler = on_notice
        patience = self._patience()
        while pgconn.status != ConnStatus.BAD:
            host = (pgconn.host, pgconn.port)
            if host != tried:
                tried, deadline = host, time.monotonic() + patience
            if not self._poll(wanted, deadline):
                raise Broken(f"no answer within {patience:g} seconds")
            state = pgconn.connect_poll()
            if state == PollingStatus.OK:
                return
            if state == PollingStatus.FAILED:
                break
            wanted = select.POLLIN if state == PollingStatus.READING else select.POLLOUT
        raise _refused(pgconn.error_message.decode(errors="replace"))

    def _patience(self) -> float:
        found = {each.keyword: each.val for each in self._pgconn.info}
        given = (found[b"connect_timeout"] or b"").decode()
        if not given:
            return CONNECT_SECONDS
        try:
            seconds = int(given)
        except ValueError:
            raise BadSetting(f"invalid integer value {given!r} for connect_timeout") from None
        return float(max(seconds, 2)) if seconds > 0 else float("inf")  # as libpq has it

    @property
    def is_open(self) -> bool:
        return self._pgconn.status == ConnStatus.OK

    @property
    def in_transaction(self) -> bool:
        states = (TransactionStatus.INTRANS, TransactionStatus.INERROR)
        return self._pgconn.transaction_status in states

    @property
    def version(self) -> tuple[int, int]:
        return divmod(self._pgconn.server_version, 10_000)

    def execute(self, sql: str) -> None:
        self._begin()
        for _ in self._results(self._pgconn.send_query, _c_text(sql)):
            pass

    def query(
        self, sql: str, arguments: Sequence[object] = (), *, binary: bool = False
    ) -> list[Any]:
        """Return named tuples; the values of `$1` and so on are scalars, None, or lists.

        With `binary` the server sends bytes as they are, and not as hexadecimal digits.
        """
        converter = Transformer()
        try:
            values = converter.dump_sequence(arguments, [PyFormat.TEXT] * len(arguments))
        except psycopg.DataError:
            raise ServerError(_HAS_NUL, _NOT_TEXT) from None
        self._begin()
        rows: list[Any] = []
        formats = (None, None, Format.BINARY if binary else Format.TEXT)
        for result in self._results(self._pgconn.send_query_params, _c_text(sql), values, *formats):
            converter.set_pgresult(result)
            make = _maker(tuple(name for name, _ in _columns(result)))
            rows = converter.load_rows(0, result.ntuples, make)
        return rows

    def describe(self, sql: str) -> list[tuple[str, int]]:
        """Return name and type OID of each column; `ServerError` where there are parameters."""
        self._begin()
        for _ in self._results(self._pgconn.send_prepare, b"", _c_text(sql)):
            pass
        (result,) = self._results(self._pgconn.send_describe_prepared, b"")
        if result.nparams:
            # The server says this of a COPY.
            raise ServerError("there is no parameter $1", "42P02")
        return _columns(result)

    def copy(
        self, sql: str, chunk_bytes: int, form: TextForm | None = None, *, binary: bool = False
    ) -> Generator[memoryview, None, int]:
        """Yield what a `COPY ... TO STDOUT` sends, in chunks of whole rows; return their number.

        The socket is read only while the caller waits for a chunk. A COPY that ends early closes
        the connection: the rest of the rows would have to be read. The server has confirmed the
        number. A chunk is smaller than `chunk_bytes`, except one row that may not be smaller.
        `form`: the CSV form that rows of the text form are converted to, if `converts_text_form`.
        In the `binary` form the first row comes after the header, and the end as another row.

        `Broken`: the connection is lost, or the counts differ. `Malformed`: a row is not in the
        text form. `ServerError`: the server refused, perhaps after some rows.
        """
        self._begin()
        results = self._results(self._pgconn.send_query, _c_text(sql))
        next(results)
        with closing(Rows(self._pgconn, self._wake, chunk_bytes, form)) as rows:
            try:
                while (chunk := rows.next()) is not None:
                    yield chunk
                    del chunk
            except BaseException:
                self.close()
                raise
        if rows.was_woken:
            self._await_cancelled()
        counted = [result.command_tuples for result in results]
        arrived = rows.count - binary
        if counted != [arrived]:
            raise Broken(
                f"{arrived} rows arrived, but the server reports that it sent {counted[0]}"
            )
        return arrived

    def cancel(self) -> None:
        """Stop the call that another thread waits for; never raises."""
        with suppress(OSError, ValueError):  # It may be closed by now.
            os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """End the session; never raises. A second call has no effect."""
        self._pgconn.finish()
        self._pgconn.notice_handler = None  # It refers to this object.
        wake, self._wake = self._wake, -1
        if wake >= 0:
            os.close(wake)

    def __del__(self) -> None:
        if getattr(self, "_wake", -1) >= 0:
            self.close()

    def _begin(self) -> None:
        """Prepare for a call: forget a request to cancel that came before it."""
        with suppress(BlockingIOError, ValueError):  # No request came, or the session is closed.
            os.eventfd_read(self._wake)
        if self._pgconn.transaction_status == TransactionStatus.ACTIVE:
            # An exception, such as one of a signal handler, interrupted a call.
            with suppress(Cancelled):
                self._await_cancelled()
        if self._wake < 0:
            raise Broken("the connection is closed")
        self._last_word = None

    def _results(self, send: Callable[..., None], *arguments: object) -> Iterator[PGresult]:
        """Call `send`, yield the results, then raise the first error among them."""
        failed: ServerError | None = None
        try:
            send(*arguments)
            while True:
                look = FIRST_LOOK_SECONDS
                while self._pgconn.is_busy():
                    is_ready = self._poll(select.POLLIN, time.monotonic() + look)
                    look = FIRST_LOOK_SECONDS if is_ready else min(2 * look, LAST_LOOK_SECONDS)
                    self._pgconn.consume_input()
                result = self._pgconn.get_result()
                if result is None:
                    break
                if result.status not in (ExecStatus.BAD_RESPONSE, ExecStatus.FATAL_ERROR):
                    yield result
                elif failed is None:
                    failed = _error_of(result)
        except psycopg.OperationalError:
            raise self._broken(None) from None
        if failed is not None:
            raise failed if self.is_open else self._broken(failed)

    def _poll(self, wanted: int, deadline: float = float("inf")) -> bool:
        """Return whether the socket is ready by the deadline; `Cancelled` after a cancel."""
        waiting = select.poll()
        waiting.register(self._pgconn.socket, wanted)
        waiting.register(self._wake, select.POLLIN)
        left = None if deadline == float("inf") else max(0.0, deadline - time.monotonic()) * 1000
        ready = [descriptor for descriptor, _ in waiting.poll(left)]
        if self._wake in ready:
            self._await_cancelled()
        return bool(ready)

    def _await_cancelled(self) -> None:
        """Have the server end the call that is running, and raise `Cancelled`."""
        if not self.is_open:
            raise Cancelled
        pgconn, deadline = self._pgconn, time.monotonic() + CANCEL_SECONDS
        asking, again = self._request_cancel(), time.monotonic() + ASK_AGAIN_SECONDS
        with suppress(psycopg.OperationalError):
            while time.monotonic() < deadline:
                if pgconn.is_busy():
                    if time.monotonic() >= again:
                        if not asking.is_alive():
                            # The request came before the server began the call, and had no effect.
                            asking = self._request_cancel()
                        again = time.monotonic() + ASK_AGAIN_SECONDS
                    waiting = select.poll()
                    waiting.register(pgconn.socket, select.POLLIN)
                    left = min(again, deadline) - time.monotonic()
                    waiting.poll(max(0.0, min(left, FIRST_LOOK_SECONDS)) * 1000)
                    pgconn.consume_input()
                    continue
                result = pgconn.get_result()
                if result is None:
                    # A request that is still on its way would cancel the next call.
                    asking.join(max(0.0, deadline - time.monotonic()))
                    if asking.is_alive():
                        break
                    raise Cancelled
                if result.status == ExecStatus.COPY_OUT:
                    break  # All rows would have to be read.
        self.close()
        raise Cancelled

    def _request_cancel(self) -> threading.Thread:
        """Ask the server to cancel; it has handled that when the thread has ended."""
        # From libpq 17 on the request can use TLS.
        is_safe = capabilities.has_cancel_safe()
        request = self._pgconn.cancel_conn() if is_safe else self._pgconn.get_cancel()
        asking = threading.Thread(target=_ask, args=(request,), name="cancel", daemon=True)
        asking.start()
        return asking

    def _broken(self, error: LibpqError | None) -> Broken:
        """Return the error of a lost connection, with the server's reason if that is known."""
        said = error if error is not None and error.sqlstate else self._last_word or error
        if said is not None:
            return Broken(str(said), said.sqlstate)
        return Broken(self._pgconn.error_message.decode(errors="replace"))


def _ask(request: PGcancelConn | PGcancel) -> None:
    waits = {PollingStatus.READING: select.POLLIN, PollingStatus.WRITING: select.POLLOUT}
    with suppress(psycopg.OperationalError):
        if hasattr(request, "cancel"):
            request.cancel()
            return
        request.start()
        while (wanted := waits.get(PollingStatus(request.poll()))) is not None:
            waiting = select.poll()
            waiting.register(request.socket, wanted)
            waiting.poll()


def _error_of(result: PGresult) -> ServerError:
    field = result.error_field
    state = (field(DiagnosticField.SQLSTATE) or b"").decode()
    text = field(DiagnosticField.MESSAGE_PRIMARY) or result.error_message
    ends = field(DiagnosticField.SEVERITY_NONLOCALIZED) != b"ERROR"
    return ServerError(text.decode(errors="replace"), state, ends_session=ends)


def _columns(result: PGresult) -> list[tuple[str, int]]:
    places = range(result.nfields)
    return [((result.fname(at) or b"").decode(), result.ftype(at)) for at in places]


@lru_cache
def _maker(names: tuple[str, ...]) -> Any:
    """Return the function that makes named tuples; `rename` is for names such as `QUERY PLAN`."""
    return namedtuple("Row", names, rename=True)._make  # type: ignore[attr-defined]


def _refused(text: str) -> LibpqError:
    """Return the error of a refused connection, from libpq's lines about each host."""
    if _SETTINGS.match(text):
        return BadSetting(text)
    stated = list(_STATED.finditer(text))
    if stated:
        return Broken(stated[-1]["text"], stated[-1]["state"])
    unmet = [line for line in text.splitlines() if _UNMET.search(line)]
    return BadSetting(unmet[-1]) if unmet else Broken(text)


def _c_text(text: str) -> bytes:
    """Return a text for C, where a NUL would end a statement before its conditions."""
    if "\0" in text:
        raise ServerError(_HAS_NUL, _NOT_TEXT)
    return text.encode()


ABI_VERSION = 6
"""Of the interface in `copy.cpp`, which has the same number."""

NAME = "unloader.sources.postgres.libpq._copy"

OVERRIDE = "UNLOADER_NATIVE_COPY_LIBRARY"
"""An environment variable that names the file of another build; if empty, no build is used."""

FIRST_LOOK_SECONDS, LAST_LOOK_SECONDS = 0.01, 1.0
"""libpq reads an empty socket after the first time, and again after twice the time, up to the last.
Proxies send long records of TLS. Older versions of libpq take a part of a record at a time, and the
socket does not show the rest: without these reads the wait for it would never end."""

FIRST_BUFFER_BYTES = 64 * 1024

_FULL, _WIDE, _DONE, _BROKEN, _WOKEN, _SIGNAL, _NO_MEMORY, _REFUSED = range(8)


class _Filled(ctypes.Structure):
    """What a call has brought; as `copy.cpp` has it."""

    _fields_ = (
        ("size", ctypes.c_int64),
        ("rows", ctypes.c_int64),
        ("wide", ctypes.c_void_p),
        ("wide_size", ctypes.c_int64),
    )


class _Calls(ctypes.Structure):
    """The functions of libpq that the loop needs; as `copy.cpp` has it."""

    _fields_ = tuple((name, ctypes.c_void_p) for name in ("get", "consume", "release", "socket"))


class CDialect(ctypes.Structure):
    """A `TextForm` as the native code takes it, which keeps none of it."""

    _fields_ = (
        ("null", ctypes.c_char_p),
        ("forced", ctypes.c_char_p),
        ("null_size", ctypes.c_int64),
        ("columns", ctypes.c_int64),
        ("delimiter", ctypes.c_char),
        ("quote", ctypes.c_char),
    )


def c_dialect(form: TextForm) -> CDialect:
    size, columns = len(form.null), len(form.forced)
    return CDialect(form.null, bytes(form.forced), size, columns, form.delimiter, form.quote)


class Rows:
    """The rows of one COPY, until it is closed.

    `wake` is a descriptor that is ready to be read when the rows are not wanted any more. A chunk
    is smaller than `chunk_bytes`, except one row that may not be smaller. Only a native loop takes
    the form of the CSV that is made of rows in the text form.
    """

    def __init__(
        self, pgconn: PGconn, wake: int, chunk_bytes: int, form: TextForm | None = None
    ) -> None:
        self.count = 0
        self.was_woken = False
        """No more rows come, because the descriptor for cancelling is ready."""
        self._ended = False
        self._chunk_bytes = chunk_bytes
        self._buffer_bytes = FIRST_BUFFER_BYTES
        self._form = form
        loop = native()
        self._loop: _NativeLoop | _PlainLoop
        if loop is not None:
            self._loop = _NativeLoop(loop, pgconn, wake, form)
        else:
            assert form is None
            self._loop = _PlainLoop(pgconn, wake)

    def next(self) -> memoryview | None:
        """Return the next chunk, None after the last.

        Its memory is from Arrow's pool, which keeps it for the next chunk: the C library would
        return it to the kernel each time. A row too long for a buffer is a view of libpq's memory.
        """
        most = self._chunk_bytes
        buffer, size = pa.allocate_buffer(min(self._buffer_bytes, most)), 0
        while not self._ended:
            status = self._loop.fill(buffer, size, most)
            size = self._loop.filled.size
            self.count += self._loop.filled.rows
            if status == _NO_MEMORY:
                raise MemoryError("not enough memory for a row of COPY")
            if status == _WIDE:
                return self._loop.wide()
            if status == _REFUSED:
                columns = len(self._form.forced) if self._form is not None else 0
                raise Malformed(f"of its text form with {columns} columns, in row {self.count + 1}")
            if status == _FULL and buffer.size < most:
                # Most tables are small.
                larger = pa.allocate_buffer(min(4 * buffer.size, most))
                _view(larger)[:size] = _view(buffer)[:size]
                buffer, self._buffer_bytes = larger, larger.size
                continue
            self._ended = status in (_DONE, _BROKEN, _WOKEN)
            self.was_woken = status == _WOKEN
            # After a signal its handler has run by now, and there is more to come.
            if size and status != _SIGNAL:
                return _view(buffer)[:size]
        return None

    def close(self) -> None:
        self._loop.close()


class _NativeLoop:
    def __init__(
        self, library: ctypes.CDLL, pgconn: PGconn, wake: int, form: TextForm | None
    ) -> None:
        names = ("PQgetCopyData", "PQconsumeInput", "PQfreemem", "PQsocket")
        calls = _Calls(*(ctypes.cast(getattr(libpq(), name), ctypes.c_void_p) for name in names))
        self._library = library
        dialect = ctypes.byref(c_dialect(form)) if form is not None else None
        handle = pgconn.pgconn_ptr  # type: ignore[attr-defined]
        self._copy = library.unloader_copy_open(ctypes.byref(calls), handle, wake, dialect)
        if not self._copy:
            raise MemoryError("not enough memory for a COPY")
        self.filled = _Filled()

    def fill(self, buffer: pa.Buffer, size: int, most: int) -> int:
        """Put rows into a buffer after `size` bytes; it is full for a row that may fit into `most`
        bytes.
        """
        fill, filled = self._library.unloader_copy_fill, ctypes.byref(self.filled)
        return int(fill(self._copy, buffer.address, size, buffer.size, most, filled))

    def wide(self) -> memoryview:
        """Return a row that is too long for a buffer, without a copy: it may have a gigabyte."""
        address, size = self.filled.wide, self.filled.wide_size
        return memoryview(pa.foreign_buffer(address, size, _Owner(address))).toreadonly()

    def close(self) -> None:
        self._library.unloader_copy_close(self._copy)


class _PlainLoop:
    """The loop in Python, over `get_copy_data`."""

    def __init__(self, pgconn: PGconn, wake: int) -> None:
        self._pgconn = pgconn
        self._row: Buffer | None = None
        self.filled = _Filled()
        self._waiting, self._stopping = select.poll(), wake
        self._waiting.register(pgconn.socket, select.POLLIN)
        self._waiting.register(wake, select.POLLIN)

    def fill(self, buffer: pa.Buffer, size: int, most: int) -> int:
        """Put rows into a buffer, as `_NativeLoop.fill` does."""
        filled, view = self.filled, _view(buffer)
        filled.size, filled.rows = size, 0
        while True:
            if self._row is None:
                try:
                    length, row = self._pgconn.get_copy_data(1)
                except psycopg.OperationalError:
                    return _DONE
                if length < 0:
                    return _DONE
                if length == 0:
                    ready = self._waiting.poll(FIRST_LOOK_SECONDS * 1000)
                    if self._stopping in [descriptor for descriptor, _ in ready]:
                        return _WOKEN
                    try:
                        self._pgconn.consume_input()
                    except psycopg.OperationalError:
                        return _BROKEN
                    continue
                self._row = row
            end = filled.size + len(self._row)
            if end >= buffer.size:
                if filled.size or buffer.size < most:
                    return _FULL
                filled.rows = 1
                return _WIDE
            view[filled.size : end] = self._row
            self._row = None
            filled.size = end
            filled.rows += 1

    def wide(self) -> memoryview:
        row, self._row = self._row, None
        assert row is not None
        return memoryview(row).toreadonly()

    def close(self) -> None:
        self._row = None


def _view(buffer: pa.Buffer) -> memoryview:
    return memoryview(buffer).cast("B")


class _Owner:
    """Memory of libpq, freed with the last view of it."""

    def __init__(self, address: int) -> None:
        self._address, self._free = address, libpq().PQfreemem

    def __del__(self) -> None:
        self._free(self._address)


@cache
def libpq() -> ctypes.CDLL:
    """Return the libpq that psycopg has loaded, for functions that psycopg does not wrap.

    psycopg's module in C is linked with libpq, and a lookup in the module finds libpq's functions.
    """
    is_python = pq.__impl__ == "python"
    path = find_libpq_full_path() if is_python else import_module(pq.PGconn.__module__).__file__
    library = ctypes.CDLL(path)
    library.PQfreemem.argtypes = (ctypes.c_void_p,)
    library.PQsetErrorVerbosity.argtypes = (ctypes.c_void_p, ctypes.c_int)
    return library


@cache
def native() -> ctypes.CDLL | None:
    """Return the library of the loop; None where it was not built or is of another version."""
    pointer, size, status = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32
    dialect, filled = ctypes.POINTER(CDialect), ctypes.POINTER(_Filled)
    functions = {
        "open": (pointer, (ctypes.POINTER(_Calls), pointer, ctypes.c_int32, dialect)),
        "fill": (status, (pointer, pointer, size, size, size, filled)),
        "convert": (size, (dialect, ctypes.c_char_p, size, pointer, size)),
        "close": (None, (pointer,)),
        "lines": (size, (pointer, size)),
        "index": (size, (pointer, size, size, size, pointer, pointer)),
        "index_binary": (size, (pointer, size, size, size, pointer, pointer)),
        "decode": (status, (pointer, pointer, size, pointer)),
    }
    try:
        return built_library.load(NAME, OVERRIDE, "unloader_copy_", ABI_VERSION, functions)
    except built_library.Unusable:
        return None
