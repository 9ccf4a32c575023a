"""Credentials of systemd: files in the directory that a service is given for them.

A unit with `LoadCredential=unloader-password:/etc/unloader/password` finds the file
`unloader-password` in `$CREDENTIALS_DIRECTORY`, which nobody but the service can enter.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from unloader.errors import ConfigError, UsageError

DIRECTORY = "CREDENTIALS_DIRECTORY"
"""The variable that systemd sets."""

USUAL_NAME = "unloader-password"
"""The credential that is used without being asked for."""

USUAL_PARQUET_KEY = "unloader-parquet-key"
"""The same for the key of encrypted Parquet files."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@+-]{0,200}")


def credential(name: str) -> Path:
    """Return the file of a credential.

    Raises:
        UsageError: There can be none of this name.
        ConfigError: The service has no credentials, or none of this name.
    """
    if not _NAME.fullmatch(name):
        # Not shown: who took the option for --password gave the password itself.
        raise UsageError(
            "--password-credential is not the name of a credential",
            f"give the name in LoadCredential=, such as {USUAL_NAME}",
        )
    directory = os.environ.get(DIRECTORY)
    if not directory:
        raise ConfigError(
            f"--password-credential needs {DIRECTORY}, which systemd sets for a service that has "
            "credentials",
            "put LoadCredential= into the unit, or use --password-file",
        )
    path = Path(directory) / name
    if not path.is_file():
        raise ConfigError(
            f"{DIRECTORY} does not have the credential that --password-credential names",
            "give the name in LoadCredential= of the unit",
        )
    return path


def usual_credential(name: str = USUAL_NAME) -> Path | None:
    """Return the file of the credential with a usual name, None where there is none."""
    directory = os.environ.get(DIRECTORY)
    path = Path(directory, name) if directory else None
    return path if path is not None and path.is_file() else None
