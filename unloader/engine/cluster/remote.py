"""One agent as the parent sees it: orders out, events back, and when it counts as lost.

All of it runs in the loop of the connection. A message that fails is sent again while the Dask
worker is there and the agent's patience lasts, and the agent does nothing twice: so a connection
that breaks for a moment costs nothing.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import pickle
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from unloader.engine.cluster import calls
from unloader.engine.cluster.connection import Connection
from unloader.engine.cluster.orders import HOLD_SECONDS, Opening, Order, Told
from unloader.engine.cluster.sharing import Home

_RETRY_SECONDS = 0.2
_LOOKS = 10
"""After a failure the scheduler is asked so often whether the Dask worker has gone: it learns of
that at once, while a connection to nowhere takes its time."""


class AgentLost(Exception):
    """An agent that does not answer any more, or has ended."""


class RemoteAgent:
    """One agent that was opened."""

    def __init__(
        self,
        connection: Connection,
        home: Home,
        opening: Opening,
        *,
        told: Callable[[RemoteAgent, list[Told]], None],
        lost: Callable[[RemoteAgent, str], None],
    ) -> None:
        """Take what is known of it.

        Args:
            connection: To its cluster.
            home: Where it is.
            opening: What it was opened with.
            told: Takes its events; called in the loop.
            lost: Called once when it is lost, with the reason.
        """
        self.home = home
        self.places = tuple(place for place, _ in opening.places)
        self.seats = dict(opening.places)
        """Number of each place's seat among those of the machine."""
        self.is_lost = False
        self._connection = connection
        self._name = opening.agent
        self._patience = opening.lease_seconds
        self._on_told, self._on_lost = told, lost
        self._pending: list[tuple[Order, concurrent.futures.Future[Any]]] = []
        self._next = 0
        """Number of the first order that is pending."""
        self._news: asyncio.Event | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self) -> None:
        """Begin to listen; in the loop."""
        self._news = asyncio.Event()
        self._tasks = [
            asyncio.create_task(self._guarded(self._listen)),
            asyncio.create_task(self._guarded(self._give)),
        ]

    def post(self, order: Order) -> concurrent.futures.Future[Any]:
        """Send an order after those before it; return its answer to come. For any thread."""
        answer: concurrent.futures.Future[Any] = concurrent.futures.Future()

        def put() -> None:
            if self.is_lost or self._news is None:
                answer.set_exception(AgentLost(self._name))
                return
            self._pending.append((order, answer))
            self._news.set()

        self._connection.call_soon(put)
        return answer

    def end(self) -> None:
        """Listen no longer; in the loop."""
        self.is_lost = True
        for task in self._tasks:
            task.cancel()
        for _, answer in self._pending:
            with suppress(concurrent.futures.InvalidStateError):
                answer.set_exception(AgentLost(self._name))
        self._pending.clear()

    async def _guarded(self, part: Callable[[], Any]) -> None:
        try:
            await part()
        except Exception as error:
            if not self.is_lost:
                self.end()
                self._on_lost(self, str(error) or type(error).__name__)

    async def _listen(self) -> None:
        seen = 0
        while True:
            data = await self._ask(HOLD_SECONDS, calls.fetch, self._name, seen)
            found: list[Told] = pickle.loads(data)
            if found:
                seen = found[-1].number
                self._on_told(self, found)

    async def _give(self) -> None:
        assert self._news is not None
        while True:
            await self._news.wait()
            self._news.clear()
            batch = list(self._pending)
            if not batch:
                continue
            orders = pickle.dumps([order for order, _ in batch])
            data = await self._ask(0.0, calls.order, self._name, self._next, orders)
            # Of what ended the agent itself there is none.
            answers: list[Any] = pickle.loads(data)
            answers += [None] * (len(batch) - len(answers))
            for (_, answer), value in zip(batch, answers, strict=True):
                answer.set_result(value)
            del self._pending[: len(batch)]
            self._next += len(batch)
            if self._pending:
                self._news.set()

    async def _ask(self, longer: float, function: Callable[..., Any], *args: object) -> bytes:
        """Return an answer of the agent.

        Raises:
            AgentLost: None came for as long as the agent is given, and so much longer.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + self._patience + longer
        while True:
            call = self._connection.run(self.home.address, function, *args)
            try:
                answer = await asyncio.wait_for(call, max(0.1, until - loop.time()))
            except TimeoutError:
                seconds = self._patience + longer
                raise AgentLost(f"it has not answered for {seconds:g} s") from None
            except Exception as error:
                await self._check_known()
                if loop.time() >= until:
                    raise AgentLost(f"it cannot be reached: {error}") from error
                continue
            if answer is None:
                raise AgentLost("it has ended its work for this run")
            found: bytes = answer
            return found

    async def _check_known(self) -> None:
        """Wait a moment; raise if the scheduler says that the Dask worker is gone."""
        for _ in range(_LOOKS):
            try:
                known = await asyncio.wait_for(self._connection.workers(), self._patience)
            except Exception:  # The scheduler may be what is gone; the patience decides.
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            if all(each.address != self.home.address for each in known):
                raise AgentLost("its Dask worker has ended")
            await asyncio.sleep(_RETRY_SECONDS)
