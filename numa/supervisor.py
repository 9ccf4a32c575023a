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
import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from numa.errors import PoolError, StartError
from numa.model import Finished, Lost, ProcessLimits, Raised, Ready, Seat, WorkerEvent
from numa.pool import Pool

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 0.2

# Guess: a machine short of processes or memory may have some again after that.
_RESTART_SECONDS = 1.0

_MOST_IDLE_LOSSES = 3
"""A seat whose processes end this often in a row without a task cannot have one at all."""


class Supervisor(Pool):
    """A pool that keeps one process on each seat that is wanted. For one thread, except `wake`."""

    def __init__(
        self,
        seats: Sequence[Seat],
        entry: str,
        limits: ProcessLimits | None = None,
        *,
        memory_policy: str = "preferred",
        warm_up: object = None,
    ) -> None:
        """Take the seats, one or more; start nothing yet. Arguments as for `Pool`.

        Raises:
            PoolError: Seats are missing, or an error of `Pool`.
        """
        if not seats:
            raise PoolError("no seats were given.", "place at least one worker.")
        super().__init__(seats, entry, memory_policy=memory_policy, warm_up=warm_up)
        self.limits = limits or ProcessLimits()
        self.idle: set[int] = set()
        """Workers that can be given a task; changed by `wait` and `assign`."""
        self._kept: set[int] = set()
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
        self._judged: list[WorkerEvent] = []
        self._next_look = 0.0

    def keep(self, workers: Iterable[int]) -> None:
        """Keep a process on the seats of these workers from now on, and none on other seats.

        Where the fork server of a seat is still starting, a later `wait` starts the process.

        Raises:
            PoolError: The worker is unknown, or the system refuses a process.
        """
        self._kept = set(workers)
        surplus = self._members.keys() - self._kept
        self.kill(*surplus)
        for event in super().wait(0.0):
            self._judge(event)
        for worker in surplus | (self._vacant.keys() - self._kept):
            self._forget(worker)
            self._vacant.pop(worker, None)
        for worker in sorted(self._kept - self._members.keys() - self._vacant.keys()):
            if self.is_prepared(worker):
                self.start(worker)
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
    def exhausted(self) -> bool:
        """Whether no process runs, and none will be started any more."""
        return not (self._vacant or self._ending or self._members)

    def start(self, worker: int) -> None:
        super().start(worker)
        self._starting[worker] = time.monotonic()

    def assign(self, worker: int, task: object) -> None:
        """Give an idle worker a task. Returns immediately, also when the process is just dead.

        Raises:
            PoolError: The worker is not idle, or the task cannot be pickled.
        """
        if worker not in self.idle:
            raise PoolError(f"worker {worker} is not idle.", "choose one of `idle`.")
        super().assign(worker, task)
        self.idle.discard(worker)

    def tell(self, worker: int, payload: object) -> None:
        """Send a worker a payload while it is at a task; without a task nothing happens.

        Raises:
            PoolError: The payload cannot be pickled.
        """
        if worker in self._members and self._members[worker].busy:
            super().tell(worker, payload)

    def wait(self, timeout_seconds: float | None) -> tuple[WorkerEvent, ...]:
        """Return the events that have come; wait for the first one up to `timeout_seconds`.

        Processes are started, judged and ended in here only. May return `()` before the time is up.
        """
        self._end(self._too_large.values())
        self._too_large = {}
        now = time.monotonic()
        for worker in [worker for worker, due in self._vacant.items() if due <= now]:
            if not self.is_prepared(worker):
                continue
            del self._vacant[worker]
            try:
                self.start(worker)
            except StartError as error:
                self._leave_vacant(
                    Lost(worker=worker, reason="refused", detail=error.message, hint=error.hint)
                )
        looks = bool(self._starting) or self.limits.task_memory_bytes > 0
        # One seat that is due waits for its fork server, and the pool wakes us for that.
        waits = [due - now if due > now else _RESTART_SECONDS for due in self._vacant.values()]
        longest = math.inf if timeout_seconds is None else timeout_seconds
        longest = min(longest, _LOOK_SECONDS if looks else 3600.0, *waits)
        for event in super().wait(0.0 if self._judged else longest):
            self._judge(event)
        # Only here, where what workers had sent is read: the caller may have been away for long.
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + _LOOK_SECONDS
            late, now = self.limits.start_seconds, time.monotonic()
            beyond = [
                Lost(
                    worker=worker,
                    reason="not up",
                    detail=f"worker {worker} did not start within {late:g} s",
                )
                for worker, started in self._starting.items()
                if late and now - started > late
            ]
            for worker, child in self._members.items():
                large = self._too_large_for(worker, self.limits.task_memory_bytes)
                if child.busy and large is not None:
                    beyond.append(large)
            self._end(beyond)
        events, self._judged = self._judged, []
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

    def _judge(self, event: WorkerEvent) -> None:
        worker = event.worker
        if isinstance(event, Lost):
            if worker in self._ending:
                ours = self._ending.pop(worker)
                event = replace(ours, exit_code=event.exit_code, task=event.task)
            was_up = worker not in self._starting
            self._forget(worker)
            if worker not in self._kept:
                return
            # One that had a task, or was ended by us once it was up, has shown that it can start.
            if event.task is None and not (was_up and event.reason != "lost"):
                self._leave_vacant(event)
                return
            self._vacant[worker] = 0.0
        elif worker not in self._kept:
            return
        elif isinstance(event, Ready):
            del self._starting[worker]
            self.idle.add(worker)
        elif isinstance(event, Finished | Raised):
            self._idle_losses.pop(worker, None)
            large = self._too_large_for(worker, self.limits.memory_bytes)
            if large is None:
                self.idle.add(worker)
            else:
                self._too_large[worker] = large
        self._judged.append(event)

    def _leave_vacant(self, event: Lost) -> None:
        """Leave a seat whose process did not start vacant for a while, or for good."""
        worker = event.worker
        self._idle_losses[worker] += 1
        hopeless = self._idle_losses[worker] >= _MOST_IDLE_LOSSES
        if hopeless:
            logger.info("worker %d cannot be started and is abandoned: %s", worker, event.detail)
        else:
            self._vacant[worker] = time.monotonic() + _RESTART_SECONDS
        self._judged.append(replace(event, hopeless=hopeless))

    def _forget(self, worker: int) -> None:
        self.idle.discard(worker)
        self._starting.pop(worker, None)
        self._too_large.pop(worker, None)

    def _too_large_for(self, worker: int, limit: int) -> Lost | None:
        held = self.memory_bytes(worker) if limit else None
        if held is None or held <= limit:
            return None
        detail = f"held {held} bytes, the limit is {limit}"
        return Lost(worker=worker, reason="too large", detail=detail, held_bytes=held)

    def _end(self, ends: Iterable[Lost]) -> None:
        reasons = {lost.worker: lost for lost in ends if lost.worker in self._members}
        for worker, lost in reasons.items():
            logger.info("worker %d is ended: %s", worker, lost.detail)
        self._ending.update(reasons)
        self.kill(*reasons)
