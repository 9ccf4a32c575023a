"""The password behind a reference, read where it is needed and kept nowhere else."""

from __future__ import annotations

import os
from pathlib import Path

from unloader.errors import ConfigError
from unloader.model import SourceSpec


def password_of(spec: SourceSpec) -> str | None:
    """Return the password the reference points at, None to leave it to the driver's own ways.

    Raises:
        ConfigError: The password file cannot be read.
    """
    if spec.secret.kind == "environment":
        return os.environ.get(spec.secret.name)
    if spec.secret.kind == "file":
        text = secret_in(Path(spec.secret.name), "password file", "check --password-file")
        return text.partition("\n")[0].rstrip("\r")
    return None


def secret_in(path: Path, what: str, hint: str) -> str:
    """Return the text of a file without the newline at its end.

    Args:
        path: The file.
        what: What it is called in an error.
        hint: What to do if it cannot be read.

    Raises:
        ConfigError: It cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"the {what} {path} cannot be read: {reason}", hint) from error
