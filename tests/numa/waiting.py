"""How the tests of real processes wait: for a condition, and never for a time."""

import time
from collections.abc import Callable

import psutil

PATIENCE_SECONDS = 180.0
"""Far beyond what anything here takes; a test that hangs fails with what came so far."""


def until(condition: Callable[[], bool]) -> None:
    """Poll until the condition holds."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)


def alive(pid: object) -> bool:
    """Whether the process runs; a zombie does not."""
    assert isinstance(pid, int)
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
