"""The side of a Dask worker: an agent for each run, with processes on seats of this machine.

The parent calls `hello`, `open_agent`, `order` and `fetch` with `Client.run`, in the event loop of
the Dask worker. No Dask task is involved, so Dask repeats nothing. The work is done in our own
processes, one for each place. A `LocalExecutor` starts, binds and kills them as for a run on one
machine. It runs in a thread, which carries out the orders of the parent one after the other.

An agent that has not heard from the parent for the time of its lease ends all its processes. The
parent is dead then, or it was cut off and has given their units to others.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from numa.model import Finished, Lost, Message, ProcessLimits, Raised, Ready, Seat
from numa.topology import detect
from unloader.engine.executor import ExecutorEvent, failure_in
from unloader.engine.local import LocalExecutor
from unloader.errors import translate
from unloader.events import Notice
from unloader.failures import failure_of
from unloader.model import AttemptFailure, Preload, Proof, SeatOptions
from unloader.placement.evidence import Evidence, WorkerEvidence
from unloader.placement.seating import Seating, seat_workers
from unloader.sources.registry import source_of

HOLD_SECONDS = 2.0
"""How long an agent without events waits before it answers with an empty list."""
_MESSAGE_SECONDS = 0.3
"""How long it keeps a report of progress, so that several of them travel together."""
_TICK_SECONDS = 0.2


class Opening(Struct, frozen=True, kw_only=True):
    """The seats of an agent, and the work on them."""

    agent: str
    """Its name, different from the name of every other agent of any run."""
    entry: str
    """See `numa.pool.Pool`."""
    limits: ProcessLimits
    options: SeatOptions
    warm_up: Preload
    looks: bool
    seats_of_machine: int
    """Seats that all agents of this machine share."""
    places: tuple[tuple[int, int], ...]
    """Places of the run that are here, ascending, each with the number of its seat among those."""
    begin: int
    """Processes that start immediately."""
    lease_seconds: float
    """Without a call of the parent for this time, all processes are ended."""


class Opened(NamedTuple):
    """The answer of an agent that was opened."""

    seats: tuple[Seat, ...]
    """The seats of its places, in their order, each with the number of its place."""
    notices: tuple[str, ...]
    """Notes on requested seats that the machine does not have."""


class Proven(NamedTuple):
    """The machine has shown whether it can read units."""

    failure: AttemptFailure | None
    """Why it cannot."""


class Report(NamedTuple):
    """An event of an agent."""

    number: int
    """Counted from 1."""
    event: ExecutorEvent | Proven
    is_free: bool = False
    """Its place can take a task now."""
    worker: WorkerEvidence | None = None
    """The worker at its place, where this may have changed."""


Order: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...]]
"""A method of `Agent`, and its arguments."""

_agents: dict[str, Agent] = {}


async def hello(source_kind: str) -> tuple[str, str]:
    """Return the id of this machine, and why it cannot load the driver of a source or ''."""
    try:
        source_of(source_kind).load()
    except Exception as error:
        known = translate(error)
        return machine_id(), str(error) if known is None else known.message
    return machine_id(), ""


def machine_id() -> str:
    """Return an id of this machine, and of this start of it."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return socket.gethostname()


async def open_agent(opening: Opening) -> Opened | AttemptFailure:
    """Open an agent, or return why this machine cannot seat its workers."""
    logging.getLogger("distributed.worker").addFilter(_is_news)
    try:
        agent = await asyncio.to_thread(Agent, opening)
    except Exception as error:
        return failure_of(error)
    _agents[opening.agent] = agent
    agent.begin()
    return agent.opened


async def order(name: str, first: int, orders: Sequence[Order]) -> list[Any] | None:
    """Have orders carried out one after the other; return the answers, or None without this agent.

    Args:
        name: The agent.
        first: Number of the first order. An order that the agent knows is not carried out again.
        orders: All of them.
    """
    agent = _agents.get(name)
    return None if agent is None else await agent.answers(first, orders)


