"""One agent as the parent sees it: orders out, events back, and when it counts as lost.

All of it runs in the loop of the client. A call that fails is repeated while the Dask worker exists
and the agent's patience lasts, and the agent does nothing twice. So a connection that breaks for a
moment costs nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from unloader.engine.cluster import agent
from unloader.engine.cluster.agent import HOLD_SECONDS, Opening, Order, Report
from unloader.engine.cluster.sharing import Home

if TYPE_CHECKING:
    from distributed import Client

_RETRY_SECONDS = 0.2
_LOOK_SECONDS = 2.0
"""How long after a failure the scheduler is asked whether the Dask worker has gone. It learns that
immediately, while a connection to nowhere takes its time."""


class AgentLost(Exception):
    """An agent that does not answer any more, or has ended."""


class RemoteAgent:
    """One agent that was opened."""

    def __init__(
        self,
        client: Client,
        home: Home,
        opening: Opening,
        listener: Callable[[RemoteAgent, list[Report] | str], None],
    ) -> None:
        """Begin to listen; in the loop.

        Args:
            client: Of its cluster.
            home: Where it is.
            opening: What it was opened with.
            listener: Takes its events, or once the reason of its loss; called in the loop.
        """
        self.home = home
        self.places = tuple(place for place, _ in opening.places)
        self.seats = frozenset(number for _, number in opening.places)
        """Numbers of its seats among the seats of the machine."""
        self.is_lost = False
        self._client = client
        self._name = opening.agent
        self._patience = opening.lease_seconds
        self._listener = listener
        self._pending: list[tuple[Order, Future[Any]]] = []
        self._news = asyncio.Event()
        parts = (self._listen, self._give)
        self._tasks = [asyncio.create_task(self._guarded(part)) for part in parts]

    def post(self, method: Callable[..., Any], *arguments: object) -> Future[Any]:
        """Send an order after those before it; return its answer to come. For any thread."""
        answer: Future[Any] = Future()

        def put() -> None:
            if self.is_lost:
                answer.set_exception(AgentLost(self._name))
                return
            self._pending.append(((method, arguments), answer))
            self._news.set()

        self._client.loop.add_callback(put)
        return answer

    def end(self) -> None:
        """Listen no longer; in the loop."""
        self.is_lost = True
        for task in self._tasks:
            task.cancel()
        for _, answer in self._pending:
            with suppress(InvalidStateError):
                answer.set_exception(AgentLost(self._name))
        self._pending.clear()

    async def _guarded(self, part: Callable[[], Any]) -> None:
        try:
            await part()
        except Exception as error:
            if not self.is_lost:
                self.end()
                self._listener(self, str(error) or type(error).__name__)

    async def _listen(self) -> None:
        seen = 0
        while True:
            reports: list[Report] = await self._ask(HOLD_SECONDS, agent.fetch, seen)
            if reports:
                seen = reports[-1].number
                self._listener(self, reports)

    async def _give(self) -> None:
        first = 0
        while True:
            await self._news.wait()
            self._news.clear()
            batch = list(self._pending)
            orders = [order for order, _ in batch]
            values = await self._ask(0.0, agent.order, first, orders)
            for (_, answer), value in zip(batch, values, strict=True):
                answer.set_result(value)
            del self._pending[: len(batch)]
            first += len(batch)

    async def _ask(self, longer: float, function: Callable[..., Any], *arguments: object) -> Any:
        """Return an answer of the agent.

        Raises:
            AgentLost: None came within the patience of the agent and `longer` seconds.
        """
        seconds = self._patience + longer
        loop, address = asyncio.get_running_loop(), self.home.address
        until = loop.time() + seconds
        while True:
            call = self._client.run(function, self._name, *arguments, workers=[address])
            try:
                answer = (await asyncio.wait_for(call, max(0.1, until - loop.time())))[address]
            except TimeoutError:
                raise AgentLost(f"it has not answered for {seconds:g} s") from None
            except Exception as error:
                await self._check_known(until)
                if loop.time() >= until:
                    raise AgentLost(f"it cannot be reached: {error}") from error
                continue
            if answer is None:
                raise AgentLost("it has ended its work for this run")
            return answer

    async def _check_known(self, until: float) -> None:
        """Wait a moment; raise if the scheduler does not know the Dask worker any more."""
        loop = asyncio.get_running_loop()
        until = min(until, loop.time() + _LOOK_SECONDS)
        while loop.time() < until:
            # The scheduler itself may be gone. Then the patience decides.
            with suppress(Exception):
                known = await asyncio.wait_for(self._client.nthreads(), until - loop.time())
                if self.home.address not in known:
                    break
            await asyncio.sleep(_RETRY_SECONDS)
        else:
            return
        raise AgentLost("its Dask worker has ended")
