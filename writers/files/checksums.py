"""The checksums that files are described with, by name.

xxh3 is the quickest and the default, crc32c is what object stores compute themselves, and sha256
is what auditors ask for. A checksum is written as its name, a colon and lower-case hex digits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from writers.errors import FormatError

if TYPE_CHECKING:
    from writers.codecs.compression import BytesLike

CHECKSUMS = ("xxh3", "crc32c", "sha256")

DEFAULT = CHECKSUMS[0]


class Digest(Protocol):
    """A checksum in the making."""

    def update(self, data: BytesLike) -> None:
        """Add the next bytes."""

    def text(self) -> str:
        """Return the checksum of all bytes so far: `name:hex`."""


def open_digest(name: str) -> Digest:
    """Begin a checksum.

    Raises:
        FormatError: There is no such checksum, or the library it needs is not installed.
    """
    if name == "xxh3":
        import xxhash

        return _HashObject(name, xxhash.xxh3_64())
    if name == "sha256":
        import hashlib

        return _HashObject(name, hashlib.sha256())
    if name == "crc32c":
        return _Crc32c()
    raise FormatError(f"checksum {name!r} does not exist.", f"use one of {', '.join(CHECKSUMS)}.")


def checksum_name(checksum: str) -> str:
    """Return which checksum a text `name:hex` is.

    Raises:
        FormatError: It is none that can be computed here.
    """
    name = checksum.partition(":")[0]
    if name not in CHECKSUMS:
        raise FormatError(
            f"the checksum {checksum!r} has an unknown name.",
            "check it with the version of this program that wrote it.",
        )
    return name


class _HashObject:
    """One of the objects that `hashlib` and its kin make."""

    def __init__(self, name: str, state: Any) -> None:
        self._name = name
        self._state = state

    def update(self, data: BytesLike) -> None:
        self._state.update(data)

    def text(self) -> str:
        return f"{self._name}:{self._state.hexdigest()}"


class _Crc32c:
    """CRC-32C (Castagnoli, RFC 3720), by the processor's own instruction where it has one."""

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

    def text(self) -> str:
        return f"crc32c:{self._value:08x}"
