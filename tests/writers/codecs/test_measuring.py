"""Figures of real codecs on real bytes; what is asserted holds at any speed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from writers.codecs.compression import open_compressor
from writers.codecs.measuring import encode_sample, measure_disk, measure_parquet, measure_text
from writers.model import Compression, OutputSpec, ParquetFormat, TextFormat

TEXT = b"".join(b"%d,name %d,%d.25\n" % (at, at % 97, at * 7) for at in range(20_000))
FRAMES = [memoryview(TEXT)[at : at + 100_000] for at in range(0, len(TEXT), 100_000)]
CANDIDATES = (
    Compression(),
    Compression(codec="lz4", level=1),
    Compression(codec="zstd", level=1),
    Compression(codec="gzip", level=6),
)


def batches() -> list[pa.RecordBatch]:
    """Return two batches of rows that compress."""
    ids = pa.array(range(5000), pa.int64())
    names = pa.array([f"name {at % 97}" for at in range(5000)])
    batch = pa.RecordBatch.from_arrays([ids, names], names=["id", "name"])
    return [batch.slice(0, 3000), batch.slice(3000)]


def spec(directory: Path, shape: TextFormat | ParquetFormat) -> OutputSpec:
    """Return an output into a directory."""
    return OutputSpec(directory=str(directory), format=shape, compression=Compression())


def test_the_ratio_is_that_of_the_frames_of_a_run() -> None:
    """With time for all frames a ratio is the size of the text over that of its frames."""
    found = measure_text(FRAMES, CANDIDATES, 60.0)
    assert [each.compression for each in found] == list(CANDIDATES)
    for each in found[1:]:
        compressor = open_compressor(each.compression)
        size = sum(len(compressor.frame(frame)) for frame in FRAMES)
        assert each.ratio == len(TEXT) / size
        assert each.sample_bytes == len(TEXT)
        assert each.cpu_seconds_per_byte > 0
        assert each.library
    assert (found[0].ratio, found[0].cpu_seconds_per_byte) == (1.0, 0.0)


def test_parquet_is_held_against_the_same_file_without_a_codec(tmp_path: Path) -> None:
    """A ratio is that of whole files, and none of them is left."""
    candidates = (Compression(), Compression(codec="zstd", level=1))
    figures, seconds, size = measure_parquet(
        batches(), spec(tmp_path, ParquetFormat()), candidates, 60.0
    )
    assert [each.compression for each in figures] == list(candidates)
    assert figures[0].sample_bytes == figures[1].sample_bytes == size
    assert figures[1].ratio > 1
    assert seconds > 0
    assert list(tmp_path.iterdir()) == []


def test_text_is_encoded_as_a_run_does(tmp_path: Path) -> None:
    """The sample is the very text of the format, uncompressed, and no file of it is left."""
    packed = OutputSpec(
        directory=str(tmp_path), format=TextFormat(), compression=Compression(codec="gzip")
    )
    seconds, text = encode_sample(batches(), packed)
    assert text.startswith(b"id,name\n0,name 0\n1,name 1\n")
    assert text.count(b"\n") == 5001
    assert seconds > 0
    assert list(tmp_path.iterdir()) == []


def test_a_disk_is_measured_without_a_trace(tmp_path: Path) -> None:
    """A directory has a speed and is as empty as before."""
    assert (measure_disk(str(tmp_path), 0.05) or 0) > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["missing", "file"])
def test_what_cannot_be_written_to_has_no_speed(tmp_path: Path, place: str) -> None:
    """A place that takes no file gives None, not an error: the run will say what is wrong."""
    (tmp_path / "file").write_text("x")
    assert measure_disk(str(tmp_path / place), 0.05) is None
