"""Checksums by name: the same as other implementations, and refused where they cannot be had."""

from __future__ import annotations

import hashlib
import sys
import zlib

import pytest
import xxhash

from writers.errors import FormatError
from writers.files.checksums import CHECKSUMS, checksum_name, open_digest

DATA = bytes(range(256)) * 5000


def crc32c_by_bits(data: bytes) -> int:
    """Return the CRC-32C as the polynomial defines it, one bit at a time."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def text_of(name: str, *pieces: bytes | memoryview) -> str:
    """Return the checksum of the pieces."""
    digest = open_digest(name)
    for piece in pieces:
        digest.update(piece)
    return digest.text()


@pytest.mark.parametrize("name", CHECKSUMS)
def test_pieces_do_not_matter(name: str) -> None:
    """However the bytes come, in whatever object, the checksum is that of all of them."""
    if name == "crc32c":
        pytest.importorskip("crc32c", reason="the extra `checksums` is not installed")
    whole = text_of(name, DATA)
    assert whole.startswith(f"{name}:")
    assert text_of(name, DATA[:7], memoryview(DATA)[7:90_000], bytearray(DATA[90_000:])) == whole  # type: ignore[arg-type]
    assert text_of(name, DATA[:-1]) != whole
    assert checksum_name(whole) == name


def test_checksums_are_those_of_others() -> None:
    """xxh3 and sha256 are what their libraries compute, crc32c what its polynomial says."""
    assert text_of("xxh3", DATA) == f"xxh3:{xxhash.xxh3_64_hexdigest(DATA)}"
    assert text_of("sha256", DATA) == f"sha256:{hashlib.sha256(DATA).hexdigest()}"
    pytest.importorskip("crc32c", reason="the extra `checksums` is not installed")
    for data in (b"", b"123456789", DATA[:3001]):
        assert text_of("crc32c", data) == f"crc32c:{crc32c_by_bits(data):08x}"
    assert text_of("crc32c", b"123456789") == "crc32c:e3069283"
    assert text_of("crc32c", b"123456789") != f"crc32c:{zlib.crc32(b'123456789'):08x}"


def test_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its library crc32c is refused with the command that brings it."""
    monkeypatch.setitem(sys.modules, "crc32c", None)
    with pytest.raises(FormatError, match=r"crc32c.*Next: pip install 'unloader\[checksums\]'"):
        open_digest("crc32c")
