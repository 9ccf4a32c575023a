"""The agents of a run: opened on the Dask workers there are, and on those that come later."""

from __future__ import annotations

import asyncio
import os
import pickle
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from msgspec.structs import replace

from numa.model import Seat
from unloader.engine.cluster import calls
from unloader.engine.cluster.connection import Connection
from unloader.engine.cluster.facts import Facts, check_fits, facts_of
from unloader.engine.cluster.orders import Opened, Opening, Prove, Refused, Told
from unloader.engine.cluster.remote import RemoteAgent
from unloader.engine.cluster.sharing import Home, shared, vacant_for
from unloader.errors import ConfigError, ConnectFailed, UnloaderError, error_class
from unloader.model import Proof

T = TypeVar("T")

_ANSWER_SECONDS = 60.0
"""Longest wait for one answer at the start: a busy machine takes its time to load a driver."""
_LOOK_SECONDS = 2.0

Listener = Callable[[RemoteAgent, "list[Told] | str"], None]
"""Takes the events of an agent, or why it is lost."""


class Team:
    """The agents; the places that they have are numbered from 0."""

    def __init__(self, connection: Connection, pattern: Opening, source_kind: str) -> None:
        """Open nothing yet.

        Args:
            connection: To the cluster.
            pattern: What agents are opened with, but for what is each one's own.
            source_kind: The source that they must be able to read.
        """
        self._connection = connection
        self._pattern = pattern
        self._kind = source_kind
        self._agents: dict[str, RemoteAgent] = {}
        """By the address of their Dask worker: those that were not lost."""
        self._by_place: dict[int, RemoteAgent] = {}
        self._vacant: dict[int, str] = {}
        """Places without an agent, each with the machine that it was on."""
        self._seats: dict[int, Seat] = {}
        self._hosts: dict[int, str] = {}
        self._refused: set[str] = set()
        """Dask workers that have come and do not fit."""
        self._lock = threading.Lock()
        self._listener: Listener | None = None
        self._early: list[tuple[RemoteAgent, list[Told] | str]] = []
        self._number = 0
        self._is_closed = False
        self._watch: asyncio.Task[None] | None = None
        self.proof: Prove | None = None
        """What an agent is asked for that is opened from now on."""
        self.notices: tuple[str, ...] = ()
        self.places = 0
        """Those below are used."""
        self.of = 0
        """And those below are kept."""

    def open(self, places: int, homes: Iterable[Home]) -> tuple[Seat, ...]:
        """Open an agent on each Dask worker that has a share of the places; return their seats.

        Raises:
            UnloaderError: One refused.
        """
        known = {home.address: home for home in homes}
        shares = shared(tuple(known.values()), places)
        self.places = self.of = places
        self._call(self._open_all(shares, known))
        return tuple(self._seats[place] for place in sorted(self._seats))

    def listen(self, listener: Listener) -> None:
        """Have a function called, in the loop, with all that agents tell."""
        with self._lock:
            self._listener = listener
            early, self._early = self._early, []
        for each in early:
            listener(*each)

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

    def limit(self, places: int, of: int) -> None:
        """Use so many places, of which so many are kept."""
        self.places, self.of = places, of

    def raise_to(self, places: int) -> bool:
        """Use so many places if those are more; return whether they are.

        In place of those that are vacant others are used: a run that begins with few workers would
        wait for the machines of these, if they are lost, while others have nothing to do.
        """
        there = sorted(place for agent in self.alive() for place in agent.places if place < self.of)
        last = there[:places][-1] + 1 if there else 0
        more = max(places, last) > self.places
        self.places = max(self.places, places, last)
        return more

    def open_sessions(self, task: Proof) -> None:
        """Have each agent open the session of a proof that is to come."""
        for agent in self.alive():
            agent.post(Prove(task, is_awaited=False))

    def vacate(self, agent: RemoteAgent) -> None:
        """Take note of the loss of an agent: others may have its places now."""
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
        self._connection.call_soon(agent.end)
        self._told(agent, reason)

    def close(self) -> None:
        """Take no further Dask workers."""
        self._is_closed = True

    def greet(self) -> tuple[Home, ...]:
        """Return the Dask workers there are, once each is known to fit.

        Raises:
            ConfigError: There is none, or one does not fit.
        """
        found = self._call(self._greet_all())
        check_fits([facts for _, facts in found])
        return tuple(home for home, _ in found)

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        try:
            return self._connection.call(coroutine, 2 * _ANSWER_SECONDS)
        except UnloaderError:
            raise
        # What the library raises where a connection breaks has no common class.
        except Exception as error:
            raise ConnectFailed(
                f"the cluster at {self._connection.address} does not answer: {error}",
                "see the logs of its scheduler and its workers",
            ) from error

    async def _greet_all(self) -> list[tuple[Home, Facts]]:
        known = await self._connection.workers()
        homes = (self._greet(each.address, each.threads) for each in known)
        return list(await asyncio.gather(*homes))

    async def _greet(self, address: str, threads: int) -> tuple[Home, Facts]:
        facts = await facts_of(self._connection, address, self._kind, _ANSWER_SECONDS)
        home = Home(
            address=address, host=facts.host, machine=facts.machine, threads=max(1, threads)
        )
        return home, facts

    async def _open_all(
        self, shares: Mapping[str, tuple[tuple[int, int], ...]], homes: Mapping[str, Home]
    ) -> None:
        totals: dict[str, int] = {}
        for address, share in shares.items():
            machine = homes[address].machine
            totals[machine] = totals.get(machine, 0) + len(share)
        await asyncio.gather(
            *(
                self._open(homes[address], share, totals[homes[address].machine])
                for address, share in shares.items()
            )
        )
        self._watch = asyncio.create_task(self._look_for_more())

    async def _open(self, home: Home, share: tuple[tuple[int, int], ...], total: int) -> None:
        self._number += 1
        begin = min(self._pattern.begin, len(share))
        opening = replace(
            self._pattern,
            agent=f"unloader-{os.getpid()}-{os.urandom(4).hex()}-{self._number}",
            seats_of_machine=total,
            places=share,
            # Of a run that goes on all are wanted.
            begin=begin if self._listener is None else sum(p < self.places for p, _ in share),
        )
        call = self._connection.run(home.address, calls.open_agent, pickle.dumps(opening))
        answer: Opened | Refused = pickle.loads(await asyncio.wait_for(call, _ANSWER_SECONDS))
        if isinstance(answer, Refused):
            failure = answer.failure
            raise error_class(failure.error)(f"{home.label}: {failure.message}", failure.hint)
        agent = RemoteAgent(self._connection, home, opening, told=self._told, lost=self._told)
        with self._lock:
            self._agents[home.address] = agent
            for (place, _), seat in zip(share, answer.seats, strict=True):
                self._by_place[place] = agent
                self._vacant.pop(place, None)
                self._seats[place] = seat
                self._hosts[place] = home.host
            told = (f"{home.host}: {text}" for text in answer.notices)
            self.notices = tuple(dict.fromkeys((*self.notices, *told)))
        agent.begin()
        if self.proof is not None:
            agent.post(self.proof)

    def _told(self, agent: RemoteAgent, found: list[Told] | str) -> None:
        with self._lock:
            if self._listener is None:
                self._early.append((agent, found))
                return
        self._listener(agent, found)

    async def _look_for_more(self) -> None:
        """Open agents on Dask workers that have come, while there are vacant places."""
        while not self._is_closed:
            await asyncio.sleep(_LOOK_SECONDS)
            if not self._vacant:
                continue
            with suppress(Exception):  # The scheduler may be away for a moment.
                for each in await asyncio.wait_for(self._connection.workers(), _ANSWER_SECONDS):
                    if each.address not in self._agents and each.address not in self._refused:
                        await self._try_to_open(each.address, each.threads)

    async def _try_to_open(self, address: str, threads: int) -> None:
        try:
            home, facts = await asyncio.wait_for(self._greet(address, threads), 10.0)
            check_fits([facts])
        except ConfigError:
            self._refused.add(address)
            return
        with self._lock:
            here = [each for each in self._agents.values() if each.home.machine == home.machine]
            taken = {number for each in here for number in each.seats.values()}
            kept = {place: was for place, was in self._vacant.items() if place < self.of}
        share = vacant_for(home, kept, taken)
        if share and not self._is_closed:
            total = max([*taken, *(number for _, number in share)]) + 1
            with suppress(UnloaderError):
                await self._open(home, share, total)
