"""A Dask scheduler, asked directly: the few calls that a run makes, without Dask's library.

That library takes longer to load than most of what a run does before its first row. What it would
say to the scheduler is one handshake for a connection and two kinds of calls, which are spoken
here. What is not answered as is known here raises `Unknown`, and `connection` has the library ask:
a version that speaks otherwise costs time, and nothing else.

A connection is for one call at a time, and kept for the next one.
"""

from __future__ import annotations

import asyncio
import pickle
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from unloader.engine.cluster.messages import Unknown, message, raised, received
from unloader.engine.cluster.security import Certificates

_MOST_CALLS = 512
"""At once; as the library."""
_LOOK_SECONDS = 0.5
_SILENT_MILLISECONDS = 30_000
"""What was sent and is not confirmed for so long breaks the connection; as the library."""


class _Line:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self._writer = writer

    @property
    def is_open(self) -> bool:
        return not (self.reader.at_eof() or self._writer.is_closing())

    async def ask(self, value: object) -> Any:
        """Send a message, and return the one that comes."""
        self._writer.write(message(value))
        await self._writer.drain()
        return await received(self.reader)

    def close(self) -> None:
        self._writer.transport.abort()


class Scheduler:
    """A client of it; all of it is for one loop."""

    def __init__(self, address: str, certificates: Certificates | None) -> None:
        """Ask nothing yet."""
        self._address = urlsplit(address)
        self._secure = None if certificates is None else certificates.context()
        self._idle: list[_Line] = []
        self._room = asyncio.Semaphore(_MOST_CALLS)
        self._watching: asyncio.Task[None] | None = None
        self.is_there = False
        """Whether it has kept a connection on which nothing is said."""

    async def open(self, seconds: float) -> None:
        """Connect, and see whether it is one that is known here.

        Raises:
            Unknown: It is not.
            OSError: It does not answer, or not in time.
        """
        await asyncio.wait_for(self.workers(), seconds)
        self.is_there = True
        self._watching = asyncio.create_task(self._watch(seconds))

    async def workers(self) -> list[tuple[str, int]]:
        """Return the address and the threads of each worker that it knows of."""
        found = await self._ask("identity")
        try:
            return [(address, int(each["nthreads"])) for address, each in found["workers"].items()]
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise Unknown(f"the scheduler is described without {error}") from error

    async def run(self, worker: str, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Call a function in a Dask worker.

        Raises:
            Raised: It has raised, or the worker cannot be reached.
            Unknown: As everywhere.
        """
        call = {
            "op": "run",
            "function": pickle.dumps(function),
            "args": pickle.dumps(args),
            "kwargs": pickle.dumps({}),
            "wait": True,
        }
        answers = await self._ask("broadcast", msg=call, workers=[worker], on_error="return_pickle")
        answer = answers.get(worker) if isinstance(answers, dict) else None
        if isinstance(answer, bytes):
            raise raised(answer)
        if not isinstance(answer, dict):
            raise Unknown(f"no answer from {worker}")
        if answer.get("status") == "error" and isinstance(answer.get("exception"), bytes):
            raise raised(answer["exception"])
        if answer.get("status") != "OK" or "result" not in answer:
            raise Unknown(f"no result from {worker}")
        return answer["result"]

    def close(self) -> None:
        """Leave it."""
        if self._watching is not None:
            self._watching.cancel()
        for line in self._idle:
            line.close()

    async def _ask(self, name: str, **fields: object) -> Any:
        async with self._room:
            line = await self._line()
            try:
                answer = await line.ask({"op": name, **fields, "reply": True})
            except BaseException:
                line.close()  # An answer may still come, and is for nobody.
                raise
            self._idle.append(line)
        if isinstance(answer, dict) and answer.get("status") == "uncaught-error":
            raise Unknown(str(answer.get("exception_text")))
        return answer

    async def _line(self) -> _Line:
        while self._idle:
            line = self._idle.pop()
            if line.is_open:
                return line
            line.close()
        return await self._new_line()

    async def _new_line(self) -> _Line:
        reader, writer = await asyncio.open_connection(
            self._address.hostname, self._address.port, ssl=self._secure
        )
        line = _Line(reader, writer)
        try:
            _watch_silence(writer.get_extra_info("socket"))
            theirs = await line.ask(
                {
                    "compression": None,
                    "python": tuple(sys.version_info)[:3],
                    "pickle-protocol": pickle.HIGHEST_PROTOCOL,
                }
            )
            if not isinstance(theirs, dict) or "pickle-protocol" not in theirs:
                raise Unknown("the scheduler's greeting has another form")
        except BaseException:
            line.close()
            raise
        return line

    async def _watch(self, seconds: float) -> None:
        """Keep a connection on which nothing is said: it ends with the scheduler."""
        while True:
            with suppress(OSError, EOFError, Unknown, asyncio.TimeoutError):
                line = await asyncio.wait_for(self._new_line(), seconds)
                self.is_there = True
                try:
                    await line.reader.read(1)
                finally:
                    line.close()
            self.is_there = False
            await asyncio.sleep(_LOOK_SECONDS)


def _watch_silence(sock: socket.socket) -> None:
    with suppress(OSError, AttributeError):  # Not every system has both.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _SILENT_MILLISECONDS)
