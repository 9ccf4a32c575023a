"""A relay in front of a scheduler that keeps all that passes, in both directions."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit


class Relay:
    """Listens, and passes on what comes."""

    def __init__(self, address: str) -> None:
        """Stand in front of an address such as tcp://127.0.0.1:8786."""
        parts = urlsplit(address)
        self._target = (parts.hostname, parts.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self.seen = bytearray()
        self._sockets = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Cut all connections, and take no more."""
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self._sockets.append(near)
                far = socket.create_connection(self._target)
                self._sockets.append(far)
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=pair, daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self.seen += data
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)


@contextmanager
def relay(address: str) -> Iterator[Relay]:
    """Open a relay; what was seen can be read afterwards."""
    found = Relay(address)
    try:
        yield found
    finally:
        found.close()
