"""What an `oracle:` URL says: whom to connect as, where to, and with which network settings.

    oracle://USER@HOST:PORT/SERVICE        also HOST1,HOST2:1522/SERVICE and SERVICE:pooled
    oracle://USER@ALIAS                    of tnsnames.ora in TNS_ADMIN or ?config_dir=
    oracle://USER@(DESCRIPTION=...)        a whole connect descriptor
    oracle://PROXY[TARGET]@...             a proxy user, brackets percent-encoded or not
    oracle://@...                          no user: a token, a wallet or the operating system

Settings follow a question mark, under the names of Oracle's Easy Connect Plus, `&` between them;
`protocol=tcps` asks for TLS. What an alias or a descriptor says itself wins over them. Any part may
be percent-encoded. No driver is needed to read a URL.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

from msgspec import Struct

from unloader.errors import ConfigError, UsageError

PROTOCOLS = ("tcp", "tcps")

SETTINGS = {
    "config_dir": "config_dir",
    "expire_time": "expire_time",
    "https_proxy": "https_proxy",
    "https_proxy_port": "https_proxy_port",
    "pool_boundary": "pool_boundary",
    "pool_connection_class": "cclass",
    "pool_name": "pool_name",
    "pool_purity": "purity",
    "retry_count": "retry_count",
    "retry_delay": "retry_delay",
    "sdu": "sdu",
    "server": "server_type",
    "ssl_server_cert_dn": "ssl_server_cert_dn",
    "ssl_server_dn_match": "ssl_server_dn_match",
    "tcp_connect_timeout": "tcp_connect_timeout",
    "transport_connect_timeout": "tcp_connect_timeout",
    "use_sni": "use_sni",
    "wallet_location": "wallet_location",
}
"""Name in the URL, and the parameter of `oracledb.connect` that it is."""

_IN_STRING = ("enable", "failover", "load_balance", "recv_buf_size", "send_buf_size")
"""Settings that the driver takes as part of an Easy Connect string only."""

_EXAMPLE = "write for instance oracle://user@host:1521/service or oracle://user@ALIAS"
_QUOTED = re.compile(r'"[^"]*"')
_SECRET_FIELD = re.compile(r"(?i)\(\s*\w*(?:password|passwd|pwd)\s*=")
_POOLED = re.compile(r"(?i)(?:\bserver=|/[^/]*:)pooled\b")


class OracleAddress(Struct, frozen=True, kw_only=True):
    """A URL taken apart."""

    user: str
    """Perhaps `PROXY[TARGET]`; empty where somebody else vouches for the user."""
    connect_string: str
    """Easy Connect, alias or descriptor."""
    settings: tuple[tuple[str, str], ...] = ()
    """Parameters of `oracledb.connect`, as text."""

    @property
    def is_alias(self) -> bool:
        """Whether the connect string is a name to look up."""
        return "/" not in self.connect_string and not self.connect_string.startswith("(")

    @property
    def pooled(self) -> bool:
        """Whether the URL itself asks for a session of the server's resident pool (DRCP)."""
        by_setting = dict(self.settings).get("server_type", "").lower() == "pooled"
        return by_setting or _POOLED.search(self.connect_string) is not None


def parse_location(location: str) -> OracleAddress:
    """Return what the URL says.

    Raises:
        UsageError: It holds a password.
        ConfigError: It names no database, no service, or a setting that there is not.
    """
    _, found, rest = location.partition("://")
    if not found:
        # Not repeated: `oracle:scott/tiger@db` is what may stand there.
        raise ConfigError("the text after oracle: is not //user@database", _EXAMPLE)
    head, _, query = rest.partition("?")
    # A descriptor may hold an @ of its own, in a certificate's name for instance.
    user, at, target = head.partition("@(") if "@(" in head else head.rpartition("@")
    user = unquote(user).strip("/")
    target = unquote("(" + target if at == "@(" else target).strip("/ ")
    _refuse_password(user, target)
    if not target:
        raise ConfigError(f"{location} does not name a database", _EXAMPLE)
    if re.search(r":\d+$", target) and "/" not in target:
        raise ConfigError(f"{location} does not name a service", f"write {location}/SERVICE")
    passed, settings = _settings(query)
    protocol = settings.pop("protocol", "")
    address = OracleAddress(
        user=user,
        connect_string=target,
        settings=tuple(settings.items()),
    )
    return _completed(address, protocol, passed)


def _refuse_password(user: str, target: str) -> None:
    """Refuse `user/password`, as SQL*Plus takes it, and a descriptor's; nothing is repeated.

    A name that has a slash or a colon itself can only be one in double quotes.
    """
    if re.search("[:/]", _QUOTED.sub("", user)) or _SECRET_FIELD.search(target):
        raise UsageError(
            "the oracle: URL contains a password, which every user of this machine can read in "
            "the list of processes",
            "remove it and set UNLOADER_PASSWORD, or give --password-file or --password-prompt",
        )


def _completed(address: OracleAddress, protocol: str, passed: list[str]) -> OracleAddress:
    """Return the address with what only an Easy Connect string can carry put into it."""
    if not protocol and not passed:
        return address
    target = address.connect_string
    if address.is_alias or target.startswith("("):
        what = passed[0].partition("=")[0] if passed else "protocol"
        raise ConfigError(
            f"the URL's setting {what} cannot be used with an alias or a descriptor",
            "put the setting into the descriptor",
        )
    if protocol and "://" not in target:
        target = f"{protocol}://{target}"
    if passed:
        target += "?" + "&".join(passed)
    return OracleAddress(user=address.user, connect_string=target, settings=address.settings)


def _settings(query: str) -> tuple[list[str], dict[str, str]]:
    """Return the settings for the Easy Connect string, and those for the driver."""
    passed: list[str] = []
    settings: dict[str, str] = {}
    for item in filter(None, query.split("&")):
        name, found, value = item.partition("=")
        name, value = unquote(name).strip().lower(), unquote(value).strip()
        if not found or not value:
            raise ConfigError(f"the URL's setting {name} has no value", f"write {name}=VALUE")
        if name == "protocol":
            if value.lower() not in PROTOCOLS:
                raise ConfigError(f"the URL's protocol {value} is unknown", "write tcp or tcps")
            settings[name] = value.lower()
        elif name in _IN_STRING:
            passed.append(f"{name}={value}")
        elif name in SETTINGS:
            settings[SETTINGS[name]] = value
        else:
            known = ", ".join(sorted({*SETTINGS, *_IN_STRING, "protocol"}))
            raise ConfigError(f"the URL's setting {name} is unknown", f"use one of: {known}")
    return passed, settings
