"""The text of a file that holds a secret."""

from __future__ import annotations

import os
from pathlib import Path

from unloader.errors import ConfigError
from unloader.redaction import LONGEST_SECRET, learn
from unloader.secrets.files import check_private
from writers.files.regular import read_named


def secret_in(path: Path, what: str, hint: str) -> str:
    """Return the text of a file without the newline at its end; no text of ours shows it then.

    A file that is not there is not named: its name may be the secret itself.

    Args:
        path: The file.
        what: What it is called in an error.
        hint: What to do if it cannot be read.

    Raises:
        ConfigError: It cannot be read, or others can read it, too.
    """
    check_private(path, what)
    try:
        secret = read_named(path).decode().replace("\r\n", "\n").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        named = f"{what} {path}" if os.path.exists(path) else what
        # Not from the system's error, which has the name in it.
        raise ConfigError(f"the {named} cannot be read: {reason}", hint) from None
    if len(secret) > LONGEST_SECRET:
        raise ConfigError(
            f"the {what} {path} has more than {LONGEST_SECRET:,} characters",
            "give a file that contains only the secret",
        )
    learn(secret)
    return secret
