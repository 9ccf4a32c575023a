"""The child's side of the pool: takes tasks from the pipe, runs them, sends back what came of it.

Promises: it never outlives its parent, Ctrl-C at the terminal does not reach it, nothing it
prints reaches the user, and whatever a task raises goes back as text. A task that is killed, or
calls `os._exit`, takes this process with it; the parent sees that.
"""

import contextlib
import ctypes
import faulthandler
import importlib
import os
import pickle
import queue
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from numa import told
from numa.processes.channel import MESSAGE, RAISED, READY, RESULT, TASK, TOLD, frame, read_frame
from numa.processes.ending import end_process

_PR_SET_PDEATHSIG = 1

Report = Callable[[object], None]
TaskFunction = Callable[[Any, Report], object]


def serve(descriptor: int, parent_pid: int, tied_to_thread: bool, entry: str) -> NoReturn:
    """Be a worker in an interpreter without a fork server; see `start_interpreter`."""
    faulthandler.enable()
    set_signals()
    if tied_to_thread:
        die_with_parent(parent_pid)
    sock = socket.socket(fileno=descriptor)
    warm_up = read_frame(sock)
    if warm_up is not None:
        main(sock, prepared(entry, warm_up[1]))
    end_process(0)


def prepared(entry: str, warm_up: bytes) -> TaskFunction:
    """Import the entry function and do the warm-up; return the function.

    What cannot be imported is an error of each task. Where the warm-up fails, a task will fail in
    the same way and report the reason.

    Args:
        entry: `package.module:function`; called as `function(task, report)`.
        warm_up: A pickled task; None is no task.
    """
    function = _load(entry)
    with contextlib.suppress(BaseException):
        task = pickle.loads(warm_up)
        if task is not None:
            function(task, lambda payload: None)
    return function


def main(sock: socket.socket, function: TaskFunction) -> None:
    """Serve tasks until asked to leave or the pipe ends.

    Args:
        sock: This end of the pipe.
        function: Does the tasks.
    """
    faulthandler.enable()
    # A process that a task starts must not keep the pipe open after our death.
    sock.set_inheritable(False)
    threading.Thread(target=_watch, args=(sock.fileno(),), daemon=True, name="parent").start()
    link = _Link(sock)
    tasks: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(sock, tasks), daemon=True, name="inbox").start()
    link.send(READY, b"")
    while True:
        body = tasks.get()
        if body is None:
            return
        link.send(*_run(function, body, link.report))
        del body


def _read(sock: socket.socket, tasks: "queue.SimpleQueue[bytes | None]") -> None:
    """Take what the parent sends, also while a task runs; None at the end of the pipe."""
    while True:
        received = read_frame(sock)
        if received is not None and received[0] == TASK:
            tasks.put(received[1])
        elif received is not None and received[0] == TOLD:
            # A listener that fails, or cannot read what it is told, must not cost the worker.
            with contextlib.suppress(Exception):
                told.tell(pickle.loads(received[1]))
        else:
            tasks.put(None)
            return
        del received


class _Link:
    """Sends frames; `report` may be called from any thread of the task."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._lock = threading.Lock()

    def send(self, tag: bytes, body: bytes) -> None:
        with self._lock:
            self._sock.sendall(frame(tag, body))

    def report(self, payload: object) -> None:
        """Send a progress message to the parent."""
        self.send(MESSAGE, _pickled(payload))


def _run(function: TaskFunction, body: bytes, report: Report) -> tuple[bytes, bytes]:
    # Everything, SystemExit too: the task may be anyone's code, and its failure is data.
    try:
        return RESULT, _pickled(function(pickle.loads(body), report))
    except BaseException as error:
        return RAISED, _pickled(_described(error))


def _described(error: BaseException) -> tuple[str, str, str]:
    """Class name, text and traceback. Each may run the error's own broken code."""
    # The first frame is ours; an error from unpickling the task has no other.
    error = error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)
    try:
        text = str(error)
    except Exception as broken:
        text = f"its text cannot be made: {type(broken).__name__}"
    try:
        trace = "".join(traceback.format_exception(error))
    except Exception as broken:
        trace = f"its traceback cannot be made: {type(broken).__name__}"
    return type(error).__name__, text, trace


def _pickled(value: object) -> bytes:
    return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)


def _load(entry: str) -> TaskFunction:
    """Import the function; one that cannot be imported raises why for every task."""
    module_name, _, name = entry.partition(":")
    try:
        function: TaskFunction = getattr(importlib.import_module(module_name), name)
    except BaseException as error:
        reason, trace = error, error.__traceback__

        def refuse(task: Any, report: Report) -> object:
            # With the import's own traceback again, or each raise would lengthen it.
            raise reason.with_traceback(trace)

        return refuse
    return function


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
    pipe ends us, as soon as a thread that watches it gets to run.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(
            ctypes.c_int(_PR_SET_PDEATHSIG), ctypes.c_ulong(signal.SIGKILL), *[ctypes.c_ulong()] * 3
        )
        # The parent may have died before the call, and then no signal comes.
        if os.getppid() != parent_pid:
            os._exit(1)


def _watch(descriptor: int) -> None:
    poll = select.poll()
    # No event asked for: only the hang-up, which cannot be turned off, ends the wait.
    poll.register(descriptor, 0)
    poll.poll()
    # What tasks have started and not put into a group of its own goes with us.
    with contextlib.suppress(OSError):
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
    os._exit(1)
