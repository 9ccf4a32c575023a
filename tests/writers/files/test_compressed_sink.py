"""Compressed files of the sink: frames, the same bytes each time, and other programs that read them."""

from __future__ import annotations

import gzip
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
import xxhash
from sinks import open_sink, text, unzstd

from writers.codecs.compression import open_compressor
from writers.model import Compression

if TYPE_CHECKING:
    from collections.abc import Callable


def gunzip(path: Path) -> bytes:
    """Decompress with the gzip program."""
    return subprocess.run(["gzip", "-dc", str(path)], check=True, capture_output=True).stdout


def unlz4(path: Path) -> bytes:
    """Decompress frame by frame with Arrow's reader."""
    with pa.CompressedInputStream(pa.OSFile(str(path)), "lz4") as file:
        return bytes(file.read())


@pytest.mark.parametrize("codec", ["gzip", "zstd", "lz4"])
def test_a_buffer_is_a_frame(tmp_path: Path, codec: str) -> None:
    """Where frames end depends on the size of the buffers, not on how the bytes came."""
    data = text(200_000)
    for name, piece in (("a", 100), ("b", 33_333), ("c", 200_000)):
        sink = open_sink(tmp_path / name, codec, size=50_000)
        for start in range(0, 200_000, piece):
            sink.write(data[start : start + piece])
        sink.close()
    compressor = open_compressor(Compression(codec=codec))  # type: ignore[arg-type]
    frames = [compressor.frame(data[n : n + 50_000]) for n in range(0, 200_000, 50_000)]
    for name in ("a", "b", "c"):
        assert (tmp_path / name).read_bytes() == b"".join(frames)


@pytest.mark.parametrize(
    ("codec", "level", "decompress"),
    [
        ("gzip", None, gunzip),
        ("gzip", 1, lambda path: gzip.decompress(path.read_bytes())),
        ("zstd", None, unzstd),
        ("zstd", 22, unzstd),
        ("lz4", None, unlz4),
        ("lz4", 9, unlz4),
    ],
)
@pytest.mark.parametrize("size", [0, 10, 300_000])
def test_compressed_files_decompress_elsewhere(
    tmp_path: Path, codec: str, level: int | None, decompress: Callable[[Path], bytes], size: int
) -> None:
    """Programs and libraries other than ours read the file back, and it is smaller."""
    data = text(size)
    sink = open_sink(tmp_path / "f", codec, level)
    for start in range(0, size, 5000):
        sink.write(data[start : start + 5000])
    written, checksum = sink.close()
    found = (tmp_path / "f").read_bytes()
    assert decompress(tmp_path / "f") == data
    assert written == len(found)
    assert checksum == f"xxh3:{xxhash.xxh3_64_hexdigest(found)}"
    assert size < 1000 or written < size / 2


@pytest.mark.parametrize("codec", ["gzip", "zstd", "lz4"])
def test_same_input_gives_same_bytes(tmp_path: Path, codec: str) -> None:
    """Neither the file's name nor the time gets into a compressed file."""
    for name in ("a", "b"):
        sink = open_sink(tmp_path / name, codec)
        for start in range(0, 50_000, 777):
            sink.write(text(777, start))
        sink.close()
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert codec != "gzip" or (tmp_path / "a").read_bytes()[4:8] == bytes(4)
