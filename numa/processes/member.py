"""The pipe to a child of the pool, and the child's side: it takes tasks, runs them, and answers.

Promises: it never outlives its parent, and Ctrl-C at the terminal does not reach it. Nothing it
prints reaches the user, and any error of a task goes back as text. A task that is killed, or calls
`os._exit`, takes this process with it; the parent sees that.

The pipe is a socket pair. The parent's end never blocks, in either direction: a child that is
stopped, dead or busy cannot stall the others. The child's end blocks. A frame is 8 bytes of length
and a body. The child sends pickled events of `numa.model`. The parent sends a tag of one byte and a
pickled value.
"""

import atexit
import contextlib
import ctypes
import faulthandler
import importlib
import os
import pickle
import queue
import signal
import socket
import struct
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, BinaryIO, NoReturn

from msgspec import Struct, field

from numa.model import Finished, Message, Raised, Ready, WorkerEvent

TASK, TOLD, LEAVE = b"T", b"O", b"L"
"""Tags: a task; a payload for the task that runs; the order to leave."""

_LENGTH = struct.Struct("!Q")
_CHUNK_BYTES = 1 << 20

# A program may have set SIGPIPE to its default, as command lines do: a dead child must not kill it.
_SEND_FLAGS = getattr(socket, "MSG_NOSIGNAL", 0)


_PR_SET_PDEATHSIG = 1

Report = Callable[[object], None]
TaskFunction = Callable[[Any, Report], object]

number = 0
"""The worker of this process; 0 in other processes."""

_listeners: list[Report] = []


def listen(listener: Report) -> None:
    """Have a function called with each payload that the parent sends while a task runs.

    It is called in another thread, immediately and in the order of the payloads. An error of it
    costs nothing.
    """
    _listeners.append(listener)


def serve(descriptor: int, parent_pid: int, tied_to_thread: bool, entry: str) -> NoReturn:
    """Be a worker in an interpreter without a fork server; see `start_interpreter`."""
    faulthandler.enable()
    set_signals()
    if tied_to_thread:
        die_with_parent(parent_pid)
    sock = socket.socket(fileno=descriptor)
    stream = sock.makefile("rb")
    birth = read_frame(stream)
    if birth is not None:
        worker, bound, warm_up = pickle.loads(birth)
        function = prepared(entry, warm_up)
        main(sock, stream, Ready(worker=worker, pid=os.getpid(), bound=bound), function)
    end_process(0)


def prepared(entry: str, warm_up: bytes) -> TaskFunction:
    """Import the entry function and do the warm-up; return the function.

    What cannot be imported is an error of each task. Where the warm-up fails, a task will fail in
    the same way and report the reason.
    """
    module_name, _, name = entry.partition(":")
    try:
        function: TaskFunction = getattr(importlib.import_module(module_name), name)
    except BaseException as error:
        reason, trace = error, error.__traceback__

        def refuse(task: Any, report: Report) -> object:
            # With the import's own traceback again, or each raise would lengthen it.
            raise reason.with_traceback(trace)

        function = refuse
    with contextlib.suppress(BaseException):
        task = pickle.loads(warm_up)
        if task is not None:
            function(task, lambda payload: None)
    return function


def main(sock: socket.socket, stream: BinaryIO, ready: Ready, function: TaskFunction) -> None:
    """Serve tasks until asked to leave."""
    global number
    number = ready.worker
    faulthandler.enable()
    # A process that a task starts must not keep the pipe open after our death.
    sock.set_inheritable(False)
    sending = threading.Lock()

    def send(event: bytes) -> None:
        with sending:
            sock.sendall(frame(event))

    def report(payload: object) -> None:
        """Send a progress message to the parent; for any thread of the task."""
        send(_pickled(Message(worker=ready.worker, payload=payload)))

    tasks: queue.SimpleQueue[memoryview | None] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(stream, tasks), daemon=True, name="inbox").start()
    send(_pickled(ready))
    while (body := tasks.get()) is not None:
        send(_done(ready.worker, function, body, report))
        del body


