"""Starts one child process on its seat, and says afterwards how it ended.

A plain child of `sys.executable`, not `multiprocessing.Process`: that imports the caller's
`__main__` again, which is slow and needs a guard in every script. The child inherits one end of
one socket pair and no other descriptor, so that each pipe's end is seen at once.
"""

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from typing import IO, TypeAlias

from msgspec import Struct

from numa.affinity import seated
from numa.errors import StartError
from numa.model import BindReport, Seat
from numa.processes.channel import Channel
from numa.processes.ending import wait_for_end
from numa.processes.fork_server import ForkServer, Served
from numa.processes.forked import LAST_SECONDS, Forked, fork, is_possible
from numa.processes.member import main
from numa.processes.paths import import_path

# Nothing is imported before the path is the parent's: with -c the current folder comes first.
_BOOTSTRAP = (
    "import sys; _, _, fd, parent, tied, entry, *sys.path = sys.argv; del sys.argv[1:]; "
    "from numa.processes.member import serve; serve(int(fd), int(parent), tied == 'tied', entry)"
)

_DETAIL_BYTES = 4096
_STACKS_BYTES = 64 * 1024
"""So much at most is looked at for the stack of a crash."""
_STDERR_LIMIT_BYTES = 1 << 20


_Process: TypeAlias = "subprocess.Popen[bytes] | Forked | Served"


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
    seat: Seat,
    entry: str,
    memory_policy: str,
    *,
    may_fork: bool,
    server: ForkServer | None = None,
) -> Member:
    """Start a child on the seat, bound from its first page on, with the caller's `sys.path`.

    Args:
        seat: Where it sits.
        entry: The function that does its tasks.
        memory_policy: See `numa.affinity.seated`.
        may_fork: It may be forked, where this process has only one thread.
        server: What it is forked from, where that can be.
    Raises:
        StartError: The process could not be started.
    """
    try:
        with contextlib.ExitStack() as undo:
            starting = _Starting(seat=seat, entry=entry, memory_policy=memory_policy, server=server)
            member = starting.member(undo, forked=may_fork and is_possible())
            undo.pop_all()
            return member
    except OSError as error:
        raise StartError(
            f"worker {seat.worker} cannot be started: {error}.", f"{_way_out(error)}."
        ) from error


def _way_out(error: OSError) -> str:
    if isinstance(error, FileNotFoundError) and error.filename is None:
        # So says `tempfile` when it has tried all places, and without a free descriptor, too.
        return "set TMPDIR to a directory that you may write to, or raise the limit on open files"
    return "lower --parallelism, or raise the limit on processes, files or memory"


class _Starting(Struct, frozen=True, kw_only=True):
    """One start of a child."""

    seat: Seat
    entry: str
    memory_policy: str
    server: ForkServer | None

    @property
    def name(self) -> str:
        """What the child is called in the list of processes."""
        return f"worker-{self.seat.worker}"

    def member(self, undo: contextlib.ExitStack, *, forked: bool) -> Member:
        """Start the child; what was opened is closed by `undo`."""
        ours, theirs = socket.socketpair()
        undo.callback(ours.close)
        with theirs:
            stderr = undo.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - outlives this call
            # Appending keeps the child's writes at the end after `trim_stderr`.
            flags = fcntl.fcntl(stderr.fileno(), fcntl.F_GETFL)
            fcntl.fcntl(stderr.fileno(), fcntl.F_SETFL, flags | os.O_APPEND)
            found = self._served(theirs, stderr, undo) or self._ours(theirs, stderr, undo, forked)
            process, bound = found
        return Member(
            worker=self.seat.worker,
            process=process,
            channel=Channel(ours),
            stderr=stderr,
            bound=bound,
        )

    def _served(
        self, theirs: socket.socket, stderr: IO[bytes], undo: contextlib.ExitStack
    ) -> tuple[_Process, BindReport] | None:
        """Start a child of the server; None if there is none."""
        if self.server is None:
            return None
        descriptors = (theirs.fileno(), stderr.fileno())
        found = self.server.fork(self.seat, self.memory_policy, self.entry, self.name, descriptors)
        if found is not None:
            undo.callback(_end, found[0])
        return found

    def _ours(
        self, theirs: socket.socket, stderr: IO[bytes], undo: contextlib.ExitStack, forked: bool
    ) -> tuple[_Process, BindReport]:
        """Start a child of our own."""
        start = self._fork if forked else self._execute
        with seated(self.seat, self.memory_policy) as bound:
            process = start(theirs, stderr)
            undo.callback(_end, process)
        return process, bound

    def _execute(self, theirs: socket.socket, stderr: IO[bytes]) -> "subprocess.Popen[bytes]":
        """Start an interpreter of its own."""
        # Told apart because the kernel's death signal goes by thread: see `numa.processes.member`.
        tied = threading.current_thread() is threading.main_thread()
        command = [
            *(sys.executable, "-c", _BOOTSTRAP, self.name, str(theirs.fileno())),
            *(str(os.getpid()), "tied" if tied else "loose", self.entry, *import_path()),
        ]
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            pass_fds=(theirs.fileno(),),
            # Its own session: signals of the terminal stay with the parent.
            start_new_session=True,
        )

    def _fork(self, theirs: socket.socket, stderr: IO[bytes]) -> Forked:
        """Go on in a copy of this process, of which the child's name and module are to be seen."""
        parent = os.getpid()

        def run() -> None:
            main(theirs.detach(), parent, True, self.entry)

        title = ("python", main.__module__, self.name)
        return fork(run, title, theirs.fileno(), stderr.fileno())


def _end(process: _Process) -> None:
    process.kill()
    process.wait(LAST_SECONDS)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
