"""The sink: bytes in order, bounded memory, and memory that is used again."""

from __future__ import annotations

import ctypes
import fcntl
import io
import mmap
import os
import threading
import time
from pathlib import Path

import pytest
import xxhash
import zstandard
from sinks import PATIENCE, open_sink, text, unzstd

from writers.errors import WriteError
from writers.files.sink import Sink
from writers.model import Compression


@pytest.mark.parametrize("buffers", [1, 2, 4])
@pytest.mark.parametrize("size", [1, 700, 4096, 300_000])
def test_bytes_arrive_in_order(tmp_path: Path, buffers: int, size: int) -> None:
    """Pieces of any size, in any kind of object, leave one file with a matching checksum."""
    data = text(200_000 if size > 1 else 3000)
    sink = open_sink(tmp_path / "f.part", buffers=buffers)
    kinds = (bytes, bytearray, memoryview)
    for number, start in enumerate(range(0, len(data), size)):
        sink.write(kinds[number % 3](data[start : start + size]))
    written, checksum = sink.close()
    found = (tmp_path / "f.part").read_bytes()
    assert found == data
    assert written == len(data) == sink.bytes_accepted == sink.bytes_written
    assert checksum == f"xxh3:{xxhash.xxh3_64_hexdigest(found)}"


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("buffers", [1, 3])
def test_buffers_are_filled_in_place(tmp_path: Path, codec: str, buffers: int) -> None:
    """A producer may fill the sink's own memory, a part at a time, between other writes."""
    sink = open_sink(tmp_path / "f", codec, size=10_000, buffers=buffers)
    data = text(200_000)
    start = 0
    while start < len(data):
        if start % 3 == 0:
            sink.write(data[start : start + 9000])
            start += 9000
        room = sink.room()
        assert 1 <= len(room) <= 10_000
        count = min(len(room), 7001, max(0, len(data) - start))
        room[:count] = data[start : start + count]
        sink.advance(count)
        start += count
    assert sink.bytes_accepted == len(data)
    sink.close()
    found = (tmp_path / "f").read_bytes() if codec == "none" else unzstd(tmp_path / "f")
    assert found == data


def test_settle_makes_the_count_exact(tmp_path: Path) -> None:
    """After settle every accepted byte has been written, without closing the file."""
    sink = open_sink(tmp_path / "f", size=1 << 20)
    sink.write(text(300_000))
    sink.settle()
    assert sink.bytes_written == 300_000 == (tmp_path / "f").stat().st_size
    sink.write(b"more")
    assert sink.close()[0] == 300_004
    assert sink.write_seconds > 0


@pytest.mark.parametrize(("size", "synced"), [(9, False), (10, True), (11, True)])
def test_a_file_below_a_size_is_left_to_the_caller_to_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, synced: bool
) -> None:
    """It has all its bytes, and they are not waited for; that it has its name is checked."""
    found: list[int] = []
    monkeypatch.setattr(os, "fsync", found.append)
    sink = Sink(
        tmp_path / "f",
        compression=Compression(),
        buffer_bytes=4096,
        buffers=4,
        synced_from_bytes=10,
    )
    sink.write(bytes(size))
    assert sink.close()[0] == size
    assert (tmp_path / "f").read_bytes() == bytes(size)
    assert bool(found) == synced
    lost = Sink(
        tmp_path / "g",
        compression=Compression(),
        buffer_bytes=4096,
        buffers=4,
        synced_from_bytes=10,
    )
    (tmp_path / "g").unlink()
    with pytest.raises(WriteError):
        lost.close()


def cached_pages(path: Path) -> int:
    """Return how many pages of a file are in the page cache, by mincore(2)."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        memory = mmap.mmap(file.fileno(), size, flags=mmap.MAP_PRIVATE)
        found = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
        with memory:
            first = ctypes.c_char.from_buffer(memory)
            start = ctypes.c_void_p(ctypes.addressof(first))
            assert ctypes.CDLL(None).mincore(start, ctypes.c_size_t(size), found) == 0
            del first
    return sum(each & 1 for each in found)


@pytest.mark.parametrize("stays", [False, True])
def test_what_was_synced_leaves_the_page_cache(tmp_path: Path, stays: bool) -> None:
    """Of a large file while it is written, too; unless it is said to be read again soon."""
    size = 40 * 1024 * 1024
    sink = Sink(
        tmp_path / "f",
        compression=Compression(),
        buffer_bytes=4 * 1024 * 1024,
        buffers=2,
        stays_cached=stays,
    )
    sink.write(bytes(size))
    sink.settle()
    amid = cached_pages(tmp_path / "f")
    sink.close()
    pages = size // mmap.PAGESIZE
    if not stays and cached_pages(tmp_path / "f") == pages:
        pytest.skip("this file system keeps its files in memory (tmpfs)")
    assert (amid == pages) == stays
    assert cached_pages(tmp_path / "f") == (pages if stays else 0)
    assert (tmp_path / "f").read_bytes() == bytes(size)


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_what_one_buffer_holds_is_written_without_a_thread(tmp_path: Path, codec: str) -> None:
    """A thread starts with the second buffer; the small file is as whole, and so is its failure."""
    before, data = threading.active_count(), text(4096)
    sink = open_sink(tmp_path / "small", codec=codec)
    sink.write(data)
    assert threading.active_count() == before
    size, _ = sink.close()
    written = (tmp_path / "small").read_bytes()
    assert len(written) == size
    assert data == (zstandard.decompress(written, len(data)) if codec == "zstd" else written)
    assert sink.own_cpu_seconds == sink.compress_cpu_seconds + sink.write_cpu_seconds > 0
    sink = open_sink(tmp_path / "more", codec=codec)
    sink.write(data + b"x")
    assert threading.active_count() == before + (1 if codec == "none" else 2)
    sink.abort()
    assert sorted(os.listdir(tmp_path)) == ["small"]


def test_slow_destination_bounds_memory(tmp_path: Path) -> None:
    """While the destination stands still the producer waits with its buffers full, no more."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    sink = open_sink(pipe, size=64 * 1024, buffers=4)
    data = text(3_000_000)

    def produce() -> None:
        for start in range(0, len(data), 1000):
            sink.write(data[start : start + 1000])

    producer = threading.Thread(target=produce, daemon=True)
    producer.start()
    seen = -1
    while sink.bytes_accepted != seen or seen < 3 * 64 * 1024:
        seen = sink.bytes_accepted
        time.sleep(0.3)
    pipe_holds = fcntl.fcntl(reader, fcntl.F_GETPIPE_SZ)
    assert seen <= 4 * 64 * 1024 + pipe_holds + 1000
    os.set_blocking(reader, True)
    found = bytearray()
    ending = threading.Thread(target=lambda: (producer.join(), sink.close()), daemon=True)
    ending.start()
    with io.FileIO(reader) as file:
        while block := file.read(1 << 16):
            found += block
    ending.join(PATIENCE)
    assert bytes(found) == data


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_memory_is_used_again(tmp_path: Path, codec: str) -> None:
    """However much is written, only so many buffers are ever handed out."""
    sink = open_sink(tmp_path / "f", codec, size=16 * 1024, buffers=3)
    places = set()
    for _ in range(200):
        room = sink.room()
        places.add(ctypes.addressof(ctypes.c_char.from_buffer(room)))
        sink.advance(len(room))
    del room
    sink.close()
    assert len(places) <= 3
