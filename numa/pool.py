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

from msgspec.structs import replace

from numa.affinity import MEMORY_POLICIES
from numa.errors import PoolError
from numa.model import BindReport, PoolEvent, Seat
from numa.processes.fork_server import ForkServer
from numa.processes.launch import Member, launch
from numa.processes.members import CHECK_SECONDS, Members
from numa.processes.memory import resident_bytes


class Pool:
    """One process for each seat, started and restarted by `start`."""

    def __init__(
        self,
        seats: Sequence[Seat],
        entry: str,
        *,
        memory_policy: str = "preferred",
        warm_up: object = None,
    ) -> None:
        """Take the seats; start nothing yet.

        Args:
            seats: Where workers sit; each `worker` number once.
            entry: `package.module:function`, importable with the parent's `sys.path`. Called as
                `function(task, report)`; `report(payload)` sends a `Message` and may be used from
                any thread. Task, payloads and result are pickled.
            memory_policy: See `numa.affinity.seated`.
            warm_up: A task that is done before others, once in each fork server and in each worker
                that is a new interpreter. Its outcome does not matter. It must start no thread that
                stays, or nothing can be forked. None is no such task.
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
        self._warm_up = _pickled(warm_up, "the warm-up")
        self._servers = self._new_servers()
        self._members = Members()
        self._starts: Counter[int] = Counter()
        self._closed = False

    def prepare(self) -> None:
        """Let the fork servers of all seats load what workers need. Returns immediately."""
        self._check_open()
        for server in self._servers.values():
            server.begin()

    def is_prepared(self, worker: int) -> bool:
        """Return whether `start` would not have to wait for the fork server of a worker.

        Starts the server if it does not run. The `wait` that is in progress, or the next one,
        returns when it is prepared.

        Raises:
            PoolError: There is no such worker.
        """
        return self._servers[_home(self._seat(worker))].is_prepared()

    def start(self, worker: int) -> None:
        """Start a process on the worker's seat; its `Ready` comes from `wait`.

        Best called from the main thread: only then does the kernel kill the child with us.

        Raises:
            PoolError: There is no such worker, it runs already, or the system refuses.
        """
        seat = self._seat(worker)
        if worker in self._members.there:
            pid = self._members.there[worker].process.pid
            raise PoolError(f"worker {worker} already runs, as process {pid}.", "kill it first.")
        server = self._servers[_home(seat)]
        member = launch(seat, self._entry, self._memory_policy, self._warm_up, server)
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
        self._members.give(member, task, _pickled(task, f"the task for worker {worker}"))

    def tell(self, worker: int, payload: object) -> None:
        """Send a worker something while it is at its task; see `numa.told`. Returns at once.

        It comes before the next task. Who is not told any more because he is just dead has lost
        his task, too.

        Raises:
            PoolError: The worker is not started, or the payload cannot be pickled.
        """
        body = _pickled(payload, f"the payload for worker {worker}")
        self._members.tell(self._member(worker), body)

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
            longest = 0.0 if members.pending else max(0.0, min(left, CHECK_SECONDS))
            starting = [server for server in self._servers.values() if server.is_starting]
            woken = members.listen(longest, starting)
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
            try:
                self._members.close(grace_seconds)
            finally:
                for server in self._servers.values():
                    server.close()

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

    def _new_servers(self) -> dict[int | None, ForkServer]:
        """Return a server for each node with seats, which is bound to the CPUs of all of them."""
        seats: dict[int | None, list[Seat]] = {}
        for seat in self._seats.values():
            seats.setdefault(_home(seat), []).append(seat)
        return {
            home: ForkServer(
                replace(here[0], cpus=tuple(sorted({cpu for seat in here for cpu in seat.cpus}))),
                self._memory_policy,
                self._entry,
                self._warm_up,
            )
            for home, here in seats.items()
        }

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


def _home(seat: Seat) -> int | None:
    """Return the node of a seat; None if it is bound to none."""
    return seat.node if seat.cpus else None


def _pickled(value: object, what: str) -> bytes:
    try:
        return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    # Pickling runs the task's own code, and the ways it fails share no base class.
    except Exception as error:
        raise PoolError(
            f"{what} cannot be pickled: {error}.",
            "build it of plain data and importable types.",
        ) from error
