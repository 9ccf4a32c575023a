"""For whom the files of a run are encrypted, and where the keys are found."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from unloader.errors import UsageError
from unloader.model import EncryptionOptions
from unloader.redaction import PARQUET_KEY_VARIABLE, learn
from unloader.secrets.secret_places import USUAL_PARQUET_KEY, usual_credential
from writers.files.regular import read_named

_FORM = "give a public key, which begins with age1, or @FILE"


def has_parquet_key(path: str | None) -> bool:
    """Return whether a Parquet key is given: in a file, in the variable or by systemd."""
    given = path is not None or PARQUET_KEY_VARIABLE in os.environ
    return given or usual_credential(USUAL_PARQUET_KEY) is not None


def check_variables() -> None:
    """Refuse variables that are set and empty, as a script leaves them whose own source failed.

    Raises:
        UsageError: Names the variable.
    """
    for name in (PARQUET_KEY_VARIABLE, "UNLOADER_PARQUET_KEY_FILE", "UNLOADER_ENCRYPT_TO"):
        if not os.environ.get(name, "set").strip():
            raise UsageError(
                f"{name} is set and empty, so the files would not be encrypted",
                "give it a value, or unset it",
            )


def encryption_of(values: Mapping[str, Any]) -> EncryptionOptions | None:
    """Return how the files are encrypted; None if they are not. The rules between options hold.

    Raises:
        UsageError: What stands for a recipient is none, or its file cannot be read.
    """
    if "encrypt_to" not in values:
        return None  # A command that writes no rows.
    if values["format"] != "parquet":
        recipients = tuple(dict.fromkeys(_recipients(values["encrypt_to"])))
        if not recipients:
            return None
        identity = keys_at(values).identity
        return EncryptionOptions(recipients=recipients, identity=identity)
    if not has_parquet_key(values["parquet_key_file"]):
        return None
    key, name = keys_at(values).key, values["parquet_key_name"] or ""
    return EncryptionOptions(key=key, key_name=name)


def keys_at(values: Mapping[str, Any]) -> EncryptionOptions:
    """Return where the keys of files that are encrypted already are found, if anywhere."""
    from unloader.secrets.encryption_keys import identity_reference, parquet_key_reference

    return EncryptionOptions(
        key=parquet_key_reference(_path(values["parquet_key_file"])),
        identity=identity_reference(_path(values["decrypt_with"])),
    )


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


def _recipients(written: Iterable[str]) -> Iterator[str]:
    for item in written:
        if item.startswith("@"):
            yield from _in_file(Path(item[1:]))
        else:
            yield _recipient(item)


def _in_file(path: Path) -> Iterator[str]:
    try:
        text = read_named(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(
            f"the file of --encrypt-to cannot be read: {reason}", "check its path"
        ) from None
    lines = [line.strip() for line in text.splitlines()]
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        raise UsageError(f"the file {path} of --encrypt-to names no recipient", _FORM)
    yield from map(_recipient, keys)


def _recipient(text: str) -> str:
    from writers.encryption.age import IDENTITY, RECIPIENT

    text = text.strip()
    if text.upper().startswith(IDENTITY):
        learn(text)
        raise UsageError(
            "--encrypt-to has a private key, which every user of this machine may have seen",
            "give the public key, which `age-keygen -y FILE` shows, and make a new private one",
        )
    if not text.startswith(RECIPIENT):
        raise UsageError(
            "a value of --encrypt-to is not a public key of age, and is not shown", _FORM
        )
    return text
