"""The side of a Dask worker: an agent for each run, with processes on seats of this machine.

The parent calls the functions here with `Client.run`, in the event loop of the Dask worker. No Dask
task is involved, so Dask repeats nothing. The work is done in our own processes, one for each
place. A `LocalExecutor` starts, binds and kills them as for a run on one machine. All its methods
are called in one thread.

An agent that has not heard from the parent for the time of its lease ends all its processes. The
parent is dead then, or it was cut off and has given their units to others.
"""

from __future__ import annotations

import asyncio
import logging
import pkgutil
import platform
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from numa.model import Finished, Lost, Message, ProcessLimits, Ready
from numa.topology import detect
from unloader import __version__
from unloader.engine.executor import ExecutorEvent, LocalExecutor
from unloader.errors import ConfigError, failure_of, translate
from unloader.model import AttemptFailure, Preload, SeatOptions, Snapshot, SourceSpec
from unloader.placement.evidence import WorkerEvidence
from unloader.placement.seating import Seating, seat_workers
from unloader.sources.registry import source_of
from unloader.storage.storage_lookup import check_seen

if TYPE_CHECKING:
    from distributed import Client


HOLD_SECONDS = 1.0
"""How long an agent without events waits before it answers with an empty list."""
_MESSAGE_SECONDS = 0.3
"""How long it keeps a report of progress, so that several of them travel together."""


class Opening(Struct, frozen=True, kw_only=True):
    """The seats of an agent, and the work on them."""

    agent: str
    """Its name, different from the name of every other agent of any run."""
    entry: str
    """The entry of `numa.pool.Pool`."""
    limits: ProcessLimits
    options: SeatOptions
    warm_up: Preload
    looks: bool
    seats_of_machine: int
    """Seats that all agents of this machine share."""
    places: tuple[tuple[int, int], ...]
    """Places of the run that are here, ascending, each with the number of its seat among those."""
    lease_seconds: float
    """Without a call of the parent for this time, all processes are ended."""


class Report(NamedTuple):
    event: ExecutorEvent
    is_free: bool = False
    """Its place can take a task now."""
    worker: WorkerEvidence | None = None
    """The worker at its place, where this may have changed."""


Order: TypeAlias = tuple[str, tuple[Any, ...]]
"""The name of a method of `LocalExecutor`, and its arguments."""

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


async def prove_units(
    source: SourceSpec, snapshot: Snapshot | None, run_id: str, places: Sequence[str]
) -> AttemptFailure | None:
    """Open a session as workers will, and look at the run's places; return why that fails."""

    def look() -> None:
        source_of(source.kind).open_reader(source, snapshot).close()
        check_seen(places, run_id)

    try:
        await asyncio.to_thread(look)
    except Exception as error:
        return failure_of(error)
    return None


async def open_agent(opening: Opening) -> Seating | AttemptFailure:
    """Open an agent; return its seats with the numbers of its places, or why it has none."""
    logging.getLogger("distributed.worker").addFilter(_is_news)
    try:
        agent = await asyncio.to_thread(Agent, opening)
    except Exception as error:
        return failure_of(error)
    _agents[opening.agent] = agent
    agent.renew_lease()
    return agent.seating


async def step(name: str, orders: Sequence[Order]) -> tuple[list[Any], list[Report]] | None:
    """Carry out orders; return their answers and new events, None if the agent has ended."""
    agent = _agents.get(name)
    if agent is None:
        return None
    agent.lease.cancel()
    agent.is_woken = False
    try:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(agent.thread, agent.step, orders)
    finally:
        agent.renew_lease()


async def wake(name: str) -> None:
    if name in _agents:
        _agents[name].wake()


async def close_agent(name: str) -> None:
    """End an agent; return when all its processes have ended."""
    agent = _agents.pop(name, None)
    if agent is not None:
        agent.lease.cancel()
        agent.wake()
        await asyncio.wrap_future(agent.thread.submit(agent.executor.close))
        agent.thread.shutdown(wait=False)


def _is_news(record: logging.LogRecord) -> bool:
    """Return whether a line of Dask's log is not about our calls, which come several a second."""
    return not str(record.msg).startswith("Run out-of-band function")


