"""A connection to a Dask scheduler, with an end to every wait.

Here is a thread with a loop, in which all is done that concerns the cluster. It asks the scheduler
directly (`scheduler`), until that answers anything that is not known there: from then on a process
of its own asks (`link`), which is the only one of a run that loads `distributed`, beside those of a
cluster of our own. What is asked may be asked twice. Functions are called in Dask workers outside
of Dask's scheduling: nothing here is a Dask task.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from unloader.engine.cluster.link import STATUS, Link, packed, received
from unloader.engine.cluster.security import Certificates, check_reachable
from unloader.errors import ConfigError, ConnectFailed

if TYPE_CHECKING:
    from unloader.engine.cluster.scheduler import Scheduler

T = TypeVar("T")

CONNECT_SECONDS = 30.0
_KNOWN_SECONDS = 5.0
"""How long a scheduler has to answer as is known here, before the library is loaded for it."""
_LEAVE_SECONDS = 2.0
_ENDED = "the process that communicates with the cluster has ended"


class DaskWorker(Struct, frozen=True, kw_only=True):
    """A worker that the scheduler knows of."""

    address: str
    host: str
    """Its address in the network, without the port."""
    threads: int


class Connection:
    """One client. `call` and what is named so may be used in any thread, the rest in the loop."""

    def __init__(self, address: str, certificates: Certificates | None) -> None:
        """Begin to connect; `wait` for it before anything else is asked.

        Raises:
            ConfigError: The two sides do not trust one another.
            ConnectFailed: Nobody listens there.
        """
        check_reachable(address, certificates)
        self.address = address
        self._certificates = certificates
        self._scheduler: Scheduler | None = None
        """Asked while it answers as is known."""
        self._library: asyncio.Task[None] | None = None
        """Has, or will have, the process ask in its place."""
        self._link: Link | None = None
        self._is_there = False
        self._answers: dict[int, asyncio.Future[Any]] = {}
        """Calls that were not answered yet, by their number."""
        self._number = STATUS
        self._listening: asyncio.Task[None] | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True, name="cluster")
        self._thread.start()
        self._opening = asyncio.run_coroutine_threadsafe(self._open(), self._loop)

    def wait(self) -> None:
        """Wait until it is made.

        Raises:
            ConfigError: `distributed` is missing.
            ConnectFailed: Nobody answers in time, or the system refuses a process.
        """
        try:
            _result(self._opening, 2 * CONNECT_SECONDS)
        except Exception as error:
            self.close()
            if isinstance(error, ImportError):
                raise ConfigError(
                    f"--cluster needs Dask, which is not installed: {error}",
                    "install it with: pip install 'unloader[dask]'",
                ) from error
            raise self._refused(error) from error

    def call(self, coroutine: Coroutine[Any, Any, T], seconds: float) -> T:
        """Run a coroutine in the loop; return its result.

        Raises:
            TimeoutError: It took too long, and is cancelled.
        """
        return _result(asyncio.run_coroutine_threadsafe(coroutine, self._loop), seconds)

    def call_soon(self, function: Callable[[], object]) -> None:
        """Call a function in the loop, from any thread."""
        with suppress(RuntimeError):  # It is closed.
            self._loop.call_soon_threadsafe(function)

    async def run(self, worker: str, function: Callable[..., Any], *args: Any) -> Any:
        """Return what a function returns in a Dask worker.

        Raises:
            Exception: What it raised, or whatever says that the worker cannot be reached.
        """
        return await self._ask("run", worker, function, args)

    async def workers(self) -> tuple[DaskWorker, ...]:
        """Return the workers that the scheduler knows of, by address."""
        return tuple(
            DaskWorker(
                address=address,
                host=address.rpartition("://")[2].rpartition(":")[0],
                threads=threads,
            )
            for address, threads in sorted(await self._ask("workers"))
        )

    @property
    def is_lost(self) -> bool:
        """Whether the scheduler is gone; any thread may ask."""
        return not (self._is_there if self._scheduler is None else self._scheduler.is_there)

    def close(self) -> None:
        """Leave the cluster and end process and thread, in bounded time; may be called again."""
        if self._link is not None:
            with suppress(Exception):
                self.call(self._ask_link("close", _LEAVE_SECONDS), 2 * _LEAVE_SECONDS)
            self._link.end()
            self._link = None
        if self._scheduler is not None:
            self.call_soon(self._scheduler.close)
        if self._thread.is_alive():
            self.call_soon(self._loop.stop)
            self._thread.join(5.0)

    def _refused(self, error: Exception) -> ConnectFailed:
        return ConnectFailed(
            f"the scheduler at {self.address} cannot be used: {_text(error)}",
            "check the address, and check that a Dask scheduler of a compatible version runs there",
        )

    async def _open(self) -> None:
        try:
            # Imported here: what messages are written with comes with Dask.
            from unloader.engine.cluster.scheduler import Scheduler

            scheduler = Scheduler(self.address, self._certificates)
            await scheduler.open(_KNOWN_SECONDS)
            self._scheduler = scheduler
        # Whatever was wrong, the library gets past it, or says what it is.
        except Exception:
            await self._use_library()

    async def _use_library(self) -> None:
        """Have the library ask from here on; a call that is given up meanwhile changes nothing.

        Raises:
            OSError: The system refuses a process.
        """
        before = self._library
        if before is None or (before.done() and (before.cancelled() or before.exception())):
            self._library = asyncio.create_task(self._load_library())
        assert self._library is not None
        await asyncio.shield(self._library)

    async def _load_library(self) -> None:
        if self._link is not None:
            self._link.end()
        self._link = Link()
        reader, self._writer = await asyncio.open_connection(sock=self._link.sock)
        self._listening = asyncio.create_task(self._listen(reader))
        await self._ask_link("open", self.address, CONNECT_SECONDS, self._certificates)
        self._is_there = True
        if self._scheduler is not None:
            scheduler, self._scheduler = self._scheduler, None
            scheduler.close()

    async def _ask(self, name: str, *args: Any) -> Any:
        """Return the answer of the scheduler."""
        if self._scheduler is not None:
            from unloader.engine.cluster.messages import Raised, Unknown

            try:
                return await getattr(self._scheduler, name)(*args)
            except Raised as error:
                raise _error(error.name, error.text) from error
            except Unknown:
                await self._use_library()
        return await self._ask_link(name, *args)

    async def _ask_link(self, name: str, *args: Any) -> Any:
        """Return the answer of the process; one that is not awaited any more is dropped."""
        if self._listening is None or self._listening.done():
            raise ConnectionError(_ENDED)
        self._number += 1
        number, answer = self._number, self._loop.create_future()
        self._answers[number] = answer
        try:
            self._writer.write(packed((number, name, args)))
            return await answer
        finally:
            del self._answers[number]

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                number, went_well, value = await received(reader)
                answer = self._answers.get(number)
                if number == STATUS:
                    self._is_there = value
                elif answer is None or answer.done():
                    continue
                elif went_well:
                    answer.set_result(value)
                else:
                    answer.set_exception(_error(*value))
        except (EOFError, OSError):
            self._is_there = False
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(ConnectionError(_ENDED))

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        if left:
            # One that is closed with its loop says so on standard error.
            self._loop.run_until_complete(asyncio.wait(left, timeout=2.0))
        self._loop.close()


def _result(future: concurrent.futures.Future[T], seconds: float) -> T:
    try:
        return future.result(seconds)
    except concurrent.futures.TimeoutError as error:
        future.cancel()
        raise TimeoutError(f"no answer within {seconds:g} s") from error


def _error(name: str, text: str) -> Exception:
    """Return an error of the process; only of those that are told apart here as what it was."""
    known = {each.__name__: each for each in (ImportError, ModuleNotFoundError)}
    return known.get(name, RuntimeError)(text or name)


def _text(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return text[0] if text else type(error).__name__
