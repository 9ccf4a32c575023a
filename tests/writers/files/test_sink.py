"""The sink: bytes in order, bounded memory, and failures that reach the producer."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gzip
import io
import mmap
import os
import random
import resource
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
import xxhash
import zstandard

from writers.codecs.compression import open_compressor
from writers.errors import FormatError, WriteError
from writers.files.checksums import open_digest
from writers.files.sink import Sink
from writers.model import Compression

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE = 180.0


def open_sink(
    path: Path, codec: str = "none", level: int | None = None, size: int = 4096, buffers: int = 4
) -> Sink:
    """Return a sink with small buffers."""
    return Sink(
        path,
        compression=Compression(codec=codec, level=level),  # type: ignore[arg-type]
        buffer_bytes=size,
        buffers=buffers,
    )


def text(size: int, seed: int = 1) -> bytes:
    """Return text of that size, compressible as text is."""
    words = random.Random(seed).choices([b"alpha,", b"beta,", b"\n", b"12.50,", b"gamma"], k=size)
    return b"".join(words)[:size]


def in_time(act: Callable[[], None]) -> None:
    """Run `act` in a thread and fail when it hangs."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            act()
        except BaseException as exc:
            failures.append(exc)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive(), "the producer hangs"
    if failures:
        raise failures[0]


@contextlib.contextmanager
def ends_of_threads() -> Iterator[list[type[BaseException] | None]]:
    """Collect the kinds of exceptions that end threads."""
    kinds: list[type[BaseException] | None] = []
    before, threading.excepthook = threading.excepthook, lambda args: kinds.append(args.exc_type)
    try:
        yield kinds
    finally:
        threading.excepthook = before


def gunzip(path: Path) -> bytes:
    """Decompress with the gzip program."""
    return subprocess.run(["gzip", "-dc", str(path)], check=True, capture_output=True).stdout


def unzstd(path: Path) -> bytes:
    """Decompress with the reader of zstandard, which checks the content's checksum."""
    with zstandard.open(path, "rb") as file:
        return bytes(file.read())


def unlz4(path: Path) -> bytes:
    """Decompress frame by frame with Arrow's reader."""
    with pa.CompressedInputStream(pa.OSFile(str(path)), "lz4") as file:
        return bytes(file.read())


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


def test_large_object_is_cut(tmp_path: Path) -> None:
    """An object larger than all buffers together is written whole, without copying it first."""
    data = text(1_000_000)
    sink = open_sink(tmp_path / "f", size=128 * 1024, buffers=2)
    sink.write(b"x")
    sink.write(pa.py_buffer(data))
    sink.close()
    assert (tmp_path / "f").read_bytes() == b"x" + data


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


def test_memory_starts_at_a_page(tmp_path: Path) -> None:
    """Each buffer begins where a page begins, as devices and vector instructions like it."""
    sink = open_sink(tmp_path / "f", size=5000)
    for _ in range(6):
        room = sink.room()
        assert ctypes.addressof(ctypes.c_char.from_buffer(room)) % mmap.PAGESIZE == 0
        sink.advance(len(room))
    del room
    sink.close()


def test_more_than_there_is_room_for_is_refused(tmp_path: Path) -> None:
    """Claiming bytes that nobody can have written is a mistake of the producer, and said so."""
    sink = open_sink(tmp_path / "f", size=100)
    with pytest.raises(ValueError, match="no room"):
        sink.advance(1)
    assert len(sink.room()) == 100
    for count in (101, -1):
        with pytest.raises(ValueError, match="do not fit"):
            sink.advance(count)
    assert sink.close()[0] == 0


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


def test_no_bytes_leave_an_empty_file(tmp_path: Path) -> None:
    """A sink closed at once leaves an empty file and the checksum of nothing."""
    sink = open_sink(tmp_path / "f")
    assert sink.close() == (0, f"xxh3:{xxhash.xxh3_64_hexdigest(b'')}")
    assert (tmp_path / "f").read_bytes() == b""


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


@pytest.mark.parametrize(
    ("codec", "level", "limits"), [("gzip", 10, "1 to 9"), ("zstd", 23, "1 to 22"), ("lz4", 0, "1")]
)
def test_level_out_of_range_is_refused(tmp_path: Path, codec: str, level: int, limits: str) -> None:
    """The refusal names the levels there are, and no file is created."""
    with pytest.raises(FormatError, match=f"no level {level}.*use {limits}"):
        open_sink(tmp_path / "f", codec, level)
    assert not list(tmp_path.iterdir())


def test_buffers_below_one_are_refused(tmp_path: Path) -> None:
    """No buffers, or buffers of no bytes, are refused before a file is created."""
    for size, buffers in ((0, 4), (4096, 0)):
        with pytest.raises(FormatError, match="impossible"):
            open_sink(tmp_path / "f", size=size, buffers=buffers)
    assert not list(tmp_path.iterdir())


def test_settle_makes_the_count_exact(tmp_path: Path) -> None:
    """After settle every accepted byte has been written, without closing the file."""
    sink = open_sink(tmp_path / "f", size=1 << 20)
    sink.write(text(300_000))
    sink.settle()
    assert sink.bytes_written == 300_000 == (tmp_path / "f").stat().st_size
    sink.write(b"more")
    assert sink.close()[0] == 300_004
    assert sink.write_seconds > 0


