"""A process pool on seats: it keeps one process on each seat that is wanted, with a pipe to each.

It runs any importable function. A process that dies costs the one task it was on: the others never
notice, and the task is the caller's to repeat. A process that is lost, late or too large is
replaced on the same seat. What its tasks have started dies with it, unless that has made another
process group. Only `wait` and `close` block, as long as the caller says. Use a pool from one
thread; only `wake` is for any.

    with Pool(seats, "package.module:function") as pool:
        pool.keep(seat.worker for seat in seats)
        while tasks:
            for worker in list(pool.idle):
                pool.assign(worker, tasks.pop())
            for event in pool.wait(1.0):
                ...

The events of one worker come in order: all that its process sent, then its `Lost`.
"""

from __future__ import annotations

import fcntl
import logging
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
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Self, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from numa.affinity import seated
from numa.model import (
    BindReport,
    Finished,
    Lost,
    Message,
    PoolError,
    ProcessLimits,
    Raised,
    Ready,
    Seat,
    StartError,
    WorkerEvent,
)
from numa.processes import member
from numa.processes.member import LEAVE, TASK, TOLD, Channel
from numa.processes.server import ForkServer, Served, ended_within, start_interpreter

logger = logging.getLogger(__name__)

CHECK_SECONDS = 1.0
"""The pipe's end shows a death immediately, unless something a task started holds the pipe open: so
every child is looked at this often."""

_LOOK_SECONDS = 0.2
"""Between two looks for processes that are late or too large."""

# Guess: a machine short of processes or memory may have some again after that.
_RESTART_SECONDS = 1.0

