"""A port where nobody listens."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def closed_port(host: str) -> Iterator[int]:
    """Yield a port that refuses connections, and that nobody else gets meanwhile."""
    with socket.socket() as bound:
        bound.bind((host, 0))
        port: int = bound.getsockname()[1]
        yield port
