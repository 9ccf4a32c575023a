"""A process on each NUMA node that workers are forked from.

A fork copies the loaded modules, so a worker costs milliseconds instead of an interpreter and its
imports. It also copies the locks of all threads and continues one thread alone. So the process that
is forked has one thread, which the kernel is asked before each fork, and is not the program itself.

The server is a new interpreter. It is bound to its node before it imports anything, so that the
memory that it shares with its workers is on their node. It imports the entry function, does the
warm-up, and then answers the parent's calls one after the other. It ends with the parent, and its
workers end with it. An ended worker is kept until the parent asks for its exit status, so that its
number is not used again.
"""

import ctypes
import gc
import logging
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NoReturn

from msgspec import Struct

from numa.affinity import seated
from numa.model import BindReport, Ready, Seat
from numa.processes import member

logger = logging.getLogger(__name__)

_MOST_BYTES = 64 * 1024
"""The largest call, answer or warm-up; a seat and some names need much less."""

_ANSWER_SECONDS = 60.0
"""Guess: a busy machine may need seconds to load a driver. Later answers take milliseconds."""

_STAT = Path("/proc/self/stat")
_ARG_START = 48 - 3
"""Position after the program's name, which is field 2 and may contain blanks. Source: proc(5)."""

# Guess: looks for the end of a process are so far apart at first and at last.
_FIRST_LOOK_SECONDS, _LAST_LOOK_SECONDS = 0.0005, 0.05

# Nothing is imported before the path is the parent's: with -c the current folder comes first.
_BOOTSTRAP = (
    "import sys; _, _, module, fd, parent, tied, entry, *sys.path = sys.argv; del sys.argv[1:]; "
    "from importlib import import_module; "
    "import_module(module).serve(int(fd), int(parent), tied == 'tied', entry)"
)