_MOST_IDLE_LOSSES = 3
"""A seat whose processes end this often in a row without a task cannot have one at all."""

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
    """One process for each seat that is kept."""

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
            seats: Where workers sit; each `worker` number once.
            entry: `package.module:function`, importable with the parent's `sys.path`. Called as
                `function(task, report)`; `report(payload)` sends a `Message` from any thread. Task,
                payloads and result are pickled.
            warm_up: A task, or None, that is done first in each fork server and new interpreter,
                with any outcome. It must leave no thread, or nothing can be forked.
        """
        self._seats = {seat.worker: seat for seat in seats}
        self._entry = entry
        self.limits = limits or ProcessLimits()
        self._memory_policy = memory_policy
        self._warm_up = _pickled(warm_up, "the warm-up")
        # One server for each node with seats, and one for the seats that are bound to none.
        homes: dict[int | None, list[Seat]] = {}
        for seat in seats:
            homes.setdefault(seat.node if seat.cpus else None, []).append(seat)
        self._servers: dict[int, ForkServer] = {}
        """By worker: the server of its node, bound to the CPUs of all seats there."""
        for here in homes.values():
            cpus = tuple(sorted({cpu for each in here for cpu in each.cpus}))
            server = ForkServer(replace(here[0], cpus=cpus), memory_policy, entry, self._warm_up)
            self._servers |= {each.worker: server for each in here}
        self.idle: set[int] = set()
        """Workers that can be given a task; changed by `wait` and `assign`."""
        self._members: dict[int, Member] = {}
        """The children by worker, without lost ones."""
        self._lingering: list[Member] = []
        """Lost ones that the kernel has not let go of yet."""
        self._kept: set[int] = set()
        self._vacant: dict[int, float] = {}
        """Kept seats without a process, and when one may be started there."""
        self._ending: list[Member] = []
        """Idle ones that are too large; they are ended by the next `wait`."""
        self._idle_losses: Counter[int] = Counter()
        """By worker: processes in a row that had no task, or could not be started."""
        self._starts: Counter[int] = Counter()
        self._events: deque[WorkerEvent] = deque()
        self._selector = selectors.DefaultSelector()
        self._woken, self._waking = socket.socketpair()
        self._woken.setblocking(False)
        self._waking.setblocking(False)
        # Reentrant: a signal handler may come while its own thread is in `wake`.
        self._wake_lock = threading.RLock()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._next_check = self._next_look = time.monotonic()
        self._closed = False

    def prepare(self) -> None:
        """Let the fork servers of all seats load what workers need. Returns immediately."""
        self._check_open()
        for server in dict.fromkeys(self._servers.values()):
            server.begin()

    def keep(self, workers: Iterable[int]) -> None:
        """Keep a process on the seats of these workers from now on, and none on other seats.

        Where a fork server is still starting, a later `wait` starts the process. A refusal of the
        system is a `StartError`.
        """
        self._kept = set(workers)
        self._lose([each for worker, each in self._members.items() if worker not in self._kept])
        self._vacant = {each: due for each, due in self._vacant.items() if each in self._kept}
        for worker in sorted(self._kept - self._members.keys() - self._vacant.keys()):
            if self._servers[worker].is_prepared():
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

    def start(self, worker: int) -> None:
        """Keep a process on the worker's seat, and start it, bound from its first page on.

        Its `Ready` comes from `wait`. Where the fork server cannot be used, the process is a new
        interpreter. Best called from the main thread: only then does the kernel kill the child with
        us. A refusal of the system is a `StartError`.
        """
        self._check_open()
        seat = self._seats[worker]
        if worker in self._members:
            pid = self._members[worker].process.pid
            raise PoolError(f"worker {worker} already runs, as process {pid}.", "stop it first.")
        try:
            with ExitStack() as undo:
                ours, theirs = socket.socketpair()
                undo.callback(ours.close)
                ours.setblocking(False)
                channel = Channel(ours)
                stderr = undo.enter_context(tempfile.TemporaryFile())
                # Appending keeps the child's writes at the end after the file was emptied.
                flags = fcntl.fcntl(stderr.fileno(), fcntl.F_GETFL)
                fcntl.fcntl(stderr.fileno(), fcntl.F_SETFL, flags | os.O_APPEND)
                process: _Process
                with theirs:
                    forked = self._servers[worker].fork(seat, (theirs.fileno(), stderr.fileno()))
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
        self._selector.register(ours, selectors.EVENT_READ, worker)
        self._starts[worker] += 1
        self._kept.add(worker)
        self._vacant.pop(worker, None)

    def assign(self, worker: int, task: object) -> None:
        """Send an idle worker a task that can be pickled, or raise a `PoolError`; never waits."""
        self._check_open()
        child = self._members.get(worker)
        if child is None or child.busy:
            raise PoolError(f"worker {worker} is not idle.", "choose one of `idle`.")
        body = _pickled(task, f"the task for worker {worker}")
        child.busy, child.task = True, task
        self.idle.discard(worker)
        if os.fstat(child.stderr.fileno()).st_size > _STDERR_LIMIT_BYTES:
            os.ftruncate(child.stderr.fileno(), 0)
        child.channel.post(TASK, body)
        self._watch(child)

    def tell(self, worker: int, payload: object) -> None:
        """Send a payload to a worker's task, if it has one, for `member.listen`; never waits."""
        child = self._members.get(worker)
        if child is not None and child.busy:
            child.channel.post(TOLD, _pickled(payload, f"the payload for worker {worker}"))
            self._watch(child)

    def wait(self, timeout_seconds: float) -> tuple[WorkerEvent, ...]:
        """Return the events that have come, in order of arrival; wait for the first if none has.

        Processes are started and replaced in here only. After the timeout, or a `wake`, `()` is
        returned.
        """
        self._check_open()
        deadline = time.monotonic() + timeout_seconds
        ending, self._ending = self._ending, []
        self._lose([child for child in ending if self._members.get(child.worker) is child])
        while True:
            now = time.monotonic()
            for worker in [worker for worker, due in self._vacant.items() if due <= now]:
                if not self._servers[worker].is_prepared():
                    continue
                del self._vacant[worker]
                try:
                    self.start(worker)
                except StartError as error:
                    self._leave_vacant(
                        Lost(worker=worker, reason="refused", detail=error.message, hint=error.hint)
                    )
            now = time.monotonic()
            # A seat that is due waits for its fork server, whose readiness ends the wait.
            waits = [due - now for due in self._vacant.values() if due > now]
            longest = 0.0 if self._events else max(0.0, min(deadline - now, _LOOK_SECONDS, *waits))
            with ExitStack() as after:
                for server in dict.fromkeys(self._servers.values()):
                    if (starting := server.starting) is not None:
                        self._selector.register(starting, selectors.EVENT_READ, server)
                        after.callback(self._selector.unregister, starting)
                ready = self._selector.select(longest)
            woken = False
            for key, mask in ready:
                if isinstance(key.data, ForkServer):
                    key.data.is_prepared()
                    continue
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
                        child.killed = child.killed or not ended_within(_EXIT_SECONDS, child.gone)
                        self._lose([child])
            now = time.monotonic()
            if now >= self._next_check:
                self._next_check = now + CHECK_SECONDS
                self._lose([child for child in self._members.values() if child.gone()])
                self._lingering = [child for child in self._lingering if not child.reap(0)]
            # Only after what workers had sent was read: the caller may have been away for long.
            if now >= self._next_look:
                self._next_look, late = now + _LOOK_SECONDS, self.limits.start_seconds
                doomed, largest = [], self.limits.task_memory_bytes
                for worker, child in self._members.items():
                    if late and not child.is_up and now - child.started > late:
                        detail = f"worker {worker} did not start within {late:g} s"
                        child.reason = Lost(worker=worker, reason="not up", detail=detail)
                        doomed.append(child)
                    elif largest and child.busy and child.is_too_large(largest):
                        doomed.append(child)
                self._lose(doomed)
            if self._events or woken or now >= deadline:
                events = tuple(self._events)
                self._events.clear()
                return events

    def stop(self, causes: Mapping[int, object]) -> None:
        """End workers' processes, with a `Lost` of each cause; each seat gets another process."""
        doomed = [self._members[worker] for worker in causes if worker in self._members]
        for child in doomed:
            child.reason = Lost(
                worker=child.worker,
                reason="stopped",
                detail="stopped by the caller",
                cause=causes[child.worker],
            )
        self._lose(doomed)

    def wake(self) -> None:
        """Let the `wait` that is in progress, or the next one, return immediately.

        From any thread, or a signal handler; also when the pool is closed, then without effect.
        """
        with self._wake_lock, suppress(OSError):
            self._waking.send(b"\0")

    @property
    def exhausted(self) -> bool:
        """Whether no process runs, and none will be started any more."""
        return not (self._vacant or self._members)

    def pids(self) -> dict[int, int]:
        """Return the process ids by worker."""
        return {worker: child.process.pid for worker, child in self._members.items()}

    def bindings(self) -> dict[int, BindReport]:
        """Return the result of the binding of each worker with a process, also before it is up."""
        return {worker: child.bound for worker, child in self._members.items()}

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
                ended_within(deadline - time.monotonic(), child.gone)
        finally:
            try:
                # Also when a second Ctrl-C interrupts the polite part.
                children += self._lingering
                for child in children:
                    child.kill()
                deadline = time.monotonic() + _LAST_EXIT_SECONDS
                for child in children:
                    child.reap(deadline - time.monotonic())
                    child.channel.sock.close()
                    child.stderr.close()
                self._members.clear()
                self._selector.close()
                with self._wake_lock:
                    self._waking.close()
                    self._woken.close()
            finally:
                for server in dict.fromkeys(self._servers.values()):
                    server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise PoolError("the pool is closed.", "make a new one.")

    def _watch(self, child: Member) -> None:
        wanted = selectors.EVENT_READ
        if child.channel.unsent:
            wanted |= selectors.EVENT_WRITE
        self._selector.modify(child.channel.sock, wanted, child.worker)

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
            if isinstance(event, Ready):
                child.is_up = True
            elif isinstance(event, Finished | Raised):
                child.busy, child.task = False, None
                self._idle_losses.pop(child.worker, None)
            if child.worker not in self._kept:
                continue
            limit = self.limits.memory_bytes if isinstance(event, Finished | Raised) else 0
            if limit and child.is_too_large(limit):
                self._ending.append(child)
            elif not isinstance(event, Message) and not child.busy:
                self.idle.add(child.worker)
            self._events.append(event)

    def _lose(self, doomed: Sequence[Member]) -> None:
        """End children and take them off: first what each has sent, then its `Lost`.

        Processes that the kernel does not end within two seconds, all together, are lost anyway,
        and reaped when they end.
        """
        for child in doomed:
            if child.reason is not None:
                logger.info("worker %d is ended: %s", child.worker, child.reason.detail)
            child.killed = child.killed or not child.gone()
            child.kill()
        deadline = time.monotonic() + _EXIT_SECONDS
        for child in doomed:
            worker = child.worker
            if not child.reap(deadline - time.monotonic()):
                self._lingering.append(child)
            self._receive(child, child.channel.receive(everything=True))
            self._selector.unregister(child.channel.sock)
            del self._members[worker]
            self.idle.discard(worker)
            code = child.process.returncode
            lost = child.reason or Lost(worker=worker, detail=child.how_it_ended())
            lost = replace(
                lost, exit_code=-signal.SIGKILL if code is None else code, task=child.task
            )
            child.channel.sock.close()
            child.stderr.close()
            if worker not in self._kept:
                continue
            # One that had a task, or was ended by us once it was up, has shown that it can start.
            if lost.task is None and not (child.is_up and lost.reason != "lost"):
                self._leave_vacant(lost)
            else:
                self._vacant[worker] = 0.0
                self._events.append(lost)

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


