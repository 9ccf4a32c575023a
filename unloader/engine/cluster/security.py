"""Mutual TLS with a cluster: where certificates and key are, and whether the scheduler takes them.

Only paths are known here. Whether both sides trust one another is tried with a handshake of our
own first: the library was seen to wait for ever for a scheduler that does not trust it.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from unloader.errors import ConfigError, ConnectFailed
from writers.files.regular import read_regular

_FILES = {"ca": "ca.pem", "cert": "cert.pem", "key": "key.pem"}
_SECONDS = 10.0


class Certificates(Struct, frozen=True, kw_only=True):
    """The files of both sides' trust, by their paths."""

    ca: str
    cert: str
    key: str

    def context(self) -> ssl.SSLContext:
        """Return what a client shows, and whom it trusts.

        Raises:
            ConfigError: A file is missing, or is not what it should be.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # As Dask: whoever has a certificate of the authority is one of the cluster.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(self.ca)
            context.load_cert_chain(self.cert, self.key)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"the certificates of --cluster-security cannot be used ({self.ca}, {self.cert}, "
                f"{self.key}): {error}",
                "give the certificate authority, the certificate and its key as PEM files",
            ) from error
        return context

    def for_dask(self) -> Any:
        """Return the same in the library's type."""
        from distributed.security import Security

        return Security(
            require_encryption=True,
            tls_ca_file=self.ca,
            tls_client_cert=self.cert,
            tls_client_key=self.key,
        )


def certificates_at(path: str) -> Certificates:
    """Return the files that a directory holds, or that a TOML file names.

    A directory has ca.pem, cert.pem and key.pem. A file has `ca`, `cert` and `key`, with paths that
    begin where it lies.

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
    return Certificates(**{name: str(file) for name, file in found.items()})


def _named(file: Path) -> Mapping[str, Any]:
    # Imported here: few runs name a file, and each on a cluster loads this module.
    import tomllib

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


def check_reachable(address: str, certificates: Certificates | None) -> None:
    """Connect to a scheduler and part again.

    Raises:
        ConnectFailed: Nobody answers.
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


def _shake_hands(plain: socket.socket, certificates: Certificates, address: str) -> None:
    plain.settimeout(_SECONDS)
    try:
        with certificates.context().wrap_socket(plain) as secure:
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
