"""The keys of masks: their places and their checks.

A key is 16 to 256 random bytes, written in base64. Steps and manifests use its name. A key
`customers` is in the place of `--mask-key`, else in the variable UNLOADER_MASKING_KEY_CUSTOMERS,
else in the systemd credential `unloader-masking-key-customers`.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

from msgspec.structs import replace

from unloader.errors import ConfigError, UsageError
from unloader.redaction import MASKING_KEY_VARIABLE, learn
from unloader.secrets.secret_places import (
    is_proof_of,
    keyring_password,
    proof_of,
    secret_in,
    usual_credential,
)
from unloader.transforms.model import MaskingKey

VARIABLE = MASKING_KEY_VARIABLE
CREDENTIAL = "unloader-masking-key-"
SHORTEST_KEY, LONGEST_KEY = 16, 256

_NAME = re.compile(r"[a-z][a-z0-9-]{0,62}")
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FORM = "give 32 random bytes in base64, in the format of `openssl rand -base64 32`"


def key_place(name: str, place: str = "") -> MaskingKey:
    """Return where the key of a name is found; nothing is read yet.

    Args:
        name: Lower case letters, digits and hyphens.
        place: `file:PATH`, `env:VARIABLE`, `keyring:SERVICE/USER` or `credential:NAME`; empty looks
            in the usual places.

    Raises:
        UsageError: The name or the place has another form. The place is not shown, because it may
            be the key.
        ConfigError: The credential is missing, or the usual places have no key.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            "the name of a masking key contains only lower case letters, digits and hyphens",
            "choose a name such as customers or patients-2026",
        )
    if not place:
        return _usual(name)
    kind, _, rest = place.partition(":")
    if kind == "file" and rest:
        return MaskingKey(name=name, kind="file", place=str(Path(rest).absolute()))
    if kind == "env" and _VARIABLE_NAME.fullmatch(rest):
        learn(os.environ.get(rest))
        return MaskingKey(name=name, kind="environment", place=rest)
    if kind == "keyring" and all(rest.rpartition("/")):
        return MaskingKey(name=name, kind="keyring", place=rest)
    if kind == "credential" and rest and "/" not in rest:
        path = usual_credential(rest)
        if path is None:
            raise ConfigError(
                f"the systemd credential for the masking key {name} does not exist",
                "put LoadCredential= with that name into the unit, or use file:PATH",
            )
        return MaskingKey(name=name, kind="file", place=str(path))
    raise UsageError(
        f"--mask-key does not give a place for the masking key {name}; its text is not shown",
        "write file:PATH, keyring:SERVICE/USER, credential:NAME, or env: and the name of a "
        "variable that contains the key",
    )


def masking_key(key: MaskingKey) -> bytes:
    """Return a key, and hide it in all output from now on.

    Raises:
        ConfigError: It is missing or invalid, other users can read its file, or it does not match
            its proof.
    """
    text = _text_of(key).strip()
    if not text and key.kind == "environment":
        raise ConfigError(
            f"--mask-key gives a variable for the masking key {key.name}, but this variable is "
            "not set",
            "after env: put the name of a variable instead of the key, or use "
            f"{key.name}=file:PATH",
        )
    if not text:
        raise ConfigError(
            f"the masking key {key.name} was not found",
            f"set {_variable(key.name)}, or give its place: --mask-key {key.name}=file:PATH",
        )
    learn(text)
    try:
        found = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ConfigError(f"the masking key {key.name} is not in base64", _FORM) from None
    if not SHORTEST_KEY <= len(found) <= LONGEST_KEY:
        raise ConfigError(
            f"the masking key {key.name} has {len(found)} bytes instead of {SHORTEST_KEY} to "
            f"{LONGEST_KEY}",
            _FORM,
        )
    if key.proof and not is_proof_of(found, key.proof):
        raise ConfigError(
            f"the masking key {key.name} is not the key that masked the rows of this run",
            f"give the key of the run: --mask-key {key.name}=file:PATH",
        )
    return found


def masking_keys(keys: Iterable[MaskingKey]) -> Mapping[str, bytes]:
    """Return keys by their names."""
    return {key.name: masking_key(key) for key in keys}


def with_proof(key: MaskingKey) -> MaskingKey:
    """Return a key's place with a proof of the present key; an existing proof must match."""
    found = masking_key(key)
    return key if key.proof else replace(key, proof=_proof(found))


def _usual(name: str) -> MaskingKey:
    variable = _variable(name)
    if variable in os.environ:
        learn(os.environ[variable])
        return MaskingKey(name=name, kind="environment", place=variable)
    path = usual_credential(CREDENTIAL + name)
    if path is not None:
        return MaskingKey(name=name, kind="file", place=str(path))
    raise ConfigError(
        f"no place is given for the masking key {name!r}",
        f"set {variable}, use the systemd credential {CREDENTIAL}{name}, or give its place: "
        f"--mask-key {name}=file:PATH",
    )


def _variable(name: str) -> str:
    return VARIABLE + name.upper().replace("-", "_")


def _text_of(key: MaskingKey) -> str:
    if key.kind == "environment":
        return os.environ.get(key.place, "")
    if key.kind == "keyring":
        service, _, user = key.place.rpartition("/")
        return keyring_password(service, user)
    return secret_in(Path(key.place), f"file of the masking key {key.name}", "check its path")


@lru_cache(maxsize=16)
def _proof(found: bytes) -> str:
    # Once for all tables of a run: the hash takes long on purpose.
    return proof_of(found)
