"""Wakes the pool's wait from a signal handler or another thread."""

import contextlib
import socket
import threading


class Waker:
    """A pipe to oneself: `wake` makes its descriptor readable until `clear`."""

    def __init__(self) -> None:
        self._reading, self._writing = socket.socketpair()
        self._reading.setblocking(False)
        self._writing.setblocking(False)
        # Reentrant: a signal handler may come while its own thread is in here.
        self._lock = threading.RLock()

    def fileno(self) -> int:
        """Return the descriptor to wait on."""
        return self._reading.fileno()

    def wake(self) -> None:
        """Make it readable; does nothing if it is, or is closed."""
        with self._lock, contextlib.suppress(OSError):
            self._writing.send(b"\0")

    def clear(self) -> None:
        """Take back every `wake` so far."""
        with contextlib.suppress(BlockingIOError):
            while self._reading.recv(4096):
                pass

    def close(self) -> None:
        """Close both ends."""
        with self._lock:
            self._writing.close()
            self._reading.close()
