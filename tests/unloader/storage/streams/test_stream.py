"""Streams as places of a run: what reaches the reader, and how they end."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from unloader.errors import Interrupted, OutputFailed
from unloader.storage.stream_relay import Patience, Stream

PATIENT = Patience(
    open_seconds=30.0, stall_seconds=0.0, stop=lambda: False, notify=lambda text: None
)


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
        stream.open(PATIENT)
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
        stream.open(PATIENT)
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
        stream.open(replace(PATIENT, stall_seconds=0.3, stop=stop))
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
    patience = replace(PATIENT, notify=notices.append, stop=_true_at(3))
    with (
        closing(Stream(str(tmp_path / "pipe"), is_pipe=True)) as stream,
        pytest.raises(Interrupted, match="while waiting for a reader"),
    ):
        stream.open(patience)
    assert notices == [f"waiting for a reader of {tmp_path / 'pipe'}"]
    assert list(tmp_path.iterdir()) == []


def _true_at(count: int) -> Callable[[], bool]:
    calls = iter(range(1, count + 1))
    return lambda: next(calls) == count
