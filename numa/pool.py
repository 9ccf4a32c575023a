"""A supervised process pool: one process on each seat, one pipe to each.

It runs any importable function and knows nothing of what that does. A process that dies costs the
one task it was on: the others never notice, and `start` puts a new one on the same seat. What its
tasks have started dies with it, unless that has made a group of its own. Nothing blocks but `wait`
and `close`, both as long as they are told. Use a pool from one thread; only `wake` is for any.
When to give up on a process or a task is for the caller to say: see `numa.supervisor`.

    with Pool(seats, "package.module:function") as pool:
        for seat in seats:
            pool.start(seat.worker)
            pool.assign(seat.worker, task)
        events = pool.wait(timeout_seconds=None)
"""

import pickle
import selectors
import signal
import time
from collections import Counter, deque
from collections.abc import Sequence
from types import TracebackType

from numa.affinity import MEMORY_POLICIES
from numa.errors import PoolError
from numa.model import Event, Finished, Lost, Message, Raised, Ready, Seat
from numa.processes.channel import LEAVE, MESSAGE, RAISED, READY, RESULT, TASK, frame
from numa.processes.clocks import MAX_IDLE_LOSSES, Clocks, resident_bytes
from numa.processes.launch import Member, launch
from numa.processes.waker import Waker

# The pipe's end tells of a death at once, unless something a task started holds the pipe open.
_CHECK_SECONDS = 1.0

# Guess: from the end of its pipe to its exit a process needs milliseconds.
_EXIT_SECONDS = 2.0

# Guess: the end of a process that holds most of a large machine's memory takes that long.
_LAST_EXIT_SECONDS = 20.0


