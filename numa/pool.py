"""A supervised process pool: one process on each seat, one pipe to each.

It runs any importable function and knows nothing of what that does. A process that dies costs the
one task it was on: the others never notice, and `start` puts a new one on the same seat. What its
tasks have started dies with it, unless that has made a group of its own. Nothing blocks but `wait`
and `close`, both as long as the caller says. Use a pool from one thread; only `wake` is for any.
When to give up on a process is for the caller to say: see `numa.supervisor`.

    with Pool(seats, "package.module:function") as pool:
        for seat in seats:
            pool.start(seat.worker)
            pool.assign(seat.worker, task)
        events = pool.wait(timeout_seconds=None)
"""

import pickle
import time
from collections import Counter
from collections.abc import Sequence
from types import TracebackType

from numa.affinity import MEMORY_POLICIES
from numa.errors import PoolError
from numa.model import BindReport, PoolEvent, Seat
from numa.processes.fork_server import ForkServer
from numa.processes.forked import is_possible
from numa.processes.launch import Member, launch
from numa.processes.members import CHECK_SECONDS, Members
from numa.processes.memory import resident_bytes


def can_fork() -> bool:
    """Return whether a process that is started now could be a fork of this one: see `Pool.start`.

    That is so on Linux, in the main thread, while there is no other.
    """
    return is_possible()


