"""The agents of a run: opened on the Dask workers of the start, and on later ones."""

from __future__ import annotations

import asyncio
import os
import pkgutil
import platform
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from msgspec.structs import replace

from numa.model import Seat
from unloader import __version__
from unloader.engine.cluster import agent
from unloader.engine.cluster.agent import Agent, Opened, Opening, Report, open_agent
from unloader.engine.cluster.remote import RemoteAgent
from unloader.engine.cluster.sharing import Home, shared, vacant_for
from unloader.errors import ConfigError, ConnectFailed, Interrupted, UnloaderError, error_class
from unloader.model import Proof

if TYPE_CHECKING:
    from distributed import Client


T = TypeVar("T")
Stop: TypeAlias = Callable[[], bool]
News: TypeAlias = "tuple[RemoteAgent, list[Report] | str] | tuple[None, str]"
"""The events of an agent, or why it is lost. Without an agent: why a Dask worker is not used."""

_ANSWER_SECONDS = 60.0
"""Longest wait for one answer at the start: a busy machine takes its time to load a driver."""
_CLOSE_SECONDS = 15.0
_LATER_SECONDS = 10.0
"""Longest wait for a Dask worker that joins later; it is asked again."""
_LOOK_SECONDS = 2.0
_TICK_SECONDS = 0.1


def in_time(call: Callable[[], T], seconds: float, stop: Stop) -> T:
    """Return the result of a call, which is left to its own thread once that takes too long.

    Raises:
        TimeoutError: It took longer than `seconds`.
        Interrupted: `stop` returned True.
    """
    result: Future[T] = Future()

    def work() -> None:
        try:
            result.set_result(call())
        except Exception as error:
            result.set_exception(error)

    threading.Thread(target=work, daemon=True, name="cluster").start()
    until = time.monotonic() + seconds
    while not wait((result,), _TICK_SECONDS).done:
        if stop():
            raise Interrupted("stopped by a signal while the cluster was opened")
        if time.monotonic() >= until:
            raise TimeoutError(f"no answer within {seconds:g} s")
    return result.result()


