"""The checksum of each part, which the store compares with the bytes that have reached it."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from importlib.util import find_spec

from writers.objects.endpoints import has_tls
from writers.objects.location import Location


def algorithm(store: Location) -> str:
    """Return which checksum the parts of an upload get; empty for none.

    CRC-32C costs an eighth of SHA-256's CPU and finds what breaks by itself. Without TLS somebody
    could change the bytes and the CRC with them; SHA-256 stands in the signature of the request.
    """
    asked = store.option("checksum")
    if asked:
        return "" if asked == "none" else asked.upper()
    return "CRC32C" if has_tls(store) and find_spec("crc32c") else "SHA256"


def checksum(name: str, data: bytes | bytearray | memoryview) -> str:
    """Return a checksum as S3 writes it; empty for no algorithm."""
    return base64.b64encode(_OF[name](data)).decode() if name else ""


def of_parts(name: str, parts: list[str]) -> str:
    """Return the checksum of an object by those of its parts, without their number."""
    return checksum(name, b"".join(map(base64.b64decode, parts)))


def _crc32c(data: bytes | bytearray | memoryview) -> bytes:
    # Imported on use: it is no part of the core.
    import crc32c

    return int(crc32c.crc32c(data)).to_bytes(4, "big")


_OF: dict[str, Callable[[bytes | bytearray | memoryview], bytes]] = {
    "SHA256": lambda data: hashlib.sha256(data).digest(),
    "CRC32C": _crc32c,
}