class Served(Struct, eq=False):
    """A worker of the server, with the methods that are used of `subprocess.Popen`."""

    pid: int
    _server: "ForkServer"
    _parent: int | None
    """Of the server's process: one that was started later does not know this worker."""
    returncode: int | None = None

    def has_ended(self) -> bool:
        """Return whether it has ended, without reaping it."""
        ended = self.returncode is not None
        return ended or bool(self._server.ask(("ended", self.pid), True, of=self._parent))

    def poll(self) -> int | None:
        """Return its exit status and reap it, or None while it runs."""
        if self.returncode is None:
            # The kernel kills the workers of a server that has died.
            otherwise = -signal.SIGKILL
            self.returncode = self._server.ask(("reap", self.pid), otherwise, of=self._parent)
        return self.returncode

    def kill(self) -> None:
        """Kill it, unless it was reaped."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


class ForkServer(Struct, eq=False):
    """The parent's side. The process starts with `begin`, or with the first worker."""

    _seat: Seat
    """With all CPUs of the workers."""
    _memory_policy: str
    _entry: str
    _warm_up: bytes
    """Pickled."""
    _process: "subprocess.Popen[bytes] | None" = None
    _sock: socket.socket | None = None
    starting: socket.socket | None = None
    """Set while the process loads what workers need: the end of that makes it readable."""
    _deadline: float = 0.0
    _is_refused: bool = False
    pid: int | None = None
    """Of the process; None without one."""

    def begin(self) -> None:
        """Start the process, unless it runs or cannot be used here. Returns immediately."""
        if self._is_refused or self.starting is not None:
            return
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        if sys.platform != "linux":
            self._refuse(f"forks are not safe on {sys.platform}")
            return
        library = sys.modules.get("multiprocessing")
        if library is not None and library.get_start_method(allow_none=True) == "spawn":
            self._refuse("this program has set the start method of multiprocessing to spawn")
            return
        name = f"fork-server-{self._seat.node}"
        try:
            self._sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._sock.settimeout(_ANSWER_SECONDS)
            with theirs, seated(self._seat, self._memory_policy):
                self._process = start_interpreter(
                    __name__, name, self._entry, theirs, subprocess.DEVNULL
                )
                self.pid = self._process.pid
            start = pickle.dumps((self._memory_policy, self._warm_up))
            self._sock.send(start, socket.MSG_NOSIGNAL)
            self.starting = self._sock
        except OSError as error:
            self._refuse(str(error))
        except BaseException:
            self.close()
            raise
        self._deadline = time.monotonic() + _ANSWER_SECONDS

    def is_prepared(self, timeout_seconds: float = 0.0) -> bool:
        """Return whether `fork` would not have to wait for the imports of the process."""
        self.begin()
        if self.starting is None:
            return True
        readable = select.poll()
        readable.register(self.starting, select.POLLIN)
        if readable.poll(timeout_seconds * 1000):
            is_ready = self.ask(None, False)
            self.starting = None
            if not is_ready:
                self._refuse("the fork server ended while it loaded what workers need")
            return True
        if time.monotonic() >= self._deadline:
            self._refuse(f"the fork server was not ready within {_ANSWER_SECONDS:g} s")
            return True
        return False

    def fork(self, seat: Seat, descriptors: tuple[int, int]) -> tuple[Served, BindReport] | None:
        """Start a worker on a seat; return it, or None where none can be forked.

        It gets its end of the pipe, and the file for its standard error. A refusal of the system is
        an `OSError`.
        """
        for _ in range(2):  # The process may have been killed since the last call.
            if not self.is_prepared(_ANSWER_SECONDS) or self._is_refused:
                break
            answer = self.ask(("fork", seat), None, descriptors)
            if isinstance(answer, OSError):
                raise answer
            if isinstance(answer, str):
                self._refuse(answer)
            elif answer is not None:
                return Served(answer[0], self, self.pid), answer[1]
        return None

    def ask(
        self,
        call: tuple[str, object] | None,
        otherwise: Any,
        fds: tuple[int, ...] = (),
        *,
        of: int | None = None,
    ) -> Any:
        """Return the answer to a call, or the other value where the process `of` has ended.

        None calls nothing: the answer is the one to the warm-up.
        """
        if self._sock is None or of not in (None, self.pid):
            return otherwise
        received = b""
        try:
            with suppress(OSError):  # A timeout is one, too.
                if call is not None:
                    socket.send_fds(self._sock, [pickle.dumps(call)], fds, socket.MSG_NOSIGNAL)
                received = self._sock.recv(_MOST_BYTES)
        finally:
            # Also after the exception of a signal handler: a later answer would be taken for the
            # answer to the next call.
            if not received:
                self.close()
        return pickle.loads(received) if received else otherwise

    def close(self) -> None:
        """End the process, and with it its workers."""
        if self._sock is not None:
            self._sock.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._sock = self._process = self.pid = self.starting = None

    def _refuse(self, reason: str) -> None:
        logger.info("each worker is a new interpreter: %s", reason)
        self._is_refused = True
        self.close()


def start_interpreter(
    module: str, name: str, entry: str, theirs: socket.socket, stderr: int | IO[bytes]
) -> "subprocess.Popen[bytes]":
    """Start an interpreter with the `sys.path` of this process that calls a module's `serve`.

    It inherits one end of a socket and no further descriptor, so that its parent sees each end of a
    pipe immediately. A `multiprocessing.Process` would import the caller's `__main__` again: that
    is slow and needs a guard in every script. Its name is shown in the list of processes. A refusal
    of the system is an `OSError`.
    """
    # The kernel's death signal follows the thread that started a process: see `die_with_parent`.
    tied = threading.current_thread() is threading.main_thread()
    # The folder of this package is on the path, wherever the package was imported from.
    home = str(Path(__file__).resolve().parents[2])
    path = [*sys.path, *([] if home in sys.path else [home])]
    return subprocess.Popen(
        [
            *(sys.executable, "-c", _BOOTSTRAP, name, module, str(theirs.fileno())),
            *(str(os.getpid()), "tied" if tied else "loose", entry, *path),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        pass_fds=(theirs.fileno(),),
        # In its own session, so that signals of the terminal reach the parent alone.
        start_new_session=True,
    )


def ended_within(seconds: float, has_ended: Callable[[], bool]) -> bool:
    """Wait up to some seconds for the end of a process; return whether it came."""
    deadline, pause = time.monotonic() + seconds, _FIRST_LOOK_SECONDS
    while not has_ended():
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(pause, left))
        pause = min(2 * pause, _LAST_LOOK_SECONDS)
    return True


