"""Programs in processes, and their remains."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import traceback
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import AnyStr

import psutil


def below(process: int | None = None) -> list[psutil.Process]:
    """Return the living processes below one, by default ours; none where that has ended itself."""
    try:
        return living(psutil.Process(process).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def living(found: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Return the ones that have not ended, whether someone knows of their end or not."""
    return [each for each in found if _lives(each)]


def command_line(process: psutil.Process) -> str:
    """Return the words of a process; empty where it has ended, or is another user's."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def reads_units(process: psutil.Process) -> bool:
    """Return whether a process is a worker: one in which units are read."""
    return "numa.processes.member" in command_line(process)


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


LONGEST_SECONDS = 300
"""A little less than half of what a test has: what waits for two programs still states which."""


class Program(subprocess.Popen[AnyStr]):
    """A `Popen` that is killed after too long a wait, or if its block ends with an error.

    `Popen` itself waits at the end of its block for as long as it takes, also once a test has failed
    since the program does not end.
    """

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end, at most some minutes."""
        try:
            return super().wait(LONGEST_SECONDS if timeout is None else timeout)
        except BaseException as error:
            self._kill_after(error, timeout)
            raise

    def communicate(
        self, input: AnyStr | None = None, timeout: float | None = None
    ) -> tuple[AnyStr, AnyStr]:
        """Take all that it writes and wait for its end, at most some minutes."""
        try:
            return super().communicate(input, LONGEST_SECONDS if timeout is None else timeout)
        except BaseException as error:
            self._kill_after(error, timeout)
            raise

    def _kill_after(self, error: BaseException, timeout: float | None) -> None:
        """Kill it, but where it has not ended within a time that the test has chosen."""
        if timeout is None or not isinstance(error, subprocess.TimeoutExpired):
            self.kill()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Wait for the end of a program whose test has gone well; kill it otherwise."""
        if kind is not None:
            self.kill()
        super().__exit__(kind, value, traceback)


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
