"""The keys of encrypted files: their places and their checks.

A Parquet key is 16, 24 or 32 random bytes, written in base64. It is found in the file of
`--parquet-key-file`, else in UNLOADER_PARQUET_KEY, else in the systemd credential
`unloader-parquet-key`. Private keys of age are in a file as `age-keygen` makes it. A key that is
missing, wrong, or readable by other users is a ConfigError.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from unloader.errors import ConfigError
from unloader.model import EncryptionOptions, SecretReference
from unloader.redaction import PARQUET_KEY_VARIABLE, learn
from unloader.secrets.secret_places import (
    USUAL_PARQUET_KEY,
    is_proof_of,
    secret_in,
    usual_credential,
)
from writers.encryption.age import public_keys
from writers.encryption.parquet import KEY_BYTES
from writers.model import OutputSpec

NO_KEY = (
    f"set {PARQUET_KEY_VARIABLE}, or use --parquet-key-file or the systemd credential "
    f"{USUAL_PARQUET_KEY}"
)
"""The advice if a Parquet key is missing."""

_KEY_FORM = "give 32 random bytes in base64, in the format of `openssl rand -base64 32`"


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
    text, where = "", PARQUET_KEY_VARIABLE
    if reference.kind == "file":
        where = "the file of the Parquet key"
        text = secret_in(Path(reference.name), "Parquet key file", "check --parquet-key-file")
    elif reference.kind == "environment":
        text = os.environ.get(reference.name, "")
    if not text.strip():
        raise ConfigError("the Parquet key was not found", NO_KEY)
    learn(text.strip())
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        raise ConfigError(f"{where} does not contain a key in base64", _KEY_FORM) from None
    if len(key) not in KEY_BYTES:
        raise ConfigError(
            f"{where} contains a key of {len(key)} bytes, but Parquet needs 16, 24 or 32", _KEY_FORM
        )
    return key


def identities(reference: SecretReference) -> tuple[str, ...]:
    """Return private keys of age; empty without a file."""
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


def with_keys(spec: OutputSpec, options: EncryptionOptions | None) -> OutputSpec:
    """Return the options of a reader of the files, with the Parquet key or the keys of age."""
    if options is None:
        return spec
    return with_identities(with_parquet_key(spec, options), options)


def with_identities(spec: OutputSpec, options: EncryptionOptions) -> OutputSpec:
    """Return the options of a reader of encrypted text, with the keys that are given."""
    known = identities(options.identity) if spec.encryption.recipients else ()
    if known:
        check_identities(known, spec.encryption.recipients)
    return replace(spec, encryption=replace(spec.encryption, identities=known))


def check_key(options: EncryptionOptions) -> bool:
    """Return whether the Parquet key has the recorded proof. Text needs no key, so it is right."""
    return not options.keyed or is_proof_of(parquet_key(options.key), options.key_proof)
