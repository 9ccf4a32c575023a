"""One stream that takes all bytes of a run: standard output, or a named pipe.

Nothing is staged and nothing can be taken back: the bytes of a worker go through the relay to the
reader.

A pipe cannot be opened for writing before a program reads it. Closing it again would end the data
for the reader, so an open descriptor is kept until all is written.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from unloader.errors import Interrupted, OutputFailed
from unloader.storage.streams.relay import Relay

FROM_THE_START = "unload again from the start"

_OPEN_POLL_SECONDS = 0.05
_POLL_SECONDS = 0.1
_STDOUT = 1


class Patience(Struct, frozen=True, kw_only=True):
    """How long a stream waits for its reader, and what ends the wait."""

    open_seconds: float
    """Until a program opens the pipe; 0 sets no limit."""
    stall_seconds: float
    """While the reader takes nothing at the end; 0 sets no limit."""
    stop: Callable[[], bool]
    """Asked several times a second; True ends the wait."""
    notify: Callable[[str], None]
    """Takes messages for the user meanwhile."""


class Stream:
    """Standard output or a named pipe, taken by one run."""

    def __init__(self, name: str, *, is_pipe: bool) -> None:
        """Begin with nothing open.

        Args:
            name: The path of the pipe, or the name of standard output in messages.
            is_pipe: It is a named pipe.
        """
        self._name = name
        self._pipe = NamedPipe(Path(name)) if is_pipe else None
        self._relay: Relay | None = None
        self._patience: Patience | None = None

    def open(self, patience: Patience) -> None:
        """Open the stream; of a pipe wait for the reader.

        Raises:
            OutputFailed: No program opened it in time, or it cannot be opened.
            Interrupted: The wait was ended.
        """
        self._patience = patience
        self._relay = Relay(
            os.dup(_STDOUT) if self._pipe is None else self._open_pipe(self._pipe, patience)
        )
        if not os.path.exists(self._relay.path):
            raise OutputFailed(
                f"{self._name} needs /proc, which this system does not have",
                "mount /proc, or give a directory with --to",
            )

    @property
    def path(self) -> str:
        """The path that workers write to: the way into the relay."""
        assert self._relay is not None
        return self._relay.path

    @property
    def taken(self) -> int:
        """Bytes that workers have written."""
        return 0 if self._relay is None else self._relay.taken

    @property
    def passed(self) -> int:
        """Bytes that have reached the reader."""
        return 0 if self._relay is None else self._relay.passed

    def check(self) -> None:
        """Raise OutputFailed if the reader has gone or the stream refused."""
        failure = self._relay.failure if self._relay is not None else None
        if failure is None:
            return
        if isinstance(failure, BrokenPipeError):
            raise OutputFailed(
                f"the reader of {self._name} ended early, after {self.passed:,} bytes (EPIPE)",
                f"check why the reader ended, then {FROM_THE_START}",
            ) from failure
        raise OutputFailed(
            f"cannot write to {self._name}: {failure.strerror or failure}",
            f"fix the cause, then {FROM_THE_START}",
        ) from failure

    def finish(self) -> None:
        """Pass the rest on and end the stream.

        Raises:
            OutputFailed: The reader has gone, or takes nothing.
            Interrupted: The wait was ended.
        """
        assert self._relay is not None
        self._relay.finish()
        self._await_reader(self._relay)
        self.check()

    def break_off(self) -> None:
        """Pass nothing on any more."""
        if self._relay is not None:
            self._relay.break_off()

    def close(self) -> None:
        """End the stream, and remove the pipe if it was made here."""
        self.break_off()
        if self._pipe is not None:
            self._pipe.close()

    def _open_pipe(self, pipe: NamedPipe, patience: Patience) -> int:
        pipe.provide()
        shown = False

        def waiting() -> None:
            nonlocal shown
            if patience.stop():
                raise Interrupted(
                    f"stopped by a signal while waiting for a reader of {self._name}",
                    FROM_THE_START,
                )
            if not shown:
                shown = True
                patience.notify(f"waiting for a reader of {self._name}")

        return open_for_reader(self._name, patience.open_seconds, waiting)

    def _await_reader(self, relay: Relay) -> None:
        patience = self._patience
        assert patience is not None
        limit = patience.stall_seconds
        passed, moved_at = relay.passed, time.monotonic()
        while relay.is_alive:
            relay.wait(_POLL_SECONDS)
            if patience.stop():
                raise Interrupted(
                    f"stopped by a signal while {self._name} was read", FROM_THE_START
                )
            if relay.passed != passed:
                passed, moved_at = relay.passed, time.monotonic()
            elif limit and time.monotonic() - moved_at > limit:
                raise OutputFailed(
                    f"the reader of {self._name} read nothing for {limit:g} s (--stall-timeout)",
                    f"check why the reader waits, then {FROM_THE_START}",
                )


class NamedPipe:
    """The named pipe of one run; `close` removes it if the run made it."""

    def __init__(self, path: Path) -> None:
        """Take the path; look at nothing yet."""
        self._path = path
        self._inode: int | None = None

    def provide(self) -> None:
        """Make the named pipe, or take the one that is there.

        Raises:
            OutputFailed: Something else is there, or it cannot be made.
        """
        try:
            if not stat.S_ISFIFO(self._path.stat().st_mode):
                raise OutputFailed(
                    f"{self._path} already exists and is not a named pipe",
                    "move it away, or give another name after pipe:",
                )
            return
        except FileNotFoundError:
            pass
        except OSError as error:
            raise _refused(self._path, error) from error
        try:
            os.mkfifo(self._path)
            self._inode = self._path.stat().st_ino
        except OSError as error:
            raise _refused(self._path, error) from error

    def close(self) -> None:
        """Remove the pipe if it was made here; never raises."""
        try:
            if self._inode is not None and self._path.lstat().st_ino == self._inode:
                self._path.unlink()
        except OSError:
            pass
        self._inode = None


def open_for_reader(path: str, seconds: float, waiting: Callable[[], None]) -> int:
    """Open a named pipe for writing as soon as a program has opened it for reading.

    Args:
        path: The pipe.
        seconds: Longest wait; 0 sets no limit.
        waiting: Called many times a second until then; an error ends the wait.

    Returns:
        A descriptor that does not block and is not inherited.

    Raises:
        OutputFailed: No program opened it in time, or it cannot be opened.
    """
    begun = time.monotonic()
    while True:
        try:
            return os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise _refused(Path(path), error) from error
        if seconds and time.monotonic() - begun >= seconds:
            raise OutputFailed(
                f"no program opened the pipe {path} for reading within {seconds:g} s",
                "start the reader before or together with unloader, or increase --pipe-timeout",
            )
        waiting()
        time.sleep(_OPEN_POLL_SECONDS)


def _refused(path: Path, error: OSError) -> OutputFailed:
    return OutputFailed(
        f"cannot use the pipe {path}: {error.strerror or error}",
        "check the path and its permissions; its directory must exist",
    )
