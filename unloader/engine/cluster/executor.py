"""The executor on the workers of a Dask cluster; see `unloader.engine.executor`.

Each Dask worker has an agent (`agent`), which keeps a process of our own on each of its seats. This
is the parent's side: one number a place over all machines, and the events of all agents as one row.
A place whose Dask worker is lost is ready again once another one has come, on any machine.
"""

from __future__ import annotations

import concurrent.futures
import queue
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from types import TracebackType

from msgspec.structs import replace

from unloader.engine.cluster.connection import Connection
from unloader.engine.cluster.orders import (
    Begin,
    Close,
    Finish,
    Finished,
    Order,
    Prove,
    Proven,
    Send,
    Start,
    Stop,
    Tell,
    Told,
)
from unloader.engine.cluster.remote import RemoteAgent
from unloader.engine.cluster.team import Team
from unloader.engine.executor import (
    AttemptFailed,
    ExecutorEvent,
    NoPlaceLeft,
    Note,
    PlaceLost,
    PlaceReady,
    Result,
)
from unloader.engine.untold import Untold
from unloader.errors import ConfigError, WorkerLost, error_class
from unloader.failures import error_of
from unloader.model import AttemptFailure, Proof
from unloader.placement.evidence import Evidence, WorkerEvidence

_RETURN_SECONDS = 60.0
"""How long a run waits for a Dask worker once the last one is lost: a nanny takes some seconds to
start another one."""
_STOP_SECONDS = 10.0
_CLOSE_SECONDS = 15.0


