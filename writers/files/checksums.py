"""The checksums of files, by name.

xxh3 is the fastest and the default. Object stores compute crc32c, and auditors ask for sha256. A
checksum is written as its name, a colon and lower-case hex digits.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from writers.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Callable

    from writers.codecs.compression import BytesLike

CHECKSUMS = ("xxh3", "crc32c", "sha256")

DEFAULT = CHECKSUMS[0]


class Digest:
    """A checksum in the making; `state` has the interface of `hashlib`'s objects."""

    def __init__(self, name: str, state: Any) -> None:
        self._name = name
        self._state = state
        self.update: Callable[[BytesLike], None] = state.update

    def text(self) -> str:
        """Return the checksum of all bytes so far: `name:hex`."""
        return f"{self._name}:{self._state.hexdigest()}"


def open_digest(name: str) -> Digest:
    """Begin a checksum.

    Raises:
        FormatError: The checksum does not exist, or the library it needs is not installed.
    """
    if name == "xxh3":
        import xxhash

        return Digest(name, xxhash.xxh3_64())
    if name == "sha256":
        return Digest(name, hashlib.sha256())
    if name == "crc32c":
        return Digest(name, _Crc32c())
    raise FormatError(f"checksum {name!r} does not exist.", f"use one of {', '.join(CHECKSUMS)}.")


def checksum_name(checksum: str) -> str:
    """Return the name of a checksum `name:hex`.

    Raises:
        FormatError: It cannot be computed here.
    """
    name = checksum.partition(":")[0]
    if name not in CHECKSUMS:
        raise FormatError(
            f"the checksum {checksum!r} has an unknown name.",
            "check it with the version of this program that wrote it.",
        )
    return name


class _Crc32c:
    """CRC-32C (Castagnoli, RFC 3720), by an instruction of the processor if it has one."""

    def __init__(self) -> None:
        try:
            from crc32c import crc32c
        except ImportError as exc:
            raise FormatError(
                f"the checksum crc32c needs the package crc32c: {exc}.",
                "pip install 'unloader[checksums]', or use --checksum xxh3.",
            ) from exc
        self._extend: Any = crc32c
        self._value = 0

    def update(self, data: BytesLike) -> None:
        self._value = self._extend(data, self._value)

    def hexdigest(self) -> str:
        return f"{self._value:08x}"