class Team:
    """The agents; the places that they have are numbered from 0."""

    def __init__(self, client: Client, pattern: Opening, source_kind: str, stop: Stop) -> None:
        """Open nothing yet.

        Args:
            client: Of the cluster.
            pattern: What agents are opened with, except what differs between them.
            source_kind: The source that they must be able to read.
            stop: Asked several times a second while agents are opened; True ends that.
        """
        self.address: str = client.scheduler.address
        self.inbox: queue.SimpleQueue[News] = queue.SimpleQueue()
        self.notices: tuple[str, ...] = ()
        self.places = 0
        """Places below this number are used."""
        self.of = 0
        """Places below this number may be used later."""
        self.proof: Proof | None = None
        """What an agent that is opened later has to show."""
        self._client = client
        self._pattern = pattern
        self._kind = source_kind
        self._stop = stop
        self._lock = threading.Lock()
        self._agents: dict[str, RemoteAgent] = {}
        """By the address of their Dask worker; a lost one until its loss was noted."""
        self._by_place: dict[int, RemoteAgent] = {}
        self._vacant: dict[int, str] = {}
        """Places without an agent, each with the machine that it was on."""
        self._seats: dict[int, Seat] = {}
        self._hosts: dict[int, str] = {}
        self._refused: set[str] = set()
        """Dask workers that joined and do not fit."""
        self._number = 0
        self._watch: asyncio.Task[None] | None = None

    def greet(self) -> tuple[Home, ...]:
        """Return the Dask workers, once each is known to fit.

        Raises:
            ConfigError: The cluster has no Dask worker, or one does not fit.
        """

        async def ask_all() -> list[Home]:
            known = await self._client.nthreads()
            asked = (
                home_of(self._client, address, threads, self._kind, _ANSWER_SECONDS)
                for address, threads in sorted(known.items())
            )
            return await _all(asked)

        homes = tuple(self._sync(ask_all))
        check_fits(homes)
        return homes

    def open(self, places: int, homes: Iterable[Home]) -> tuple[Seat, ...]:
        """Open an agent on each Dask worker that has a share of the places; return their seats.

        Raises:
            UnloaderError: One refused.
        """
        known = {home.address: home for home in homes}
        shares = shared(tuple(known.values()), places)
        totals: Counter[str] = Counter()
        for address, share in shares.items():
            totals[known[address].machine] += len(share)

        async def open_all() -> None:
            each = ((known[address], share) for address, share in shares.items())
            await _all(self._open(home, share, totals[home.machine]) for home, share in each)
            self._watch = asyncio.create_task(self._look_for_more())

        self.places = self.of = places
        self._sync(open_all)
        return tuple(self._seats[place] for place in sorted(self._seats))

    def alive(self) -> tuple[RemoteAgent, ...]:
        """Return the agents that are not lost."""
        with self._lock:
            return tuple(each for each in self._agents.values() if not each.is_lost)

    def agent_of(self, place: int) -> RemoteAgent | None:
        """Return the agent that has a place, lost or not; None once that loss was noted."""
        return self._by_place.get(place)

    def seat(self, place: int) -> Seat:
        """Return the seat of a place, the last one that it had."""
        return self._seats[place]

    def host(self, place: int) -> str:
        """Return the name of the machine of a place."""
        return self._hosts.get(place, "")

    def raise_to(self, places: int) -> bool:
        """Use this many places if those are more; return whether they are.

        Others are used in place of vacant ones. A run that starts with few workers would wait for
        the machines of these, if they are lost, while others have nothing to do.
        """
        held = sorted(place for agent in self.alive() for place in agent.places if place < self.of)
        last = held[:places][-1] + 1 if held else 0
        more = max(places, last) > self.places
        self.places = max(self.places, places, last)
        return more

    def vacate(self, agent: RemoteAgent) -> None:
        """Note the loss of an agent: others may have its places now."""
        with self._lock:
            for place in agent.places:
                if self._by_place.get(place) is agent:
                    del self._by_place[place]
                    self._vacant[place] = agent.home.machine
            if self._agents.get(agent.home.address) is agent:
                del self._agents[agent.home.address]

    def drop(self, agent: RemoteAgent, reason: str) -> None:
        """Give up an agent whose machine cannot have a process."""
        self._refused.add(agent.home.address)
        agent.is_lost = True
        self._client.loop.add_callback(agent.end)
        self.inbox.put((agent, reason))

    @property
    def has_scheduler(self) -> bool:
        """Whether the client is connected to the scheduler."""
        return bool(self._client.status == "running")

    def close(self) -> None:
        """End all processes on all machines; one that is lost ends them when its lease is over."""

        async def end_all() -> None:
            if self._watch is not None:
                self._watch.cancel()
            ends = [asyncio.wrap_future(each.post(Agent.close)) for each in self.alive()]
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(
                    asyncio.gather(*ends, return_exceptions=True), _CLOSE_SECONDS
                )
            for each in self._agents.values():
                each.end()

        with suppress(Exception):
            self._client.sync(end_all, callback_timeout=2 * _CLOSE_SECONDS)

    def _sync(self, function: Callable[[], Coroutine[Any, Any, T]]) -> T:
        call: Callable[[], T] = partial(self._client.sync, function)
        try:
            return in_time(call, 2 * _ANSWER_SECONDS, self._stop)
        except UnloaderError:
            raise
        # The library has no common class for errors of a connection.
        except Exception as error:
            raise ConnectFailed(
                f"the cluster at {self.address} does not answer: {error or type(error).__name__}",
                "see the logs of its scheduler and its workers",
            ) from error

    async def _open(self, home: Home, share: tuple[tuple[int, int], ...], total: int) -> None:
        self._number += 1
        begin = sum(place < self.places for place, _ in share)
        opening = replace(
            self._pattern,
            agent=f"unloader-{os.getpid()}-{os.urandom(4).hex()}-{self._number}",
            seats_of_machine=total,
            places=share,
            # A run that has started wants all of them.
            begin=self._pattern.begin if self.proof is None else begin,
        )
        call = self._client.run(open_agent, opening, workers=[home.address])
        answer: Opened = (await asyncio.wait_for(call, _ANSWER_SECONDS))[home.address]
        if not isinstance(answer, Opened):
            raise error_class(answer.error)(f"{home.label}: {answer.message}", answer.hint)
        agent = RemoteAgent(self._client, home, opening, lambda *news: self.inbox.put(news))
        with self._lock:
            self._agents[home.address] = agent
            for (place, _), seat in zip(share, answer.seats, strict=True):
                self._by_place[place] = agent
                self._vacant.pop(place, None)
                self._seats[place] = seat
                self._hosts[place] = home.host
            notices = (f"{home.host}: {text}" for text in answer.notices)
            self.notices = tuple(dict.fromkeys((*self.notices, *notices)))
        if self.proof is not None:
            agent.post(Agent.prove, self.proof)

    async def _look_for_more(self) -> None:
        """Open agents on Dask workers that have joined, while there are vacant places."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            with suppress(Exception):  # The scheduler may be away for a moment.
                known = await asyncio.wait_for(self._client.nthreads(), _ANSWER_SECONDS)
                for address, threads in sorted(known.items()):
                    if self._vacant and address not in self._agents.keys() | self._refused:
                        await self._try_to_open(address, threads)

    async def _try_to_open(self, address: str, threads: int) -> None:
        try:
            asked = home_of(self._client, address, threads, self._kind, _ANSWER_SECONDS)
            home = await asyncio.wait_for(asked, _LATER_SECONDS)
            check_fits([home])
        except ConfigError as error:
            self._refused.add(address)
            self.inbox.put((None, error.message))
            return
        with self._lock:
            here = [each for each in self._agents.values() if each.home.machine == home.machine]
            taken = {number for each in here for number in each.seats}
            kept = {place: was for place, was in self._vacant.items() if place < self.of}
        share = vacant_for(home, kept, taken)
        if share:
            total = max([*taken, *(number for _, number in share)]) + 1
            with suppress(UnloaderError):
                await self._open(home, share, total)


async def _all(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the results of all calls; raise the first error once all have ended."""
    found = await asyncio.gather(*calls, return_exceptions=True)
    for each in found:
        if isinstance(each, BaseException):
            raise each
    return cast("list[T]", found)


