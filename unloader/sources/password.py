"""The password that a reference names, read where it is needed and kept nowhere else."""

from __future__ import annotations

import os
from pathlib import Path

from unloader.model import SourceSpec
from unloader.redaction import learn
from unloader.secrets.secret_places import keyring_password, secret_in


def password_of(spec: SourceSpec) -> str | None:
    """Return the password the reference points at, None to leave it to the driver's own ways.

    `ConfigError` where its file or keyring cannot be used.
    """
    password = None
    if spec.secret.kind == "environment":
        password = os.environ.get(spec.secret.name)
    if spec.secret.kind == "file":
        text = secret_in(Path(spec.secret.name), "password file", "check --password-file")
        password = text.partition("\n")[0].rstrip("\r")
    if spec.secret.kind == "keyring":
        service, _, user = spec.secret.name.rpartition("/")
        password = keyring_password(service, user)
    learn(password)
    return password
