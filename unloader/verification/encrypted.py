"""The keys for the files of a finished run, as its manifest tells which they are."""

from __future__ import annotations

from msgspec.structs import replace

from unloader.manifest.model import Manifest
from unloader.model import EncryptionOptions
from writers.model import PLAIN, Encryption, OutputSpec

NO_KEY = "give the key: --parquet-key-file FILE"
"""What to do where the Parquet key is missing."""


def public_part(manifest: Manifest) -> Encryption:
    """Return how the files of a run are encrypted, without a key."""
    record = manifest.options.encryption
    if record is None:
        return PLAIN
    return Encryption(recipients=record.recipients, keyed=record.method == "parquet")


def keyed_spec(spec: OutputSpec, manifest: Manifest, keys: EncryptionOptions | None) -> OutputSpec:
    """Return how files are read again: with the keys, where they are given.

    Raises:
        ConfigError: A key cannot be read, or is not that of these files.
        FormatError: The library that decrypts is missing.
    """
    record = manifest.options.encryption
    if record is None or keys is None:
        return spec
    known = replace(
        keys,
        recipients=record.recipients,
        key_name=record.key_name,
        key_proof=record.key_proof,
    )
    from unloader.secrets.encryption_keys import with_identities, with_parquet_key

    if record.method == "parquet":
        return with_parquet_key(spec, known) if keys.keyed else spec
    return with_identities(spec, known)