def serve(descriptor: int, parent_pid: int, tied_to_thread: bool, entry: str) -> NoReturn:
    """Be the server until the parent ends."""
    sock = socket.socket(fileno=descriptor)
    sock.set_inheritable(False)
    member.set_signals()
    if tied_to_thread:
        member.die_with_parent(parent_pid)
    start = sock.recv(_MOST_BYTES)
    if not start:
        os._exit(0)
    memory_policy, warm_up = pickle.loads(start)
    function = member.prepared(entry, warm_up)
    sock.send(pickle.dumps(True), socket.MSG_NOSIGNAL)
    while True:
        data, descriptors, _, _ = socket.recv_fds(sock, _MOST_BYTES, 2)
        if not data:
            os._exit(0)
        kind, value = pickle.loads(data)
        # Of a worker that another server had: the kernel has killed it.
        answer: object = -signal.SIGKILL
        with suppress(ChildProcessError):
            if kind == "ended":
                flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
                answer = os.waitid(os.P_PID, value, flags) is not None
            elif kind == "reap":
                found, status = os.waitpid(value, os.WNOHANG)
                answer = os.waitstatus_to_exitcode(status) if found else None
            else:
                pipe, stderr = descriptors
                answer = _forked(value, memory_policy, pipe, stderr, sock, function)
        for each in descriptors:
            os.close(each)
        sock.send(pickle.dumps(answer), socket.MSG_NOSIGNAL)


def _forked(
    seat: Seat,
    memory_policy: str,
    pipe: int,
    stderr: int,
    sock: socket.socket,
    function: member.TaskFunction,
) -> tuple[int, BindReport] | OSError | str:
    """Fork a worker on its seat; return an error of the system, or why nothing can be forked."""
    threads = os.listdir("/proc/self/task")
    if len(threads) != 1:
        return f"the fork server has {len(threads)} threads"
    # Loaded modules stay to the end. The collector would write to each of these objects in every
    # worker, and the kernel would copy the memory that the workers share.
    gc.freeze()
    server, status = os.getpid(), 1
    try:
        with seated(seat, memory_policy) as bound:
            pid = os.fork()
            if pid == 0:
                # The worker never returns to the stack of the server.
                try:
                    sock.close()
                    os.setsid()
                    os.dup2(stderr, 2)
                    os.close(stderr)
                    member.die_with_parent(server)
                    _set_title("python", member.__name__, f"worker-{seat.worker}")
                    own = socket.socket(fileno=pipe)
                    ready = Ready(worker=seat.worker, pid=os.getpid(), bound=bound)
                    member.main(own, own.makefile("rb"), ready, function)
                    status = 0
                except BaseException:
                    # As the interpreter would show it; the pool reads it from there.
                    sys.excepthook(*sys.exc_info())
                finally:
                    member.end_process(status)
    except OSError as error:
        return error
    return pid, bound


def _set_title(*words: str) -> None:
    """Show these words as the arguments of this process, as many as there is room for.

    They are written over the arguments of the server: other ways are not open to all users.
    """
    with suppress(OSError, IndexError, ValueError):
        fields = _STAT.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        start, end = int(fields[_ARG_START]), int(fields[_ARG_START + 1])
        if 0 < start < end:
            text = "\0".join(words).encode()[: end - start - 1]
            ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)
