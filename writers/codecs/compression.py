"""Codecs for text output: a buffer of bytes in, one whole compressed frame out.

A frame is a gzip member, a zstd frame or an lz4 frame, and depends on nothing but its data and
the level: no clock, no file name, no frame before it. A file is any number of frames, so files
can be joined end to end and a reader may decompress the frames side by side. Parquet compresses
inside its pages and takes only the checks from here.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, Protocol

from writers.codecs.gzip_libraries import gzip_library
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

FRAMED = ("gzip", "zstd", "lz4")
"""The codecs that make frames."""

SUFFIXES = {"none": "", "gzip": ".gz", "zstd": ".zst", "lz4": ".lz4"}
"""What a codec adds to the extension of a text file."""


class Compressor(Protocol):
    """Makes frames; used by one thread at a time."""

    def frame(self, data: BytesLike) -> BytesLike:
        """Return one whole frame that holds these bytes, none of them included."""


def check_level(compression: Compression) -> None:
    """Refuse a level the codec does not have.

    Raises:
        FormatError: The message names the valid range.
    """
    codec, level = compression.codec, compression.level
    if codec not in LEVELS:
        raise FormatError(
            f"compression {codec!r} does not exist.", f"use one of {', '.join(LEVELS)}."
        )
    if level is None:
        return
    limits = LEVELS[codec]
    if limits is None:
        raise FormatError(
            f"compression {codec} has no levels, but level {level} was requested.",
            "leave the level out.",
        )
    lowest, highest = limits
    if not lowest <= level <= highest:
        raise FormatError(
            f"compression {codec} has no level {level}.", f"use {lowest} to {highest}."
        )


def check_codec(format_name: str, compression: Compression, usable: tuple[str, ...]) -> None:
    """Refuse a codec that is not among the `usable` ones, or a level the codec does not have.

    Raises:
        FormatError: The message names what is possible.
    """
    check_level(compression)
    if compression.codec not in usable:
        raise FormatError(
            f"{format_name} files cannot be compressed with {compression.codec}.",
            f"use one of {', '.join(usable)}.",
        )


def open_compressor(compression: Compression) -> Compressor:
    """Return what makes frames; a level of None is the codec's own default: zstd 3, lz4 1, and of
    gzip that of the library (isal 3, zlib 6).

    Raises:
        FormatError: Text cannot be compressed with this codec or level, or the codec is "none",
            which has no frames.
    """
    check_codec("csv", compression, FRAMED)
    if compression.codec == "gzip":
        return _Gzip(compression.level)
    if compression.codec == "zstd":
        return _Zstd(compression.level)
    return _Lz4(compression.level)


class _Gzip:
    """One gzip member a frame; its header has no time and no name."""

    def __init__(self, level: int | None) -> None:
        self._library = gzip_library(level)

    def frame(self, data: BytesLike) -> BytesLike:
        library = self._library
        # 16 + the window bits asks for a gzip header, whose time stamp is left at 0.
        stream = library.module.compressobj(library.level, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
        return b"".join((stream.compress(data), stream.flush()))


class _Zstd:
    """Frames with the size of their content in front and its checksum behind."""

    def __init__(self, level: int | None) -> None:
        import zstandard

        self._codec = zstandard.ZstdCompressor(
            level=3 if level is None else level, write_checksum=True, write_content_size=True
        )

    def frame(self, data: BytesLike) -> BytesLike:
        return self._codec.compress(data)


class _Lz4:
    """Frames as the lz4 program reads them, not bare blocks."""

    def __init__(self, level: int | None) -> None:
        import pyarrow as pa

        self._codec: Any = pa.Codec("lz4", compression_level=level)

    def frame(self, data: BytesLike) -> BytesLike:
        # As a Buffer it would show its whole capacity, not only what was written to it.
        return bytes(self._codec.compress(data, asbytes=True))
