"""Standard output and named pipes: bytes in order, exact counts, and ends."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from processes import command

from unloader.errors import Interrupted, OutputFailed
from unloader.storage.stream_relay import Stream, open_for_reader

DATA = os.urandom(3 << 20)


def relay_to(target: int) -> Stream:
    """Return a stream that passes everything on to a descriptor."""
    stream = Stream("the target", is_pipe=False)
    stream.begin(target)
    return stream


def put(relay: Stream, data: bytes) -> None:
    """Write as a worker does: open the path, write, close."""
    with open(relay.path, "wb", buffering=0) as file:
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]


def test_bytes_of_several_writers_arrive_in_order() -> None:
    """Writers come and go; the reader sees one stream and its end."""
    source, target = os.pipe()
    relay = relay_to(target)
    got: list[bytes] = []

    def read() -> None:
        with open(source, "rb") as file:
            got.append(file.read())

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    for _ in range(2):
        put(relay, DATA)
    relay.finish()
    reader.join(180)
    assert got == [DATA * 2]
    assert relay.failure is None
    assert relay.passed == relay.taken == 2 * len(DATA)


@pytest.mark.parametrize("mode", [os.O_TRUNC, os.O_APPEND])
def test_a_file_is_written_where_it_stands(tmp_path: Path, mode: int) -> None:
    """A file that a shell opened with > or >> keeps its content, as with any program."""
    path = tmp_path / "out"
    path.write_bytes(b"old ")
    descriptor = os.open(path, os.O_WRONLY | mode)
    os.write(descriptor, b"first ")
    relay = relay_to(descriptor)
    put(relay, DATA)
    relay.finish()
    kept = b"old " if mode == os.O_APPEND else b""
    assert path.read_bytes() == kept + b"first " + DATA


def test_what_waits_in_the_pipe_counts_as_taken() -> None:
    """A reader that is still: bytes are taken from the worker, and not passed on in full."""
    source, target = os.pipe()
    relay = relay_to(target)
    assert relay.taken == 0
    put(relay, b"x" * 200_000)
    command.wait_for(lambda: relay.taken == 200_000, "200,000 bytes")
    assert relay.passed < 200_000
    relay.break_off()
    os.close(source)


def test_a_reader_that_ended_is_noticed_without_a_write() -> None:
    """The failure appears without a write, and the next writer gets a broken pipe."""
    source, target = os.pipe()
    relay = relay_to(target)
    path = relay.path
    os.close(source)
    command.wait_for(lambda: relay.failure is not None, "a failure")
    assert isinstance(relay.failure, BrokenPipeError)
    with pytest.raises(BrokenPipeError), open(path, "wb", buffering=0) as file:
        file.write(b"x")
    relay.break_off()


def test_a_full_disk_is_a_failure() -> None:
    """The error of the target is kept for the user."""
    relay = relay_to(os.open("/dev/full", os.O_WRONLY))
    put(relay, b"x")
    command.wait_for(lambda: relay.failure is not None, "a failure")
    with pytest.raises(OutputFailed, match="the target: No space left on device"):
        relay.check()
    relay.break_off()


def test_nothing_is_left_open() -> None:
    """After its end, either way, every descriptor is closed and the thread has gone."""
    before, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    for finished in (True, False):
        source, target = os.pipe()
        relay = relay_to(target)
        if finished:
            relay.finish()
        relay.break_off()
        os.close(source)
        # Fewer, where something of an earlier test has ended meanwhile.
        command.wait_for(lambda: len(os.listdir("/proc/self/fd")) <= before, "closed files")
        command.wait_for(lambda: threading.active_count() <= threads, "ended threads")


PATIENT: dict[str, Any] = {
    "open_seconds": 30.0,
    "stall_seconds": 0.0,
    "stop": lambda: False,
    "notify": lambda text: None,
}


class Reader:
    """Reads a named pipe to its end, in a thread."""

    def __init__(self, path: Path) -> None:
        """Begin to read."""
        os.mkfifo(path)
        self.data = b""
        self._thread = threading.Thread(target=self._read, args=(path,), daemon=True)
        self._thread.start()

    def all(self) -> bytes:
        """Return all that came, once the pipe has ended."""
        self._thread.join(180)
        return self.data

    def _read(self, path: Path) -> None:
        self.data = path.read_bytes()


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[tuple[Stream, Reader]]:
    """A named pipe with a reader, opened as a stream."""
    path = tmp_path / "pipe"
    reader = Reader(path)
    with closing(Stream(str(path), is_pipe=True)) as stream:
        stream.open(**PATIENT)
        yield stream, reader
    reader.all()


def write(stream: Stream, data: bytes) -> None:
    """Write as a worker does."""
    with open(stream.path, "wb") as file:
        file.write(data)


def test_finish_passes_everything_on(pipe: tuple[Stream, Reader]) -> None:
    """The reader has all bytes of all workers when it returns, and the end."""
    stream, reader = pipe
    for number in range(3):
        write(stream, b"%d\n" % number)
    stream.finish()
    assert (stream.taken, stream.passed) == (6, 6)
    assert reader.all() == b"0\n1\n2\n"


def test_a_reader_that_ends_early_is_noticed(tmp_path: Path) -> None:
    """`check` raises from then on, with the number of sent bytes."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with closing(Stream(str(path), is_pipe=True)) as stream:
        stream.open(**PATIENT)
        stream.check()
        os.close(descriptor)
        with pytest.raises(OutputFailed, match=r"ended early, after 0 bytes \(EPIPE\)"):
            stream.finish()


