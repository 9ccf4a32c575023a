"""Mutual TLS with a cluster: where certificates and key are, and whether the scheduler takes them.

Our own handshake first tries whether both sides trust one another: the library was seen to wait
forever for a scheduler that does not trust it.
"""

from __future__ import annotations

import socket
import ssl
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from unloader.errors import ConfigError, ConnectFailed
from writers.files.regular import read_regular

_FILES = {"ca": "ca.pem", "cert": "cert.pem", "key": "key.pem"}
_FIELDS = {"ca": "tls_ca_file", "cert": "tls_client_cert", "key": "tls_client_key"}
"""Of `distributed.Security`."""
_SECONDS = 10.0


def certificates_at(path: str) -> Mapping[str, str]:
    """Return the files that a directory holds, or that a TOML file names: `Security`'s arguments.

    A directory has ca.pem, cert.pem and key.pem. A file has `ca`, `cert` and `key`, with paths
    relative to its directory.

    Raises:
        ConfigError: One is missing.
    """
    place = Path(path)
    names: Mapping[str, Any] = _FILES if place.is_dir() else _named(place)
    base = place if place.is_dir() else place.parent
    missing = [name for name in _FILES if not isinstance(names.get(name), str)]
    if missing:
        raise ConfigError(
            f"--cluster-security {path} does not name {', '.join(missing)}",
            'write lines such as: ca = "ca.pem", for ca, cert and key',
        )
    found = {name: base / names[name] for name in _FILES}
    for name, file in found.items():
        if not file.is_file():
            raise ConfigError(
                f"--cluster-security {path}: the {name} file {file} does not exist",
                "give a directory with ca.pem, cert.pem and key.pem, or a TOML file that names "
                "three files",
            )
    return {_FIELDS[name]: str(file) for name, file in found.items()}


def _named(file: Path) -> Mapping[str, Any]:
    try:
        found: Mapping[str, Any] = tomllib.loads(read_regular(file, follow=True).decode())
        return found
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(
            f"--cluster-security {file} cannot be read: {reason}",
            "give a directory with ca.pem, cert.pem and key.pem, or a TOML file that names three "
            "files",
        ) from error


def check_reachable(address: str, certificates: Mapping[str, str] | None) -> None:
    """Connect to a scheduler and part again.

    Raises:
        ConnectFailed: It does not answer.
        ConfigError: The two sides do not trust one another.
    """
    parts = urlsplit(address)
    try:
        with socket.create_connection((parts.hostname, parts.port or 8786), _SECONDS) as plain:
            if certificates is not None:
                _shake_hands(plain, certificates, address)
    except OSError as error:
        raise ConnectFailed(
            f"no scheduler answers at {address}: {error}",
            "check the address, and start one with: dask scheduler",
        ) from error


def _shake_hands(plain: socket.socket, certificates: Mapping[str, str], address: str) -> None:
    plain.settimeout(_SECONDS)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # As in Dask: each owner of a certificate of the authority belongs to the cluster.
    context.check_hostname = False
    ca, cert, key = (certificates[each] for each in _FIELDS.values())
    try:
        context.load_verify_locations(ca)
        context.load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"the certificates of --cluster-security cannot be used ({ca}, {cert}, {key}): {error}",
            "give the certificate authority, the certificate and its key as PEM files",
        ) from error
    try:
        with context.wrap_socket(plain) as secure:
            # With TLS 1.3 a certificate that is refused shows itself in what comes afterwards. A
            # scheduler that takes it speaks first.
            if not secure.recv(1):
                raise ssl.SSLError("the scheduler has closed the connection")
    except ssl.SSLError as error:
        raise ConfigError(
            f"the scheduler at {address} and this run do not trust each other: "
            f"{error.reason or error}",
            "give the certificates of the cluster's certificate authority with --cluster-security",
        ) from error
