"""The keys of encrypted files and of masks: their places and their checks.

A key is random bytes, written in base64. A Parquet key of 16, 24 or 32 bytes is in the file of
`--parquet-key-file`, else in UNLOADER_PARQUET_KEY, else in the systemd credential
`unloader-parquet-key`. A masking key of 16 to 256 bytes, such as `customers`, is in the place of
`--mask-key`, else in the variable UNLOADER_MASKING_KEY_CUSTOMERS, else in the systemd credential
`unloader-masking-key-customers`; steps and manifests use its name. Private keys of age are in a
file as `age-keygen` makes it. A key that is missing, wrong, or readable by other users is a
ConfigError.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from msgspec.structs import replace

from unloader.errors import ConfigError, UsageError
from unloader.model import EncryptionOptions, SecretReference
from unloader.redaction import MASKING_KEY_VARIABLE, PARQUET_KEY_VARIABLE, learn
from unloader.secrets.secret_places import (
    USUAL_PARQUET_KEY,
    is_proof_of,
    keyring_password,
    proof_of,
    secret_in,
    usual_credential,
)
from unloader.transforms.model import MaskingKey
from writers.encryption.age import public_keys
from writers.encryption.parquet import KEY_BYTES
from writers.model import OutputSpec

CREDENTIAL = "unloader-masking-key-"
SHORTEST_KEY, LONGEST_KEY = 16, 256

_NAME = re.compile(r"[a-z][a-z0-9-]{0,62}")
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_proof = lru_cache(maxsize=16)(proof_of)
"""Once for all tables of a run: the hash takes long on purpose."""


def _decoded(text: str, what: str, sizes: Container[int], wanted: str) -> bytes:
    """Return the bytes of a key, and hide it in all output from now on."""
    learn(text)
    form = "give 32 random bytes in base64, in the format of `openssl rand -base64 32`"
    try:
        found = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ConfigError(f"{what} is not in base64", form) from None
    if len(found) not in sizes:
        raise ConfigError(f"{what} has {len(found)} bytes instead of {wanted}", form)
    return found


def parquet_key_reference(path: Path | None) -> SecretReference:
    """Return the place of the Parquet key; its kind is `none` without a key."""
    if path is None and PARQUET_KEY_VARIABLE not in os.environ:
        path = usual_credential(USUAL_PARQUET_KEY)
    if path is not None:
        return SecretReference(kind="file", name=str(path.absolute()))
    if PARQUET_KEY_VARIABLE in os.environ:
        return SecretReference(kind="environment", name=PARQUET_KEY_VARIABLE)
    return SecretReference()


def identity_reference(path: Path | None) -> SecretReference:
    """Return the place of private keys of age; its kind is `none` without a file."""
    if path is None:
        return SecretReference()
    return SecretReference(kind="file", name=str(path.absolute()))


def parquet_key(reference: SecretReference) -> bytes:
    """Return the Parquet key, and hide it in all output from now on."""
    text, what = "", f"the Parquet key in {PARQUET_KEY_VARIABLE}"
    if reference.kind == "file":
        what = "the Parquet key in its file"
        text = secret_in(Path(reference.name), "Parquet key file", "check --parquet-key-file")
    elif reference.kind == "environment":
        text = os.environ.get(reference.name, "")
    if not text.strip():
        raise ConfigError(
            "the Parquet key was not found",
            f"set {PARQUET_KEY_VARIABLE}, or use --parquet-key-file or the systemd credential "
            f"{USUAL_PARQUET_KEY}",
        )
    return _decoded(text.strip(), what, KEY_BYTES, "16, 24 or 32")


def identities(reference: SecretReference) -> tuple[str, ...]:
    if reference.kind == "none":
        return ()
    path = Path(reference.name)
    text = secret_in(path, "file of private keys", "check --decrypt-with")
    lines = (line.strip() for line in text.splitlines())
    found = tuple(line for line in lines if line and not line.startswith("#"))
    if not found:
        raise ConfigError(
            f"{path} does not contain a private key of age", "give a file that age-keygen made"
        )
    return found


def check_identities(found: Sequence[str], recipients: Sequence[str]) -> None:
    """Check that one of the private keys belongs to one of the public keys."""
    if not set(public_keys(found)) & set(recipients):
        raise ConfigError(
            "no private key in the file of --decrypt-with belongs to a recipient of the files",
            f"give the private key of one of {', '.join(recipients)}",
        )


def with_parquet_key(spec: OutputSpec, options: EncryptionOptions | None) -> OutputSpec:
    """Return the options of the writer of a Parquet file, with the key of the run."""
    if options is None or not spec.encryption.keyed:
        return spec
    key = parquet_key(options.key)
    if not is_proof_of(key, options.key_proof):
        raise ConfigError(
            "the Parquet key is not the key that encrypted the files of this run",
            "give the key of the run"
            + (f", which is called {options.key_name}" if options.key_name else ""),
        )
    return replace(spec, encryption=replace(spec.encryption, key=key))


def with_identities(spec: OutputSpec, options: EncryptionOptions) -> OutputSpec:
    """Return the options of a reader of encrypted text, with the keys that are given."""
    known = identities(options.identity) if spec.encryption.recipients else ()
    if known:
        check_identities(known, spec.encryption.recipients)
    return replace(spec, encryption=replace(spec.encryption, identities=known))


def with_keys(spec: OutputSpec, options: EncryptionOptions | None) -> OutputSpec:
    """Return the options of a reader of the files, with the Parquet key or the keys of age."""
    return spec if options is None else with_identities(with_parquet_key(spec, options), options)


def check_key(options: EncryptionOptions) -> bool:
    """Return whether the Parquet key has the recorded proof. Text needs no key, so it is right."""
    return not options.keyed or is_proof_of(parquet_key(options.key), options.key_proof)


def key_place(name: str, place: str = "") -> MaskingKey:
    """Return where the masking key of a name is found; nothing is read yet.

    The place is `file:PATH`, `env:VARIABLE`, `keyring:SERVICE/USER` or `credential:NAME`; empty
    looks in the usual places.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            "the name of a masking key contains only lower case letters, digits and hyphens",
            "choose a name such as customers or patients-2026",
        )
    kind, _, rest = place.partition(":")
    variable = _variable(name)
    if not place:
        path = usual_credential(CREDENTIAL + name)
        if variable in os.environ:
            kind, rest = "env", variable
        elif path is not None:
            kind, rest = "file", str(path)
        else:
            raise ConfigError(
                f"no place is given for the masking key {name!r}",
                f"set {variable}, use the systemd credential {CREDENTIAL}{name}, or give its "
                f"place: --mask-key {name}=file:PATH",
            )
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
    # The text is not shown, because it may be the key.
    raise UsageError(
        f"--mask-key does not give a place for the masking key {name}; its text is not shown",
        "write file:PATH, keyring:SERVICE/USER, credential:NAME, or env: and the name of a "
        "variable that contains the key",
    )