@pytest.mark.parametrize("ends", ["stop", "stall"])
def test_a_reader_that_takes_nothing_is_not_waited_for(tmp_path: Path, ends: str) -> None:
    """A signal or --stall-timeout ends the wait."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    asked: list[None] = []

    def stop() -> bool:
        asked.append(None)
        return ends == "stop"

    with closing(Stream(str(path), is_pipe=True)) as stream:
        stream.open(**PATIENT | {"stall_seconds": 0.3, "stop": stop})
        # More than one pipe of 64 KiB holds, and less than two.
        write(stream, bytes(100_000))
        error = Interrupted if ends == "stop" else OutputFailed
        with pytest.raises(error, match=r"while .*pipe was read|read nothing for 0\.3 s"):
            stream.finish()
        stream.break_off()
    os.close(descriptor)
    assert asked


def test_a_wait_for_a_reader_is_reported_once_and_can_be_ended(tmp_path: Path) -> None:
    """The pipe that was made for it goes again."""
    notices: list[str] = []
    patience = PATIENT | {"notify": notices.append, "stop": _true_at(3)}
    with (
        closing(Stream(str(tmp_path / "pipe"), is_pipe=True)) as stream,
        pytest.raises(Interrupted, match="while waiting for a reader"),
    ):
        stream.open(**patience)
    assert notices == [f"waiting for a reader of {tmp_path / 'pipe'}"]
    assert list(tmp_path.iterdir()) == []


def _true_at(count: int) -> Callable[[], bool]:
    calls = iter(range(1, count + 1))
    return lambda: next(calls) == count


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_anything_else_is_refused(tmp_path: Path, kind: str) -> None:
    """It is named and left as it is."""
    path = tmp_path / "data"
    path.write_text("mine") if kind == "file" else path.mkdir()
    with pytest.raises(OutputFailed, match=r"data already exists and is not a named pipe"):
        Stream(str(path), is_pipe=True).open(**PATIENT)
    assert path.exists()


def test_a_pipe_that_became_a_file_is_not_removed(tmp_path: Path) -> None:
    """A file of another program in its place stays."""
    stream = Stream(str(tmp_path / "p"), is_pipe=True)
    with pytest.raises(OutputFailed, match="no program opened"):
        stream.open(**PATIENT | {"open_seconds": 0.01})
    (tmp_path / "new").write_text("mine")
    (tmp_path / "new").replace(tmp_path / "p")
    stream.close()
    assert (tmp_path / "p").read_text() == "mine"


def test_the_wait_for_a_reader_ends(tmp_path: Path) -> None:
    """In time, with the option that makes it longer, and by any exception of `waiting`."""
    os.mkfifo(tmp_path / "p")
    with pytest.raises(OutputFailed, match=r"within 0.1 s.*--pipe-timeout"):
        open_for_reader(str(tmp_path / "p"), 0.1, lambda: None)

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        open_for_reader(str(tmp_path / "p"), 0, interrupt)


def test_a_late_reader_gets_everything(tmp_path: Path) -> None:
    """The descriptor is open before the reader can see an end."""
    os.mkfifo(tmp_path / "p")
    got: list[bytes] = []
    waited = threading.Event()
    reader = threading.Thread(
        target=lambda: waited.wait(180) and got.append((tmp_path / "p").read_bytes()), daemon=True
    )
    reader.start()
    descriptor = open_for_reader(str(tmp_path / "p"), 180, waited.set)
    os.write(descriptor, b"data")
    os.close(descriptor)
    reader.join(180)
    assert got == [b"data"]