class Pool:
    """One process for each seat, started and restarted by `start`."""

    def __init__(
        self,
        seats: Sequence[Seat],
        entry: str,
        *,
        memory_policy: str = "preferred",
        server: ForkServer | None = None,
    ) -> None:
        """Take the seats; start nothing yet.

        Args:
            seats: Where workers sit; each `worker` number once.
            entry: `package.module:function`, importable with the parent's `sys.path`. Called as
                `function(task, report)`; `report(payload)` sends a `Message` and may be used from
                any thread. Task, payloads and result are pickled.
            memory_policy: See `numa.affinity.seated`.
            server: Processes are forks of it where that can be. As `may_fork` of `start` it is for
                machines of one node. It may serve several pools, and is not closed by any.
        Raises:
            PoolError: Two seats have one worker number, or a text is not what it should be.
        """
        self._seats = {seat.worker: seat for seat in seats}
        if len(self._seats) != len(seats):
            raise PoolError("two seats have the same worker number.", "number them from 0.")
        module, _, function = entry.partition(":")
        if not (module and function) or module == "__main__":
            raise PoolError(
                f"entry {entry!r} cannot be imported by a child.",
                "put the function in a module and name it package.module:function.",
            )
        if memory_policy not in MEMORY_POLICIES:
            raise PoolError(
                f"memory policy {memory_policy!r} does not exist.",
                f"choose among {', '.join(MEMORY_POLICIES)}.",
            )
        self._entry = entry
        self._memory_policy = memory_policy
        self._server = server
        self._members = Members()
        self._starts: Counter[int] = Counter()
        self._closed = False

    def start(self, worker: int, *, may_fork: bool = False) -> None:
        """Start a process on the worker's seat; its `Ready` comes from `wait`.

        Best called from the main thread: only then does the kernel kill the child with us.

        Args:
            worker: Whose seat.
            may_fork: It may be a fork of this process: all that is loaded here is loaded there at
                once, and its memory is where ours is, so this is for machines of one node. It is
                done only in the main thread, on Linux, while there is no other thread; else a new
                interpreter is started. Nothing that does not survive a fork may be in use here,
                such as a connection that the child would use. What was registered for the end of
                this process is not done at the end of the child.
        Raises:
            PoolError: There is no such worker, it runs already, or the system refuses.
        """
        seat = self._seat(worker)
        if worker in self._members.there:
            pid = self._members.there[worker].process.pid
            raise PoolError(f"worker {worker} already runs, as process {pid}.", "kill it first.")
        member = launch(
            seat, self._entry, self._memory_policy, may_fork=may_fork, server=self._server
        )
        self._members.add(member)
        self._starts[worker] += 1

    def assign(self, worker: int, task: object) -> None:
        """Give an idle worker a task. Returns at once, also when the process is just dead.

        Raises:
            PoolError: The worker is busy or not started, or the task cannot be pickled.
        """
        member = self._member(worker)
        if member.busy:
            raise PoolError(f"worker {worker} is busy.", "wait for the end of its task.")
        self._members.give(member, task, _pickled(task, worker))

    def tell(self, worker: int, payload: object) -> None:
        """Send a worker something while it is at its task; see `numa.told`. Returns at once.

        It comes before the next task. Who is not told any more because he is just dead has lost
        his task, too.

        Raises:
            PoolError: The worker is not started, or the payload cannot be pickled.
        """
        self._members.tell(self._member(worker), _pickled(payload, worker))

    def wait(self, timeout_seconds: float | None) -> tuple[PoolEvent, ...]:
        """Return the events that have come, in order of arrival; wait for the first if none has.

        Args:
            timeout_seconds: Longest wait; None = for ever. After it, or a `wake`, `()` is returned.
        Raises:
            PoolError: There is no process, no event and no timeout: nothing would ever come.
        """
        self._check_open()
        members = self._members
        if timeout_seconds is None and not members.there and not members.pending:
            raise PoolError("nothing to wait for: no worker is started.", "start one.")
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while True:
            left = CHECK_SECONDS if deadline is None else deadline - time.monotonic()
            woken = members.listen(0.0 if members.pending else max(0.0, min(left, CHECK_SECONDS)))
            if members.pending:
                return members.fetch()
            if woken or left <= 0:
                return ()

    def wake(self) -> None:
        """Let the `wait` that is going on, or the next one, return at once.

        From any thread, or a signal handler; also when the pool is closed, then without effect.
        """
        self._members.wake()

    def kill(self, *workers: int) -> None:
        """Kill the workers' processes and reap them; the next `wait` has their `Lost`.

        Those that the kernel does not let go of within two seconds, all together, are lost all the
        same, and reaped when they end. Does nothing where no process is on the seat.
        """
        asked = {self._seat(worker).worker for worker in workers}
        doomed = [member for worker, member in self._members.there.items() if worker in asked]
        for member in doomed:
            member.killed = not member.gone()
        self._members.lose(doomed)

    def pids(self) -> dict[int, int]:
        """Return the process id of each worker that has a process."""
        return {worker: member.process.pid for worker, member in self._members.there.items()}

    def bindings(self) -> dict[int, BindReport]:
        """Return the result of the binding of each worker with a process, also before it is up.

        A worker's `Ready` says the same.
        """
        return {worker: member.bound for worker, member in self._members.there.items()}

    def memory_bytes(self, worker: int) -> int | None:
        """Return what the worker's process holds in memory; None if it is unknown."""
        member = self._members.there.get(worker)
        return None if member is None else resident_bytes(member.process.pid)

    def restarts(self) -> dict[int, int]:
        """Return how many processes each worker that was started has had beyond the first."""
        return {worker: count - 1 for worker, count in self._starts.items()}

    def close(self, grace_seconds: float = 5.0) -> None:
        """End every process and close every descriptor; events not fetched are dropped.

        Idle workers are asked to leave, busy ones get SIGTERM, and what is left after the grace
        SIGKILL. May be called again.
        """
        if not self._closed:
            self._closed = True
            self._members.close(grace_seconds)

    def __enter__(self) -> "Pool":
        """Return the pool itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the pool."""
        self.close()

    def _member(self, worker: int) -> Member:
        self._seat(worker)
        if worker not in self._members.there:
            raise PoolError(f"worker {worker} is not started.", "start it first.")
        return self._members.there[worker]

    def _seat(self, worker: int) -> Seat:
        self._check_open()
        if worker not in self._seats:
            raise PoolError(
                f"worker {worker} does not exist.", f"choose among {list(self._seats)}."
            )
        return self._seats[worker]

    def _check_open(self) -> None:
        if self._closed:
            raise PoolError("the pool is closed.", "make a new one.")


def _pickled(value: object, worker: int) -> bytes:
    try:
        return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    # Pickling runs the task's own code, and the ways it fails share no base class.
    except Exception as error:
        raise PoolError(
            f"the task for worker {worker} cannot be pickled: {error}.",
            "build it of plain data and importable types.",
        ) from error
