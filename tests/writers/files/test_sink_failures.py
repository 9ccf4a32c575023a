"""A sink that cannot write, direct writes, and the order of syncs."""

from __future__ import annotations

import os
import random
import resource
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from sinks import PATIENCE, ends_of_threads, in_time, open_sink, text

from writers.errors import WriteError
from writers.files.disk_space import why_not_direct
from writers.files.sink import Sink
from writers.files.syncing import Steps, SyncThreads, alone, together
from writers.model import Compression


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
    """A write interrupted by the kernel's limit on file sizes fails; it is never taken as done."""
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
    why = why_not_direct(tmp_path)
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


def test_directories_that_cannot_be_tried_say_why(tmp_path: Path) -> None:
    """The refusal has the system's words."""
    assert "No such file or directory" in str(why_not_direct(tmp_path / "missing"))


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_full_disk_is_an_error(full_disk: Path, codec: Any) -> None:
    """A disk that fills up under direct writes is an error like any other, and the file is gone."""
    with pytest.raises(WriteError, match=r"f: .*\((ENOSPC|EFBIG)\)\. Next: "):
        filled(full_disk / "f", [4_000_000], codec=codec)
    assert not list(full_disk.iterdir())


def test_limit_on_file_sizes_is_an_error(direct_directory: Path) -> None:
    """A write interrupted inside a block continues normally, to the error that cut it."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_234_567, limits[1]))
        with pytest.raises(WriteError, match=r"\(EFBIG\)"):
            filled(direct_directory / "f", [3_000_000])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not (direct_directory / "f").exists()


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    sync = os.fsync

    def recorded(descriptor: int) -> None:
        found.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", recorded)
    return found


def act(log: list[str], name: str, *steps: tuple[Any, ...]) -> Steps[str]:
    for number, wanted in enumerate(steps):
        log.append(f"{name}{number}")
        yield wanted
    log.append(f"{name} ends")
    return name


def test_an_act_goes_on_once_all_it_wants_is_synced(tmp_path: Path, log: list[str]) -> None:
    """Files by their descriptors, directories by their paths; its result is returned."""
    (tmp_path / "d").mkdir()
    with open(tmp_path / "f", "wb") as file:
        steps = ((file.fileno(), tmp_path / "d"), (tmp_path,))
        assert alone(act(log, "a", *steps)) == "a"
    assert log == ["a0", "f", "d", "a1", tmp_path.name, "a ends"]


def test_no_act_goes_on_before_all_of_a_step_is_synced(tmp_path: Path, log: list[str]) -> None:
    """What several want is synced once a step; an act of fewer steps ends before the others."""
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    acts = [
        act(log, "a", (tmp_path / "one", tmp_path), (tmp_path / "one",)),
        act(log, "b", (tmp_path / "other", tmp_path)),
    ]
    with SyncThreads() as threads:
        assert list(together(acts, threads)) == [(1, "b"), (0, "a")]
    assert log[:2] == ["a0", "b0"]
    assert sorted(log[2:5]) == sorted(["one", "other", tmp_path.name])
    assert log[5:] == ["a1", "b ends", "one", "a ends"]


def test_an_error_is_that_of_the_act_that_waits(tmp_path: Path, log: list[str]) -> None:
    """It may mend it, or end with it; the others go on."""

    def mending() -> Steps[str]:
        try:
            yield (tmp_path / "gone",)
        except WriteError:
            yield (tmp_path,)
        return "mended"

    acts = [act(log, "a", (tmp_path / "gone",)), mending(), act(log, "c", (tmp_path,), ())]
    with SyncThreads() as threads:
        found = dict(together(acts, threads))
    assert isinstance(found[0], WriteError)
    assert (found[1], found[2]) == ("mended", "c")
    with pytest.raises(WriteError, match="gone"):
        alone(act(log, "d", (tmp_path / "gone",)))


def test_an_error_of_any_kind_is_told_and_hangs_nobody(tmp_path: Path) -> None:
    """Python refuses an impossible name; the threads continue with the next act."""
    wrong = [tmp_path / f"{number}\0" for number in range(8)]
    with SyncThreads() as threads:
        failed = threads.sync(wrong)
        assert failed.keys() == set(wrong)
        assert {type(error) for error in failed.values()} == {ValueError}
        assert threads.sync([tmp_path, *wrong[:3]]).keys() == set(wrong[:3])


def test_where_no_thread_can_be_had_it_is_slower_and_nothing_else(
    tmp_path: Path, log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit of the system ends no run."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    (tmp_path / "one").mkdir()
    acts = [act(log, "a", (tmp_path, tmp_path / "one")), act(log, "b", (tmp_path / "gone",))]
    with SyncThreads() as threads:
        found = dict(together(acts, threads))
    assert found[0] == "a"
    assert isinstance(found[1], WriteError)
