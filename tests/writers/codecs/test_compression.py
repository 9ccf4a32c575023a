"""Frames: whole by themselves, the same every time, and read in a row by other programs."""

from __future__ import annotations

import gzip
import shutil
import subprocess
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
import zstandard

from writers.codecs.compression import FRAMED, SUFFIXES, open_compressor
from writers.model import Compression

PIECES = [
    b"".join(b"%d,name %d\n" % (number, number % 97) for number in part)
    for part in (range(4000), range(4000, 4001), range(0), range(4001, 9000))
]


def frames(codec: Any, level: int | None = None) -> list[bytes]:
    """Return the pieces, each as a frame."""
    compressor = open_compressor(Compression(codec=codec, level=level))
    return [bytes(compressor.frame(piece)) for piece in PIECES]


def decompressed(codec: str, data: bytes) -> bytes:
    """Decompress with a library that did not make the frames, or with its streaming reader."""
    if codec == "gzip":
        return gzip.decompress(data)
    if codec == "zstd":
        with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
            return reader.read()
    with pa.CompressedInputStream(pa.py_buffer(data), "lz4") as stream:
        return bytes(stream.read())


@pytest.mark.parametrize("codec", FRAMED)
def test_each_frame_stands_alone(codec: str) -> None:
    """A frame is read without those before it, so many readers can share a file."""
    assert [decompressed(codec, frame) for frame in frames(codec)] == PIECES


def test_zstd_frames_tell_their_size_and_check_themselves() -> None:
    """A reader knows from the frame's first bytes how much memory it needs, and finds damage."""
    for frame, piece in zip(frames("zstd"), PIECES, strict=True):
        parameters = zstandard.get_frame_parameters(frame)
        assert (parameters.content_size, parameters.has_checksum) == (len(piece), True)


@pytest.mark.parametrize(
    ("codec", "program"),
    [("gzip", "gzip"), ("zstd", "zstd"), ("lz4", "lz4"), ("gzip", "duckdb"), ("zstd", "duckdb")],
)
def test_others_read_all_frames(tmp_path: Path, codec: str, program: str) -> None:
    """The codec's own program and DuckDB go on behind the first frame."""
    path = tmp_path / f"f.csv{SUFFIXES[codec]}"
    path.write_bytes(b"".join(frames(codec)))
    if program == "duckdb":
        with duckdb.connect() as connection:
            query = "select count(*), sum(column0) from read_csv(?, header = false)"
            found = connection.execute(query, [str(path)]).fetchone()
        assert found == (9000, sum(range(9000)))
        return
    if shutil.which(program) is None:
        pytest.skip(f"the program {program} is not installed")
    ran = subprocess.run([program, "-dc", str(path)], check=True, capture_output=True)
    assert ran.stdout == b"".join(PIECES)
