"""A program that no test waits for without end."""

from __future__ import annotations

import subprocess
from types import TracebackType
from typing import AnyStr

LONGEST_SECONDS = 300
"""A little less than half of what a test has: what waits for two programs still says which."""


class Program(subprocess.Popen[AnyStr]):
    """As `Popen`; it is killed where a wait for it takes too long, or its block ends with an error.

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
