"""Runs tasks in pinned processes and keeps those processes in order: the policy above the pool.

Every task taken comes out once, as an `Outcome`, whatever its process did. A process that is lost,
silent, too long at a task or too large is replaced on its seat; a task that ends its processes is
given up after its attempts, and the others never notice. Tasks are taken only when a worker can
have them, so that a slow consumer stops everything behind it.

    with Supervisor(seats, "package.module:function", SupervisorOptions(attempts=2)) as supervisor:
        for outcome in supervisor.run(tasks):
            ...
"""

import operator
from collections.abc import Callable, Generator, Iterable, Sequence
from types import TracebackType

from numa.backlog import Backlog
from numa.errors import PoolError
from numa.model import Outcome, Seat, SupervisorOptions
from numa.pool import Pool
from numa.supervision import Supervision

_TASKS_PER_SEAT = 2


class Supervisor:
    """One process for each seat, replaced as often as it takes. For one thread, but `cancel`."""

    def __init__(
        self,
        seats: Sequence[Seat],
        entry: str,
        options: SupervisorOptions | None = None,
        *,
        memory_policy: str = "preferred",
    ) -> None:
        """Take the seats; start nothing yet.

        Args:
            seats: Where workers sit, from `numa.placement.place`; one or more.
            entry: See `numa.pool.Pool`.
            options: None is the defaults.
            memory_policy: See `numa.affinity.seated`.
        Raises:
            PoolError: There is no seat, or as `Pool` raises it.
        """
        if not seats:
            raise PoolError("there is no seat.", "place one worker or more.")
        self._pool = Pool(seats, entry, memory_policy=memory_policy)
        self._workers = tuple(seat.worker for seat in seats)
        self._options = options or SupervisorOptions()
        self._active = False
        self._cancelled = False

    def run(
        self, tasks: Iterable[object], *, heard: Callable[[int, object], None] | None = None
    ) -> Generator[Outcome, None, None]:
        """Run the tasks; yield each one's outcome as it comes, in no order.

        Left early, by `close` of the iterator or by an exception, it ends the processes that are
        busy; the others wait for the next run. One run at a time.

        Args:
            tasks: Asked for the next task in this thread, when a worker is free; while it makes one
                nothing is supervised. At most two tasks a seat are taken and not yet yielded.
            heard: Told the index of a task and what it sent by `report(payload)`.
        Raises:
            PoolError: No process can be had on any seat, or a run is going on.
        """
        if self._active:
            raise PoolError("a run is going on.", "exhaust or close it first.")
        backlog = Backlog(
            tasks,
            attempts=self._options.attempts,
            retry_seconds=self._options.retry_seconds,
            most=_TASKS_PER_SEAT * len(self._workers),
        )
        current = Supervision(self._pool, self._workers, self._options, backlog, heard)
        # A process too many costs more than a moment's wait for a list of a few tasks.
        most_workers = max(1, operator.length_hint(tasks, len(self._workers)))
        self._active = True
        try:
            while not (self._cancelled or backlog.over):
                current.step(most_workers)
                yield from current.settled()
            if self._cancelled:
                current.cancel()
                yield from current.settled()
        finally:
            self._active = False
            current.abandon()

    def cancel(self) -> None:
        """End the run that is going on, and let no other begin: no task is started any more.

        Tasks that were taken come out as failures of kind `cancelled`, unless they have just
        ended. For any thread, and for signal handlers.
        """
        self._cancelled = True
        self._pool.wake()

    def pids(self) -> dict[int, int]:
        """Return the process id of each worker that has a process."""
        return self._pool.pids()

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
