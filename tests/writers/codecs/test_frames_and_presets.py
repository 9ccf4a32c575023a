"""Codecs: frames, libraries, measured figures, and the choice of a preset."""

from __future__ import annotations

import gzip
import importlib.util
import shutil
import subprocess
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
import zstandard

from writers.codecs.choice import (
    CANDIDATES,
    PRESETS,
    UNMEASURED,
    Candidate,
    CodecFigures,
    Workload,
    choose,
    pick,
    predict,
)
from writers.codecs.compression import (
    FRAMED,
    SUFFIXES,
    codec_library,
    gzip_library,
    open_compressor,
)
from writers.codecs.measuring import encode_sample, measure_disk, measure_parquet, measure_text
from writers.model import Compression, OutputSpec, ParquetFormat, TextFormat

PIECES = [
    b"".join(b"%d,name %d\n" % (number, number % 97) for number in part)
    for part in (range(4000), range(4000, 4001), range(0), range(4001, 9000))
]


def frames(codec: Any, level: int | None = None) -> list[bytes]:
    """Return the pieces, each as a frame."""
    compressor = open_compressor(Compression(codec=codec, level=level))
    return [bytes(compressor(piece)) for piece in PIECES]


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
    """A frame is read without those before it, that many readers can share a file."""
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
    """The codec's own program and DuckDB read on after the first frame."""
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


GZIP_PIECES = [
    b"".join(b"%d,n%d\n" % (at, at % 89) for at in range(9000)),
    b"",
    b"x",
    bytes(300_000),
]
LEVELS = (None, *range(1, 10))


def served_by(level: int | None) -> str:
    """Return the name of the library that is to serve a level here."""
    isal = importlib.util.find_spec("isal") is not None
    zlib_ng = importlib.util.find_spec("zlib_ng") is not None
    if isal and (level is None or level <= 3):
        return "isal"
    return "zlib-ng" if zlib_ng and (level is None or level >= 4) else "zlib"


@pytest.mark.parametrize("level", LEVELS)
def test_members_of_every_level_are_read_by_others(tmp_path: Path, level: int | None) -> None:
    """zlib, which checks sum and length, and the gzip program read several members in a row."""
    compressor = open_compressor(Compression(codec="gzip", level=level))
    members = [bytes(compressor(piece)) for piece in GZIP_PIECES]
    assert [gzip.decompress(member) for member in members] == GZIP_PIECES
    # No time stamp and no name: the same bytes tomorrow.
    assert {member[:8] for member in members} == {b"\x1f\x8b\x08" + bytes(5)}
    assert members == [bytes(compressor(memoryview(piece))) for piece in GZIP_PIECES]
    path = tmp_path / "members.gz"
    path.write_bytes(b"".join(members))
    if shutil.which("gzip") is None:
        pytest.skip("the program gzip is not installed")
    done = subprocess.run(["gzip", "-dc", str(path)], capture_output=True, check=True)
    assert done.stdout == b"".join(GZIP_PIECES)


@pytest.mark.parametrize("level", LEVELS)
def test_the_library_of_a_level_follows_from_what_is_installed(level: int | None) -> None:
    """isal serves 1 to 3 and the default, zlib-ng 4 to 9, zlib the other levels."""
    library, used, _ = gzip_library(level)
    name = library.partition(" ")[0]
    assert name == served_by(level)
    assert used == (level or {"isal": 3, "zlib-ng": 6, "zlib": 6}[name])
    said = codec_library("csv", Compression(codec="gzip", level=level))
    assert said == f"{library}, level {used}"


