"""The executor on the workers of a Dask cluster; see `unloader.engine.executor`.

Each Dask worker has an agent (`agent`), which keeps our own process on each of its seats. This is
the parent's side. Places are numbered over all machines, and the events of all agents are one
sequence. A place whose Dask worker is lost is ready again once another one has joined, on any
machine.
"""

from __future__ import annotations

import concurrent.futures
import queue
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from types import TracebackType

from msgspec.structs import replace

from numa.model import Finished, Lost, Raised, Ready
from unloader.engine.cluster.agent import Agent, Proven, Report
from unloader.engine.cluster.remote import RemoteAgent
from unloader.engine.cluster.team import Team
from unloader.engine.executor import EventQueue, ExecutorEvent, NoPlaceLeft, failure_in
from unloader.errors import ConfigError, WorkerLost, error_class
from unloader.events import Notice
from unloader.failures import error_of
from unloader.model import AttemptFailure, Proof
from unloader.placement.evidence import Evidence, WorkerEvidence

_RETURN_SECONDS = 60.0
"""How long a run waits for a Dask worker once the last one is lost: a nanny takes some seconds to
start another one."""
_STOP_SECONDS = 10.0


class DaskExecutor:
    """Processes on seats of other machines. A place has one number in the whole cluster."""

    def __init__(self, team: Team) -> None:
        """Take the agents; `close` ends their work for this run."""
        self._team = team
        self._events = EventQueue()
        self._idle: set[int] = set()
        self._busy: set[int] = set()
        self._workers: dict[int, WorkerEvidence] = {}
        self._restarts: dict[int, int] = {}
        """Processes that places had in agents that are lost."""
        self._evidence: dict[str, Evidence] = {}
        """The last look of each agent, by its host."""
        self._proven: dict[RemoteAgent, AttemptFailure | None] = {}
        """The outcome of the proof of each agent."""
        self._asked: set[RemoteAgent] = set()
        """Agents whose proof the run waits for; a later one is asked without that."""
        self._alone_since: float | None = None
        self._is_closed = False

    def begin_with(self, places: int, of: int) -> None:
        """Use those below the second number, and keep processes at those below the first."""
        self._team.places, self._team.of = places, of
        self._idle = {place for place in self._idle if place < places}
        for agent in self._team.alive():
            agent.post(Agent.begin_with, places, of)

    def start(self, places: int) -> None:
        """Keep processes at the places below a number, and keep the processes that there are."""
        if self._team.raise_to(places):
            for agent in self._team.alive():
                agent.post(Agent.start, self._team.places)

    def places(self) -> Collection[int]:
        """Return the places whose process is up and idle."""
        return self._idle

    def send(self, place: int, task: object) -> None:
        """Send a task to the machine of a place."""
        self._idle.discard(place)
        self._busy.add(place)
        agent = self._team.agent_of(place)
        if agent is not None:
            agent.post(Agent.send, place, task)
        # Without one the place is lost, which is the next event.

    def tell(self, place: int, payload: object) -> None:
        """Send something for the task at a place."""
        agent = self._team.agent_of(place)
        if agent is not None and place in self._busy:
            agent.post(Agent.tell, place, payload)

    def events(self, timeout_seconds: float) -> Sequence[ExecutorEvent]:
        """Return the new events of all machines."""
        self._take_all(0.0 if self._events else timeout_seconds)
        self._look_for_places()
        return self._events.take()

    def stop(self, reasons: Mapping[int, AttemptFailure]) -> None:
        """Kill the processes of places, wherever they are.

        A machine that cannot be reached in time is lost to the run. It ends its processes when its
        lease is over, and their output does not count.
        """
        orders = []
        for agent in self._team.alive():
            mine = {place: reasons[place] for place in agent.places if place in reasons}
            if mine:
                orders.append(agent.post(Agent.stop, mine))
        concurrent.futures.wait(orders, _STOP_SECONDS)

    def finish(self) -> Sequence[ExecutorEvent]:
        """Have each machine look at its processes a last time."""
        asked = {agent: agent.post(Agent.finish) for agent in self._team.alive()}
        concurrent.futures.wait(asked.values(), _STOP_SECONDS)
        for agent, answer in asked.items():
            with suppress(Exception):
                found: Evidence = answer.result(0)
                self._evidence[agent.home.host] = found
                for worker in found.workers:
                    self._know(agent, worker)
        self._take_all(0.0)
        return self._events.take()

    def pids(self) -> Mapping[int, int]:
        """Return nothing: they are on other machines."""
        return {}

    def worker(self, place: int) -> WorkerEvidence:
        """Return the last report on the worker of a place."""
        known = self._workers.get(place)
        if known is not None:
            return known
        seat = self._team.seat(place)
        return WorkerEvidence(seat=seat, bound=None, residence=None, host=self._team.host(place))

    def evidence(self) -> Evidence:
        """Return the last report on the workers of all places."""
        unseen = dict.fromkeys(
            f"{host}: {line}" for host, each in self._evidence.items() for line in each.not_measured
        )
        return Evidence(
            workers=tuple(self.worker(place) for place in range(self._team.of)),
            pages_of_hosts={host: each.machine_pages for host, each in self._evidence.items()},
            not_measured=tuple(unseen),
        )

    def prove(self, task: Proof, seconds: float) -> None:
        """Have each Dask worker show that it can read units, before it reads any.

        A Dask worker that joins later is asked too. The run continues without it if it cannot.

        Args:
            task: The task of one of its workers.
            seconds: Longest time for all Dask workers together.

        Raises:
            UnloaderError: Of the kind of the first failure; it names the machine.
        """
        until = time.monotonic() + seconds
        used = self._team.places
        if used < self._team.of:
            # A run that begins with few workers may have all of them later.
            self.begin_with(self._team.of, self._team.of)
        self._team.proof = task
        self._asked = {agent for agent in self._team.alive() if agent.places[0] < self._team.of}
        for agent in self._asked:
            agent.post(Agent.prove, task)
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

    def _take_all(self, timeout_seconds: float) -> None:
        """Take the new events; wait up to `timeout_seconds` for the first one."""
        inbox = self._team.inbox
        with suppress(queue.Empty):
            agent, found = inbox.get(timeout_seconds > 0, max(timeout_seconds, 0.001))
            while True:
                if agent is None:
                    self._events.note(f"{found}; the run continues without it")
                elif isinstance(found, str):
                    self._agent_lost(agent, found)
                else:
                    for report in found:
                        self._take(agent, report)
                agent, found = inbox.get_nowait()

    def _take(self, agent: RemoteAgent, report: Report) -> None:
        event = report.event
        if isinstance(event, Proven):
            self._take_proof(agent, event.failure)
            return
        if report.worker is not None:
            self._know(agent, report.worker)
        if isinstance(event, NoPlaceLeft):
            self._events.note(
                f"{agent.home.label} has no process any more: {event.failure.message}"
            )
            self._team.drop(agent, "none of its processes could be started")
            return
        if isinstance(event, Notice):
            self._events.note_once(f"{agent.home.host}: {event.text}")
            return
        place = event.worker
        if self._team.agent_of(place) is not agent:
            return  # Another agent has it now.
        if isinstance(event, Ready):
            if place >= self._team.places:
                return  # There are fewer by now.
            self._idle.add(place)
        elif isinstance(event, Finished | Raised | Lost):
            self._busy.discard(place)
            self._idle.discard(place)
            if report.is_free:
                self._idle.add(place)
            if isinstance(event, Lost) and event.cause is None:
                failure = failure_in(event)
                assert failure is not None
                text = f"{failure.message} (on {agent.home.host})"
                event = replace(event, cause=replace(failure, message=text))
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
            detail = f"{agent.home.label}: {reason}"
            failure = AttemptFailure(
                error=WorkerLost.__name__,
                message=f"worker {place} was lost: {detail}",
                hint=f"see the log of the Dask worker on {agent.home.host}",
                retryable=True,
            )
            self._events.append(Lost(worker=place, detail=detail, cause=failure))

    def _look_for_places(self) -> None:
        """Give up once there has been no agent for long, or the scheduler is gone."""
        if self._team.alive():
            self._alone_since = None
            return
        now = time.monotonic()
        self._alone_since = self._alone_since or now
        gone = not self._team.has_scheduler
        if not gone and now - self._alone_since < _RETURN_SECONDS:
            return
        what = "the scheduler does not answer" if gone else "no Dask worker has come back"
        failure = AttemptFailure(
            error=WorkerLost.__name__,
            message=f"the cluster at {self._team.address} has no workers any more: {what}",
            hint="start Dask workers and continue with: unloader resume",
            retryable=False,
        )
        self._events.append(NoPlaceLeft(failure=failure))

    def _know(self, agent: RemoteAgent, worker: WorkerEvidence) -> None:
        place = worker.seat.worker
        restarts = worker.restarts + self._restarts.get(place, 0)
        self._workers[place] = replace(worker, host=agent.home.host, restarts=restarts)


def _on(agent: RemoteAgent, failure: AttemptFailure) -> str:
    return f"{agent.home.label}: {failure.message}"
