"""A sink that cannot write: the producer is told at once, and nothing hangs or is left."""

from __future__ import annotations

import os
import random
import resource
import threading
import time
from pathlib import Path

import pytest
from sinks import PATIENCE, ends_of_threads, in_time, open_sink, text

from writers.errors import WriteError


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


def test_file_removed_meanwhile_is_an_error(tmp_path: Path) -> None:
    """A file whose directory was removed under it is not reported as written."""
    (tmp_path / "staging").mkdir()
    sink = open_sink(tmp_path / "staging" / "f.part")
    sink.write(text(10_000))
    (tmp_path / "staging" / "f.part").unlink()
    (tmp_path / "staging").rmdir()
    with pytest.raises(WriteError, match=r"f\.part: .*\(ENOENT\)"):
        sink.close()


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


def test_pipe_that_nobody_reads_is_an_error(tmp_path: Path) -> None:
    """A reader that has gone before the pipe is opened is not waited for, and the pipe stays."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    kept = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    os.close(reader)
    with pytest.raises(WriteError, match=r"\(EPIPE\)\. Next: find out why the reader"):
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