def _read(stream: BinaryIO, tasks: "queue.SimpleQueue[memoryview | None]") -> None:
    """Take the parent's messages, also while a task runs; end with the parent."""
    while (received := read_frame(stream)) is not None:
        tag, body = received[:1], received[1:]
        if tag == TASK:
            tasks.put(body)
        elif tag == TOLD:
            # A listener that fails, or cannot read its message, must not cost the worker.
            with contextlib.suppress(Exception):
                payload = pickle.loads(body)
                for listener in _listeners:
                    listener(payload)
        else:
            tasks.put(None)
            return
        del received, body
    # The parent is dead. What tasks have started and not put into another group goes with us.
    with contextlib.suppress(OSError):
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _done(worker: int, function: TaskFunction, body: memoryview, report: Report) -> bytes:
    """Do a task; return its end as a pickled event."""
    # Everything, SystemExit too: the task may be anyone's code, and its failure is data.
    try:
        return _pickled(Finished(worker=worker, result=function(pickle.loads(body), report)))
    except BaseException as error:
        # The first frame belongs to this module; an error from unpickling the task has only this
        # frame.
        error = error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)
        # Text and traceback may run the error's own broken code.
        try:
            text = str(error)
        except Exception as broken:
            text = f"its text cannot be made: {type(broken).__name__}"
        try:
            trace = "".join(traceback.format_exception(error))
        except Exception as broken:
            trace = f"its traceback cannot be made: {type(broken).__name__}"
        kind = type(error).__name__
        return _pickled(Raised(worker=worker, kind=kind, message=text, traceback=trace))


def _pickled(event: WorkerEvent) -> bytes:
    return pickle.dumps(event, protocol=pickle.HIGHEST_PROTOCOL)


def set_signals() -> None:
    """Set how this process and its forks react to signals."""
    # The parent decides what Ctrl-C means; some service managers send SIGINT to every process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # The starting thread's mask is inherited and may block the signal that the pool ends us with.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel kill this process when the thread that started it ends.

    That works also while a task holds the interpreter. It is not for a process that was started by
    another thread than the main one, which may end before its process does. There the end of the
    pipe ends us, as soon as the thread that reads it gets to run.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(
            ctypes.c_int(_PR_SET_PDEATHSIG), ctypes.c_ulong(signal.SIGKILL), *[ctypes.c_ulong()] * 3
        )
        # The parent may have died before the call, and then no signal comes.
        if os.getppid() != parent_pid:
            os._exit(1)


def end_process(status: int, *, patient: bool = True) -> NoReturn:
    """End this process as the interpreter does, without taking the interpreter apart.

    That takes longer than many a task, and frees memory that the kernel frees anyway. `patient`
    waits for threads that are not daemons.
    """
    try:
        if patient:
            # Private, and what `multiprocessing` does at the end of a process. It also lets
            # executors end their threads.
            threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
    finally:
        os._exit(status)


def frame(*parts: bytes) -> bytes:
    """Return the bytes that carry a body, which is given in parts."""
    return b"".join((_LENGTH.pack(sum(map(len, parts))), *parts))


def read_frame(stream: BinaryIO) -> memoryview | None:
    """Return the body of the next frame, None at the end of the pipe. Blocks; for the child."""
    try:
        head = stream.read(_LENGTH.size)
        if len(head) < _LENGTH.size:
            return None
        (size,) = _LENGTH.unpack(head)
        body = stream.read(size)
    except OSError:
        return None
    return memoryview(body) if len(body) == size else None


class Channel(Struct, eq=False):
    """The parent's end. Not thread-safe."""

    sock: socket.socket
    """It never blocks."""
    unsent: bytearray = field(default_factory=bytearray)
    """Bytes that the pipe has not taken yet."""
    ended: bool = False
    """The other end is closed and everything it had sent is read."""
    _inbox: bytearray = field(default_factory=bytearray)

    def post(self, *parts: bytes) -> None:
        """Send a frame: as much as the pipe takes now, the rest with later calls of `flush`."""
        self.unsent += frame(*parts)
        self.flush()

    def flush(self) -> None:
        """Send as much as the pipe takes. A closed pipe drops all: `receive` reports it."""
        try:
            while self.unsent:
                with memoryview(self.unsent) as view:
                    sent = self.sock.send(view[:_CHUNK_BYTES], _SEND_FLAGS)
                del self.unsent[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self.unsent.clear()

    def receive(self, *, everything: bool = False) -> list[bytes]:
        """Read the arrived bytes, at most 1 MiB or everything; return the bodies of whole frames.

        A frame cut off by the other side's death is dropped.
        """
        while not self.ended:
            try:
                data = self.sock.recv(_CHUNK_BYTES)
            except BlockingIOError:
                break
            except OSError:
                # ECONNRESET: it died with unread bytes in its inbox. Its data came before this.
                data = b""
            self._inbox += data
            self.ended = not data
            if not everything:
                break
        bodies: list[bytes] = []
        start = 0
        while len(self._inbox) >= start + _LENGTH.size:
            body = start + _LENGTH.size
            end = body + _LENGTH.unpack_from(self._inbox, start)[0]
            if len(self._inbox) < end:
                break
            bodies.append(bytes(self._inbox[body:end]))
            start = end
        del self._inbox[:start]
        return bodies
