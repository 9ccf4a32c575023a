"""Passwords in the keyring of the desktop or of the system, through the package `keyring`."""

from __future__ import annotations

import shlex
from functools import lru_cache

from unloader.errors import ConfigError


@lru_cache(maxsize=8)
def keyring_password(service: str, user: str) -> str:
    """Return the password that the keyring has for a user of a service.

    It is asked once in each process: a keyring may be locked by the time a session is lost.

    Raises:
        ConfigError: The package is missing, there is no keyring, or it has no such password.
    """
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError as error:
        raise ConfigError(
            f"the module {error.name!r} is not installed", "pip install 'unloader[keyring]'"
        ) from error
    try:
        password: str | None = keyring.get_password(service, user)
    except KeyringError as error:
        raise ConfigError(
            f"the keyring did not answer: {type(error).__name__}: {error}",
            "unlock it; `keyring diagnose` shows which keyring is used",
        ) from error
    if not password:
        raise ConfigError(
            f"the keyring has no password of {user} for {service}",
            f"keyring set {shlex.quote(service)} {shlex.quote(user)}",
        )
    return password
