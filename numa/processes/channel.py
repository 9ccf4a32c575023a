"""The pipe between the pool and one child: frames of a tag and bytes over a socket pair.

The parent's end never blocks, in either direction: a child that is stopped, dead or busy cannot
stall the others. The child's end blocks. A frame is 8 bytes of length, one of tag, the body.
"""

import socket
import struct

WARM_UP, TASK, TOLD, LEAVE = b"W", b"T", b"O", b"L"
"""Tags from parent to child: the first task of a new interpreter, pickled; another pickled task; a
pickled payload for the task that runs; leave."""
READY, MESSAGE, RESULT, RAISED = b"R", b"M", b"F", b"E"
"""Tags from child to parent: up; pickled payload; pickled result; pickled (kind, text, trace)."""

_LENGTH = struct.Struct("!Q")
_CHUNK_BYTES = 1 << 20

# A program may have set SIGPIPE to its default, as command lines do: a dead child must not kill it.
_SEND_FLAGS = getattr(socket, "MSG_NOSIGNAL", 0)


def frame(tag: bytes, body: bytes = b"") -> bytes:
    """Return the bytes that carry this body."""
    return _LENGTH.pack(len(tag) + len(body)) + tag + body


class Channel:
    """The parent's end. Not thread-safe."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._inbox = bytearray()
        self._outbox = bytearray()
        self.ended = False
        """The other end is closed and everything it had sent is read."""

    def fileno(self) -> int:
        """Return the socket's descriptor, -1 once closed."""
        return self._sock.fileno()

    @property
    def unsent(self) -> bool:
        """Whether bytes wait for room in the pipe."""
        return bool(self._outbox)

    def post(self, data: bytes) -> None:
        """Send a frame: now what the pipe takes, the rest with later calls of `flush`."""
        self._outbox += data
        self.flush()

    def flush(self) -> None:
        """Send what the pipe takes. A closed pipe drops all: `receive` reports it."""
        try:
            while self._outbox:
                with memoryview(self._outbox) as view:
                    sent = self._sock.send(view[:_CHUNK_BYTES], _SEND_FLAGS)
                del self._outbox[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self._outbox.clear()

    def receive(self) -> list[tuple[bytes, bytes]]:
        """Read what is there, at most 1 MiB, and return the finished frames as (tag, body).

        A frame cut off by the other side's death is dropped.
        """
        self._read()
        return self._frames()

    def drain(self) -> list[tuple[bytes, bytes]]:
        """Read all that is there and return the finished frames as (tag, body)."""
        while self._read():
            pass
        return self._frames()

    def close(self) -> None:
        """Close the socket; the child then reads the end of the pipe."""
        self._sock.close()

    def _read(self) -> bool:
        try:
            data = self._sock.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            # ECONNRESET: it died with unread bytes in its inbox. What it sent came before this.
            data = b""
        self._inbox += data
        self.ended = not data
        return bool(data)

    def _frames(self) -> list[tuple[bytes, bytes]]:
        frames: list[tuple[bytes, bytes]] = []
        start = 0
        while len(self._inbox) >= start + _LENGTH.size:
            body = start + _LENGTH.size
            end = body + _LENGTH.unpack_from(self._inbox, start)[0]
            if len(self._inbox) < end:
                break
            frames.append((bytes(self._inbox[body : body + 1]), bytes(self._inbox[body + 1 : end])))
            start = end
        del self._inbox[:start]
        return frames


def read_frame(sock: socket.socket) -> tuple[bytes, bytes] | None:
    """Return the next frame as (tag, body), None at the end of the pipe. Blocks; the child's."""
    head = _read_exactly(sock, _LENGTH.size)
    data = None if head is None else _read_exactly(sock, _LENGTH.unpack(head)[0])
    return None if data is None else (bytes(data[:1]), bytes(data[1:]))


def _read_exactly(sock: socket.socket, size: int) -> bytearray | None:
    data = bytearray(size)
    view, filled = memoryview(data), 0
    while filled < size:
        try:
            count = sock.recv_into(view[filled:])
        except OSError:
            return None
        if count == 0:
            return None
        filled += count
    return data
