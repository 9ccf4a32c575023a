"""The checksums of files, by name.

xxh3 is the fastest and the default. Object stores compute crc32c, and auditors ask for sha256. A
checksum is written as its name, a colon and lower-case hex digits.
"""

from __future__ import annotations

import hashlib
from typing import Any

from writers.errors import FormatError

CHECKSUMS = ("xxh3", "crc32c", "sha256")

DEFAULT = CHECKSUMS[0]


def open_digest(name: str) -> Any:
    """Begin a checksum; FormatError if it does not exist, or its library is not installed."""
    if name == "xxh3":
        import xxhash

        return xxhash.xxh3_64()
    if name == "sha256":
        return hashlib.sha256()
    if name != "crc32c":
        raise FormatError(
            f"checksum {name!r} does not exist.", f"use one of {', '.join(CHECKSUMS)}."
        )
    # CRC-32C (Castagnoli, RFC 3720), by an instruction of the processor if it has one.
    try:
        from crc32c import CRC32CHash
    except ImportError as exc:
        raise FormatError(
            f"the checksum crc32c needs the package crc32c: {exc}.",
            "pip install 'unloader[checksums]', or use --checksum xxh3.",
        ) from exc
    return CRC32CHash()


def checksum_name(checksum: str) -> str:
    """Return the name of a checksum `name:hex`; FormatError if it cannot be computed here."""
    name = checksum.partition(":")[0]
    if name not in CHECKSUMS:
        raise FormatError(
            f"the checksum {checksum!r} has an unknown name.",
            "check it with the version of this program that wrote it.",
        )
    return name