async def home_of(
    client: Client, address: str, threads: int, source_kind: str, seconds: float
) -> Home:
    """Ask a Dask worker; only functions of the standard library until its version is known.

    Raises:
        ConfigError: It cannot be asked, or does not answer in time.
    """

    async def ask(function: Callable[..., Any], *arguments: object) -> Any:
        try:
            call = client.run(function, *arguments, workers=[address])
            return (await asyncio.wait_for(call, seconds))[address]
        except TimeoutError as error:
            raise ConfigError(
                f"the Dask worker at {address} has not answered for {seconds:g} s",
                "see its log, or end it",
            ) from error

    answers: tuple[Any, ...] = await asyncio.gather(
        ask(platform.node),
        ask(platform.python_version),
        ask(pkgutil.resolve_name, "unloader:__version__"),
        return_exceptions=True,
    )
    host, python, version = answers
    for each in answers:
        if isinstance(each, ConfigError):
            raise each
    for each in (host, python):
        if isinstance(each, Exception):
            raise ConfigError(
                f"the Dask worker at {address} does not answer: {each}", "see its log"
            ) from each
    home = Home(address=address, host=host, machine="", threads=max(1, threads))
    where = f"the Dask worker on {host} ({address})"
    if _minor(python) != _minor(platform.python_version()):
        return replace(
            home,
            problem=f"{where} has Python {python}, but this run has Python "
            f"{platform.python_version()}",
            hint="use the same minor version of Python on all machines",
        )
    if version != __version__:
        has = f"unloader {version}"
        if isinstance(version, Exception):
            has = "no unloader" if isinstance(version, ImportError) else f"unloader ?: {version}"
        return replace(
            home,
            problem=f"{where} has {has}, but this run has unloader {__version__}",
            hint=f"install unloader {__version__} in the environment of each Dask worker, and "
            "restart them",
        )
    machine, problem = await ask(agent.hello, source_kind)
    if problem:
        return replace(
            home,
            problem=f"{where} cannot read the source: {problem}",
            hint="install the driver in the environment of each Dask worker",
        )
    return replace(home, machine=machine)


def check_fits(homes: Sequence[Home]) -> None:
    """Refuse Dask workers that could not do the work, or would do it in another way.

    Raises:
        ConfigError: One does not fit, or the cluster has no Dask worker; names the machines.
    """
    if not homes:
        raise ConfigError("the cluster has no Dask worker", "start some with: dask worker ADDRESS")
    for home in homes:
        if home.problem:
            others = sum(each.hint == home.hint for each in homes) - 1
            more = f" (and {others} more)" if others else ""
            raise ConfigError(f"{home.problem}{more}", home.hint)


def _minor(version: str) -> list[str]:
    return version.split(".")[:2]
