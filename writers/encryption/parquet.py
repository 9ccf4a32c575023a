"""Parquet's own encryption: one key for the footer and for all columns, AES in GCM.

The key is used as it is, without one wrapped around it, and no prefix is mixed into the
authentication: so DuckDB can read the files, too. Every page is encrypted with a separate nonce.
What cannot be encrypted, and a missing or unusable key, is a FormatError.
"""

from __future__ import annotations

from typing import Any

from writers.errors import FormatError
from writers.model import Encryption, OutputSpec, ParquetFormat

KEY_BYTES = (16, 24, 32)


def check_format(parquet: ParquetFormat) -> None:
    """Refuse what cannot be encrypted here."""
    _library()
    if parquet.bloom_filters:
        raise FormatError(
            "Parquet files with Bloom filters cannot be encrypted: pyarrow cannot write them.",
            "leave --bloom-filter out.",
        )


def check_encryption(spec: OutputSpec) -> None:
    """Refuse to write files that would not be encrypted as requested."""
    if spec.encryption.recipients:
        raise FormatError("Parquet cannot be encrypted with age.", "give a Parquet key.")
    if spec.encryption.keyed and isinstance(spec.format, ParquetFormat):
        check_format(spec.format)
        _key(spec.encryption)


def writing_options(encryption: Encryption) -> dict[str, Any]:
    """Return the options of `pyarrow.parquet.ParquetWriter` for one file."""
    if not encryption.keyed:
        return {}
    properties = _library().create_encryption_properties(_key(encryption))
    return {"encryption_properties": properties}


def reading_options(encryption: Encryption) -> dict[str, Any]:
    """Return the options of `pyarrow.parquet.ParquetFile` for one file."""
    if not encryption.keyed:
        return {}
    properties = _library().create_decryption_properties(_key(encryption))
    return {"decryption_properties": properties}


def _key(encryption: Encryption) -> bytes:
    key = encryption.key
    if key is None:
        raise FormatError("the encrypted Parquet files have no key.", "give the key.")
    if len(key) not in KEY_BYTES:
        raise FormatError(
            f"a Parquet key of {len(key)} bytes cannot be used.", "use a key of 16, 24 or 32 bytes."
        )
    return key


def _library() -> Any:
    import pyarrow as pa

    try:
        import pyarrow.parquet.encryption as library
    except ImportError as error:
        raise FormatError(
            "this build of pyarrow cannot encrypt Parquet.", "pip install pyarrow, or write text."
        ) from error
    if not hasattr(library, "create_encryption_properties"):
        raise FormatError(
            f"pyarrow {pa.__version__} cannot encrypt Parquet with a key.",
            "pip install 'unloader[encryption]'",
        )
    return library