class Pool:
    """One process for each seat, started and restarted by `start`."""

    def __init__(
        self, seats: Sequence[Seat], entry: str, *, memory_policy: str = "preferred"
    ) -> None:
        """Take the seats; start nothing yet.

        Args:
            seats: Where workers sit; each `worker` number once.
            entry: `package.module:function`, importable with the parent's `sys.path`. Called as
                `function(task, report)`; `report(payload)` sends a `Message` and may be used from
                any thread. Task, payloads and result are pickled.
            memory_policy: See `numa.affinity.seated`.
        Raises:
            PoolError: Two seats have one worker number, or a text is not what it should be.
        """
        self._seats = {seat.worker: seat for seat in seats}
        if len(self._seats) != len(seats):
            raise PoolError("two seats have the same worker number. Next: number them from 0.")
        module, _, function = entry.partition(":")
        if not (module and function) or module == "__main__":
            raise PoolError(
                f"entry {entry!r} cannot be imported by a child. "
                "Next: put the function in a module and name it package.module:function."
            )
        if memory_policy not in MEMORY_POLICIES:
            raise PoolError(
                f"memory policy is {memory_policy!r}. "
                f"Next: choose among {', '.join(MEMORY_POLICIES)}."
            )
        self._entry = entry
        self._memory_policy = memory_policy
        self._members: dict[int, Member] = {}
        self._lingering: list[Member] = []
        self._starts: Counter[int] = Counter()
        self._idle_losses: Counter[int] = Counter()
        self._events: deque[Event] = deque()
        self._selector = selectors.DefaultSelector()
        self._waker = Waker()
        self._selector.register(self._waker, selectors.EVENT_READ)
        self._next_check = time.monotonic()
        self._closed = False

    def start(self, worker: int) -> None:
        """Start a process on the worker's seat; its `Ready` comes from `wait`.

        Best called from the main thread: only then does the kernel kill the child with us.

        Raises:
            PoolError: There is no such worker, it runs already, or the system refuses.
        """
        seat = self._seat(worker)
        if worker in self._members:
            raise PoolError(
                f"worker {worker} runs already, as process {self._members[worker].process.pid}. "
                "Next: kill it first."
            )
        try:
            member = launch(seat, self._entry, self._memory_policy)
        except PoolError:
            self._idle_losses[worker] += 1
            raise
        self._members[worker] = member
        self._starts[worker] += 1
        self._selector.register(member.channel, selectors.EVENT_READ, worker)

    def assign(self, worker: int, task: object) -> None:
        """Give an idle worker a task. Returns at once, also when the process is just dead.

        Raises:
            PoolError: The worker is busy or not started, or the task cannot be pickled.
        """
        member = self._member(worker)
        if member.busy:
            raise PoolError(f"worker {worker} is busy. Next: wait for the end of its task.")
        try:
            body = pickle.dumps(task, protocol=pickle.HIGHEST_PROTOCOL)
        # Pickling runs the task's own code, and the ways it fails share no base class.
        except Exception as error:
            raise PoolError(
                f"the task for worker {worker} cannot be pickled: {error}. "
                "Next: build it of plain data and importable types."
            ) from error
        member.busy, member.task = True, task
        member.clocks.give()
        member.trim_stderr()
        member.channel.post(frame(TASK, body))
        self._watch(member)

    def wait(self, timeout_seconds: float | None) -> tuple[Event, ...]:
        """Return the events that have come, in order of arrival; wait for the first if none has.

        Args:
            timeout_seconds: Longest wait; None = for ever. After it, or a `wake`, `()` is returned.
        Raises:
            PoolError: There is no process, no event and no timeout: nothing would ever come.
        """
        self._check_open()
        if timeout_seconds is None and not self._members and not self._events:
            raise PoolError("nothing to wait for: no worker is started. Next: start one.")
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while True:
            left = _CHECK_SECONDS if deadline is None else deadline - time.monotonic()
            woken = self._collect(0.0 if self._events else max(0.0, min(left, _CHECK_SECONDS)))
            if self._events:
                events = tuple(self._events)
                self._events.clear()
                return events
            if woken or left <= 0:
                return ()

    def wake(self) -> None:
        """Let the `wait` that is going on, or the next one, return at once.

        From any thread, or a signal handler; also when the pool is closed, and then in vain.
        """
        self._waker.wake()

    def kill(self, worker: int) -> None:
        """Kill the worker's process and reap it; the next `wait` has its `Lost`.

        One that the kernel does not let go of within two seconds is lost all the same, and reaped
        when it ends. Does nothing if no process is on the seat.
        """
        self._seat(worker)
        member = self._members.get(worker)
        if member is not None:
            member.killed = not member.gone()
            self._lose(member)

    def pids(self) -> dict[int, int]:
        """Return the process id of each worker that has a process."""
        return {worker: member.process.pid for worker, member in self._members.items()}

    def clocks(self, worker: int) -> Clocks:
        """Return how long the worker's process has been silent or busy, and whether it is up.

        Raises:
            PoolError: It is not started.
        """
        return self._member(worker).clocks

    def memory_bytes(self, worker: int) -> int | None:
        """Return what the worker's process holds in memory; None if there is none to be told."""
        member = self._members.get(worker)
        return None if member is None else resident_bytes(member.process.pid)

    def answering(self, worker: int) -> bool:
        """Whether the task has ended and its result, longer than the pipe, is on its way.

        Raises:
            PoolError: It is not started.
        """
        return self._member(worker).channel.arriving in (RESULT, RAISED)

    def restarts(self) -> dict[int, int]:
        """Return how many processes each worker that was started has had beyond the first."""
        return {worker: count - 1 for worker, count in self._starts.items()}

    def is_hopeless(self, worker: int) -> bool:
        """Whether processes on the seat, time and again, could not start or died without a task."""
        return self._idle_losses[worker] >= MAX_IDLE_LOSSES

    def close(self, grace_seconds: float = 5.0) -> None:
        """End every process and close every descriptor; events not fetched are dropped.

        Idle workers are told to leave, busy ones get SIGTERM, and what is left after the grace
        SIGKILL. May be called again.
        """
        if self._closed:
            return
        self._closed = True
        members = list(self._members.values())
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
            self._members.clear()
            self._lingering.clear()
            self._events.clear()
            self._selector.close()
            self._waker.close()

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

    def _collect(self, timeout_seconds: float) -> bool:
        """Take what has come; return whether somebody wants the wait to end."""
        woken = False
        for key, mask in self._selector.select(timeout_seconds):
            if key.data is None:
                self._waker.clear()
                woken = True
                continue
            member = self._members[key.data]
            if mask & selectors.EVENT_WRITE:
                member.channel.flush()
                # It cannot have begun before it has the whole task.
                member.clocks.give()
                self._watch(member)
            if mask & selectors.EVENT_READ:
                member.clocks.hear()
                self._take(member, member.channel.receive())
                if member.channel.ended and member.worker in self._members:
                    self._bury(member)
        if time.monotonic() >= self._next_check:
            self._next_check = time.monotonic() + _CHECK_SECONDS
            for member in list(self._members.values()):
                if member.gone():
                    self._lose(member)
            self._lingering = [member for member in self._lingering if not member.reap(0)]
        return woken

    def _watch(self, member: Member) -> None:
        wanted = selectors.EVENT_READ
        if member.channel.unsent:
            wanted |= selectors.EVENT_WRITE
        self._selector.modify(member.channel, wanted, member.worker)

    def _take(self, member: Member, frames: list[tuple[bytes, bytes]]) -> None:
        for tag, body in frames:
            if member.broken:
                return
            if tag == READY:
                member.clocks.up = True
            try:
                self._events.append(_event(member, tag, body))
            # Unpickling runs the sender's classes: the parent may lack one of them.
            except Exception as error:
                self._refuse(member, tag, error)
            if tag in (RESULT, RAISED):
                member.busy, member.task = False, None
                self._idle_losses[member.worker] = 0

    def _refuse(self, member: Member, tag: bytes, error: Exception) -> None:
        text = f"what the task sent cannot be read by the parent: {error}"
        if tag == RESULT:
            kind = type(error).__name__
            self._events.append(
                Raised(worker=member.worker, kind=kind, message=text, traceback=text)
            )
        else:
            # Its task goes on and nobody can tell what was lost; the end of its pipe is next.
            member.broken, member.killed = text, True
            member.kill()

    def _bury(self, member: Member) -> None:
        """Reap a process whose pipe has ended; one that goes on without its pipe is useless."""
        if not member.wait_gone(_EXIT_SECONDS):
            member.killed = True
        self._lose(member)

    def _lose(self, member: Member) -> None:
        """End a process and take it off its seat: first what it sent, then its `Lost`."""
        if not member.reap(_EXIT_SECONDS):
            self._lingering.append(member)
        self._take(member, member.channel.drain())
        self._selector.unregister(member.channel)
        del self._members[member.worker]
        if not member.busy and not (member.killed and member.clocks.up):
            self._idle_losses[member.worker] += 1
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

    def _member(self, worker: int) -> Member:
        self._seat(worker)
        if worker not in self._members:
            raise PoolError(f"worker {worker} is not started. Next: start it first.")
        return self._members[worker]

    def _seat(self, worker: int) -> Seat:
        self._check_open()
        if worker not in self._seats:
            raise PoolError(f"there is no worker {worker}. Next: choose among {list(self._seats)}.")
        return self._seats[worker]

    def _check_open(self) -> None:
        if self._closed:
            raise PoolError("the pool is closed. Next: make a new one.")


def _event(member: Member, tag: bytes, body: bytes) -> Event:
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
