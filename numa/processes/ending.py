"""The end of a process: awaited by its parent, and taken by itself."""

import atexit
import contextlib
import os
import select
import sys
import threading
import time
from collections.abc import Callable
from typing import NoReturn

# Guess: looks for the end of a process are so far apart at first and at last.
_FIRST_LOOK_SECONDS, _LAST_LOOK_SECONDS = 0.0005, 0.05


def wait_for_end(pid: int, has_ended: Callable[[], bool], timeout_seconds: float) -> bool:
    """Wait for the end of a child, so long at most; return whether it came.

    Args:
        pid: The child, which was not reaped yet.
        has_ended: Looks whether it has ended.
        timeout_seconds: The longest wait.
    """
    deadline, pause = time.monotonic() + timeout_seconds, _FIRST_LOOK_SECONDS
    if has_ended():
        return True
    with contextlib.suppress(AttributeError, OSError):
        # From Linux 5.3 on the end itself wakes us.
        descriptor = os.pidfd_open(pid)
        try:
            end = select.poll()
            end.register(descriptor, select.POLLIN)
            end.poll(max(0.0, timeout_seconds) * 1000)
        finally:
            os.close(descriptor)
    while not has_ended():
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(pause, left))
        pause = min(2 * pause, _LAST_LOOK_SECONDS)
    return True


def end_process(status: int, *, patient: bool = True) -> NoReturn:
    """End this process like the interpreter, but for what it does to take itself apart.

    That takes longer than many a task, and frees what the kernel frees at once.

    Args:
        status: The exit status.
        patient: Wait for threads that are not daemons.
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
