"""What is demanded of a wallet: no other user can read a key in it that no password protects."""

from __future__ import annotations

from pathlib import Path

from unloader.secrets.secret_places import check_private
from writers.files.regular import read_regular

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
