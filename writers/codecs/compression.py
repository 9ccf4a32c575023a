"""Codecs for text output: a buffer of bytes in, one whole compressed frame out.

A frame is a gzip member, a zstd frame or an lz4 frame. It depends only on its data and the level:
not on a clock, a file name or the frame before it. A file is any number of frames, so files can be
joined end to end and a reader may decompress the frames side by side. Parquet compresses inside its
pages and takes only the checks from here.

The library that makes gzip members of each level: an accelerated one where it is installed.

All of them make the same format; the bytes differ from library to library, and may differ from one
version of a library to the next or between kinds of CPU. So a run records the library that it used.

Measured on 8 MiB of two dialects of the reference table, of repetitive orders and of program text,
CPU seconds of one core: isal is 4 to 6 times as fast as zlib at levels 1 to 3 and its files are as
small or smaller. From level 4 on zlib-ng is 1.3 to 4 times as fast as zlib, its files between 1.2 %
smaller and 5 % larger.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from typing import Any

from writers.errors import FormatError
from writers.model import Codec, Compression

BytesLike = bytes | bytearray | memoryview

LEVELS: dict[Codec, tuple[int, int] | None] = {
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


Compress = Callable[[BytesLike], BytesLike]
"""Returns one whole frame that holds some bytes, or none; used by one thread at a time."""


def check_codec(format_name: str, compression: Compression, usable: tuple[str, ...]) -> None:
    """Refuse a codec that is not among the `usable` ones, or a level the codec does not have."""
    codec, level = compression.codec, compression.level
    if codec not in LEVELS:
        raise FormatError(
            f"compression {codec!r} does not exist.", f"use one of {', '.join(LEVELS)}."
        )
    if level is not None:
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
    if codec not in usable:
        raise FormatError(
            f"{format_name} files cannot be compressed with {codec}.",
            f"use one of {', '.join(usable)}.",
        )


def open_compressor(compression: Compression) -> Compress:
    """Return the maker of frames; without a level zstd 3, lz4 1, isal 3 or zlib 6."""
    check_codec("csv", compression, FRAMED)
    level = compression.level
    if compression.codec == "gzip":
        _, used_level, module = gzip_library(level)

        def member(data: BytesLike) -> BytesLike:
            # 16 + the window bits asks for a gzip header, whose time stamp is left at 0.
            stream = module.compressobj(used_level, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
            return b"".join((stream.compress(data), stream.flush()))

        return member
    if compression.codec == "zstd":
        import zstandard

        # Each frame has the size of its content at the start and its checksum at the end.
        return zstandard.ZstdCompressor(
            level=3 if level is None else level, write_checksum=True, write_content_size=True
        ).compress
    import pyarrow as pa

    codec = pa.Codec("lz4", compression_level=level)
    # As a Buffer it would show its whole capacity, not only the written bytes.
    return lambda data: bytes(codec.compress(data, asbytes=True))


ISAL_LEVELS = (1, 3)
"""isal's level 0 compresses, unlike the level 0 of the others, and is its weakest: it is never
chosen."""

ISAL_DEFAULT = 3
"""Without a level: on the reference rows 0.3 % larger than zlib's level 6, and 14 times as fast."""

ZLIB_NG_LEVELS = (4, 9)
ZLIB_DEFAULT = 6


def gzip_library(level: int | None) -> tuple[str, int, Any]:
    """Return name and version, level, and `compressobj`'s module; None is the best default."""
    if level is None or ISAL_LEVELS[0] <= level <= ISAL_LEVELS[1]:
        with suppress(ImportError):
            import isal
            from isal import isal_zlib

            return f"isal {isal.__version__}", ISAL_DEFAULT if level is None else level, isal_zlib
    level = ZLIB_DEFAULT if level is None else level
    if ZLIB_NG_LEVELS[0] <= level <= ZLIB_NG_LEVELS[1]:
        with suppress(ImportError):
            import zlib_ng
            from zlib_ng import zlib_ng as zlib_ng_module

            return f"zlib-ng {zlib_ng.__version__}", level, zlib_ng_module
    return f"zlib {zlib.ZLIB_RUNTIME_VERSION}", level, zlib


def codec_library(format_name: str, compression: Compression) -> str | None:
    """Return the library of a codec, such as `isal 1.9.1, level 3`: the same bytes every time."""
    if compression.codec == "none":
        return None
    if format_name != "csv" or compression.codec == "lz4":
        return f"pyarrow {version('pyarrow')}"
    if compression.codec == "gzip":
        name, level, _ = gzip_library(compression.level)
        return f"{name}, level {level}"
    return f"zstandard {version('zstandard')}"


def text_libraries(codec: Codec) -> str | None:
    """Return what compresses text with this codec, by level where that differs; None for none."""
    if codec != "gzip":
        return codec_library("csv", Compression(codec=codec)) if codec in FRAMED else None
    levels: dict[str, list[int]] = {}
    for level in range(1, 10):
        levels.setdefault(gzip_library(level)[0], []).append(level)
    if len(levels) == 1:
        return next(iter(levels))
    return ", ".join(f"{name} ({each[0]} to {each[-1]})" for name, each in levels.items())
