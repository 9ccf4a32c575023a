"""A port that speaks TLS as PostgreSQL does, and hands everything on to a server's socket.

The server of the tests is built without TLS. What stands before it here answers the request
for TLS with a certificate made for the occasion, as stunnel or a proxy in the cloud would.
"""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

_REQUEST_BYTES = 8
"""A request for TLS: its length, and a number in the place of a version."""

_GATHER_SECONDS = 0.03


@contextmanager
def front(url: str, pem: Path | None, *, long_records: bool = False) -> Iterator[int]:
    """Listen before the server with this URL until the end; yield the port.

    Args:
        url: Of a server on a socket of this machine.
        pem: Certificate and key; None refuses TLS.
        long_records: The server's data is gathered into records of the largest size.
    """
    socket_file = parse_qs(urlsplit(url).query)["host"][0] + "/.s.PGSQL.5432"
    context = None
    if pem is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(
            target=_listen, args=(listening, socket_file, context, long_records), daemon=True
        ).start()
        yield listening.getsockname()[1]
        with suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)


def _listen(
    listening: socket.socket, socket_file: str, context: ssl.SSLContext | None, gathers: bool
) -> None:
    with suppress(OSError):
        while True:
            client, _ = listening.accept()
            threading.Thread(
                target=_serve, args=(client, socket_file, context, gathers), daemon=True
            ).start()


def _serve(
    client: socket.socket, socket_file: str, context: ssl.SSLContext | None, gathers: bool
) -> None:
    server = socket.socket(socket.AF_UNIX)
    try:
        client.recv(_REQUEST_BYTES)
        client.sendall(b"N" if context is None else b"S")
        if context is None:
            return
        client = context.wrap_socket(client, server_side=True)
        server.connect(socket_file)
        up = threading.Thread(target=_copy, args=(client, server), daemon=True)
        up.start()
        _copy(server, client, gathers=gathers)
        up.join()
    except OSError:
        pass  # The client does not trust us.
    finally:
        client.close()
        server.close()


def _copy(source: socket.socket, target: socket.socket, *, gathers: bool = False) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            while gathers and select.select([source], [], [], _GATHER_SECONDS)[0]:
                more = source.recv(65536)
                if not more:
                    break
                data += more
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)
