"""A process pool on seats: one process on each seat, one pipe to each.

It runs any importable function and knows nothing of what that does. A process that dies costs the
one task it was on: the others never notice, and `start` puts a new one on the same seat. What its
tasks have started dies with it, unless that has made another process group. Only `wait` and `close`
block, as long as the caller says. Use a pool from one thread; only `wake` is for any. When to give
up on a process is for the caller to decide: see `numa.supervisor`.

    with Pool(seats, "package.module:function") as pool:
        for seat in seats:
            pool.start(seat.worker)
            pool.assign(seat.worker, task)
        events = pool.wait(timeout_seconds=None)

The events of one worker come in order: all that its process sent, then its `Lost`.
"""

from __future__ import annotations

import fcntl
import os
import pickle
import selectors
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Self, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from numa.affinity import MEMORY_POLICIES, seated
from numa.errors import PoolError, StartError
from numa.model import BindReport, Finished, Lost, Raised, Seat, WorkerEvent
from numa.processes import member
from numa.processes.channel import LEAVE, TASK, TOLD, Channel
from numa.processes.server import ForkServer, Served, start_interpreter, wait_for_end

CHECK_SECONDS = 1.0
"""The pipe's end shows a death immediately, unless something a task started holds the pipe open: so
every child is looked at this often."""

# Guess: from the end of its pipe to its exit a process needs milliseconds.
_EXIT_SECONDS = 2.0

# Guess: the end of a process that holds most of a large machine's memory takes that long.
_LAST_EXIT_SECONDS = 20.0

_DETAIL_BYTES = 4096
_STACKS_BYTES = 64 * 1024
"""The most that is searched for the stack of a crash."""
_STDERR_LIMIT_BYTES = 1 << 20
"""Emptied above that before a task, so that a chatty driver cannot fill the disk."""

