"""A client of a Dask scheduler in a thread of its own, with an end to every wait.

The only module that speaks to `distributed`, beside the one that starts a scheduler of our own.
Functions are called in Dask workers outside of Dask's scheduling: nothing here is a Dask task.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from unloader.engine.cluster.security import Certificates, check_reachable
from unloader.errors import ConfigError, ConnectFailed
from unloader.records import dataclass

T = TypeVar("T")

CONNECT_SECONDS = 30.0


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
        """Connect.

        Raises:
            ConfigError: `distributed` is missing, or the scheduler and we do not trust one another.
            ConnectFailed: Nobody answers in time.
        """
        try:
            from distributed import Client
        except ImportError as error:
            raise ConfigError(
                f"--cluster needs Dask, which is not installed: {error}",
                "install it with: pip install 'unloader[dask]'",
            ) from error
        check_reachable(address, certificates)
        # It tells of connections that are lost, which is told by us, in the words of the run.
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        self.address = address
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True, name="cluster")
        self._thread.start()
        self._client: Any = None
        try:
            self.call(self._open(Client, certificates), CONNECT_SECONDS)
        except Exception as error:
            self.close()
            raise ConnectFailed(
                f"the scheduler at {address} cannot be used: {_text(error)}",
                "check the address, and that it is a Dask scheduler of a version that fits ours",
            ) from error

    def call(self, coroutine: Coroutine[Any, Any, T], seconds: float) -> T:
        """Run a coroutine in the loop; return its result.

        Raises:
            TimeoutError: It took too long, and is cancelled.
        """
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result(seconds)
        except concurrent.futures.TimeoutError as error:
            future.cancel()
            raise TimeoutError(f"no answer within {seconds:g} s") from error

    def call_soon(self, function: Callable[[], object]) -> None:
        """Call a function in the loop, from any thread."""
        with suppress(RuntimeError):  # It is closed.
            self._loop.call_soon_threadsafe(function)

    async def run(self, worker: str, function: Callable[..., Any], *args: Any) -> Any:
        """Return what a function returns in a Dask worker.

        Raises:
            Exception: What it raised, or whatever says that the worker cannot be reached.
        """
        # Dask tries to reach a worker that is gone for longer than we want to know of it.
        answers = await self._client.run(function, *args, workers=[worker], on_error="raise")
        return answers[worker]

    async def workers(self) -> tuple[DaskWorker, ...]:
        """Return the workers that the scheduler knows of, by address."""
        found = await self._client.scheduler.identity()
        return tuple(
            DaskWorker(
                address=address,
                host=address.rpartition("://")[2].rpartition(":")[0],
                threads=int(each["nthreads"]),
            )
            for address, each in sorted(found["workers"].items())
        )

    @property
    def is_lost(self) -> bool:
        """Whether the scheduler is gone; any thread may ask."""
        return self._client is None or self._client.status not in ("running", "connecting")

    def close(self) -> None:
        """End the client and its thread, in bounded time; may be called again."""
        if self._client is not None:
            client, self._client = self._client, None
            with suppress(Exception):
                self.call(client.close(timeout=2), 5.0)
        if self._thread.is_alive():
            self.call_soon(self._loop.stop)
            self._thread.join(5.0)

    async def _open(self, client: Any, certificates: Certificates | None) -> None:
        self._client = await client(
            self.address,
            asynchronous=True,
            timeout=CONNECT_SECONDS,
            security=None if certificates is None else certificates.for_dask(),
            set_as_default=False,
            name="unloader",
        )

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


def _text(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return text[0] if text else type(error).__name__
