"""The executor on the workers of a Dask cluster; see `unloader.engine.executor`.

Each Dask worker has an agent (`agent`), which keeps our own process on each of its seats. This is
the parent's side. Places are numbered over all machines, and the events of all agents are one
sequence. A place whose Dask worker is lost is ready again once another one has joined, on any
machine.

The agents are called in the loop of the client, each with one call at a time. A call that fails
costs the agent: the scheduler itself gives up a Dask worker whose connection breaks.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import queue
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from numa.model import Lost, Message, Seat
from unloader.engine.cluster.agent import (
    HOLD_SECONDS,
    Home,
    Opening,
    Order,
    Report,
    close_agent,
    home_of,
    open_agent,
    prove_units,
    shared,
    step,
    vacant_for,
    wake,
)
from unloader.engine.executor import Executor, ExecutorEvent, NoPlaceLeft
from unloader.errors import (
    ConfigError,
    ConnectFailed,
    Interrupted,
    UnloaderError,
    WorkerLost,
    error_class,
    failure_of,
)
from unloader.events import Notice
from unloader.model import AttemptFailure
from unloader.placement.evidence import Evidence, WorkerEvidence

if TYPE_CHECKING:
    from distributed import Client

T = TypeVar("T")
Stop: TypeAlias = Callable[[], bool]

_ANSWER_SECONDS = 60.0
"""Longest wait for one answer at the start: a busy machine takes its time to load a driver."""
_LATER_SECONDS = 10.0
"""Longest wait for a Dask worker that joins later; it is asked again."""
_LOOK_SECONDS = 2.0
"""Between two looks for Dask workers that have joined; and how long after a failed call the
scheduler is asked whether the Dask worker has gone."""
_RETURN_SECONDS = 60.0
"""How long a run waits for a Dask worker once the last one is lost: a nanny takes some seconds to
start another one."""
_PROOF_SECONDS = 120.0
"""A busy machine, and a database that takes its time to open a session (guess)."""
_STOP_SECONDS, _CLOSE_SECONDS = 10.0, 15.0
_TICK_SECONDS = 0.1


def in_time(call: Callable[[], T], seconds: float, stop: Stop) -> T:
    """Return the result of a call in another thread; raises `TimeoutError`, or `Interrupted`."""
    result: Future[T] = Future()

    def work() -> None:
        try:
            result.set_result(call())
        except Exception as error:
            result.set_exception(error)

    threading.Thread(target=work, daemon=True, name="cluster").start()
    until = time.monotonic() + seconds
    while not concurrent.futures.wait((result,), _TICK_SECONDS).done:
        if stop():
            raise Interrupted("stopped by a signal while the cluster was opened")
        if time.monotonic() >= until:
            raise TimeoutError(f"no answer within {seconds:g} s")
    return result.result()


class RemoteAgent:
    """One agent that was opened, as the parent knows it."""

    def __init__(self, home: Home, opening: Opening) -> None:
        self.home, self.name = home, opening.agent
        self.places = tuple(place for place, _ in opening.places)
        self.seats = frozenset(number for _, number in opening.places)
        """Numbers of its seats among the seats of the machine."""
        self.is_lost = False
        self.free: set[int] = set()
        """Places whose process is up and idle."""
        # Used in the loop alone:
        self.orders: list[tuple[Order, Future[Any]]] = []
        self.is_called = self.is_woken = False

    def below(self, number: int) -> int:
        return sum(place < number for place in self.places)


class _Place(Struct, kw_only=True):
    agent: RemoteAgent | None
    """None while it waits for another Dask worker."""
    home: Home
    """Of its agent, or of the last one."""
    seat: Seat
    worker: WorkerEvidence | None = None
    """The last report on its worker."""
    restarts: int = 0
    """Processes that it had in agents that are lost."""


class DaskExecutor(Executor):
    """Processes on seats of other machines. A place has one number in the whole cluster."""

    def __init__(self, client: Client, pattern: Opening, source_kind: str, stop: Stop) -> None:
        """Open nothing yet; `close` ends the work of all agents for this run.

        Agents are opened with the pattern, apart from what differs between them, and must be able
        to read the kind of source. `stop` is asked several times a second meanwhile.
        """
        self.notices: tuple[str, ...] = ()
        """Notes on requested seats that machines do not have."""
        self._client, self._pattern, self._kind, self._stop = client, pattern, source_kind, stop
        self._address: str = client.scheduler.address
        self._inbox: queue.SimpleQueue[tuple[RemoteAgent | None, list[Report] | str]]
        self._inbox = queue.SimpleQueue()
        """The events of an agent, or why it is lost. Without an agent: why a Dask worker is not
        used."""
        self._events, self._noted = [], set()
        self._used = self._of = 0
        """Places below the first number are used, those below the second may be used later."""
        self._lock = threading.Lock()
        """Of the next two: the engine's thread and the loop change them."""
        self._agents: dict[str, RemoteAgent] = {}
        """By the address of their Dask worker; a lost one until its loss was noted."""
        self._places: dict[int, _Place] = {}
        self._refused: set[str] = set()
        """Dask workers that joined and do not fit."""
        self._number = 0
        self._evidence: dict[str, Evidence] = {}
        """The last look of each agent, by its host."""
        self._proof: tuple[Any, ...] = ()
        """The arguments of `prove_units`, which each Dask worker has to pass from then on."""
        self._alone_since: float | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    # The opening.

    def greet(self) -> tuple[Home, ...]:
        """Return the Dask workers; a `ConfigError` names one that does not fit."""

        async def ask_all() -> list[Home]:
            known = await self._client.nthreads()
            asked = (
                home_of(self._client, address, threads, self._kind, _ANSWER_SECONDS)
                for address, threads in sorted(known.items())
            )
            return await _all(asked)

        if homes := tuple(self._sync(ask_all)):
            return homes
        raise ConfigError("the cluster has no Dask worker", "start some with: dask worker ADDRESS")

    def open(self, places: int, homes: Iterable[Home]) -> tuple[Seat, ...]:
        """Open an agent on each Dask worker that has a share of the places; return their seats."""
        known = {home.address: home for home in homes}
        shares = [(known[at], share) for at, share in shared([*known.values()], places).items()]
        totals: Counter[str] = Counter()
        for home, share in shares:
            totals[home.machine] += len(share)

        async def open_all() -> None:
            await _all(self._open(home, share, totals[home.machine], 1) for home, share in shares)
            self._keep(self._look_for_more())

        self._used = self._of = places
        self._sync(open_all)
        return tuple(self._places[place].seat for place in sorted(self._places))

    async def _open(
        self, home: Home, share: tuple[tuple[int, int], ...], total: int, begin: int
    ) -> None:
        self._number += 1
        opening = replace(
            self._pattern,
            agent=f"unloader-{os.getpid()}-{os.urandom(4).hex()}-{self._number}",
            seats_of_machine=total,
            places=share,
        )
        call = self._client.run(open_agent, opening, workers=[home.address])
        answer = (await asyncio.wait_for(call, _ANSWER_SECONDS))[home.address]
        if isinstance(answer, AttemptFailure):
            raise error_class(answer.error)(f"{home.label}: {answer.message}", answer.hint)
        agent = RemoteAgent(home, opening)
        with self._lock:
            self._agents[home.address] = agent
            for place, seat in zip(agent.places, answer.seats, strict=True):
                known = self._places.setdefault(place, _Place(agent=agent, home=home, seat=seat))
                known.agent, known.home, known.seat = agent, home, seat
            notices = (f"{home.host}: {text}" for text in answer.notices)
            self.notices = tuple(dict.fromkeys((*self.notices, *notices)))
        self._post(agent, "use", begin, len(share))
        self._keep(self._converse(agent))

    async def _look_for_more(self) -> None:
        """Open agents on Dask workers that have joined, while there are vacant places."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            with suppress(Exception):  # The scheduler may be away for a moment.
                known = await asyncio.wait_for(self._client.nthreads(), _ANSWER_SECONDS)
                for address, threads in sorted(known.items()):
                    if address not in self._agents.keys() | self._refused:
                        await self._try_to_open(address, threads)

    async def _try_to_open(self, address: str, threads: int) -> None:
        def vacant() -> dict[int, str]:
            """Return each vacant place with the machine that it was on."""
            with self._lock:
                places = self._places.items()
                return {at: p.home.machine for at, p in places if p.agent is None and at < self._of}

        if not vacant():
            return
        try:
            asked = home_of(self._client, address, threads, self._kind, _ANSWER_SECONDS)
            home = await asyncio.wait_for(asked, _LATER_SECONDS)
            if self._proof:
                await self._prove(home)
        except UnloaderError as error:
            self._refused.add(address)
            self._inbox.put((None, error.message))
            return
        with self._lock:
            here = [each for each in self._agents.values() if each.home.machine == home.machine]
        taken = {number for each in here for number in each.seats}
        if share := vacant_for(home, vacant(), taken):
            total = max([*taken, *(number for _, number in share)]) + 1
            with suppress(UnloaderError):
                begin = sum(place < self._used for place, _ in share)
                await self._open(home, share, total, begin)

    def prove(self, *proof: object) -> None:
        """Have each Dask worker show that it can read units; a failure names the machine."""
        self._proof = proof
        # A Dask worker in this process has nothing to show, and a second session of an embedded
        # database in one process could release the locks of the first.
        if self._client.cluster is None:
            homes = [agent.home for agent in self._alive() if agent.places[0] < self._of]
            self._sync(lambda: _all(map(self._prove, homes)))

    async def _prove(self, home: Home) -> None:
        call = self._client.run(prove_units, *self._proof, workers=[home.address])
        try:
            failure = (await asyncio.wait_for(call, _PROOF_SECONDS))[home.address]
        except TimeoutError:
            raise ConfigError(
                f"{home.label} has opened no session within {_PROOF_SECONDS:g} s",
                "see the log of the Dask worker there",
            ) from None
        except Exception:
            return  # The Dask worker is lost, which is noted by `_converse`.
        if failure is not None:
            text = f"{home.label}: {failure.message}"
            raise error_class(failure.error)(text, failure.hint)

    def _sync(self, function: Callable[[], Coroutine[Any, Any, T]]) -> T:
        call: Callable[[], T] = partial(self._client.sync, function)
        try:
            return in_time(call, 2 * _PROOF_SECONDS, self._stop)
        except UnloaderError:
            raise
        # The library has no common class for errors of a connection.
        except Exception as error:
            raise ConnectFailed(
                f"the cluster at {self._address} does not answer: {error or type(error).__name__}",
                "see the logs of its scheduler and its workers",
            ) from error

    # The engine's calls.

    def use(self, places: int, of: int) -> None:
        self._used, self._of = places, of
        for agent in self._alive():
            agent.free = {place for place in agent.free if place < places}
            self._post(agent, "use", agent.below(places), agent.below(of))

    def start(self, places: int) -> None:
        """Keep processes at the places below a number, and keep the processes that there are.

        Others are used in place of vacant ones. A run that starts with few workers would wait for
        the machines of these, if they are lost, while others have nothing to do.
        """
        held = sorted(place for agent in self._alive() for place in agent.places)
        held = [place for place in held if place < self._of]
        wanted = max(places, held[:places][-1] + 1 if held else 0)
        if wanted > self._used:
            self._used = wanted
            for agent in self._alive():
                self._post(agent, "start", agent.below(wanted))

    def places(self) -> Collection[int]:
        return {place for agent in self._alive() for place in agent.free}

    def send(self, place: int, task: object) -> None:
        agent = self._places[place].agent
        if agent is not None:
            agent.free.discard(place)
            self._post(agent, "send", place, task)
        # Without one the place is lost, which is the next event.

    def tell(self, place: int, payload: object) -> None:
        agent = self._places[place].agent
        if agent is not None:
            self._post(agent, "tell", place, payload)

    def events(self, timeout_seconds: float) -> Sequence[ExecutorEvent]:
        self._take_all(0.0 if self._events else timeout_seconds)
        now = time.monotonic()
        self._alone_since = None if self._alive() else self._alone_since or now
        gone = self._client.status != "running"
        if self._alone_since is not None and (gone or now - self._alone_since >= _RETURN_SECONDS):
            what = "the scheduler does not answer" if gone else "no Dask worker has come back"
            failure = AttemptFailure(
                error=WorkerLost.__name__,
                message=f"the cluster at {self._address} has no workers any more: {what}",
                hint="start Dask workers and continue with: unloader resume",
                retryable=False,
            )
            self._events.append(NoPlaceLeft(failure=failure))
        return self._taken()

    def stop(self, reasons: Mapping[int, AttemptFailure]) -> None:
        """Kill the processes of places; an unreachable machine does so when its lease is over."""
        stopped = []
        for agent in self._alive():
            mine = {place: reasons[place] for place in agent.places if place in reasons}
            if mine:
                stopped.append(self._post(agent, "stop", mine))
        concurrent.futures.wait(stopped, _STOP_SECONDS)

    def finish(self) -> Sequence[ExecutorEvent]:
        asked = {
            agent: (self._post(agent, "finish"), self._post(agent, "evidence"))
            for agent in self._alive()
        }
        concurrent.futures.wait([each for both in asked.values() for each in both], _STOP_SECONDS)
        for agent, (notes, evidence) in asked.items():
            with suppress(Exception):
                for event in notes.result(0):
                    self._take(agent, Report(event))
                found: Evidence = evidence.result(0)
                self._evidence[agent.home.host] = found
                for worker in found.workers:
                    self._know(agent, worker)
        self._take_all(0.0)
        return self._taken()

    def worker(self, place: int) -> WorkerEvidence:
        known = self._places[place]
        return known.worker or WorkerEvidence(
            seat=known.seat, bound=None, residence=None, host=known.home.host
        )

    def evidence(self) -> Evidence:
        unseen = dict.fromkeys(
            f"{host}: {line}" for host, each in self._evidence.items() for line in each.not_measured
        )
        return Evidence(
            workers=tuple(self.worker(place) for place in range(self._of)),
            pages_of_hosts={host: each.machine_pages for host, each in self._evidence.items()},
            not_measured=tuple(unseen),
        )

    def close(self) -> None:
        """End all processes on all machines; one that is lost ends them when its lease is over."""
        if self._is_closed:
            return
        self._is_closed = True

        async def end_all() -> None:
            ends = [
                self._client.run(close_agent, each.name, workers=[each.home.address])
                for each in self._alive()
            ]
            for each in self._agents.values():
                each.is_lost = True
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(
                    asyncio.gather(*ends, return_exceptions=True), _CLOSE_SECONDS
                )
            for task in self._tasks:
                task.cancel()

        with suppress(Exception):
            self._client.sync(end_all, callback_timeout=2 * _CLOSE_SECONDS)

    # Events, in the thread of the engine.

    def _take_all(self, timeout_seconds: float) -> None:
        """Take the new events; wait up to `timeout_seconds` for the first one."""
        with suppress(queue.Empty):
            agent, found = self._inbox.get(timeout_seconds > 0, max(timeout_seconds, 0.001))
            while True:
                if agent is None:
                    self._note(f"{found}; the run continues without it")
                elif isinstance(found, str):
                    self._agent_lost(agent, found)
                else:
                    for report in found:
                        self._take(agent, report)
                agent, found = self._inbox.get_nowait()

    def _take(self, agent: RemoteAgent, report: Report) -> None:
        event = report.event
        if isinstance(event, NoPlaceLeft):
            text = f"{agent.home.label} has no process any more: {event.failure.message}"
            self._note(text)
            self._refused.add(agent.home.address)
            agent.is_lost = True
            self._inbox.put((agent, "none of its processes could be started"))
            return
        if isinstance(event, Notice):
            self._note_once(f"{agent.home.host}: {event.text}")
            return
        place = event.worker
        if report.worker is not None:
            self._know(agent, report.worker)
        if self._places[place].agent is not agent:
            return  # Another agent has it now.
        if not isinstance(event, Message):
            agent.free.discard(place)
            if report.is_free and place < self._used:
                agent.free.add(place)
        if isinstance(event, Lost) and event.cause is None:
            text = f"worker {place} was lost: {event.detail} (on {agent.home.host})"
            event = replace(event, cause=failure_of(WorkerLost(text)))
        self._events.append(event)

    def _agent_lost(self, agent: RemoteAgent, reason: str) -> None:
        count = len(agent.places)
        workers = f"its worker{'s' * (count > 1)} {', '.join(map(str, agent.places))}"
        self._note(f"{agent.home.label} is lost: {reason}; {workers} wait for another Dask worker")
        with self._lock:
            if self._agents.get(agent.home.address) is agent:
                del self._agents[agent.home.address]
            for place in agent.places:
                if self._places[place].agent is agent:
                    self._places[place].agent = None
        for place in agent.places:
            known = self._places[place]
            known.restarts = 1 + (known.worker.restarts if known.worker is not None else 0)
            detail = f"{agent.home.label}: {reason}"
            hint = f"see the log of the Dask worker on {agent.home.host}"
            failure = failure_of(WorkerLost(f"worker {place} was lost: {detail}", hint))
            self._events.append(Lost(worker=place, detail=detail, cause=failure))

    def _know(self, agent: RemoteAgent, worker: WorkerEvidence) -> None:
        known = self._places[worker.seat.worker]
        restarts = worker.restarts + known.restarts
        known.worker = replace(worker, host=agent.home.host, restarts=restarts)

    def _alive(self) -> list[RemoteAgent]:
        with self._lock:
            return [each for each in self._agents.values() if not each.is_lost]

    # Calls of agents, in the loop of the client.

    def _post(self, agent: RemoteAgent, method: str, *arguments: object) -> Future[Any]:
        """Send an order after those before it; return its answer to come. For any thread."""
        answer: Future[Any] = Future()

        def put() -> None:
            if agent.is_lost:
                answer.set_exception(WorkerLost("its Dask worker is lost"))
                return
            agent.orders.append(((method, arguments), answer))
            if agent.is_called and not agent.is_woken:
                agent.is_woken = True
                self._keep(self._client.run(wake, agent.name, workers=[agent.home.address]))

        self._client.loop.add_callback(put)
        return answer

    def _keep(self, work: Awaitable[object]) -> None:
        """Start what runs until it ends or the executor is closed; its errors cost nothing."""

        async def run() -> None:
            with suppress(Exception):
                await work

        task = asyncio.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _converse(self, agent: RemoteAgent) -> None:
        """Bring an agent its orders and take its events, until it is lost."""
        address, longest = agent.home.address, self._pattern.lease_seconds + HOLD_SECONDS
        sent: list[tuple[Order, Future[Any]]] = []
        reason = "it has ended its work for this run"
        try:
            while not agent.is_lost:
                sent, agent.orders = agent.orders, []
                agent.is_called, agent.is_woken = True, False
                orders = [order for order, _ in sent]
                call = self._client.run(step, agent.name, orders, workers=[address])
                answer = (await asyncio.wait_for(call, longest))[address]
                if answer is None:
                    break
                for (_, future), value in zip(sent, answer[0], strict=True):
                    future.set_result(value)
                sent = []
                if answer[1]:
                    self._inbox.put((agent, answer[1]))
        except TimeoutError:
            reason = f"it has not answered for {longest:g} s"
        except Exception as error:
            reason = f"it cannot be reached: {error}"
            # The scheduler soon knows whether the Dask worker has gone. It may be gone itself.
            until = time.monotonic() + _LOOK_SECONDS
            while (left := until - time.monotonic()) > 0:
                with suppress(Exception):
                    if address not in await asyncio.wait_for(self._client.nthreads(), left):
                        reason = "its Dask worker has ended"
                        break
                await asyncio.sleep(_TICK_SECONDS)
        for _, future in (*sent, *agent.orders):
            future.set_exception(WorkerLost(reason))
        if not agent.is_lost:
            agent.is_lost = True
            self._inbox.put((agent, reason))


async def _all(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the results of all calls; raise the first error once all have ended."""
    found = await asyncio.gather(*calls, return_exceptions=True)
    for each in found:
        if isinstance(each, BaseException):
            raise each
    return cast("list[T]", found)
