"""The pipe between the pool and one child: frames over a socket pair.

The parent's end never blocks, in either direction: a child that is stopped, dead or busy cannot
stall the others. The child's end blocks. A frame is 8 bytes of length and a body. The child sends
pickled events of `numa.model`. The parent sends a tag of one byte and a pickled value.
"""

import socket
import struct
from typing import BinaryIO

TASK, TOLD, LEAVE = b"T", b"O", b"L"
"""Tags: a task; a payload for the task that runs; the order to leave."""

_LENGTH = struct.Struct("!Q")
_CHUNK_BYTES = 1 << 20

# A program may have set SIGPIPE to its default, as command lines do: a dead child must not kill it.
_SEND_FLAGS = getattr(socket, "MSG_NOSIGNAL", 0)


def frame(*parts: bytes) -> bytes:
    """Return the bytes that carry a body, which is given in parts."""
    return b"".join((_LENGTH.pack(sum(map(len, parts))), *parts))


def read_frame(stream: BinaryIO) -> memoryview | None:
    """Return the body of the next frame, None at the end of the pipe. Blocks; for the child."""
    try:
        head = stream.read(_LENGTH.size)
        if len(head) < _LENGTH.size:
            return None
        (size,) = _LENGTH.unpack(head)
        body = stream.read(size)
    except OSError:
        return None
    return memoryview(body) if len(body) == size else None


class Channel:
    """The parent's end. Not thread-safe."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._inbox = bytearray()
        self.unsent = bytearray()
        """What the pipe has not taken yet."""
        self.ended = False
        """The other end is closed and everything it had sent is read."""

    def fileno(self) -> int:
        return self._sock.fileno()

    def post(self, *parts: bytes) -> None:
        """Send a frame: as much as the pipe takes now, the rest with later calls of `flush`."""
        self.unsent += frame(*parts)
        self.flush()

    def flush(self) -> None:
        """Send as much as the pipe takes. A closed pipe drops all: `receive` reports it."""
        try:
            while self.unsent:
                with memoryview(self.unsent) as view:
                    sent = self._sock.send(view[:_CHUNK_BYTES], _SEND_FLAGS)
                del self.unsent[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self.unsent.clear()

    def receive(self, *, everything: bool = False) -> list[bytes]:
        """Read the arrived bytes, at most 1 MiB or everything; return the bodies of whole frames.

        A frame cut off by the other side's death is dropped.
        """
        while not self.ended:
            try:
                data = self._sock.recv(_CHUNK_BYTES)
            except BlockingIOError:
                break
            except OSError:
                # ECONNRESET: it died with unread bytes in its inbox. Its data came before this.
                data = b""
            self._inbox += data
            self.ended = not data
            if not everything:
                break
        bodies: list[bytes] = []
        start = 0
        while len(self._inbox) >= start + _LENGTH.size:
            body = start + _LENGTH.size
            end = body + _LENGTH.unpack_from(self._inbox, start)[0]
            if len(self._inbox) < end:
                break
            bodies.append(bytes(self._inbox[body:end]))
            start = end
        del self._inbox[:start]
        return bodies

    def close(self) -> None:
        """Close the socket; the child then reads the end of the pipe."""
        self._sock.close()