class Member(Struct, kw_only=True, eq=False):
    """One running child."""

    worker: int
    process: _Process
    channel: Channel
    stderr: IO[bytes]
    """Temporary file without a name that takes the child's standard error."""
    bound: BindReport
    started: float = field(default_factory=time.monotonic)
    is_up: bool = False
    busy: bool = False
    task: object = None
    reason: Lost | None = None
    """Why the pool ends it; None if it ends without that."""
    killed: bool = False
    """Killed by the pool itself."""
    broken: str = ""
    """Why its data cannot be read; such a child is killed and not read any more."""

    def gone(self) -> bool:
        """Whether the process has ended. Where possible it is left unreaped, its number ours."""
        if isinstance(self.process, Served):
            return self.process.has_ended()
        if self.process.returncode is None and hasattr(os, "waitid"):
            # Another handler of SIGCHLD may have reaped it.
            with suppress(ChildProcessError):
                flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
                return os.waitid(os.P_PID, self.process.pid, flags) is not None
        return self.process.poll() is not None

    def is_too_large(self, limit: int) -> bool:
        """Return whether it holds more than a limit, which then is the reason for its end.

        From the second figure of /proc/PID/statm, which newer kernels keep to within some hundred
        KB. A process that is ending has 0 there. Without the file nothing is too large.
        """
        held = 0
        with suppress(OSError, IndexError, ValueError):
            statm = Path(f"/proc/{self.process.pid}/statm").read_text("ascii")
            held = int(statm.split()[1]) * os.sysconf("SC_PAGE_SIZE")
        if held > limit:
            detail = f"held {held} bytes, the limit is {limit}"
            self.reason = Lost(
                worker=self.worker, reason="too large", detail=detail, held_bytes=held
            )
        return held > limit

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

    def reap(self, seconds: float) -> bool:
        """Kill all there is and wait for the end; return whether it came in time.

        A process that waits inside the kernel, for a dead file server say, cannot be killed
        before that ends.
        """
        self.kill()
        return ended_within(seconds, lambda: self.process.poll() is not None)

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


def _pickled(value: object, what: str) -> bytes:
    try:
        return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    # Pickling runs the task's own code, and the ways it fails share no base class.
    except Exception as error:
        raise PoolError(
            f"{what} cannot be pickled: {error}.", "build it of plain data and importable types."
        ) from error


def _end(process: _Process) -> None:
    process.kill()
    ended_within(_LAST_EXIT_SECONDS, lambda: process.poll() is not None)
