"""The options that Oracle sources know, besides the options of every source."""

from __future__ import annotations

from unloader.redaction import TOKEN_VARIABLE, WALLET_PASSWORD_VARIABLE

OPTIONS = (
    *("number-without-precision", "nanoseconds", "zone-columns"),
    *("session-sql", "call-timeout", "client-library", "scn", "fetch", "confirm-fetch"),
    *("parallel-query", "direct-read", "max-db-load"),
)

WALLET_PASSWORD_FILE = "UNLOADER_WALLET_PASSWORD_FILE"
TOKEN_FILE = "UNLOADER_ORACLE_TOKEN_FILE"
TOKEN_KEY_FILE = "UNLOADER_ORACLE_TOKEN_KEY_FILE"

VARIABLES = (
    WALLET_PASSWORD_VARIABLE,
    WALLET_PASSWORD_FILE,
    TOKEN_VARIABLE,
    TOKEN_FILE,
    TOKEN_KEY_FILE,
)
"""Variables without an option, which a connection reads."""
