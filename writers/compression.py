"""Codecs for text output: streams of bytes in, streams of compressed bytes out.

The bytes depend on nothing but the data and the level: no clock, no file name. Every stream
may be followed by another one (gzip members, zstd and lz4 frames), so compressed files can be
joined end to end. Parquet compresses inside its pages and takes only the checks from here.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, Protocol

from writers.errors import FormatError

if TYPE_CHECKING:
    from writers.model import Compression

BytesLike = bytes | bytearray | memoryview

LEVELS: dict[str, tuple[int, int] | None] = {
    "none": None,
    "gzip": (1, 9),
    "zstd": (1, 22),
    "lz4": (1, 12),
    "snappy": None,
}
"""Lowest and highest level of each codec; None where it has no levels."""

CODECS: dict[str, tuple[str, ...]] = {
    "csv": ("none", "gzip", "zstd", "lz4"),
    "parquet": ("none", "gzip", "zstd", "lz4", "snappy"),
}

SUFFIXES = {"none": "", "gzip": ".gz", "zstd": ".zst", "lz4": ".lz4"}
"""What a codec adds to the extension of a text file."""


class Compressor(Protocol):
    """One compressed stream, fed in order."""

    def add(self, data: BytesLike) -> BytesLike:
        """Return the next compressed bytes, possibly none yet."""

    def finish(self) -> bytes:
        """Return the rest of the stream; nothing may be added after."""


def check_level(compression: Compression) -> None:
    """Refuse a level the codec does not have.

    Raises:
        FormatError: The message names the valid range.
    """
    codec, level = compression.codec, compression.level
    if codec not in LEVELS:
        raise FormatError(
            f"there is no compression named {codec!r}. Next: use one of {', '.join(LEVELS)}."
        )
    if level is None:
        return
    limits = LEVELS[codec]
    if limits is None:
        raise FormatError(
            f"compression {codec} has no levels, but level {level} was asked for. "
            f"Next: leave the level out."
        )
    lowest, highest = limits
    if not lowest <= level <= highest:
        raise FormatError(
            f"compression {codec} has no level {level}. Next: use {lowest} to {highest}."
        )


def check_codec(format_name: str, compression: Compression, usable: tuple[str, ...]) -> None:
    """Refuse a codec that is not among the `usable` ones, or a level the codec does not have.

    Raises:
        FormatError: The message names what is possible.
    """
    check_level(compression)
    if compression.codec not in usable:
        raise FormatError(
            f"{format_name} files cannot be compressed with {compression.codec}. "
            f"Next: use one of {', '.join(usable)}."
        )


def open_compressor(compression: Compression) -> Compressor:
    """Start a stream; a level of None is the codec's own default (gzip 6, zstd 3, lz4 1).

    Raises:
        FormatError: Text cannot be compressed with this codec or level.
    """
    check_codec("csv", compression, CODECS["csv"])
    if compression.codec == "gzip":
        return _Gzip(compression.level)
    if compression.codec == "zstd":
        return _Zstd(compression.level)
    if compression.codec == "lz4":
        return _Lz4(compression.level)
    return _Plain()


class _Plain:
    def add(self, data: BytesLike) -> BytesLike:
        return data

    def finish(self) -> bytes:
        return b""


class _Gzip:
    def __init__(self, level: int | None) -> None:
        # 16 + the window bits asks zlib for a gzip header, whose time stamp it leaves at 0.
        self._stream = zlib.compressobj(
            zlib.Z_DEFAULT_COMPRESSION if level is None else level,
            zlib.DEFLATED,
            16 + zlib.MAX_WBITS,
        )

    def add(self, data: BytesLike) -> BytesLike:
        return self._stream.compress(data)

    def finish(self) -> bytes:
        return self._stream.flush()


class _Zstd:
    def __init__(self, level: int | None) -> None:
        import zstandard

        self._stream = zstandard.ZstdCompressor(
            level=3 if level is None else level, write_checksum=True
        ).compressobj()

    def add(self, data: BytesLike) -> BytesLike:
        return self._stream.compress(data)

    def finish(self) -> bytes:
        return self._stream.flush()


class _Lz4:
    """One frame for each piece, so nothing is held back."""

    def __init__(self, level: int | None) -> None:
        import pyarrow as pa

        # Arrow's "lz4" is the frame format that the lz4 program reads, not the bare block.
        self._codec: Any = pa.Codec("lz4", compression_level=level)
        self._empty = True

    def add(self, data: BytesLike) -> BytesLike:
        self._empty = False
        # As a Buffer it would show its whole capacity, not only what was written to it.
        return bytes(self._codec.compress(data, asbytes=True))

    def finish(self) -> bytes:
        # An empty file is not a valid lz4 file, an empty frame is.
        return bytes(self._codec.compress(b"", asbytes=True)) if self._empty else b""
