"""From a URL to an open connection, through python-oracledb.

Secrets come from the environment or from files, never from the URL: the password as everywhere, a
wallet's from UNLOADER_WALLET_PASSWORD or the file that UNLOADER_WALLET_PASSWORD_FILE names, a
database token from UNLOADER_ORACLE_TOKEN or UNLOADER_ORACLE_TOKEN_FILE, its private key, which IAM
has and OAuth 2.0 has not, from the file that UNLOADER_ORACLE_TOKEN_KEY_FILE names. A token comes
before a password.
"""

from __future__ import annotations

import os
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from unloader.errors import ConfigError
from unloader.model import SourceSpec
from unloader.redaction import TOKEN_VARIABLE, WALLET_PASSWORD_VARIABLE
from unloader.secrets.secret_places import check_private, secret_in
from unloader.sources.oracle.connection.errors import code_of, one_line, translated
from unloader.sources.oracle.connection.url import OracleAddress, parse_location
from unloader.sources.oracle.options import TOKEN_FILE, TOKEN_KEY_FILE, WALLET_PASSWORD_FILE
from unloader.sources.password import password_of
from writers.files.regular import read_regular

if TYPE_CHECKING:
    import oracledb


WALLET_PASSWORD = WALLET_PASSWORD_VARIABLE
TOKEN = TOKEN_VARIABLE

PROGRAM = "unloader"

PATIENCE_SECONDS = 300.0
"""Guess: as long as a worker may be silent by default."""

DEFAULTS: dict[str, Any] = {"tcp_connect_timeout": 20.0, "sdu": 65535, "expire_time": 2}
"""Seconds until a host counts as not there; the largest packet that every version takes, of which
the server may want less; minutes between probes of a silent connection, that a peer which is gone
is noticed. A guess each, but for the packet."""


def open_connection(
    spec: SourceSpec, patience_seconds: float = PATIENCE_SECONDS
) -> oracledb.Connection:
    """Return a new connection as the URL asks for.

    Args:
        spec: The source.
        patience_seconds: Longest wait for all of it, every host and every retry included.

    Raises:
        ConfigError: The URL, a file with a secret or the client library is not usable.
        SourceError: The database refused; transient where a retry may help.
    """
    import oracledb

    address = parse_location(spec.location)
    if spec.session.client_library is not None:
        _load_client_library(spec.session.client_library, address)
    arguments = {**DEFAULTS, "program": PROGRAM, **dict(address.settings)}
    if "wallet_location" in arguments:
        check_wallet(Path(arguments["wallet_location"]))
    arguments.update(_credentials(spec, address))
    if address.pooled:
        arguments.setdefault("cclass", PROGRAM)
    if not oracledb.is_thin_mode():
        # The client library looks names up itself, in a directory server for instance.
        arguments["thick_mode_dsn_passthrough"] = address.is_alias
    try:
        return _connected(address.connect_string, arguments, patience_seconds)
    except (oracledb.Error, OSError) as error:
        known = translated(error, connecting=True)
        raise type(known)(f"{known.message}, for {spec.location}", known.hint) from error
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"a setting of {spec.location} is not valid: {error}",
            "correct the settings after the question mark",
        ) from error


def _connected(
    connect_string: str, arguments: dict[str, Any], patience_seconds: float
) -> oracledb.Connection:
    """Connect in a thread of its own, which is left behind if it takes too long.

    The driver bounds only the time until a host answers at all; it would wait for a listener that
    says nothing for ever, and deaf to Ctrl-C.
    """
    import oracledb

    done: Future[oracledb.Connection] = Future()

    def connect() -> None:
        try:
            done.set_result(oracledb.connect(connect_string, **arguments))
        except BaseException as error:
            done.set_exception(error)

    Thread(target=connect, name="oracle-connect", daemon=True).start()
    try:
        return done.result(patience_seconds)
    except FutureTimeout as error:
        if done.done():
            raise  # The driver's own.
        raise TimeoutError(f"no answer in {patience_seconds:g} s") from error


def _credentials(spec: SourceSpec, address: OracleAddress) -> dict[str, Any]:
    arguments: dict[str, Any] = {"user": address.user} if address.user else {}
    token = _token()
    wallet_password = _secret(WALLET_PASSWORD, WALLET_PASSWORD_FILE, "wallet's password file")
    if wallet_password is not None:
        arguments["wallet_password"] = wallet_password
    if token is not None:
        arguments["access_token"] = token
    elif address.user and not address.user.startswith("["):
        arguments["password"] = password_of(spec)
    else:
        arguments["externalauth"] = True
    return arguments


def _token() -> str | tuple[str, str] | None:
    token = _secret(TOKEN, TOKEN_FILE, "token file")
    key_file = os.environ.get(TOKEN_KEY_FILE)
    if token is None or not key_file:
        return token
    key = secret_in(Path(key_file), "token's key file", f"correct {TOKEN_KEY_FILE}")
    import oracledb

    if oracledb.is_thin_mode():
        return token, key
    # The client library wants the key without the lines around it.
    lines = (line.strip() for line in key.splitlines() if not line.startswith("-----"))
    return token, "".join(lines)


def _secret(variable: str, file_variable: str, what: str) -> str | None:
    path = os.environ.get(file_variable)
    if path:
        return secret_in(Path(path), what, f"correct {file_variable}").strip()
    return os.environ.get(variable) or None


def _load_client_library(directory: str, address: OracleAddress) -> None:
    """Switch the process to Oracle's client library; a second time it is the same one."""
    import oracledb

    arguments = {"lib_dir": directory} if directory else {}
    config_dir = dict(address.settings).get("config_dir")
    if config_dir:
        arguments["config_dir"] = config_dir
    try:
        oracledb.init_oracle_client(**arguments)
    except oracledb.Error as error:
        where = f"in {directory}" if directory else "where the system looks for libraries"
        raise ConfigError(
            f"cannot load Oracle's client library {where}: {one_line(error)}",
            "give --client-library the directory of libclntsh.so, or leave --client-library out"
            if code_of(error) != "DPY-2019"
            else "leave --client-library out, or give it from the beginning",
        ) from error


_KEY = b"PRIVATE KEY-----"
_PROTECTED = b"ENCRYPTED PRIVATE KEY-----"

AUTO_LOGIN = "cwallet.sso"
"""Opens without a password; Oracle's client library reads it."""

TEXT = "ewallet.pem"
"""Certificates, and perhaps a key; the driver reads it."""


def check_wallet(directory: Path) -> None:
    """Return if nobody else can use the keys of a wallet, or if there are none.

    Raises:
        ConfigError: Another user can.
    """
    check_private(directory / AUTO_LOGIN, "wallet")
    if _has_open_key(directory / TEXT):
        check_private(directory / TEXT, "wallet")


def _has_open_key(path: Path) -> bool:
    try:
        text = read_regular(path, follow=True)
    except OSError:
        return False  # The driver says so.
    return text.count(_KEY) > text.count(_PROTECTED)
