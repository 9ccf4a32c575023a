"""The process that speaks to Dask for a run: a client of the scheduler, asked over a socket.

It is for what `scheduler` does not know. Dask's library is loaded here, in a process of its own
that works beside the run and ends with the socket.

A call is its number, what to do, and arguments; an answer the number, whether it went well, and
the value, or the name and the text of the error. Answers come in any order. What comes with the
number 0 says whether the scheduler is there.
"""

from __future__ import annotations

import gc
import pickle
import signal
import socket
import struct
import sys
from typing import TYPE_CHECKING, Any

from numa.processes.beside import start_beside

if TYPE_CHECKING:
    import asyncio

    from unloader.engine.cluster.security import Certificates

_LENGTH = struct.Struct("!Q")
_LOOK_SECONDS = 0.5

STATUS = 0
"""The number of no call."""


class Link:
    """The process, and our end of the socket."""

    def __init__(self) -> None:
        """Start it.

        Raises:
            OSError: The system refuses it.
        """
        self.sock, theirs = socket.socketpair()
        with theirs:
            # Signals of the terminal are for the run, which ends the process itself.
            self._process = start_beside(__name__, theirs)

    def end(self) -> None:
        """End the process; may be called again."""
        self.sock.close()
        self._process.kill()
        self._process.wait()


def packed(value: object) -> bytes:
    """Return the bytes that carry a value."""
    data = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(data)) + data


async def received(reader: asyncio.StreamReader) -> Any:
    """Return the next value.

    Raises:
        EOFError: There is none any more.
    """
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    return pickle.loads(await reader.readexactly(length))


def serve(descriptor: int) -> None:
    """Be the process until the other end of the socket is closed."""
    import asyncio

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    problem = ""
    try:
        _load_distributed()  # Before the first call, which may come much later.
    except ImportError as error:
        problem = str(error)
    asyncio.run(_Server(problem).serve(socket.socket(fileno=descriptor)))


def _load_distributed() -> None:
    """Load Dask's library, which a run on a cluster waits for.

    Raises:
        ImportError: It is missing.
    """
    # It draws its objects for notebooks with this, and does without where it is not installed.
    drawing = "jinja2"
    sys.modules[drawing] = None  # type: ignore[assignment]
    # What is loaded stays: to look through it again and again took a tenth of the time.
    gc.disable()
    try:
        import distributed  # noqa: F401
    finally:
        gc.enable()
        gc.freeze()
        del sys.modules[drawing]


class _Server:
    """Carries calls out, each in a task of its own."""

    def __init__(self, problem: str) -> None:
        self._problem = problem
        """Why Dask's library cannot be loaded."""
        self._client: Any = None

    async def serve(self, sock: socket.socket) -> None:
        import asyncio

        reader, self._writer = await asyncio.open_connection(sock=sock)
        tasks = {asyncio.create_task(self._watch())}
        try:
            while True:
                number, name, args = await received(reader)
                task = asyncio.create_task(self._answer(number, name, args))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
        except (EOFError, OSError):
            # The run has ended, and with it this process: no call matters any more.
            for task in tasks:
                task.cancel()

    async def _answer(self, number: int, name: str, args: tuple[Any, ...]) -> None:
        try:
            answer: object = (number, True, await getattr(self, name)(*args))
        # Whatever the library, or what it has called on another machine, may raise.
        except Exception as error:
            answer = (number, False, (type(error).__name__, str(error)))
        self._writer.write(packed(answer))

    async def _watch(self) -> None:
        """Tell when the scheduler goes, and when it is there."""
        import asyncio

        told = False
        while True:
            client = self._client
            there = client is not None and client.status in ("running", "connecting")
            if there != told:
                told = there
                self._writer.write(packed((STATUS, True, there)))
            await asyncio.sleep(_LOOK_SECONDS)

    async def open(self, address: str, seconds: float, certificates: Certificates | None) -> None:
        """Connect to a scheduler."""
        if self._problem:
            raise ImportError(self._problem)
        from distributed import Client

        self._client = await Client(
            address,
            asynchronous=True,
            timeout=seconds,
            security=None if certificates is None else certificates.for_dask(),
            set_as_default=False,
            name="unloader",
        )

    async def run(self, worker: str, function: Any, args: tuple[Any, ...]) -> Any:
        """Call a function in a Dask worker."""
        # Dask tries to reach a worker that is gone for longer than we want to know of it.
        answers = await self._client.run(function, *args, workers=[worker], on_error="raise")
        return answers[worker]

    async def workers(self) -> list[tuple[str, int]]:
        """Return the address and the threads of each worker that the scheduler knows of."""
        found = await self._client.scheduler.identity()
        return [(address, int(each["nthreads"])) for address, each in found["workers"].items()]

    async def close(self, seconds: float) -> None:
        """Leave the scheduler."""
        if self._client is not None:
            await self._client.close(timeout=seconds)
