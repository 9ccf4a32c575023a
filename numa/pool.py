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

The children there are: what they send becomes events, and so does their end.

Nothing here knows of seats or decides what is done next: that is `numa.pool`. Whatever a child
does, the events of one worker come in order: what it sent, then its `Lost`.
"""

import contextlib
import os
import pickle
import selectors
import signal
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from msgspec.structs import replace

from numa.affinity import MEMORY_POLICIES
from numa.errors import PoolError
from numa.model import BindReport, Finished, Lost, Message, PoolEvent, Raised, Ready, Seat
from numa.processes.channel import LEAVE, MESSAGE, RAISED, READY, RESULT, TASK, TOLD, frame
from numa.processes.fork_server import ForkServer
from numa.processes.launch import Member, launch


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


def resident_bytes(pid: int) -> int | None:
    """Return what a process holds in memory, None where the system does not tell or it is gone.

    From the second figure of /proc/PID/statm, which newer kernels keep to within some hundred KB.
    """
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError, ValueError):
        return None
    # A process on its way out holds nothing any more, and says 0.
    return pages * os.sysconf("SC_PAGE_SIZE") or None


CHECK_SECONDS = 1.0
"""The pipe's end shows a death at once, unless something a task started holds the pipe open: so
every child is looked at this often."""

# Guess: from the end of its pipe to its exit a process needs milliseconds.
_EXIT_SECONDS = 2.0

# Guess: the end of a process that holds most of a large machine's memory takes that long.
_LAST_EXIT_SECONDS = 20.0


class Members:
    """All children of a pool, one a worker. For one thread, but `wake`."""

    def __init__(self) -> None:
        """Begin with none."""
        self._there: dict[int, Member] = {}
        self._lingering: list[Member] = []
        self._events: deque[PoolEvent] = deque()
        self._selector = selectors.DefaultSelector()
        self._waker = Waker()
        self._selector.register(self._waker, selectors.EVENT_READ)
        self._next_check = time.monotonic()

    @property
    def there(self) -> Mapping[int, Member]:
        """The children by worker, but those that are lost."""
        return self._there

    @property
    def pending(self) -> bool:
        """Whether there are events that were not fetched."""
        return bool(self._events)

    def fetch(self) -> tuple[PoolEvent, ...]:
        """Return the events that have come, in order of arrival."""
        events = tuple(self._events)
        self._events.clear()
        return events

    def add(self, member: Member) -> None:
        """Listen to a child that was just started."""
        self._there[member.worker] = member
        self._selector.register(member.channel, selectors.EVENT_READ, member.worker)

    def give(self, member: Member, task: object, body: bytes) -> None:
        """Send an idle child a task, now what its pipe takes and the rest while listening."""
        member.busy, member.task = True, task
        member.trim_stderr()
        member.channel.post(frame(TASK, body))
        self._watch(member)

    def tell(self, member: Member, body: bytes) -> None:
        """Send a child something while it works; it is read at once, whatever the task does."""
        member.channel.post(frame(TOLD, body))
        self._watch(member)

    def wake(self) -> None:
        """Let the `listen` that is going on, or the next one, return. For any thread."""
        self._waker.wake()

    def listen(self, timeout_seconds: float, servers: Iterable[ForkServer]) -> bool:
        """Take what has come, wait for it at most that long; return whether it was woken.

        Args:
            timeout_seconds: The longest wait.
            servers: Fork servers that are starting. One that has started wakes, too.
        """
        with ExitStack() as after:
            for server in servers:
                self._selector.register(server, selectors.EVENT_READ)
                after.callback(self._selector.unregister, server)
            ready = self._selector.select(timeout_seconds)
        woken = False
        for key, mask in ready:
            if key.data is None:
                self._waker.clear()
                woken = True
                continue
            member = self._there[key.data]
            if mask & selectors.EVENT_WRITE:
                member.channel.flush()
                self._watch(member)
            if mask & selectors.EVENT_READ:
                self._take(member, member.channel.receive())
                if member.channel.ended and member.worker in self._there:
                    self._bury(member)
        if time.monotonic() >= self._next_check:
            self._next_check = time.monotonic() + CHECK_SECONDS
            self.lose([member for member in self._there.values() if member.gone()])
            self._lingering = [member for member in self._lingering if not member.reap(0)]
        return woken

    def lose(self, members: Iterable[Member]) -> None:
        """End children and take them off: first what each has sent, then its `Lost`.

        Those that the kernel does not let go of within two seconds, all together, are lost all the
        same, and reaped when they end.
        """
        doomed = list(members)
        for member in doomed:
            member.kill()
        deadline = time.monotonic() + _EXIT_SECONDS
        for member in doomed:
            if not member.reap(max(0.0, deadline - time.monotonic())):
                self._lingering.append(member)
            self._report(member)

    def close(self, grace_seconds: float) -> None:
        """End every child and close every descriptor; events not fetched are dropped.

        Idle ones are asked to leave, busy ones get SIGTERM, what is left after the grace SIGKILL.
        """
        members = list(self._there.values())
        try:
            for member in members:
                if member.busy:
                    member.terminate()
                else:
                    member.channel.post(frame(LEAVE))
            deadline = time.monotonic() + grace_seconds
            for member in members:
                member.wait_gone(max(0.0, deadline - time.monotonic()))
        finally:
            # Also when a second Ctrl-C breaks off the polite part.
            members += self._lingering
            for member in members:
                member.kill()
            deadline = time.monotonic() + _LAST_EXIT_SECONDS
            for member in members:
                member.reap(max(0.0, deadline - time.monotonic()))
                member.release()
            self._there.clear()
            self._lingering.clear()
            self._events.clear()
            self._selector.close()
            self._waker.close()

    def _watch(self, member: Member) -> None:
        wanted = selectors.EVENT_READ
        if member.channel.unsent:
            wanted |= selectors.EVENT_WRITE
        self._selector.modify(member.channel, wanted, member.worker)

    def _take(self, member: Member, frames: list[tuple[bytes, bytes]]) -> None:
        for tag, body in frames:
            if member.broken:
                return
            try:
                self._events.append(_event(member, tag, body))
            # Unpickling runs the sender's classes: the parent may lack one of them.
            except Exception as error:
                self._refuse(member, tag, error)
            if tag in (RESULT, RAISED):
                member.busy, member.task = False, None

    def _refuse(self, member: Member, tag: bytes, error: Exception) -> None:
        text = f"the parent cannot read the data that the task sent: {error}"
        if tag == RESULT:
            kind = type(error).__name__
            self._events.append(
                Raised(worker=member.worker, kind=kind, message=text, traceback=text)
            )
        else:
            # Its task goes on and what was lost is unknown; the end of its pipe is next.
            member.broken, member.killed = text, True
            member.kill()

    def _bury(self, member: Member) -> None:
        """Reap a process whose pipe has ended; one that goes on without its pipe is useless."""
        if not member.wait_gone(_EXIT_SECONDS):
            member.killed = True
        self.lose([member])

    def _report(self, member: Member) -> None:
        self._take(member, member.channel.drain())
        self._selector.unregister(member.channel)
        del self._there[member.worker]
        code = member.process.returncode
        self._events.append(
            Lost(
                worker=member.worker,
                exit_code=-signal.SIGKILL if code is None else code,
                task=member.task,
                detail=member.how_it_ended(),
            )
        )
        member.release()


def _event(member: Member, tag: bytes, body: bytes) -> PoolEvent:
    worker = member.worker
    if tag == READY:
        return Ready(worker=worker, pid=member.process.pid, bound=member.bound)
    value = pickle.loads(body)
    if tag == MESSAGE:
        return Message(worker=worker, payload=value)
    if tag == RESULT:
        return Finished(worker=worker, result=value)
    kind, message, trace = value
    return Raised(worker=worker, kind=kind, message=message, traceback=trace)


class Waker:
    """A pipe to oneself: `wake` makes its descriptor readable until `clear`."""

    def __init__(self) -> None:
        self._reading, self._writing = socket.socketpair()
        self._reading.setblocking(False)
        self._writing.setblocking(False)
        # Reentrant: a signal handler may come while its own thread is in here.
        self._lock = threading.RLock()

    def fileno(self) -> int:
        """Return the descriptor to wait on."""
        return self._reading.fileno()

    def wake(self) -> None:
        """Make it readable; does nothing if it is, or is closed."""
        with self._lock, contextlib.suppress(OSError):
            self._writing.send(b"\0")

    def clear(self) -> None:
        """Take back every `wake` so far."""
        with contextlib.suppress(BlockingIOError):
            while self._reading.recv(4096):
                pass

    def close(self) -> None:
        """Close both ends."""
        with self._lock:
            self._writing.close()
            self._reading.close()
