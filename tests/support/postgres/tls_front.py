"""A port that speaks TLS as PostgreSQL does, and hands everything on to a server's socket.

The server of the tests is built without TLS. What stands before it here answers the request
for TLS with a certificate made for the occasion, as stunnel or a proxy in the cloud would.
"""

from __future__ import annotations

import datetime
import select
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_REQUEST_BYTES = 8
"""A request for TLS: its length, and a number in the place of a version."""

_GATHER_SECONDS = 0.03


def certificate(directory: Path, host: str) -> Path:
    """Make a certificate of a host that is its own CA; return the file, which has the key, too."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a server of the tests")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = directory / f"{host}.pem"
    path.write_bytes(
        made.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return path


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
