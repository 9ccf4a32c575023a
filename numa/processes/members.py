"""The children there are: what they send becomes events, and so does their end.

Nothing here knows of seats or decides what is done next: that is `numa.pool`. Whatever a child
does, the events of one worker come in order: what it sent, then its `Lost`.
"""

import pickle
import selectors
import signal
import time
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import ExitStack

from numa.model import Finished, Lost, Message, PoolEvent, Raised, Ready
from numa.processes.channel import LEAVE, MESSAGE, RAISED, READY, RESULT, TASK, TOLD, frame
from numa.processes.fork_server import ForkServer
from numa.processes.launch import Member
from numa.processes.waker import Waker

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
