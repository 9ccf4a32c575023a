"""Forks of the test process itself, for what only another process can be, such as another user.

The process has threads, of which a fork has none: whatever one of them held at that moment stays held
in the child. So nobody waits for a child without end.
"""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Callable

from processes.program import LONGEST_SECONDS

_LOOK_SECONDS = 0.005


def forked(act: Callable[[], object]) -> int:
    """Do something in a child; return its process id. It ends with 0, or with 1 after an error."""
    child = os.fork()
    if child:
        return child
    try:
        act()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def status_of(child: int) -> int:
    """Wait for the end of a child; return its exit status. One that takes minutes is killed."""
    end = time.monotonic() + LONGEST_SECONDS
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
        time.sleep(_LOOK_SECONDS)
