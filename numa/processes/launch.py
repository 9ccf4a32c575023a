"""Starts one worker on its seat, and describes afterwards how it ended."""

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import tempfile
from typing import IO, TypeAlias

from msgspec import Struct

from numa.affinity import seated
from numa.errors import StartError
from numa.model import BindReport, Seat
from numa.processes import member
from numa.processes.channel import WARM_UP, Channel, frame
from numa.processes.ending import wait_for_end
from numa.processes.fork_server import ForkServer, Served
from numa.processes.interpreter import start_interpreter

_DETAIL_BYTES = 4096
_STACKS_BYTES = 64 * 1024
"""So much at most is looked at for the stack of a crash."""
_STDERR_LIMIT_BYTES = 1 << 20

# Guess: a process that is killed directly after its start has ended long before.
_LAST_SECONDS = 20.0

_Process: TypeAlias = "subprocess.Popen[bytes] | Served"


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
    """What it sent that cannot be read; such a child is killed and not read any more."""

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

    def wait_gone(self, timeout_seconds: float) -> bool:
        """Wait for the process to end, so long at most; return whether it has."""
        return wait_for_end(self.process.pid, self.gone, timeout_seconds)

    def terminate(self) -> None:
        """Ask the process to end, unless it has."""
        if not self.gone():
            os.kill(self.process.pid, signal.SIGTERM)

    def kill(self) -> None:
        """Kill the process, and what its tasks have started and not put into a group of its own.

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
        """Kill all there is and wait for the end, so long at most; return whether it came.

        A process that waits inside the kernel, for a dead file server say, cannot be killed
        before that ends.
        """
        self.kill()
        try:
            self.process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def trim_stderr(self) -> None:
        """Empty the file once it is over 1 MiB, so that a chatty driver cannot fill the disk."""
        if os.fstat(self.stderr.fileno()).st_size > _STDERR_LIMIT_BYTES:
            os.ftruncate(self.stderr.fileno(), 0)

    def how_it_ended(self) -> str:
        """Return one line on the end of a reaped child, then the last 4 KB of its stderr."""
        code = self.process.returncode
        if code is None:
            line = "killed by SIGKILL, sent by the pool, but not ended: it waits inside the kernel"
        elif code >= 0:
            line = f"exit status {code}"
        else:
            line = f"killed by {_signal_name(-code)}"
            if self.killed:
                line += ", sent by the pool"
            elif -code == signal.SIGKILL:
                line += ", not sent by the pool: often sent by the kernel when memory is short"
        if self.broken:
            line += f"; {self.broken}"
        return f"{line}\n{self._last_words().decode(errors='replace')}".strip()

    def _last_words(self) -> bytes:
        """Return the end of its stderr, of a crash from the stack on of the thread that crashed.

        Python writes the innermost frame first, and that of a fork ends with all of the parent's.
        """
        size = os.fstat(self.stderr.fileno()).st_size
        tail = os.pread(self.stderr.fileno(), _STACKS_BYTES, max(0, size - _STACKS_BYTES))
        crashed = tail.rfind(b"\nCurrent thread 0x")
        start = len(tail) - _DETAIL_BYTES
        if tail.rfind(b"Fatal Python error: ", 0, max(0, crashed)) >= 0:
            start = min(start, crashed)
        return tail[max(0, start) :][:_DETAIL_BYTES]

    def release(self) -> None:
        """Close both descriptors."""
        self.channel.close()
        self.stderr.close()


def launch(
    seat: Seat, entry: str, memory_policy: str, warm_up: bytes, server: ForkServer
) -> Member:
    """Start a worker on the seat, bound from its first page on.

    Args:
        seat: Where it sits.
        entry: The function that does its tasks.
        memory_policy: See `numa.affinity.seated`.
        warm_up: What a new interpreter does first, as a pickled task.
        server: The fork server of the seat. Where it cannot be used, the worker is a new
            interpreter.
    Raises:
        StartError: The process could not be started.
    """
    name = f"worker-{seat.worker}"
    try:
        with contextlib.ExitStack() as undo:
            ours, theirs = socket.socketpair()
            undo.callback(ours.close)
            channel = Channel(ours)
            stderr = undo.enter_context(tempfile.TemporaryFile())
            # Appending keeps the child's writes at the end after `trim_stderr`.
            flags = fcntl.fcntl(stderr.fileno(), fcntl.F_GETFL)
            fcntl.fcntl(stderr.fileno(), fcntl.F_SETFL, flags | os.O_APPEND)
            process: _Process
            with theirs:
                forked = server.fork(seat, name, (theirs.fileno(), stderr.fileno()))
                if forked:
                    process, bound = forked
                    undo.callback(_end, process)
                else:
                    with seated(seat, memory_policy) as bound:
                        process = start_interpreter(member.__name__, name, entry, theirs, stderr)
                        undo.callback(_end, process)
                    channel.post(frame(WARM_UP, warm_up))
            undo.pop_all()
            return Member(
                worker=seat.worker, process=process, channel=channel, stderr=stderr, bound=bound
            )
    except OSError as error:
        raise StartError(
            f"worker {seat.worker} cannot be started: {error}.", f"{_way_out(error)}."
        ) from error


def _way_out(error: OSError) -> str:
    if isinstance(error, FileNotFoundError) and error.filename is None:
        # `tempfile` raises this when it has tried all places, and without a free descriptor, too.
        return "set TMPDIR to a directory that you may write to, or raise the limit on open files"
    return "lower --parallelism, or raise the limit on processes, files or memory"


def _end(process: _Process) -> None:
    process.kill()
    process.wait(_LAST_SECONDS)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
