"""A connection to a Dask scheduler, by a process of its own, with an end to every wait.

That process (`link`) is the only one of a run that loads `distributed`, beside those of a cluster
of our own. Here is a thread with a loop that asks it, in which all is done that concerns the
cluster. Functions are called in Dask workers outside of Dask's scheduling: nothing here is a Dask
task.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from unloader.engine.cluster.link import STATUS, Link, a_link, packed, received
from unloader.engine.cluster.security import Certificates, check_reachable
from unloader.errors import ConfigError, ConnectFailed
from writers.records import dataclass

T = TypeVar("T")

CONNECT_SECONDS = 30.0
_LEAVE_SECONDS = 2.0
_ENDED = "the process that speaks to the cluster has ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class DaskWorker:
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
            ConnectFailed: Nobody listens there, or the system refuses a process.
        """
        check_reachable(address, certificates)
        self.address = address
        self._link: Link | None = None
        self._is_there = False
        self._answers: dict[int, asyncio.Future[Any]] = {}
        """Calls that were not answered yet, by their number."""
        self._number = STATUS
        self._listening: asyncio.Task[None] | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True, name="cluster")
        self._thread.start()
        try:
            self._link = a_link()
        except OSError as error:
            self.close()
            raise self._refused(error) from error
        self._opening = asyncio.run_coroutine_threadsafe(
            self._open(self._link, certificates), self._loop
        )

    def wait(self) -> None:
        """Wait until it is made.

        Raises:
            ConfigError: `distributed` is missing.
            ConnectFailed: Nobody answers in time.
        """
        try:
            _result(self._opening, CONNECT_SECONDS)
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
        return not self._is_there

    def close(self) -> None:
        """Leave the cluster and end process and thread, in bounded time; may be called again."""
        if self._link is not None:
            link, self._link = self._link, None
            with suppress(Exception):
                self.call(self._ask("close", _LEAVE_SECONDS), 2 * _LEAVE_SECONDS)
            link.end()
        if self._thread.is_alive():
            self.call_soon(self._loop.stop)
            self._thread.join(5.0)

    def _refused(self, error: Exception) -> ConnectFailed:
        return ConnectFailed(
            f"the scheduler at {self.address} cannot be used: {_text(error)}",
            "check the address, and that it is a Dask scheduler of a version that fits ours",
        )

    async def _open(self, link: Link, certificates: Certificates | None) -> None:
        reader, self._writer = await asyncio.open_connection(sock=link.sock)
        self._listening = asyncio.create_task(self._listen(reader))
        await self._ask("open", self.address, CONNECT_SECONDS, certificates)
        self._is_there = True

    async def _ask(self, name: str, *args: Any) -> Any:
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