_Process: TypeAlias = "subprocess.Popen[bytes] | Served"


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
                stays, or nothing can be forked. None runs no task.
        Raises:
            PoolError: Two seats have one worker number, or a text is invalid.
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
        self._servers: dict[int | None, ForkServer] = {}
        """One for each node with seats, bound to the CPUs of all of them; see `_home`."""
        for home in dict.fromkeys(map(_home, seats)):
            here = [seat for seat in seats if _home(seat) == home]
            whole = replace(
                here[0], cpus=tuple(sorted({cpu for each in here for cpu in each.cpus}))
            )
            self._servers[home] = ForkServer(whole, memory_policy, entry, self._warm_up)
        self._members: dict[int, Member] = {}
        """The children by worker, without lost ones."""
        self._lingering: list[Member] = []
        """Lost ones that the kernel has not let go of yet."""
        self._events: deque[WorkerEvent] = deque()
        self._selector = selectors.DefaultSelector()
        self._woken, self._waking = socket.socketpair()
        self._woken.setblocking(False)
        self._waking.setblocking(False)
        # Reentrant: a signal handler may come while its own thread is in `wake`.
        self._wake_lock = threading.RLock()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._next_check = time.monotonic()
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
        """
        return self._servers[_home(self._seat(worker))].is_prepared()

    def start(self, worker: int) -> None:
        """Start a process on the worker's seat, bound from its first page on.

        Its `Ready` comes from `wait`. Where the fork server cannot be used, the process is a new
        interpreter. Best called from the main thread: only then does the kernel kill the child with
        us.

        Raises:
            PoolError: The worker is unknown, or it runs already.
            StartError: The system refuses it.
        """
        seat = self._seat(worker)
        if worker in self._members:
            pid = self._members[worker].process.pid
            raise PoolError(f"worker {worker} already runs, as process {pid}.", "kill it first.")
        try:
            with ExitStack() as undo:
                ours, theirs = socket.socketpair()
                undo.callback(ours.close)
                channel = Channel(ours)
                stderr = undo.enter_context(tempfile.TemporaryFile())
                # Appending keeps the child's writes at the end after the file was emptied.
                flags = fcntl.fcntl(stderr.fileno(), fcntl.F_GETFL)
                fcntl.fcntl(stderr.fileno(), fcntl.F_SETFL, flags | os.O_APPEND)
                process: _Process
                with theirs:
                    server = self._servers[_home(seat)]
                    forked = server.fork(seat, (theirs.fileno(), stderr.fileno()))
                    if forked:
                        process, bound = forked
                        undo.callback(_end, process)
                    else:
                        with seated(seat, self._memory_policy) as bound:
                            process = start_interpreter(
                                member.__name__, f"worker-{worker}", self._entry, theirs, stderr
                            )
                            undo.callback(_end, process)
                        channel.post(pickle.dumps((worker, bound, self._warm_up)))
                undo.pop_all()
        except OSError as error:
            hint = "lower --parallelism, or raise the limit on processes, files or memory."
            if isinstance(error, FileNotFoundError) and error.filename is None:
                # `tempfile` raises this when it has tried all places, and without a descriptor.
                hint = (
                    "set TMPDIR to a directory that you may write to, or raise the limit on open "
                    "files."
                )
            raise StartError(f"worker {worker} cannot be started: {error}.", hint) from error
        self._members[worker] = Member(
            worker=worker, process=process, channel=channel, stderr=stderr, bound=bound
        )
        self._selector.register(channel, selectors.EVENT_READ, worker)
        self._starts[worker] += 1

    def assign(self, worker: int, task: object) -> None:
        """Give an idle worker a task. Returns immediately, also when the process is just dead.

        Raises:
            PoolError: The worker is busy or not started, or the task cannot be pickled.
        """
        child = self._member(worker)
        if child.busy:
            raise PoolError(f"worker {worker} is busy.", "wait for the end of its task.")
        body = _pickled(task, f"the task for worker {worker}")
        child.busy, child.task = True, task
        if os.fstat(child.stderr.fileno()).st_size > _STDERR_LIMIT_BYTES:
            os.ftruncate(child.stderr.fileno(), 0)
        child.channel.post(TASK, body)
        self._watch(child)

    def tell(self, worker: int, payload: object) -> None:
        """Send a worker a payload for `numa.processes.member.listen`. Returns immediately.

        It is read while the task runs, and comes before the next task.

        Raises:
            PoolError: The worker is not started, or the payload cannot be pickled.
        """
        body = _pickled(payload, f"the payload for worker {worker}")
        child = self._member(worker)
        child.channel.post(TOLD, body)
        self._watch(child)

    def wait(self, timeout_seconds: float | None) -> tuple[WorkerEvent, ...]:
        """Return the events that have come, in order of arrival; wait for the first if none has.

        Args:
            timeout_seconds: Longest wait; None = for ever. After it, or a `wake`, `()` is returned.
        Raises:
            PoolError: Without a process, an event and a timeout nothing would ever come.
        """
        self._check_open()
        if timeout_seconds is None and not self._members and not self._events:
            raise PoolError("nothing to wait for: no worker is started.", "start one.")
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while True:
            left = CHECK_SECONDS if deadline is None else deadline - time.monotonic()
            with ExitStack() as after:
                # A fork server that has started ends the wait, too.
                for server in self._servers.values():
                    if server.is_starting:
                        self._selector.register(server, selectors.EVENT_READ)
                        after.callback(self._selector.unregister, server)
                longest = 0.0 if self._events else max(0.0, min(left, CHECK_SECONDS))
                ready = self._selector.select(longest)
            woken = False
            for key, mask in ready:
                if key.data is None:
                    woken = True
                    with suppress(BlockingIOError):
                        while self._woken.recv(4096):
                            pass
                    continue
                child = self._members[key.data]
                if mask & selectors.EVENT_WRITE:
                    child.channel.flush()
                    self._watch(child)
                if mask & selectors.EVENT_READ:
                    self._receive(child, child.channel.receive())
                    if child.channel.ended:
                        # One that continues without its pipe is useless.
                        child.killed = child.killed or not wait_for_end(
                            child.process.pid, child.gone, _EXIT_SECONDS
                        )
                        self._lose([child])
            if time.monotonic() >= self._next_check:
                self._next_check = time.monotonic() + CHECK_SECONDS
                self._lose([child for child in self._members.values() if child.gone()])
                self._lingering = [child for child in self._lingering if not child.reap(0)]
            if self._events or woken or left <= 0:
                events = tuple(self._events)
                self._events.clear()
                return events

    def wake(self) -> None:
        """Let the `wait` that is in progress, or the next one, return immediately.

        From any thread, or a signal handler; also when the pool is closed, then without effect.
        """
        with self._wake_lock, suppress(OSError):
            self._waking.send(b"\0")

    def kill(self, *workers: int) -> None:
        """Kill the workers' processes and reap them; the next `wait` has their `Lost`.

        Processes that the kernel does not end within two seconds, all together, are lost anyway,
        and reaped when they end. Does nothing where no process is on the seat.
        """
        asked = {self._seat(worker).worker for worker in workers}
        doomed = [child for worker, child in self._members.items() if worker in asked]
        for child in doomed:
            child.killed = not child.gone()
        self._lose(doomed)

    def pids(self) -> dict[int, int]:
        """Return the process id of each worker that has a process."""
        return {worker: child.process.pid for worker, child in self._members.items()}

    def bindings(self) -> dict[int, BindReport]:
        """Return the result of the binding of each worker with a process, also before it is up."""
        return {worker: child.bound for worker, child in self._members.items()}

    def memory_bytes(self, worker: int) -> int | None:
        """Return the memory of the worker's process; None if it is unknown.

        From the second figure of /proc/PID/statm, which newer kernels keep to within some hundred
        KB. A process that is ending holds nothing any more, and has 0 there.
        """
        if worker not in self._members:
            return None
        try:
            statm = Path(f"/proc/{self._members[worker].process.pid}/statm").read_text("ascii")
            return int(statm.split()[1]) * os.sysconf("SC_PAGE_SIZE") or None
        except (OSError, IndexError, ValueError):
            return None

    def restarts(self) -> dict[int, int]:
        """Return how many processes each worker that was started has had beyond the first."""
        return {worker: count - 1 for worker, count in self._starts.items()}

    def close(self, grace_seconds: float = 5.0) -> None:
        """End every process and close every descriptor; events not fetched are dropped.

        Idle workers are asked to leave, busy ones get SIGTERM, and after the grace all get SIGKILL.
        May be called again.
        """
        if self._closed:
            return
        self._closed = True
        children = list(self._members.values())
        try:
            for child in children:
                if not child.busy:
                    child.channel.post(LEAVE)
                elif not child.gone():
                    os.kill(child.process.pid, signal.SIGTERM)
            deadline = time.monotonic() + grace_seconds
            for child in children:
                left = max(0.0, deadline - time.monotonic())
                wait_for_end(child.process.pid, child.gone, left)
        finally:
            try:
                # Also when a second Ctrl-C interrupts the polite part.
                children += self._lingering
                for child in children:
                    child.kill()
                deadline = time.monotonic() + _LAST_EXIT_SECONDS
                for child in children:
                    child.reap(max(0.0, deadline - time.monotonic()))
                    child.release()
                self._members.clear()
                self._selector.close()
                with self._wake_lock:
                    self._waking.close()
                    self._woken.close()
            finally:
                for server in self._servers.values():
                    server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _member(self, worker: int) -> Member:
        self._seat(worker)
        if worker not in self._members:
            raise PoolError(f"worker {worker} is not started.", "start it first.")
        return self._members[worker]

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

    def _watch(self, child: Member) -> None:
        wanted = selectors.EVENT_READ
        if child.channel.unsent:
            wanted |= selectors.EVENT_WRITE
        self._selector.modify(child.channel, wanted, child.worker)

    def _receive(self, child: Member, bodies: Iterable[bytes]) -> None:
        for body in bodies:
            if child.broken:
                return
            try:
                event: WorkerEvent = pickle.loads(body)
            # Unpickling runs the sender's classes: the parent may lack one of them.
            except Exception as error:
                # The state of its task is unknown; the end of its pipe is next.
                child.broken = f"the parent cannot read the data that the task sent: {error}"
                child.killed = True
                child.kill()
                return
            if isinstance(event, Finished | Raised):
                child.busy, child.task = False, None
            self._events.append(event)

    def _lose(self, doomed: Sequence[Member]) -> None:
        """End children and take them off: first what each has sent, then its `Lost`.

        Processes that the kernel does not end within two seconds, all together, are lost anyway,
        and reaped when they end.
        """
        for child in doomed:
            child.kill()
        deadline = time.monotonic() + _EXIT_SECONDS
        for child in doomed:
            if not child.reap(max(0.0, deadline - time.monotonic())):
                self._lingering.append(child)
            self._receive(child, child.channel.receive(everything=True))
            self._selector.unregister(child.channel)
            del self._members[child.worker]
            code = child.process.returncode
            self._events.append(
                Lost(
                    worker=child.worker,
                    exit_code=-signal.SIGKILL if code is None else code,
                    task=child.task,
                    detail=child.how_it_ended(),
                )
            )
            child.release()


class Member(Struct, kw_only=True):
    """One running child, as the pool sees it."""

    worker: int
    process: _Process
    channel: Channel
    stderr: IO[bytes]
    """Temporary file without a name that takes the child's standard error."""
    bound: BindReport
    busy: bool = False
    task: object = None
    killed: bool = False
    """Killed by the pool itself."""
    broken: str = ""
    """Why its data cannot be read; such a child is killed and not read any more."""

    def gone(self) -> bool:
        """Whether the process has ended. Where possible it is left unreaped, its number ours."""
        if isinstance(self.process, Served):
            return self.process.has_ended()
        if self.process.returncode is not None or not hasattr(os, "waitid"):
            return self.process.poll() is not None
        try:
            flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
            return os.waitid(os.P_PID, self.process.pid, flags) is not None
        except ChildProcessError:
            # Another handler of SIGCHLD has reaped it.
            return self.process.poll() is not None

    def kill(self) -> None:
        """Kill the process, and the processes of its tasks that stayed in its group.

        After its own death, too, which leaves those behind; but before it is reaped, as then its
        number may already be another's.
        """
        if self.process.returncode is None:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                # Forked a moment ago, it leads no group yet.
                self.process.kill()
            except PermissionError:
                pass

    def reap(self, timeout_seconds: float) -> bool:
        """Kill all there is and wait for the end; return whether it came in time.

        A process that waits inside the kernel, for a dead file server say, cannot be killed
        before that ends.
        """
        self.kill()
        try:
            self.process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def how_it_ended(self) -> str:
        """Return one line on the end of a reaped child, then the last 4 KB of its stderr.

        Of a crash they are from the stack on of the thread that crashed: Python writes the
        innermost frame first, and a fork's frames end with all frames of the parent.
        """
        code = self.process.returncode
        if code is None:
            line = "killed by SIGKILL, sent by the pool, but not ended: it waits inside the kernel"
        elif code >= 0:
            line = f"exit status {code}"
        else:
            try:
                name = signal.Signals(-code).name
            except ValueError:
                name = f"signal {-code}"
            line = f"killed by {name}"
            if self.killed:
                line += ", sent by the pool"
            elif -code == signal.SIGKILL:
                line += ", not sent by the pool: often sent by the kernel when memory is short"
        if self.broken:
            line += f"; {self.broken}"
        size = os.fstat(self.stderr.fileno()).st_size
        tail = os.pread(self.stderr.fileno(), _STACKS_BYTES, max(0, size - _STACKS_BYTES))
        crashed = tail.rfind(b"\nCurrent thread 0x")
        start = len(tail) - _DETAIL_BYTES
        if tail.rfind(b"Fatal Python error: ", 0, max(0, crashed)) >= 0:
            start = min(start, crashed)
        words = tail[max(0, start) :][:_DETAIL_BYTES]
        return f"{line}\n{words.decode(errors='replace')}".strip()

    def release(self) -> None:
        self.channel.close()
        self.stderr.close()


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


def _end(process: _Process) -> None:
    process.kill()
    process.wait(_LAST_EXIT_SECONDS)
