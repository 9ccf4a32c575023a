"""Keeps a process on each seat: starts it, and replaces one that is lost, late or too large.

The caller assigns tasks to idle workers and waits for events. A task that is lost with its process
is the caller's to repeat. The rules about processes are here: how long a start may take, how much
memory one may hold, when a seat gets another process and when it is given up.

    with Supervisor(seats, "package.module:function", ProcessLimits()) as supervisor:
        supervisor.keep(seat.worker for seat in seats)
        while tasks:
            for worker in list(supervisor.idle):
                supervisor.assign(worker, tasks.pop())
            for event in supervisor.wait(1.0):
                ...
"""

import logging
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from types import TracebackType

from msgspec.structs import replace

from numa.errors import PoolError, StartError
from numa.model import (
    BindReport,
    Finished,
    Lost,
    ProcessLimits,
    Raised,
    Ready,
    Seat,
    WorkerEvent,
)
from numa.pool import Pool

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 0.2

# Guess: a machine short of processes or memory may have some again after that.
_RESTART_SECONDS = 1.0

_MOST_IDLE_LOSSES = 3
"""A seat whose processes end this often in a row without a task cannot have one at all."""


class Supervisor:
    """One process on each seat that is kept. For one thread, but `wake`."""

    def __init__(
        self,
        seats: Sequence[Seat],
        entry: str,
        limits: ProcessLimits | None = None,
        *,
        memory_policy: str = "preferred",
        warm_up: object = None,
    ) -> None:
        """Take the seats; start nothing yet.

        Args:
            seats: Where workers sit, from `numa.placement.place`; one or more.
            entry: See `numa.pool.Pool`.
            limits: None is the defaults.
            memory_policy: See `numa.affinity.seated`.
            warm_up: See `numa.pool.Pool`.
        Raises:
            PoolError: Seats are missing, or an error of `Pool`.
        """
        if not seats:
            raise PoolError("no seats were given.", "place at least one worker.")
        self._pool = Pool(seats, entry, memory_policy=memory_policy, warm_up=warm_up)
        self._limits = limits or ProcessLimits()
        self._kept: set[int] = set()
        self._idle: set[int] = set()
        self._busy: set[int] = set()
        self._starting: dict[int, float] = {}
        """Processes that are not up yet, and when they were started."""
        self._vacant: dict[int, float] = {}
        """Kept seats without a process, and when one may be started there."""
        self._idle_losses: Counter[int] = Counter()
        """By worker: processes in a row that had no task, or could not be started."""
        self._ending: dict[int, Lost] = {}
        """What will be reported of processes that are being ended by us, once their end is read."""
        self._too_large: dict[int, Lost] = {}
        """The same of processes to be ended before their next task."""
        self._events: list[WorkerEvent] = []
        self._next_look = 0.0

    def prepare(self) -> None:
        """Let the fork servers load what workers need, before it is known how many are kept."""
        self._pool.prepare()

    def keep(self, workers: Iterable[int]) -> None:
        """Keep a process on the seats of these workers from now on, and none on other seats.

        Where the fork server of a seat is still starting, a later `wait` starts the process.

        Args:
            workers: Whose seats.
        Raises:
            PoolError: The worker is unknown, or the system refuses a process.
        """
        self._kept = set(workers)
        surplus = self._pool.pids().keys() - self._kept
        self._pool.kill(*surplus)
        for event in self._pool.wait(0.0):
            self._take(event)
        for worker in surplus | (self._vacant.keys() - self._kept):
            self._forget(worker)
            self._vacant.pop(worker, None)
        for worker in sorted(self._kept - self._pool.pids().keys() - self._vacant.keys()):
            if self._pool.is_prepared(worker):
                self._start(worker)
            else:
                self._vacant[worker] = 0.0

    def add(self, workers: Iterable[int]) -> None:
        """Keep a process on the seats of these workers, too, from the next `wait` on.

        Unlike `keep` it raises nothing: where the system refuses a process, `wait` returns a
        `Lost`, and another start is tried after a while.
        """
        new = set(workers) - self._kept
        self._kept |= new
        self._vacant.update(dict.fromkeys(new, 0.0))

    @property
    def idle(self) -> Set[int]:
        """Workers that can be given a task; changed by `wait` and `assign`."""
        return self._idle

    @property
    def exhausted(self) -> bool:
        """Whether no process runs, and none will be started any more."""
        return not (self._vacant or self._ending or self._pool.pids())

    def assign(self, worker: int, task: object) -> None:
        """Give an idle worker a task. Returns immediately, also when the process is just dead.

        Raises:
            PoolError: The worker is not idle, or the task cannot be pickled.
        """
        if worker not in self._idle:
            raise PoolError(f"worker {worker} is not idle.", "choose one of `idle`.")
        self._pool.assign(worker, task)
        self._idle.discard(worker)
        self._busy.add(worker)

    def tell(self, worker: int, payload: object) -> None:
        """Send a worker a payload while it is at a task; without a task nothing happens.

        Raises:
            PoolError: The payload cannot be pickled.
        """
        if worker in self._busy and worker in self._pool.pids():
            self._pool.tell(worker, payload)

    def wait(self, timeout_seconds: float) -> tuple[WorkerEvent, ...]:
        """Return the events that have come; wait for the first one up to `timeout_seconds`.

        Processes are started, judged and ended in here only. May return `()` before the time is up.
        """
        self._replace()
        timeout = 0.0 if self._events else min(timeout_seconds, self._longest_wait())
        for event in self._pool.wait(timeout):
            self._take(event)
        # Only here, where what workers had sent is read: the caller may have been away for long.
        if (self._starting or self._limits.task_memory_bytes) and time.monotonic() >= (
            self._next_look
        ):
            self._next_look = time.monotonic() + _LOOK_SECONDS
            self._look()
        events, self._events = self._events, []
        return tuple(events)

    def stop(self, causes: Mapping[int, object]) -> None:
        """End workers' processes; each seat gets another one. Their ends are events to come.

        Args:
            causes: By worker, what its `Lost` will have as the cause.
        """
        self._end(
            Lost(worker=worker, reason="stopped", detail="stopped by the caller", cause=cause)
            for worker, cause in causes.items()
        )

    def wake(self) -> None:
        """Let the `wait` that is in progress, or the next one, return. For any thread."""
        self._pool.wake()

    def pids(self) -> dict[int, int]:
        """Return the process id of each worker that has a process."""
        return self._pool.pids()

    def bindings(self) -> dict[int, BindReport]:
        """Return the result of the binding of each worker that has a process."""
        return self._pool.bindings()

    def restarts(self) -> dict[int, int]:
        """Return how many processes each worker that was started has had beyond the first."""
        return self._pool.restarts()

    def close(self, grace_seconds: float = 5.0) -> None:
        """End every process, as `Pool.close` does. May be called again."""
        self._pool.close(grace_seconds)

    def __enter__(self) -> "Supervisor":
        """Return the supervisor itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End every process."""
        self.close()

    def _start(self, worker: int) -> None:
        self._pool.start(worker)
        self._starting[worker] = time.monotonic()

    def _replace(self) -> None:
        """End processes that are too large between two tasks, and start some on vacant seats."""
        if self._too_large:
            self._end(self._too_large.values())
            self._too_large = {}
        now = time.monotonic()
        for worker in [worker for worker, due in self._vacant.items() if due <= now]:
            if not self._pool.is_prepared(worker):
                continue
            del self._vacant[worker]
            try:
                self._start(worker)
            except StartError as error:
                self._leave_vacant(
                    Lost(worker=worker, reason="refused", detail=error.message, hint=error.hint)
                )

    def _longest_wait(self) -> float:
        """Return for how long nothing need be done here."""
        longest = _LOOK_SECONDS if self._starting or self._limits.task_memory_bytes else 3600.0
        now = time.monotonic()
        for due in self._vacant.values():
            # One that is due waits for its fork server, and the pool wakes us for that.
            longest = min(longest, due - now if due > now else _RESTART_SECONDS)
        return longest

    def _take(self, event: WorkerEvent) -> None:
        worker = event.worker
        if isinstance(event, Lost):
            self._lost(event)
            return
        if worker not in self._kept:
            return
        if isinstance(event, Ready):
            del self._starting[worker]
            self._idle.add(worker)
        elif isinstance(event, Finished | Raised):
            self._ended(worker)
        self._events.append(event)

    def _ended(self, worker: int) -> None:
        """Take back a worker whose task has ended, unless it has grown too large."""
        self._busy.discard(worker)
        self._idle_losses.pop(worker, None)
        limit = self._limits.memory_bytes
        held = self._pool.memory_bytes(worker) if limit else None
        if held is not None and held > limit:
            self._too_large[worker] = _too_large(worker, held, limit)
        else:
            self._idle.add(worker)

    def _lost(self, event: Lost) -> None:
        worker = event.worker
        if worker in self._ending:
            event = replace(self._ending.pop(worker), exit_code=event.exit_code, task=event.task)
        had_task, was_up = worker in self._busy, worker not in self._starting
        self._forget(worker)
        if worker not in self._kept:
            return
        # One that had a task, or was ended by us once it was up, has shown that it can start.
        if had_task or (was_up and event.reason != "lost"):
            self._vacant[worker] = 0.0
            self._events.append(event)
        else:
            self._leave_vacant(event)

    def _leave_vacant(self, event: Lost) -> None:
        """Leave a seat whose process did not start vacant for a while, or for good."""
        worker = event.worker
        self._idle_losses[worker] += 1
        hopeless = self._idle_losses[worker] >= _MOST_IDLE_LOSSES
        if hopeless:
            logger.info("worker %d cannot be started and is abandoned: %s", worker, event.detail)
        else:
            self._vacant[worker] = time.monotonic() + _RESTART_SECONDS
        self._events.append(replace(event, hopeless=hopeless))

    def _forget(self, worker: int) -> None:
        self._idle.discard(worker)
        self._busy.discard(worker)
        self._starting.pop(worker, None)
        self._too_large.pop(worker, None)

    def _look(self) -> None:
        """End the processes that have passed a limit."""
        found = []
        longest, limit = self._limits.start_seconds, self._limits.task_memory_bytes
        now = time.monotonic()
        for worker, started in self._starting.items():
            if longest and now - started > longest:
                detail = f"worker {worker} did not start within {longest:g} s"
                found.append(Lost(worker=worker, reason="not up", detail=detail))
        for worker in self._busy if limit else ():
            held = self._pool.memory_bytes(worker)
            if held is not None and held > limit:
                found.append(_too_large(worker, held, limit))
        self._end(found)

    def _end(self, ends: Iterable[Lost]) -> None:
        here = self._pool.pids()
        reasons = {lost.worker: lost for lost in ends if lost.worker in here}
        for worker, lost in reasons.items():
            logger.info("worker %d is ended: %s", worker, lost.detail)
        self._ending.update(reasons)
        self._pool.kill(*reasons)


def _too_large(worker: int, held: int, limit: int) -> Lost:
    detail = f"held {held} bytes, the limit is {limit}"
    return Lost(worker=worker, reason="too large", detail=detail, held_bytes=held)