@pytest.mark.parametrize("place", ["missing", "file"])
def test_impossible_directory_is_named(tmp_path: Path, place: str) -> None:
    """A directory that is not there, or is a file, is an error with path, reason and advice."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(WriteError) as caught:
        open_sink(tmp_path / place / "f.part")
    said = str(caught.value)
    assert str(tmp_path / place / "f.part") in said
    assert {"missing": "(ENOENT)", "file": "(ENOTDIR)"}[place] in said
    assert "Next: " in said


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_full_disk_stops_the_producer(full_disk: Path, codec: str) -> None:
    """The producer gets the error, again at each call, and nothing is left after abort."""
    sink = open_sink(full_disk / "f.part", codec, size=64 * 1024, buffers=2)
    blocks = random.Random(1)

    def produce() -> None:
        for _ in range(200):
            sink.write(blocks.randbytes(50_000))

    with pytest.raises(WriteError, match=r"f\.part: .*\((ENOSPC|EFBIG)\)\. Next: "):
        in_time(produce)
    with pytest.raises(WriteError, match=r"f\.part"):
        sink.write(b"again")
    with pytest.raises(WriteError, match=r"f\.part"):
        sink.settle()
    sink.abort()
    assert not list(full_disk.iterdir())


def test_full_disk_met_at_close(full_disk: Path) -> None:
    """An error that only the last bytes meet comes out of close, and the file is gone."""
    sink = open_sink(full_disk / "f.part", size=4 << 20)
    sink.write(random.Random(1).randbytes(2 << 20))
    with pytest.raises(WriteError, match=r"\((ENOSPC|EFBIG)\)\. Next: "):
        in_time(lambda: (sink.close(), None)[1])
    assert not list(full_disk.iterdir())


def test_file_size_limit_is_an_error(tmp_path: Path) -> None:
    """A write cut short by the kernel's limit on file sizes fails; it is never taken as done."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    sink = open_sink(tmp_path / "f.part", size=64 * 1024)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
        sink.write(text(200_000))
        with pytest.raises(WriteError, match=r"\(EFBIG\)\. Next: .*ulimit"):
            in_time(lambda: (sink.close(), None)[1])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(tmp_path.iterdir())


def test_device_error_is_told_and_the_device_stays(tmp_path: Path) -> None:
    """A failing device is reported under the name it was given by, and never removed."""
    link = tmp_path / "device.part"
    link.symlink_to("/dev/full")
    sink = open_sink(link)
    with pytest.raises(WriteError, match=r"device\.part: .*\(ENOSPC\)"):
        in_time(lambda: [sink.write(text(4096)) for _ in range(100)] and None)
    sink.abort()
    assert link.is_symlink()


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


def test_file_removed_meanwhile_is_an_error(tmp_path: Path) -> None:
    """A file whose directory was removed under it is not reported as written."""
    (tmp_path / "staging").mkdir()
    sink = open_sink(tmp_path / "staging" / "f.part")
    sink.write(text(10_000))
    (tmp_path / "staging" / "f.part").unlink()
    (tmp_path / "staging").rmdir()
    with pytest.raises(WriteError, match=r"f\.part: .*\(ENOENT\)"):
        sink.close()


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


def test_abort_removes_the_file(tmp_path: Path) -> None:
    """Abort leaves nothing, also while buffers wait, and twice does no harm."""
    sink = open_sink(tmp_path / "f.part", "zstd")
    for _ in range(100):
        sink.write(text(10_000))
    sink.abort()
    sink.abort()
    assert not list(tmp_path.iterdir())


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


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_reader_that_stands_still_is_given_up_at_once(tmp_path: Path, codec: str) -> None:
    """Abort ends a write that waits for the reader of a pipe, and does not wait itself."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    sink = open_sink(pipe, codec, size=64 * 1024, buffers=3)
    blocks = random.Random(1)
    producing = threading.Thread(
        target=lambda: [sink.write(blocks.randbytes(64 * 1024)) for _ in range(100)], daemon=True
    )
    with ends_of_threads() as raised:
        producing.start()
        seen = -1
        while sink.bytes_accepted != seen or seen < 2 * 64 * 1024:
            seen = sink.bytes_accepted
            time.sleep(0.2)
        assert producing.is_alive()
        in_time(sink.abort)
        producing.join(PATIENCE)
    os.close(reader)
    assert not any(thread.name.startswith("sink ") for thread in threading.enumerate())
    assert raised == [WriteError]


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


@pytest.mark.parametrize("name", ["crc32c", "sha256"])
def test_other_checksums(tmp_path: Path, name: str) -> None:
    """The checksum asked for is that of the file, compressed as it is."""
    if name == "crc32c":
        pytest.importorskip("crc32c", reason="the extra `checksums` is not installed")
    sink = Sink(
        tmp_path / "f",
        compression=Compression(codec="zstd"),
        buffer_bytes=4096,
        buffers=2,
        checksum=name,
    )
    sink.write(text(50_000))
    _, checksum = sink.close()
    digest = open_digest(name)
    digest.update((tmp_path / "f").read_bytes())
    assert checksum == digest.text()


def test_pipe_that_nobody_reads_is_an_error(tmp_path: Path) -> None:
    """A reader that has gone before the pipe is opened is not waited for, and the pipe stays."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    kept = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    os.close(reader)
    with pytest.raises(WriteError, match=r"\(EPIPE\)\. Next: see why the reader"):
        in_time(lambda: open_sink(pipe) and None)
    os.close(kept)
    assert pipe.exists()


def test_reader_that_leaves_is_an_error(tmp_path: Path) -> None:
    """A pipe whose reader goes away ends the producer with EPIPE and stays where it is."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    sink = open_sink(pipe)
    os.close(reader)
    with pytest.raises(WriteError, match=r"\(EPIPE\)\. Next: "):
        in_time(lambda: [sink.write(text(4096)) for _ in range(100)] and None)
    sink.abort()
    assert pipe.exists()
