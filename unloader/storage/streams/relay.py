"""A thread of the parent that passes bytes from a pipe, which workers open, on to a descriptor.

Workers come and go between the units of one stream, and a broken attempt may be repeated as long
as nothing of it has left, which the relay decides. The kernel moves the bytes where
it can: they do not enter this process.
"""

from __future__ import annotations

import array
import errno
import fcntl
import os
import select
import sys
import termios
import threading
from contextlib import suppress

_STEP_BYTES = 1 << 20
_PLAIN_BYTES = 64 * 1024
_POLL_MILLISECONDS = 200


class Relay:
    """Passes everything on until `finish` or `break_off`."""

    def __init__(self, target: int) -> None:
        """Start with nothing passed on.

        Args:
            target: Where the bytes go; the relay closes it.
        """
        self._target = target
        self._source, self._entry = os.pipe()
        with suppress(OSError, AttributeError):
            # A larger pipe is fewer switches between the worker and this thread; Linux only.
            fcntl.fcntl(self._entry, fcntl.F_SETPIPE_SZ, _STEP_BYTES)
        self.passed = 0
        """Bytes that the target has taken."""
        self.failure: OSError | None = None
        """The last error of the target."""
        self._passing = False
        self._broken_off = False
        self._splices = sys.platform == "linux"
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)
        self._thread.start()

    @property
    def path(self) -> str:
        """What a worker of this process opens for writing."""
        return f"/proc/{os.getpid()}/fd/{self._entry}"

    @property
    def taken(self) -> int:
        """Bytes that workers have put in; never less, for a moment perhaps more."""
        waiting = array.array("i", [0])
        if self._entry >= 0:
            fcntl.ioctl(self._entry, termios.FIONREAD, waiting)
        # Before `passed`: bytes that left the pipe are on their way, or already passed.
        on_its_way = int(self._passing)
        return waiting[0] + on_its_way + self.passed

    @property
    def is_alive(self) -> bool:
        """Whether bytes may still be passed on."""
        return self._thread.is_alive()

    def finish(self) -> None:
        """Take no more bytes; the bytes in the pipe are still passed on."""
        if self._entry >= 0:
            os.close(self._entry)
            self._entry = -1

    def wait(self, seconds: float) -> None:
        """Wait until all is passed on, at most some seconds."""
        self._thread.join(seconds)

    def break_off(self) -> None:
        """Pass nothing on any more; may follow `finish`."""
        self._broken_off = True
        self.finish()
        # A target that does not move keeps its thread, which ends with the process.
        self._thread.join(2 * _POLL_MILLISECONDS / 1000)

    def _run(self) -> None:
        try:
            while not self._broken_off and self._await_bytes():
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
        while not self._broken_off:
            events = dict(incoming.poll(_POLL_MILLISECONDS))
            self._check_reader(events.get(self._target, 0))
            if events.get(self._source, 0) & select.POLLIN:
                ready = dict(outgoing.poll(_POLL_MILLISECONDS)).get(self._target, 0)
                self._check_reader(ready)
                if ready & select.POLLOUT:
                    return True
            elif events.get(self._source, 0) & select.POLLHUP:
                return False
        return False

    def _check_reader(self, events: int) -> None:
        if events & (select.POLLERR | select.POLLHUP | select.POLLNVAL):
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    def _pass(self) -> None:
        self._passing = True
        try:
            if self._splices:
                self._splice()
            else:
                self._copy()
        except BlockingIOError:
            pass  # Another program filled it since; the next poll waits.
        finally:
            self._passing = False

    def _splice(self) -> None:
        try:
            self.passed += _splice(self._source, self._target, _STEP_BYTES)
        except OSError as error:
            # Files open for appending and terminals cannot be spliced to.
            if error.errno != errno.EINVAL:
                raise
            self._splices = False
            self._copy()

    def _copy(self) -> None:
        data = memoryview(os.read(self._source, _PLAIN_BYTES))
        room = select.poll()
        room.register(self._target, select.POLLOUT)
        while data and not self._broken_off:
            try:
                count = os.write(self._target, data)
            except BlockingIOError:
                room.poll(_POLL_MILLISECONDS)
            else:
                # Before the next write, whose failure does not take these bytes back.
                self.passed += count
                data = data[count:]


def _splice(source: int, target: int, count: int) -> int:
    # Missing in the type stubs of some platforms; `_splices` checks for it.
    moved: int = os.splice(source, target, count, flags=os.SPLICE_F_NONBLOCK)  # type: ignore[attr-defined, unused-ignore]
    return moved
