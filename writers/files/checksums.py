"""The checksums of files, by name.

xxh3 is the fastest and the default. Object stores compute crc32c, and auditors ask for sha256. A
checksum is written as its name, a colon and lower-case hex digits.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

from writers.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Callable

    from writers.codecs.compression import BytesLike

CHECKSUMS = ("xxh3", "crc32c", "sha256")

DEFAULT = CHECKSUMS[0]


class Digest(NamedTuple):
    """A checksum in the making."""

    name: str
    update: Callable[[BytesLike], None]
    hexdigest: Callable[[], str]

    def text(self) -> str:
        return f"{self.name}:{self.hexdigest()}"


def open_digest(name: str) -> Digest:
    """Begin a checksum; FormatError if it does not exist, or its library is not installed."""
    if name == "xxh3":
        import xxhash

        xxh3 = xxhash.xxh3_64()
        return Digest(name, xxh3.update, xxh3.hexdigest)
    if name == "sha256":
        sha256 = hashlib.sha256()
        return Digest(name, sha256.update, sha256.hexdigest)
    if name != "crc32c":
        raise FormatError(
            f"checksum {name!r} does not exist.", f"use one of {', '.join(CHECKSUMS)}."
        )
    # CRC-32C (Castagnoli, RFC 3720), by an instruction of the processor if it has one.
    try:
        from crc32c import crc32c
    except ImportError as exc:
        raise FormatError(
            f"the checksum crc32c needs the package crc32c: {exc}.",
            "pip install 'unloader[checksums]', or use --checksum xxh3.",
        ) from exc
    value = 0

    def update(data: BytesLike) -> None:
        nonlocal value
        value = crc32c(data, value)

    return Digest(name, update, lambda: f"{value:08x}")


def checksum_name(checksum: str) -> str:
    """Return the name of a checksum `name:hex`; FormatError if it cannot be computed here."""
    name = checksum.partition(":")[0]
    if name not in CHECKSUMS:
        raise FormatError(
            f"the checksum {checksum!r} has an unknown name.",
            "check it with the version of this program that wrote it.",
        )
    return name
