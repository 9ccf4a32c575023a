"""TLS to a server on the network is verified unless the user says otherwise.

libpq asks for `sslmode=prefer` where nobody says anything: no certificate is checked,
and whoever answers gets the password or the rows. Here the mode is `verify-full` then, against the
CAs of the system where no file of CAs is named. Sockets and addresses of this machine need none.
"""

from __future__ import annotations

import ipaddress
import os
import re
import ssl
from configparser import ConfigParser, Error
from urllib.parse import quote

from unloader.errors import ConfigError, SourceError
from unloader.redaction import learn

_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
"""Where Debian, Red Hat, SUSE and Alpine keep the CAs of the system in one file."""

_SYSTEM = re.compile(r"([?&]sslrootcert=)system(?=&|$)")

_UNTRUSTED = re.compile(
    "certificate verify failed|does not match host name|root certificate file|"
    "host name must be specified"
)
_NO_TLS = "does not support SSL"
"""In the errors of libpq."""


def verified(location: str) -> str:
    """Return the URL that the driver gets: the user's, with what makes TLS verified by default.

    `sslrootcert=system` is understood as in libpq.

    Raises:
        ConfigError: The system's CAs are not found.
    """
    if _SYSTEM.search(location):
        location = _SYSTEM.sub(lambda match: match[1] + quote(_system_bundle()), location)
    given = _given(location)
    if given.get("sslmode") or os.environ.get("PGSSLMODE") or all(map(_is_local, _hosts(given))):
        return location
    added = "sslmode=verify-full"
    if not (given.get("sslrootcert") or os.environ.get("PGSSLROOTCERT") or _own_bundle()):
        added += f"&sslrootcert={quote(_system_bundle())}"
    return f"{location}{'&' if '?' in location else '?'}{added}"


def refusal(error: BaseException | None, location: str) -> SourceError | None:
    """Return the user's error where TLS is not there or not to be trusted, None for others.

    Args:
        error: As the driver raised it.
        location: The URL as the user wrote it.
    """
    while error is not None:
        if _UNTRUSTED.search(str(error)):
            return SourceError(
                f"the certificate of {location} is not trusted: {_last(error)}",
                "give the file of its CA as sslrootcert=FILE in the URL, and the host name that "
                "is in the certificate; sslmode=require encrypts without checking the server",
            )
        if _NO_TLS in str(error):
            mode = _given(location).get("sslmode") or os.environ.get("PGSSLMODE")
            asked = f"sslmode={mode} requires" if mode else "is required by default on a network"
            return SourceError(
                f"{location} does not offer TLS, which {asked}",
                "switch TLS on in the server (ssl = on); if the network is trusted, write "
                "sslmode=disable into the URL",
            )
        error = error.__cause__ or error.__context__
    return None


def _last(error: BaseException) -> str:
    """Return what libpq says behind which server it tried."""
    return str(error).strip().splitlines()[-1].rpartition(" failed: ")[2]


def _given(location: str) -> dict[str, str]:
    """Return the settings of a URL, and those of the service that it names."""
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    try:
        settings = {name: str(value) for name, value in conninfo_to_dict(location).items()}
    except psycopg.ProgrammingError:
        return {}  # The session reports what is wrong.
    service = settings.get("service") or os.environ.get("PGSERVICE")
    return {**(_service(service) if service else {}), **settings}


def _service(name: str) -> dict[str, str]:

    path = os.environ.get("PGSERVICEFILE") or os.path.expanduser("~/.pg_service.conf")
    services = ConfigParser()
    try:
        services.read(path)
        found = dict(services[name])
    except (Error, KeyError, OSError, UnicodeDecodeError):
        return {}  # The driver finds none there, either.
    for name in ("password", "sslpassword"):
        learn(found.get(name))
    return found


def _hosts(given: dict[str, str]) -> list[str]:
    """Return the hosts and addresses; none is a socket of this machine."""
    names = given.get("host") or os.environ.get("PGHOST") or ""
    addresses = given.get("hostaddr") or os.environ.get("PGHOSTADDR") or ""
    return [host for host in f"{names},{addresses}".split(",") if host]


def _is_local(host: str) -> bool:
    if host.startswith(("/", "@")) or host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _own_bundle() -> bool:
    return os.path.exists(os.path.expanduser("~/.postgresql/root.crt"))


def _system_bundle() -> str:

    named = ssl.get_default_verify_paths().cafile
    for path in (named, *_BUNDLES):
        if path and os.path.isfile(path):
            return path
    raise ConfigError(
        "the file with the CAs of this system was not found, and the server's certificate cannot "
        "be checked without it",
        "name the file with sslrootcert=FILE in the URL, or with SSL_CERT_FILE",
    )
