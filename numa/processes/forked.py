"""Starts a child by forking this process: what is loaded here is loaded there, at no cost.

A fork copies one thread, and the locks of all others as they are at that moment. So it is done only
where there is no other thread, which the kernel is asked right before (`is_possible`). All that the
child has from us and a new process would not have is taken from it before it does anything:
signals are blocked until their handlers are its own, each descriptor but its own leads to nothing,
and what was registered for our end is forgotten.
"""

import atexit
import gc
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

from numa.processes.ending import end_process, wait_for_end
from numa.processes.title import set_title

_TASKS = Path("/proc/self/task")
_DESCRIPTORS = Path("/proc/self/fd")

# Guess: what was killed right behind its start is gone long before.
LAST_SECONDS = 20.0

_inherited: Final[list[Any]] = []
"""Streams of the parent. They are kept: at its end one would write what it still holds."""


class Forked:
    """A child by its process id, with what is used of `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        """Take a child that runs."""
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return how it ended, None while it runs; reap it once it has."""
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                # Another handler of SIGCHLD has reaped it, and nobody knows how it ended.
                self.returncode = 0
            else:
                if pid:
                    self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Wait for its end, so long at most; reap it, and return how it ended.

        Raises:
            TimeoutExpired: Of `subprocess`, as `Popen` raises it.
        """
        if not wait_for_end(self.pid, lambda: self.poll() is not None, timeout):
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        assert self.returncode is not None
        return self.returncode

    def kill(self) -> None:
        """Kill it, unless it was reaped."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


def is_possible() -> bool:
    """Return whether this process can be forked: on Linux, in its only thread."""
    if sys.platform != "linux" or threading.current_thread() is not threading.main_thread():
        return False
    try:
        return len(os.listdir(_TASKS)) == 1
    except OSError:
        return False


def fork(run: Callable[[], None], title: Sequence[str], kept: int, stderr: int) -> Forked:
    """Start a child that calls a function and ends; return it.

    Args:
        run: What the child does. It begins in a session of its own, with no signal handled or
            blocked, and with no descriptor but the standard ones and `kept`.
        title: What the list of processes is to show of it, word by word.
        kept: A descriptor that the child keeps.
        stderr: What becomes its standard error; the other two lead to nothing.
    Raises:
        OSError: The system refuses.
    """
    # The modules of this process stay to its end. The collector would write to each of their
    # objects, in both processes, and so have their memory copied.
    gc.freeze()
    child = None
    before = signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
    try:
        pid = os.fork()
        if pid == 0:
            _child(run, title, kept, stderr)
        child = Forked(pid)
    finally:
        try:
            # A handler may raise in here what has come meanwhile.
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        except BaseException:
            if child is not None:
                child.kill()
                child.wait(LAST_SECONDS)
            raise
    return child


def _child(run: Callable[[], None], title: Sequence[str], kept: int, stderr: int) -> NoReturn:
    """Do what a child does; nothing of the parent's stack above is ever gone back to."""
    status = 1
    try:
        os.setsid()
        _leave_signals()
        _leave_descriptors(kept, stderr)
        _leave_state()
        set_title(title)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        run()
        status = 0
    except BaseException:
        # As the interpreter would show it; the pool reads it from there.
        with suppress(BaseException):
            sys.excepthook(*sys.exc_info())
    finally:
        end_process(status)


def _leave_signals() -> None:
    """Give signals with a handler in Python their default action back; ignored ones stay so."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        handler: Callable[[int, FrameType | None], Any] | int | None = signal.getsignal(number)
        if callable(handler) and not isinstance(handler, signal.Handlers):
            signal.signal(number, signal.SIG_DFL)
    # As the interpreter has it at its start.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)


def _leave_descriptors(kept: int, stderr: int) -> None:
    """Let each descriptor but one lead to nothing.

    They are not closed: their numbers would be given to others, and objects of the parent that go
    in this process would close those.
    """
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(stderr, 2)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    for name in os.listdir(_DESCRIPTORS):
        descriptor = int(name)
        if descriptor > 2 and descriptor not in (kept, nothing):
            with suppress(OSError):
                os.fstat(descriptor)  # That of the folder is closed by now.
                os.dup2(nothing, descriptor, inheritable=False)
    if nothing > 2:
        os.close(nothing)


def _leave_state() -> None:
    """Forget what the parent has registered in the interpreter for itself."""
    atexit._clear()
    logging.root.handlers.clear()
    sys.excepthook, sys.unraisablehook = sys.__excepthook__, sys.__unraisablehook__
    threading.excepthook = threading.__excepthook__
    _inherited.extend((sys.stdin, sys.stdout, sys.stderr))
    # Lines are written at once, so that what a crash is preceded by is there to be read.
    modes = {"stdin": "r", "stdout": "w", "stderr": "w"}
    for descriptor, (name, mode) in enumerate(modes.items()):
        made = os.fdopen(descriptor, mode, 1, errors="backslashreplace", closefd=False)
        setattr(sys, name, made)