async def fetch(name: str, seen: int) -> list[Report] | None:
    """Return the events that the parent has not seen, or None without this agent.

    Args:
        name: The agent.
        seen: Number of the last event that the parent has.
    """
    agent = _agents.get(name)
    return None if agent is None else await agent.events_after(seen)


def _is_news(record: logging.LogRecord) -> bool:
    """Return whether a line of Dask's log is not about our calls, which come several a second."""
    return not str(record.msg).startswith("Run out-of-band function")


class Agent:
    """The processes of one run in this Dask worker.

    `answers` and `events_after` run in the event loop. All orders run in the agent's thread.
    """

    def __init__(self, opening: Opening) -> None:
        """Take the seats.

        Raises:
            UnloaderError: This machine does not have them.
            TopologyError: As `seat_workers`.
        """
        self._opening = opening
        topology = detect()
        seating = seat_workers(topology, opening.seats_of_machine, opening.options)
        seats = tuple(
            replace(seating.seats[number], worker=place) for place, number in opening.places
        )
        self._executor = LocalExecutor(
            Seating(seats=seats, memory_policy=seating.memory_policy),
            opening.entry,
            opening.limits,
            warm_up=opening.warm_up,
            looks=opening.looks,
        )
        self.opened = Opened(seats, seating.notices)
        self._heard = time.monotonic()
        self._is_wanted = True
        self._proof: Proof | None = None
        """The task of the proof, until a process has done it."""
        self._prover: int | None = None
        """The place whose process is at it."""
        self._is_proven = False
        self._ready: dict[int, Ready] = {}
        """By place, what its process sent first."""
        self._orders: queue.SimpleQueue[tuple[Order, asyncio.Future[Any]]] = queue.SimpleQueue()
        # Used in the loop alone:
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._next_order = 0
        self._reports: deque[Report] = deque()
        self._next_report = 1
        self._news_since = 0.0
        self._is_over = False

    def begin(self) -> None:
        """Start the first processes; in the loop."""
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        threading.Thread(target=self._serve, daemon=True, name=self._opening.agent).start()

    async def answers(self, first: int, orders: Sequence[Order]) -> list[Any]:
        """Have orders carried out; return their answers."""
        self._heard = time.monotonic()
        for number in [number for number in self._answers if number < first]:
            del self._answers[number]  # The parent has them.
        for number, each in enumerate(orders, first):
            if number >= self._next_order:
                self._answers[number] = self._loop.create_future()
                self._orders.put((each, self._answers[number]))
                self._next_order = number + 1
        self._executor.wake()
        answers = [self._answers[number] for number in range(first, first + len(orders))]
        await asyncio.wait(answers)
        return [each.result() for each in answers]

    async def events_after(self, seen: int) -> list[Report]:
        """Return the events after one. Urgent ones are returned immediately, messages soon."""
        self._heard = time.monotonic()
        until = self._heard + HOLD_SECONDS
        while self._reports and self._reports[0].number <= seen:
            self._reports.popleft()
        while not (self._is_over or any(map(_is_urgent, self._reports))):
            if self._reports:
                until = min(until, self._news_since + _MESSAGE_SECONDS)
            left = until - time.monotonic()
            if left <= 0:
                break
            self._news.clear()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._news.wait(), left)
        self._heard = time.monotonic()
        return list(self._reports)

    def send(self, place: int, task: object) -> None:
        """Give a task to a place."""
        if place in self._executor.places():
            self._executor.send(place, task)
        else:  # Its process was lost while the task was on its way.
            self._report(Lost(worker=place, detail="before its work unit began"))

    def tell(self, place: int, payload: object) -> None:
        """Send something to the task at a place."""
        self._executor.tell(place, payload)

    def stop(self, reasons: Mapping[int, AttemptFailure]) -> None:
        """Kill the processes of places."""
        self._executor.stop(reasons)

    def begin_with(self, places: int, of: int) -> None:
        """Use the places below the second number, and keep processes at those below the first."""
        self._executor.begin_with(self._below(places), self._below(of))
        if self._prover not in self._executor.pids():
            self._prover = None

    def start(self, places: int) -> None:
        """Keep processes at the places below a number, and keep the processes that there are."""
        self._executor.start(self._below(places))

    def prove(self, task: Proof) -> None:
        """Have a process show that units can be read here. No place is ready before."""
        if not self._is_proven:
            self._proof = task

    def finish(self) -> Evidence:
        """Look at the places a last time."""
        self._report_all(self._executor.finish())
        return self._executor.evidence()

    def close(self) -> None:
        """End everything. It is answered when all processes have ended."""
        self._is_wanted = False

    def _serve(self) -> None:
        try:
            with self._executor as executor:
                executor.prepare()
                executor.begin_with(self._opening.begin, len(self._opening.places))
                lease = self._opening.lease_seconds
                while self._is_wanted and time.monotonic() - self._heard < lease:
                    self._carry_out_orders()
                    if self._proof is not None and self._prover is None and executor.places():
                        self._prover = min(executor.places())
                        executor.send(self._prover, self._proof)
                    if self._is_wanted:
                        self._report_all(executor.events(_TICK_SECONDS))
        except Exception as error:
            # Every task here ends with the executor. The parent tries other machines.
            self._report(Notice(text=f"the agent on {socket.gethostname()} has ended: {error}"))
        finally:
            self._in_loop(self._end)

    def _carry_out_orders(self) -> None:
        with suppress(queue.Empty):
            while self._is_wanted:
                (method, arguments), answer = self._orders.get_nowait()
                value = method(self, *arguments)
                if self._is_wanted:
                    self._in_loop(_answer, answer, value)

    def _below(self, place: int) -> int:
        """Return how many of the places here have a lower number."""
        return sum(number < place for number, _ in self._opening.places)

    def _report_all(self, events: Sequence[ExecutorEvent]) -> None:
        was_proven, free = self._is_proven, self._executor.places()
        for event in events:
            if isinstance(event, Ready):
                self._ready[event.worker] = event
            place: int | None = getattr(event, "worker", None)
            if place is not None and place == self._prover:
                if isinstance(event, Message):
                    continue
                self._prover = None
                if isinstance(event, Finished | Raised):
                    failure = failure_in(event)
                    self._proof, self._is_proven = None, failure is None
                    self._report(Proven(failure))
                    continue
            if isinstance(event, Lost):
                event = replace(event, task=None)  # The parent has it.
            if place is None or not isinstance(event, Ready | Finished):
                self._report(event, is_free=place in free)
            elif was_proven:
                self._report(event, is_free=place in free, worker=self._executor.worker(place))
        if self._is_proven and not was_proven:
            for place in sorted(free):
                known = self._executor.worker(place)
                self._report(self._ready[place], is_free=True, worker=known)

    def _report(
        self,
        event: ExecutorEvent | Proven,
        *,
        is_free: bool = False,
        worker: WorkerEvidence | None = None,
    ) -> None:
        self._in_loop(self._add, event, is_free, worker)

    def _in_loop(self, function: Callable[..., None], *arguments: Any) -> None:
        with suppress(RuntimeError):  # The loop is closed: the Dask worker ends.
            self._loop.call_soon_threadsafe(function, *arguments)

    def _add(
        self, event: ExecutorEvent | Proven, is_free: bool, worker: WorkerEvidence | None
    ) -> None:
        if not self._reports:
            self._news_since = time.monotonic()
        self._reports.append(Report(self._next_report, event, is_free, worker))
        self._next_report += 1
        self._news.set()

    def _end(self) -> None:
        """Answer the orders that are left: all processes have ended."""
        _agents.pop(self._opening.agent, None)
        self._is_over = True
        self._news.set()
        for each in self._answers.values():
            _answer(each, None)


def _answer(answer: asyncio.Future[Any], value: object) -> None:
    if not answer.done():
        answer.set_result(value)


def _is_urgent(report: Report) -> bool:
    return not isinstance(report.event, Message)
