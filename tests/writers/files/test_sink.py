"""The sink: bytes in order, bounded memory, checksums, and compressed frames."""

from __future__ import annotations

import ctypes
import fcntl
import gzip
import hashlib
import io
import mmap
import os
import subprocess
import sys
import threading
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
import xxhash
import zstandard
from sinks import PATIENCE, open_sink, text, unzstd

from writers.codecs.compression import open_compressor
from writers.errors import FormatError, WriteError
from writers.files.checksums import CHECKSUMS, checksum_name, open_digest
from writers.files.sink import Sink
from writers.model import Compression

if TYPE_CHECKING:
    from collections.abc import Callable


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
    assert sink.stages().write_s > 0


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
    """Of a large file while it is written, too; unless it will be read again soon."""
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
    stages = sink.stages()
    assert stages.own_cpu_s == stages.compress_cpu_s + stages.write_cpu_s > 0
    sink = open_sink(tmp_path / "more", codec=codec)
    sink.write(data + b"x")
    assert threading.active_count() == before + (1 if codec == "none" else 2)
    sink.abort()
    assert sorted(os.listdir(tmp_path)) == ["small"]


def test_slow_destination_bounds_memory(tmp_path: Path) -> None:
    """While the destination is still the producer waits with its buffers full, no more."""
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
    """However much is written, only that many buffers are ever handed out."""
    sink = open_sink(tmp_path / "f", codec, size=16 * 1024, buffers=3)
    places = set()
    for _ in range(200):
        room = sink.room()
        places.add(ctypes.addressof(ctypes.c_char.from_buffer(room)))
        sink.advance(len(room))
    del room
    sink.close()
    assert len(places) <= 3


MIB = 1024 * 1024
EARLY_SECONDS = 180.0


def test_a_thread_without_work_is_given_a_part_of_a_buffer(tmp_path: Path) -> None:
    """A part of it is in the file while the producer still fills the rest, and only once."""
    sink = Sink(tmp_path / "f", compression=Compression(), buffer_bytes=4 * MIB, buffers=2)
    head, part, rest = b"h" * (4 * MIB), b"p" * MIB, b"r" * 1000
    sink.write(head)
    sink.settle()
    room = sink.room()
    room[:MIB] = part
    sink.advance(MIB)
    deadline = time.monotonic() + EARLY_SECONDS
    while sink.bytes_written < 5 * MIB and time.monotonic() < deadline:
        time.sleep(0.001)
    assert (tmp_path / "f").stat().st_size == 5 * MIB
    sink.write(rest)
    assert sink.close()[0] == 5 * MIB + 1000
    assert (tmp_path / "f").read_bytes() == head + part + rest


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
    frames = [compressor(data[n : n + 50_000]) for n in range(0, 200_000, 50_000)]
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
    """Other programs and libraries read the file back, and it is smaller."""
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


DATA = bytes(range(256)) * 5000


def crc32c_by_bits(data: bytes) -> int:
    """Return the CRC-32C as the polynomial defines it, one bit at a time."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def text_of(name: str, *pieces: bytes | memoryview) -> str:
    """Return the checksum of the pieces."""
    digest = open_digest(name)
    for piece in pieces:
        digest.update(piece)
    return f"{name}:{digest.hexdigest()}"


@pytest.mark.parametrize("name", CHECKSUMS)
def test_pieces_do_not_matter(name: str) -> None:
    """Any pieces in any kind of object give the checksum of all bytes."""
    if name == "crc32c":
        pytest.importorskip("crc32c", reason="the extra `checksums` is not installed")
    whole = text_of(name, DATA)
    assert whole.startswith(f"{name}:")
    assert text_of(name, DATA[:7], memoryview(DATA)[7:90_000], bytearray(DATA[90_000:])) == whole  # type: ignore[arg-type]
    assert text_of(name, DATA[:-1]) != whole
    assert checksum_name(whole) == name


def test_checksums_are_those_of_others() -> None:
    """xxh3 and sha256 are what their libraries compute, crc32c what its polynomial says."""
    assert text_of("xxh3", DATA) == f"xxh3:{xxhash.xxh3_64_hexdigest(DATA)}"
    assert text_of("sha256", DATA) == f"sha256:{hashlib.sha256(DATA).hexdigest()}"
    pytest.importorskip("crc32c", reason="the extra `checksums` is not installed")
    for data in (b"", b"123456789", DATA[:3001]):
        assert text_of("crc32c", data) == f"crc32c:{crc32c_by_bits(data):08x}"
    assert text_of("crc32c", b"123456789") == "crc32c:e3069283"
    assert text_of("crc32c", b"123456789") != f"crc32c:{zlib.crc32(b'123456789'):08x}"


def test_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its library crc32c is refused with the command that brings it."""
    monkeypatch.setitem(sys.modules, "crc32c", None)
    with pytest.raises(FormatError, match=r"crc32c.*Next: pip install 'unloader\[checksums\]'"):
        open_digest("crc32c")
