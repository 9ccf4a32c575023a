"""The side of a Dask worker: an agent for each run, with processes on seats of this machine.

The parent calls the functions of `calls` in the Dask worker's event loop. The work is done in
processes of our own, one for each place, which `numa.supervisor` starts, binds and kills as it does
for a run on one machine: a `LocalExecutor` does all of it, in a thread that turns orders into calls
and keeps its events until the parent has seen them. No Dask task is involved, so none is ever
repeated.

An agent that has not heard of the parent for the time of its lease ends all its processes: the
parent is dead, or was cut off and has given their units to others.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import platform
import socket
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from numa.processes.fork_server import ForkServer
from unloader import __version__
from unloader.engine.cluster.orders import (
    HOLD_SECONDS,
    MESSAGE_SECONDS,
    Begin,
    Close,
    Finish,
    Finished,
    Opened,
    Opening,
    Order,
    Prove,
    Proven,
    Refused,
    Send,
    Start,
    Stop,
    Tell,
    Told,
)
from unloader.engine.cluster.proofs import Proofs
from unloader.engine.executor import (
    ExecutorEvent,
    Message,
    Note,
    PlaceLost,
    PlaceReady,
    Result,
)
from unloader.engine.local import LocalExecutor
from unloader.errors import WorkerLost, translate
from unloader.failures import failure_of
from unloader.model import AttemptFailure, Preload
from unloader.placement.seating import Seating, is_one_node, machine, seat_workers
from unloader.sources.registry import source_of
from unloader.worker.preparing import load_for_machines

_TICK_SECONDS = 0.2

_agents: dict[str, Agent] = {}


def facts(source_kind: str) -> dict[str, Any]:
    """Return what `calls.hello` says, and load the driver of the source for that."""
    found: dict[str, Any] = {
        "unloader": __version__,
        "python": platform.python_version(),
        "host": socket.gethostname(),
        "machine": machine_id(),
        "pid": os.getpid(),
        "driver": "",
    }
    try:
        source_of(source_kind).load()
    except Exception as error:
        known = translate(error)
        found["driver"] = str(error) if known is None else known.message
    return found


def machine_id() -> str:
    """Return what tells this machine, and this start of it, from any other."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return socket.gethostname()


async def open_agent(data: bytes) -> bytes:
    """See `calls.open_agent`."""
    logging.getLogger("distributed.worker").addFilter(_is_news)
    return pickle.dumps(await asyncio.to_thread(_opened, pickle.loads(data)))


async def order(name: str, first: int, data: bytes) -> bytes | None:
    """See `calls.order`."""
    agent = _agents.get(name)
    if agent is None:
        return None
    last = agent.take(first, pickle.loads(data))
    return pickle.dumps(await asyncio.to_thread(agent.answers, first, last))


async def fetch(name: str, seen: int) -> bytes | None:
    """See `calls.fetch`."""
    agent = _agents.get(name)
    return None if agent is None else pickle.dumps(await agent.events_after(seen))


def _is_news(record: logging.LogRecord) -> bool:
    """Return whether a line of Dask's log is not about our calls, which come several a second."""
    return not str(record.msg).startswith("Run out-of-band function")


def _opened(opening: Opening) -> Opened | Refused:
    if opening.agent in _agents:  # The first answer was lost on its way.
        return _agents[opening.agent].opened
    try:
        agent = Agent(opening)
    except Exception as error:
        return Refused(failure_of(error))
    _agents[opening.agent] = agent
    agent.begin()
    return agent.opened


_servers: dict[Preload, ForkServer] = {}


def _server_for(wanted: Preload) -> ForkServer:
    """Return the process from which workers are forked that need this.

    It outlives the run: those of the next one are up at once.
    """
    prepare = f"{load_for_machines.__module__}:{load_for_machines.__name__}"
    return _servers.setdefault(wanted, ForkServer(prepare, wanted))


