"""Direct I/O: the same bytes as without, exactly as many, and no error where it cannot be."""

from __future__ import annotations

import random
import resource
from pathlib import Path
from typing import Any

import pytest

from writers.errors import WriteError
from writers.files.direct_io import refusal
from writers.files.sink import Sink
from writers.model import Compression

RANDOM = random.Random(1).randbytes(9_000_001)


def filled(path: Path, sizes: list[int], *, codec: Any = "none", direct: bool = True) -> bytes:
    """Write pieces of these sizes, with a settle in the middle where a size is 0; read them."""
    sink = Sink(
        path,
        compression=Compression(codec=codec),
        buffer_bytes=1_000_000,
        buffers=3,
        direct_io=direct,
    )
    start = 0
    try:
        for size in sizes:
            if not size:
                sink.settle()
                assert sink.bytes_written
            sink.write(RANDOM[start : start + size])
            start += size
        size, _ = sink.close()
    except BaseException:
        sink.abort()
        raise
    data = path.read_bytes()
    assert size == len(data)
    return data


@pytest.fixture
def direct_directory(tmp_path: Path) -> Path:
    """A directory whose file system takes direct writes."""
    why = refusal(tmp_path)
    if why is not None:
        pytest.skip(f"{tmp_path}: {why}")
    return tmp_path


@pytest.mark.parametrize(
    "sizes",
    [
        [],
        [1],
        [4096],
        [4095, 2],
        [1_000_000] * 9,
        [9_000_001],
        [300_000, 0, 5_000_000, 3],
        [7777] * 1100,
    ],
    ids=lambda sizes: f"{len(sizes)}x{sum(sizes)}",
)
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_contents_are_the_same(direct_directory: Path, codec: str, sizes: list[int]) -> None:
    """Any size, in any pieces, compressed or not, leaves the bytes that normal writes leave."""
    direct = filled(direct_directory / "d", sizes, codec=codec)
    assert direct == filled(direct_directory / "n", sizes, codec=codec, direct=False)
    assert codec != "none" or direct == RANDOM[: sum(sizes)]


def test_no_space_is_kept(direct_directory: Path) -> None:
    """What was taken in advance behind the end of the file is given back."""
    filled(direct_directory / "f", [5_000_001])
    taken = (direct_directory / "f").stat().st_blocks * 512
    assert taken <= 5_000_001 + 64 * 1024


def test_directories_that_cannot_be_tried_say_why(tmp_path: Path) -> None:
    """The refusal tells what the system said."""
    assert "No such file or directory" in str(refusal(tmp_path / "missing"))


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_full_disk_is_an_error(full_disk: Path, codec: Any) -> None:
    """A disk that fills up under direct writes is told like any other, and the file is gone."""
    with pytest.raises(WriteError, match=r"f: .*\((ENOSPC|EFBIG)\)\. Next: "):
        filled(full_disk / "f", [4_000_000], codec=codec)
    assert not list(full_disk.iterdir())


def test_limit_on_file_sizes_is_an_error(direct_directory: Path) -> None:
    """A write cut short inside a block goes on normally, to the error that cut it."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_234_567, limits[1]))
        with pytest.raises(WriteError, match=r"\(EFBIG\)"):
            filled(direct_directory / "f", [3_000_000])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not (direct_directory / "f").exists()