class DaskExecutor:
    """Processes on seats of other machines. A place has one number in the whole cluster."""

    def __init__(self, connection: Connection, team: Team, release: Callable[[], None]) -> None:
        """Take the agents that were opened.

        Args:
            connection: To the cluster; closed by `close`.
            team: The agents.
            release: Called last.
        """
        self._connection = connection
        self._team = team
        self._release = release
        self._inbox: queue.SimpleQueue[tuple[RemoteAgent, list[Told] | str]] = queue.SimpleQueue()
        self._events = Untold()
        self._idle: set[int] = set()
        self._busy: set[int] = set()
        self._reasons: dict[int, AttemptFailure] = {}
        """Why places were stopped, until their end has been read."""
        self._workers: dict[int, WorkerEvidence] = {}
        self._restarts: dict[int, int] = {}
        """Processes that places had in agents that are lost."""
        self._evidence: dict[str, Evidence] = {}
        """Of each agent that has looked a last time, by its host."""
        self._proven: dict[RemoteAgent, AttemptFailure | None] = {}
        """What has come of the proof of each agent."""
        self._asked: set[RemoteAgent] = set()
        """Those that were there when it was asked for."""
        self._alone_since: float | None = None
        self._is_closed = False
        team.listen(lambda agent, found: self._inbox.put((agent, found)))

    def resize(self, places: int) -> None:
        """Use the places below a number."""
        self.begin_with(places, places)

    def begin_with(self, places: int, of: int) -> None:
        """Use those below the second number, and keep processes at those below the first."""
        self._team.limit(places, of)
        self._idle = {place for place in self._idle if place < places}
        self._tell_all(Begin(places, of))

    def start(self, places: int) -> None:
        """Keep processes at the places below a number, beside those that have one."""
        if self._team.raise_to(places):
            self._tell_all(Start(self._team.places))

    def places(self) -> Collection[int]:
        """Return the places whose process is up and idle."""
        return self._idle

    def send(self, place: int, task: object) -> None:
        """Send a task to the machine of a place."""
        self._idle.discard(place)
        self._busy.add(place)
        agent = self._team.agent_of(place)
        if agent is not None:
            agent.post(Send(place, task))
        # Without one the place is lost, which is the next event.

    def tell(self, place: int, payload: object) -> None:
        """Send something for the task at a place."""
        agent = self._team.agent_of(place)
        if agent is not None and place in self._busy:
            agent.post(Tell(place, payload))

    def events(self, timeout_seconds: float) -> Sequence[ExecutorEvent]:
        """Return what has come from all machines."""
        self._take_all(0.0 if self._events else timeout_seconds)
        self._look_for_places()
        return self._events.taken()

    def stop(self, reasons: Mapping[int, AttemptFailure]) -> None:
        """Kill the processes of places, wherever they are.

        One that cannot be told in time has no effect any more: its Dask worker is lost to the run,
        ends its processes by itself, and what they have written counts for nothing.
        """
        self._reasons.update(reasons)
        orders = []
        for agent in self._team.alive():
            mine = {place: reasons[place] for place in agent.places if place in reasons}
            if mine:
                orders.append(agent.post(Stop(mine)))
        concurrent.futures.wait(orders, _STOP_SECONDS)

    def finish(self) -> Sequence[ExecutorEvent]:
        """Have each machine look at its processes a last time."""
        asked = {agent: agent.post(Finish()) for agent in self._team.alive()}
        concurrent.futures.wait(asked.values(), _STOP_SECONDS)
        for agent, answer in asked.items():
            with suppress(Exception):
                found = answer.result(0)
                if isinstance(found, Finished):
                    self._evidence[agent.home.host] = found.evidence
                    for worker in found.evidence.workers:
                        self._know(agent, worker)
        self._take_all(0.0)
        return self._events.taken()

    def pids(self) -> Mapping[int, int]:
        """Return nothing: they are on other machines."""
        return {}

    def worker(self, place: int) -> WorkerEvidence:
        """Return what the machine of a place has told of its worker."""
        known = self._workers.get(place)
        if known is not None:
            return known
        seat = self._team.seat(place)
        return WorkerEvidence(seat=seat, bound=None, residence=None, host=self._team.host(place))

    def evidence(self) -> Evidence:
        """Return what is known of all places."""
        unseen = dict.fromkeys(
            f"{host}: {line}" for host, each in self._evidence.items() for line in each.not_measured
        )
        return Evidence(
            workers=tuple(self.worker(place) for place in range(self._team.of)),
            pages_of_hosts={host: each.machine_pages for host, each in self._evidence.items()},
            not_measured=tuple(unseen),
        )

    def prove(self, task: Proof, seconds: float) -> None:
        """Have each Dask worker that there is show that it can read units, before it reads any.

        One that comes later is asked as well: where it cannot, the run goes on without it.

        Args:
            task: What one of its workers does.
            seconds: Longest time for all of it.

        Raises:
            UnloaderError: Of the kind of the first failure; it names the machine.
        """
        until = time.monotonic() + seconds
        used = self._team.places
        if used < self._team.of:
            # A run that begins with few workers may have all of them later.
            self.begin_with(self._team.of, self._team.of)
        self._team.proof = Prove(task, is_awaited=True)
        self._asked = {agent for agent in self._team.alive() if agent.places[0] < self._team.of}
        for agent in self._asked:
            agent.post(self._team.proof)
        kept: list[ExecutorEvent] = []
        waiting = self._asked
        while waiting and (left := until - time.monotonic()) > 0:
            for event in self.events(min(left, 0.2)):
                if isinstance(event, NoPlaceLeft):
                    raise error_of(event.failure)
                kept.append(event)
            waiting = {agent for agent in waiting if not (agent.is_lost or agent in self._proven)}
        self._events[:0] = kept
        if used < self._team.of:
            self.begin_with(used, self._team.of)
        for agent, failure in self._proven.items():
            if failure is not None:
                raise error_class(failure.error)(_on(agent, failure), failure.hint)
        if waiting:
            hosts = ", ".join(agent.home.label for agent in waiting)
            raise ConfigError(
                f"no worker was ready within {seconds:g} s on {hosts}",
                "see the log of the Dask worker there",
            )

    def close(self) -> None:
        """End all processes on all machines, and leave the cluster."""
        if self._is_closed:
            return
        self._is_closed = True
        self._team.close()
        ends = [agent.post(Close()) for agent in self._team.alive()]
        concurrent.futures.wait(ends, _CLOSE_SECONDS)
        self._connection.close()
        self._release()

    def __enter__(self) -> DaskExecutor:
        """Return the executor itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End every process."""
        self.close()

    def _tell_all(self, order: Order) -> None:
        for agent in self._team.alive():
            agent.post(order)

    def _take_all(self, timeout_seconds: float) -> None:
        """Take what has come; wait for the first so long at most."""
        try:
            agent, found = self._inbox.get(timeout_seconds > 0, max(timeout_seconds, 0.001))
            while True:
                if isinstance(found, str):
                    self._agent_lost(agent, found)
                else:
                    for told in found:
                        self._take(agent, told)
                agent, found = self._inbox.get_nowait()
        except queue.Empty:
            return

    def _take(self, agent: RemoteAgent, told: Told) -> None:
        event = told.event
        if isinstance(event, Proven):
            self._take_proof(agent, event.failure)
            return
        place = _place_of(event)
        if told.worker is not None:
            self._know(agent, told.worker)
        if isinstance(event, NoPlaceLeft):
            self._events.note(
                f"{agent.home.label} has no process any more: {event.failure.message}"
            )
            self._team.drop(agent, "none of its processes could be started")
            return
        if isinstance(event, Note):
            self._events.note_once(f"{agent.home.host}: {event.text}")
            return
        if place is not None and self._team.agent_of(place) is not agent:
            return  # It was another one's meanwhile.
        if isinstance(event, PlaceReady):
            if place is None or place >= self._team.places:
                return  # There are fewer by now.
            self._idle.add(place)
        elif isinstance(event, Result | AttemptFailed | PlaceLost) and place is not None:
            self._busy.discard(place)
            self._idle.discard(place)
            if told.is_free:
                self._idle.add(place)
            if isinstance(event, PlaceLost):
                reason = self._reasons.pop(place, None)
                event = PlaceLost(place=place, failure=reason or _of_host(agent, event.failure))
        self._events.append(event)

    def _take_proof(self, agent: RemoteAgent, failure: AttemptFailure | None) -> None:
        if agent in self._asked:
            self._proven[agent] = failure
        elif failure is not None:
            self._events.note(f"{_on(agent, failure)}; the run continues without it")
            self._team.drop(agent, "it cannot read work units")

    def _agent_lost(self, agent: RemoteAgent, reason: str) -> None:
        count = len(agent.places)
        workers = f"its worker{'s' * (count > 1)} {', '.join(map(str, agent.places))}"
        self._events.note(
            f"{agent.home.label} is lost: {reason}; {workers} wait for another Dask worker"
        )
        self._team.vacate(agent)
        for place in agent.places:
            self._idle.discard(place)
            self._busy.discard(place)
            known = self._workers.get(place)
            self._restarts[place] = 1 + (known.restarts if known is not None else 0)
            failure = self._reasons.pop(place, None) or AttemptFailure(
                error=WorkerLost.__name__,
                message=f"worker {place} was lost: {agent.home.label}: {reason}",
                hint=f"see the log of the Dask worker on {agent.home.host}",
                retryable=True,
            )
            self._events.append(PlaceLost(place=place, failure=failure))

    def _look_for_places(self) -> None:
        """Give up once there has been no agent for long, or the scheduler is gone."""
        if self._team.alive():
            self._alone_since = None
            return
        now = time.monotonic()
        self._alone_since = self._alone_since or now
        gone = self._connection.is_lost
        if not gone and now - self._alone_since < _RETURN_SECONDS:
            return
        what = "the scheduler does not answer" if gone else "no Dask worker has come back"
        failure = AttemptFailure(
            error=WorkerLost.__name__,
            message=f"the cluster at {self._connection.address} has no workers any more: {what}",
            hint="start Dask workers and continue with: unloader resume",
            retryable=False,
        )
        self._events.append(NoPlaceLeft(failure=failure))

    def _know(self, agent: RemoteAgent, worker: WorkerEvidence) -> None:
        place = worker.seat.worker
        restarts = worker.restarts + self._restarts.get(place, 0)
        self._workers[place] = replace(worker, host=agent.home.host, restarts=restarts)


def _place_of(event: ExecutorEvent) -> int | None:
    place: int | None = getattr(event, "place", None)
    return place


def _on(agent: RemoteAgent, failure: AttemptFailure) -> str:
    return f"{agent.home.label}: {failure.message}"


def _of_host(agent: RemoteAgent, failure: AttemptFailure) -> AttemptFailure:
    return replace(failure, message=f"{failure.message} (on {agent.home.host})")