class Agent:
    """The processes of one run in this Dask worker."""

    def __init__(self, opening: Opening) -> None:
        """Take the seats.

        Raises:
            UnloaderError: This machine does not have them.
            TopologyError: As `seat_workers`.
        """
        self._opening = opening
        topology = machine()
        seating = seat_workers(topology, opening.seats_of_machine, opening.options)
        seats = tuple(
            replace(seating.seats[number], worker=place) for place, number in opening.places
        )
        self._seating = Seating(seats=seats, memory_policy=seating.memory_policy)
        # On a machine of several nodes a process is born on its own, with its interpreter.
        self._server = _server_for(opening.warm_up) if is_one_node(topology) else None
        self.opened = Opened(seats, seating.notices)
        self._orders: deque[tuple[int, Order]] = deque()
        self._answers: deque[tuple[int, Any]] = deque()
        """Of the orders that were carried out, until all of a call are."""
        self._carried_out = -1
        """Number of the last order."""
        self._told: deque[Told] = deque()
        self._next = 1
        self._told_since = 0.0
        """When the first of them came."""
        self._news = threading.Condition()
        self._heard = time.monotonic()
        self._is_over = False
        """No process of it is left."""
        self._executor: LocalExecutor | None = None
        self._proofs = Proofs(self._put)
        self._thread = threading.Thread(target=self._serve, daemon=True, name=opening.agent)

    def begin(self) -> None:
        """Start the first processes."""
        self._thread.start()

    def take(self, first: int, orders: list[Order]) -> int:
        """Have orders carried out; return the number of the last."""
        self._heard = time.monotonic()
        with self._news:
            known = self._orders[-1][0] if self._orders else self._carried_out
            for number, each in enumerate(orders, first):
                if number > known:
                    self._orders.append((number, each))
        if self._executor is not None:
            self._executor.wake()
        return first + len(orders) - 1

    def answers(self, first: int, last: int) -> list[object]:
        """Wait until orders are carried out; return their answers."""
        with self._news:
            self._news.wait_for(lambda: self._carried_out >= last or self._is_over)
            return [value for number, value in self._answers if first <= number <= last]

    async def events_after(self, seen: int) -> list[Told]:
        """Return the events behind one; waits for urgent ones a while, for others less long."""
        self._heard = time.monotonic()
        return await asyncio.to_thread(self._wait_for_news, seen)

    def _wait_for_news(self, seen: int) -> list[Told]:
        until = time.monotonic() + HOLD_SECONDS
        with self._news:
            while self._told and self._told[0].number <= seen:
                self._told.popleft()
            while not self._is_over and not any(_is_urgent(each.event) for each in self._told):
                if self._told:
                    until = min(until, self._told_since + MESSAGE_SECONDS)
                left = until - time.monotonic()
                if left <= 0:
                    break
                self._news.wait(left)
            self._heard = time.monotonic()
            return list(self._told)

    def _serve(self) -> None:
        opening = self._opening
        try:
            with LocalExecutor(
                self._seating,
                opening.entry,
                opening.limits,
                warm_up=opening.warm_up,
                looks=opening.looks,
                server=self._server,
            ) as executor:
                self._executor = executor
                executor.start_early(opening.begin)
                while self._carry_out(executor) and self._is_wanted():
                    for each in self._proofs.go_on(executor):
                        self._done(executor, each)
                    self._tell(executor, executor.events(_TICK_SECONDS))
        except Exception as error:
            # Every task here ends with the executor; the parent tries other machines.
            self._put(Note(text=f"the agent on {socket.gethostname()} has ended: {error}"))
        finally:
            _agents.pop(opening.agent, None)
            with self._news:
                self._is_over = True
                self._news.notify_all()

    def _is_wanted(self) -> bool:
        return time.monotonic() - self._heard < self._opening.lease_seconds

    def _carry_out(self, executor: LocalExecutor) -> bool:
        """Carry out the orders there are; return whether to go on."""
        while True:
            with self._news:
                if not self._orders:
                    return True
                number, each = self._orders[0]
            value = self._done(executor, each)
            if isinstance(each, Close):
                return False  # That is answered when all processes are gone.
            with self._news:
                self._orders.popleft()
                self._carried_out = number
                self._answers.append((number, value))
                while len(self._answers) > _KEPT_ANSWERS:
                    self._answers.popleft()
                self._news.notify_all()

    def _done(self, executor: LocalExecutor, each: Order) -> object:
        """Carry one order out; return its answer."""
        if isinstance(each, Send | Tell) and self._proofs.keep(each):
            return None
        if isinstance(each, Send):
            if each.place in executor.places():
                executor.send(each.place, each.task)
            else:
                # It was lost while the task was on its way, and that is told by itself.
                self._put(PlaceLost(place=each.place, failure=_gone(each.place)))
        elif isinstance(each, Prove):
            self._proofs.want(each)
        elif isinstance(each, Tell):
            executor.tell(each.place, each.payload)
        elif isinstance(each, Stop):
            executor.stop(each.reasons)
        elif isinstance(each, Begin):
            executor.begin_with(self._below(each.places), self._below(each.of))
            self._proofs.look(executor.pids())
        elif isinstance(each, Start):
            executor.start(self._below(each.places))
        elif isinstance(each, Finish):
            self._tell(executor, executor.finish())
            return Finished(executor.evidence())
        return None

    def _below(self, place: int) -> int:
        """Return how many of the places here have a lower number."""
        return sum(number < place for number, _ in self._opening.places)

    def _tell(self, executor: LocalExecutor, events: Any) -> None:
        free = executor.places()
        for event in events:
            if self._proofs.takes(event):
                continue
            place = getattr(event, "place", None)
            changed = isinstance(event, PlaceReady | Result)
            worker = executor.worker(place) if changed and place is not None else None
            self._put(event, is_free=place in free, worker=worker)

    def _put(
        self, event: ExecutorEvent | Proven, *, is_free: bool = False, worker: Any = None
    ) -> None:
        with self._news:
            if not self._told:
                self._told_since = time.monotonic()
            self._told.append(Told(self._next, event, is_free, worker))
            self._next += 1
            self._news.notify_all()


_KEPT_ANSWERS = 64
"""An answer that was lost on its way is asked for again at once."""


def _is_urgent(event: ExecutorEvent | Proven) -> bool:
    return not isinstance(event, Message)


def _gone(place: int) -> AttemptFailure:
    return AttemptFailure(
        error=WorkerLost.__name__,
        message=f"worker {place} was lost before its work unit began",
        hint=WorkerLost.usual_hint,
        retryable=True,
    )