TEXT = b"".join(b"%d,name %d,%d.25\n" % (at, at % 97, at * 7) for at in range(20_000))
FRAMES = [memoryview(TEXT)[at : at + 100_000] for at in range(0, len(TEXT), 100_000)]
FIGURED = (
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
    """With time for all frames a ratio is the size of the text over the size of its frames."""
    found = measure_text(FRAMES, FIGURED, 60.0)
    assert [each.compression for each in found] == list(FIGURED)
    for each in found[1:]:
        compressor = open_compressor(each.compression)
        size = sum(len(compressor(frame)) for frame in FRAMES)
        assert each.ratio == len(TEXT) / size
        assert each.sample_bytes == len(TEXT)
        assert each.cpu_seconds_per_byte > 0
        assert each.library
    assert (found[0].ratio, found[0].cpu_seconds_per_byte) == (1.0, 0.0)


def test_parquet_is_held_against_the_same_file_without_a_codec(tmp_path: Path) -> None:
    """A ratio compares whole files, and no file is left."""
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
    """A place that takes no file gives None, not an error: the run reports the problem."""
    (tmp_path / "file").write_text("x")
    assert measure_disk(str(tmp_path / place), 0.05) is None


GB = 10**9
NONE = CodecFigures(compression=Compression(), sample_bytes=GB, ratio=1.0, cpu_seconds_per_byte=0.0)
LIGHT = CodecFigures(
    compression=Compression(codec="lz4", level=1),
    sample_bytes=GB,
    ratio=1.2,
    cpu_seconds_per_byte=2e-9,
)
MIDDLE = CodecFigures(
    compression=Compression(codec="zstd", level=1),
    sample_bytes=GB,
    ratio=1.6,
    cpu_seconds_per_byte=3e-9,
)
HEAVY = CodecFigures(
    compression=Compression(codec="zstd", level=9),
    sample_bytes=GB,
    ratio=1.8,
    cpu_seconds_per_byte=30e-9,
)
ALL = (NONE, LIGHT, MIDDLE, HEAVY)


def load(
    *, disk: float | None = None, fetch: float = 0.0, cores: int = 4, one_thread: bool = False
) -> Workload:
    """Return work that four workers encode at 1 GB a second each."""
    return Workload(
        fetch_seconds_per_byte=fetch,
        fetch_cpu_per_byte=0.0,
        encode_cpu_per_byte=1e-9,
        one_thread=one_thread,
        parallelism=4,
        cores=cores,
        disk_bytes_per_second=disk,
    )


def predictions(work: Workload) -> tuple[Candidate, ...]:
    """Return what each codec would take."""
    return tuple(predict(work, each) for each in ALL)


def picks(work: Workload) -> dict[str, str]:
    """Return the codec of each preset."""
    made = predictions(work)
    return {preset: pick(preset, made).compression.label for preset in PRESETS}


@pytest.mark.parametrize(
    ("work", "figures", "seconds", "limit"),
    [
        (load(), NONE, 0.25, "processors"),
        (load(cores=2), NONE, 0.5, "processors"),
        (load(disk=1e9), NONE, 1.0, "disk"),
        (load(disk=1e9), MIDDLE, 1.0, "processors"),
        (load(fetch=20e-9), MIDDLE, 5.0, "source"),
        (load(cores=64), HEAVY, 7.75, "processors"),
    ],
)
def test_elapsed_is_that_of_the_scarcest(
    work: Workload, figures: CodecFigures, seconds: float, limit: str
) -> None:
    """CPU over cores in use, a worker's slowest stage, or bytes over the disk: the largest."""
    found = predict(work, figures)
    assert found.predicted_seconds == pytest.approx(seconds)
    assert found.limit == limit
    assert found.predicted_bytes == round(GB / figures.ratio)


def test_smallest_has_a_bound() -> None:
    """A codec that makes the run more than four times as long is not taken."""
    assert picks(load())["smallest"] == "zstd:1"
    assert picks(load(disk=1e8))["smallest"] == "zstd:9"


def test_balanced_trades_time_for_bytes_at_par() -> None:
    """More time must save a larger share of the bytes, and half as much again is the most."""
    assert picks(load(disk=9e8)) == {"fastest": "lz4:1", "balanced": "zstd:1", "smallest": "zstd:1"}


def test_equals_are_decided_by_their_order() -> None:
    """Figures that differ by less than the noise give the lighter codec, every time."""
    twin = CodecFigures(
        compression=Compression(codec="zstd", level=3),
        sample_bytes=GB,
        ratio=1.601,
        cpu_seconds_per_byte=2.99e-9,
    )
    work = load(disk=6e8)
    made = (predict(work, MIDDLE), predict(work, twin))
    for preset in PRESETS:
        assert pick(preset, made) is made[0]


@pytest.mark.parametrize("preset", PRESETS)
def test_without_figures_there_is_a_choice_all_the_same(preset: str) -> None:
    """An empty table has nothing to measure: the codec is a fixed one that each format can use."""
    choice = choose(preset, ())  # type: ignore[arg-type]
    assert choice.compression == UNMEASURED[choice.preset]
    assert "no rows" in choice.reason
    assert all(choice.compression in each for each in CANDIDATES.values())
