"""One stream that takes all bytes of a run: standard output, or a named pipe.

Nothing is staged and nothing can be taken back. Workers write to a pipe of the parent, where a
thread, the relay, passes the bytes on to the reader. Workers come and go between the units of one
stream. A failed attempt may be repeated if none of its bytes has left, which the relay decides.
Where it can, the kernel moves the bytes, so that they do not enter this process.

A pipe cannot be opened for writing before a program reads it. Closing it would end the data for the
reader, so an open descriptor is kept until all is written.
"""

from __future__ import annotations

import array
import errno
import fcntl
import os
import select
import stat
import sys
import termios
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from unloader.errors import Interrupted, OutputFailed

_FROM_THE_START = "unload again from the start"

_OPEN_POLL_SECONDS = 0.05
_POLL_SECONDS = 0.1
_POLL_MILLISECONDS = 200
_STDOUT = 1
_STEP_BYTES = 1 << 20
_PLAIN_BYTES = 64 * 1024


class Stream:
    """Standard output or a named pipe, taken by one run; made without opening anything.

    `name` is the path of the pipe, or the name of standard output in messages.
    """

    def __init__(self, name: str, *, is_pipe: bool) -> None:
        self._name, self._is_pipe = name, is_pipe
        self._made: os.stat_result | None = None
        """The pipe, if it was made here."""
        self._stall_seconds = 0.0
        self._stop: Callable[[], bool] = bool
        self.passed = 0
        """Bytes that have reached the reader."""
        self.failure: OSError | None = None
        """The last error of the reader's side."""
        self._source = self._entry = self._target = -1
        self._passing = self._is_broken_off = False
        self._splices = sys.platform == "linux"
        self._thread: threading.Thread | None = None

    def open(
        self,
        *,
        open_seconds: float,
        stall_seconds: float,
        stop: Callable[[], bool],
        notify: Callable[[str], None],
    ) -> None:
        """Open the stream. A pipe is made if it does not exist, and waits for its reader.

        A wait of 0 seconds has no limit: `open_seconds` for a program that opens the pipe,
        `stall_seconds` while the reader takes nothing at the end. `stop` is asked several times a
        second; True ends each wait with Interrupted. `notify` takes messages for the user.

        Raises OutputFailed if it is not a named pipe, no program opened it in time, or it cannot be
        opened.
        """
        self._stall_seconds, self._stop = stall_seconds, stop
        self.begin(self._open_pipe(open_seconds, notify) if self._is_pipe else os.dup(_STDOUT))
        if not os.path.exists(self.path):
            raise OutputFailed(
                f"{self._name} needs /proc, which this system does not have",
                "mount /proc, or give a directory with --to",
            )

    def begin(self, target: int) -> None:
        """Pass everything on to a descriptor, which is closed at the end."""
        self._target = target
        self._source, self._entry = os.pipe()
        with suppress(OSError, AttributeError):
            # A larger pipe is fewer switches between the worker and this thread; Linux only.
            fcntl.fcntl(self._entry, fcntl.F_SETPIPE_SZ, _STEP_BYTES)
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)
        self._thread.start()

    @property
    def path(self) -> str:
        """The path that workers of this machine write to."""
        return f"/proc/{os.getpid()}/fd/{self._entry}"

    @property
    def taken(self) -> int:
        """Bytes that workers have written; never less, for a moment perhaps more."""
        waiting = array.array("i", [0])
        if self._entry >= 0:
            fcntl.ioctl(self._entry, termios.FIONREAD, waiting)
        # Before `passed`: bytes that left the pipe are on their way, or already passed.
        on_its_way = int(self._passing)
        return waiting[0] + on_its_way + self.passed

    def check(self) -> None:
        if self.failure is None:
            return
        what, todo = self.failure.strerror or self.failure, "fix the cause"
        text = f"cannot write to {self._name}: {what}"
        if isinstance(self.failure, BrokenPipeError):
            text = f"the reader of {self._name} ended early, after {self.passed:,} bytes (EPIPE)"
            todo = "check why the reader ended"
        raise OutputFailed(text, f"{todo}, then {_FROM_THE_START}") from self.failure

    def finish(self) -> None:
        """Pass the rest on and end the stream; raise an error if the reader has gone or waits."""
        assert self._thread is not None
        self._close_entry()
        passed, moved_at = self.passed, time.monotonic()
        while self._thread.is_alive():
            self._thread.join(_POLL_SECONDS)
            if self._stop():
                raise Interrupted(
                    f"stopped by a signal while {self._name} was read", _FROM_THE_START
                )
            if self.passed != passed:
                passed, moved_at = self.passed, time.monotonic()
            elif self._stall_seconds and time.monotonic() - moved_at > self._stall_seconds:
                raise OutputFailed(
                    f"the reader of {self._name} read nothing for {self._stall_seconds:g} s "
                    "(--stall-timeout)",
                    f"check why the reader waits, then {_FROM_THE_START}",
                )
        self.check()

    def break_off(self) -> None:
        self._is_broken_off = True
        if self._thread is not None:
            self._close_entry()
            # A target that does not move keeps its thread, which ends with the process.
            self._thread.join(2 * _POLL_MILLISECONDS / 1000)

    def close(self) -> None:
        """End the stream, and remove the pipe if it was made here."""
        self.break_off()
        with suppress(OSError):
            if self._made is not None and os.path.samestat(self._made, os.lstat(self._name)):
                os.unlink(self._name)
        self._made = None

    def _close_entry(self) -> None:
        if self._entry >= 0:
            os.close(self._entry)
            self._entry = -1

    def _open_pipe(self, seconds: float, notify: Callable[[str], None]) -> int:
        try:
            if not stat.S_ISFIFO(os.stat(self._name).st_mode):
                raise OutputFailed(
                    f"{self._name} already exists and is not a named pipe",
                    "move it away, or give another name after pipe:",
                )
        except OSError as error:
            try:
                if not isinstance(error, FileNotFoundError):
                    raise
                os.mkfifo(self._name)
                self._made = os.stat(self._name)
            except OSError as refusal:
                raise _refused(self._name, refusal) from refusal
        texts = [f"waiting for a reader of {self._name}"]

        def waiting() -> None:
            if self._stop():
                raise Interrupted(
                    f"stopped by a signal while waiting for a reader of {self._name}",
                    _FROM_THE_START,
                )
            while texts:
                notify(texts.pop())

        return open_for_reader(self._name, seconds, waiting)

    def _run(self) -> None:
        try:
            while not self._is_broken_off and self._await_bytes():
                self._pass()
        except OSError as error:
            self.failure = error
        except MemoryError:
            self.failure = OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        finally:
            # The next write of a worker that still writes fails, as nothing reads the pipe.
            os.close(self._source)
            os.close(self._target)

    def _await_bytes(self) -> bool:
        """Return True once there are bytes and the target takes some, False at their end."""
        incoming, outgoing = select.poll(), select.poll()
        incoming.register(self._source, select.POLLIN)
        incoming.register(self._target, 0)
        outgoing.register(self._target, select.POLLOUT)
        while not self._is_broken_off:
            events = dict(incoming.poll(_POLL_MILLISECONDS))
            is_waiting = events.get(self._source, 0) & select.POLLIN
            if is_waiting:
                events |= dict(outgoing.poll(_POLL_MILLISECONDS))
            target = events.get(self._target, 0)
            if target & (select.POLLERR | select.POLLHUP | select.POLLNVAL):
                raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
            if is_waiting and target & select.POLLOUT:
                return True
            if not is_waiting and events.get(self._source, 0) & select.POLLHUP:
                return False
        return False

    def _pass(self) -> None:
        self._passing = True
        try:
            if self._splices:
                try:
                    # Missing in the type stubs of some platforms.
                    flags = os.SPLICE_F_NONBLOCK  # type: ignore[attr-defined, unused-ignore]
                    self.passed += os.splice(  # type: ignore[attr-defined, unused-ignore]
                        self._source, self._target, _STEP_BYTES, flags=flags
                    )
                    return
                except OSError as error:
                    # Files open for appending and terminals cannot be spliced to.
                    if error.errno != errno.EINVAL:
                        raise
                    self._splices = False
            self._copy()
        except BlockingIOError:
            pass  # Another program filled it since; the next poll waits.
        finally:
            self._passing = False

    def _copy(self) -> None:
        data = memoryview(os.read(self._source, _PLAIN_BYTES))
        room = select.poll()
        room.register(self._target, select.POLLOUT)
        while data and not self._is_broken_off:
            try:
                count = os.write(self._target, data)
            except BlockingIOError:
                room.poll(_POLL_MILLISECONDS)
            else:
                # Before the next write, whose failure does not take these bytes back.
                self.passed += count
                data = data[count:]


def open_for_reader(path: str, seconds: float, waiting: Callable[[], None]) -> int:
    """Open a named pipe for writing, without blocking, once a program has opened it for reading.

    `seconds` is the longest wait; 0 sets no limit. `waiting` is called many times a second; an
    error of it ends the wait.
    """
    begun = time.monotonic()
    while True:
        try:
            return os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise _refused(path, error) from error
        if seconds and time.monotonic() - begun >= seconds:
            raise OutputFailed(
                f"no program opened the pipe {path} for reading within {seconds:g} s",
                "start the reader before or together with unloader, or increase --pipe-timeout",
            )
        waiting()
        time.sleep(_OPEN_POLL_SECONDS)


def _refused(path: str, error: OSError) -> OutputFailed:
    return OutputFailed(
        f"cannot use the pipe {path}: {error.strerror or error}",
        "check the path and its permissions; its directory must exist",
    )