def masking_key(key: MaskingKey) -> bytes:
    """Return a key, and hide it in all output from now on; an existing proof must match."""
    if key.kind == "environment":
        text = os.environ.get(key.place, "")
    elif key.kind == "keyring":
        service, _, user = key.place.rpartition("/")
        text = keyring_password(service, user)
    else:
        text = secret_in(Path(key.place), f"file of the masking key {key.name}", "check its path")
    text = text.strip()
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
    sizes = range(SHORTEST_KEY, LONGEST_KEY + 1)
    wanted = f"{SHORTEST_KEY} to {LONGEST_KEY}"
    found = _decoded(text, f"the masking key {key.name}", sizes, wanted)
    if key.proof and not is_proof_of(found, key.proof):
        raise ConfigError(
            f"the masking key {key.name} is not the key that masked the rows of this run",
            f"give the key of the run: --mask-key {key.name}=file:PATH",
        )
    return found


def masking_keys(keys: Iterable[MaskingKey]) -> Mapping[str, bytes]:
    return {key.name: masking_key(key) for key in keys}


def with_proof(key: MaskingKey) -> MaskingKey:
    """Return a key's place with a proof of the present key; an existing proof must match."""
    found = masking_key(key)
    return key if key.proof else replace(key, proof=_proof(found))


def _variable(name: str) -> str:
    return MASKING_KEY_VARIABLE + name.upper().replace("-", "_")