class Agent:
    """The processes of one run in this Dask worker."""

    def __init__(self, opening: Opening) -> None:
        """Take the seats; errors as for `seat_workers`."""
        self._opening = opening
        seating = seat_workers(detect(), opening.seats_of_machine, opening.options)
        seats = tuple(
            replace(seating.seats[number], worker=place) for place, number in opening.places
        )
        self.seating = replace(seating, seats=seats, near=None)
        self.executor = LocalExecutor(
            self.seating,
            opening.entry,
            opening.limits,
            warm_up=opening.warm_up,
            looks=opening.looks,
        )
        self.thread = ThreadPoolExecutor(1, thread_name_prefix=opening.agent)
        self.lease: asyncio.TimerHandle
        self.is_woken = False

    def renew_lease(self) -> None:
        """End everything once the parent has been silent for the time of the lease; in the loop."""

        def expire() -> None:
            self._ending = asyncio.create_task(close_agent(self._opening.agent))

        seconds = self._opening.lease_seconds
        self.lease = asyncio.get_running_loop().call_later(seconds, expire)

    def wake(self) -> None:
        self.is_woken = True
        self.executor.wake()

    def step(self, orders: Sequence[Order]) -> tuple[list[Any], list[Report]]:
        events: list[ExecutorEvent] = []
        answers: list[Any] = []
        for method, arguments in orders:
            if method == "send" and arguments[0] not in self.executor.places():
                # Its process was lost while the task was on its way.
                events.append(Lost(worker=arguments[0], detail="before its work unit began"))
                answers.append(None)
            else:
                answers.append(getattr(self.executor, method)(*arguments))
        events += self.executor.events(0.0 if orders or events else HOLD_SECONDS)
        until = time.monotonic() + _MESSAGE_SECONDS
        # Messages can wait a little for others.
        while events and all(isinstance(each, Message) for each in events) and not self.is_woken:
            left = until - time.monotonic()
            if left <= 0:
                break
            events += self.executor.events(left)
        return answers, [self._report(each) for each in events]

    def _report(self, event: ExecutorEvent) -> Report:
        place: int | None = getattr(event, "worker", None)
        if place is None:
            return Report(event)
        if isinstance(event, Lost):
            event = replace(event, task=None)  # The parent has it.
        changed = isinstance(event, Ready | Finished)
        worker = self.executor.worker(place) if changed else None
        return Report(event, is_free=place in self.executor.places(), worker=worker)


class Home(Struct, frozen=True, kw_only=True):
    """A Dask worker, where an agent may be."""

    address: str
    """Of its Dask worker."""
    host: str
    """Name of the machine, as the user knows it."""
    machine: str
    """Tells the machine from others."""
    threads: int

    @property
    def label(self) -> str:
        return f"{self.host} ({self.address})"


def shared(homes: Sequence[Home], places: int) -> Mapping[str, tuple[tuple[int, int], ...]]:
    """Share places out over machines, then over their Dask workers; each has a seat there."""
    machines: dict[str, list[Home]] = defaultdict(list)
    for home in sorted(homes, key=lambda each: each.address):
        machines[home.machine].append(home)
    # The Dask workers of a machine in turns, each as often as it has threads.
    turns = [
        [
            home
            for turn in range(max(each.threads for each in there))
            for home in there
            if turn < home.threads
        ]
        for there in machines.values()
    ]
    deal = (
        (seat, there[seat])
        for seat in range(max(map(len, turns), default=0))
        for there in turns
        if seat < len(there)
    )
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for place, (seat, home) in zip(range(places), deal, strict=False):
        found[home.address].append((place, seat))
    return {address: tuple(each) for address, each in found.items()}


def vacant_for(
    home: Home, vacant: Mapping[int, str], taken: set[int]
) -> tuple[tuple[int, int], ...]:
    """Return the vacant places that a new Dask worker takes, with seats on its machine."""
    chosen = sorted(vacant, key=lambda place: (vacant[place] != home.machine, place))
    free = (number for number in range(len(taken) + home.threads) if number not in taken)
    return tuple(sorted(zip(chosen[: home.threads], free, strict=False)))


async def home_of(
    client: Client, address: str, threads: int, source_kind: str, seconds: float
) -> Home:
    """Ask a Dask worker; a `ConfigError` if it does not fit. Its version is asked first."""

    async def ask(function: Callable[..., Any], *arguments: object) -> Any:
        call = client.run(function, *arguments, workers=[address])
        try:
            return (await asyncio.wait_for(call, seconds))[address]
        except ImportError:
            return None
        except Exception as error:
            late = isinstance(error, TimeoutError)
            reason = f"has not answered for {seconds:g} s" if late else f"does not answer: {error}"
            raise ConfigError(
                f"the Dask worker at {address} {reason}", "see its log, or end it"
            ) from error

    host = await ask(platform.node)
    where = f"the Dask worker on {host} ({address})"
    python, ours = await ask(platform.python_version), platform.python_version()
    if python.split(".")[:2] != ours.split(".")[:2]:
        raise ConfigError(
            f"{where} has Python {python}, but this run has Python {ours}",
            "use the same minor version of Python on all machines",
        )
    version = await ask(pkgutil.resolve_name, "unloader:__version__")
    if version != __version__:
        has = "no unloader" if version is None else f"unloader {version}"
        raise ConfigError(
            f"{where} has {has}, but this run has unloader {__version__}",
            f"install unloader {__version__} in the environment of each Dask worker, and restart "
            "them",
        )
    machine, problem = await ask(hello, source_kind)
    if problem:
        raise ConfigError(
            f"{where} cannot read the source: {problem}",
            "install the driver in the environment of each Dask worker",
        )
    return Home(address=address, host=host, machine=machine, threads=max(1, threads))
