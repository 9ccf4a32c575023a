"""Which installed library makes the compressed bytes, by name and version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from writers.codecs.gzip_libraries import gzip_library

if TYPE_CHECKING:
    from writers.model import Compression


def codec_library(format_name: str, compression: Compression) -> str | None:
    """Return the library behind a codec, such as `isal 1.9.1, level 3`; None without a codec.

    Two runs with the same library on the same kind of machine write the same bytes.

    Args:
        format_name: `csv` or `parquet`, whose pages are compressed by pyarrow.
        compression: Codec and level.
    """
    if compression.codec == "none":
        return None
    if format_name != "csv" or compression.codec == "lz4":
        return f"pyarrow {_version('pyarrow')}"
    if compression.codec == "gzip":
        library = gzip_library(compression.level)
        return f"{library.name} {library.version}, level {library.level}"
    return f"zstandard {_version('zstandard')}"


def text_libraries(codec: str) -> str | None:
    """Return what compresses text with this codec, by level where that differs; None for none."""
    if codec == "zstd":
        return f"zstandard {_version('zstandard')}"
    if codec == "lz4":
        return f"pyarrow {_version('pyarrow')}"
    if codec != "gzip":
        return None
    levels: dict[str, list[int]] = {}
    for level in range(1, 10):
        library = gzip_library(level)
        levels.setdefault(f"{library.name} {library.version}", []).append(level)
    if len(levels) == 1:
        return next(iter(levels))
    return ", ".join(f"{name} ({each[0]} to {each[-1]})" for name, each in levels.items())


def _version(distribution: str) -> str:
    # Imported on use: it takes milliseconds, and the library itself need not be imported.
    from importlib.metadata import version

    return version(distribution)
