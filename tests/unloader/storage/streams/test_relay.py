"""The relay: bytes in order, exact counts, and a quick end after the reader."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from processes import command

from unloader.storage.stream_relay import Relay

DATA = os.urandom(3 << 20)


def put(relay: Relay, data: bytes) -> None:
    """Write as a worker does: open the path, write, close."""
    with open(relay.path, "wb", buffering=0) as file:
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]


def test_bytes_of_several_writers_arrive_in_order() -> None:
    """Writers come and go; the reader sees one stream and its end."""
    source, target = os.pipe()
    relay = Relay(target)
    got: list[bytes] = []

    def read() -> None:
        with open(source, "rb") as file:
            got.append(file.read())

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    for _ in range(2):
        put(relay, DATA)
    relay.finish()
    relay.wait(60)
    reader.join(60)
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
    relay = Relay(descriptor)
    put(relay, DATA)
    relay.finish()
    relay.wait(60)
    kept = b"old " if mode == os.O_APPEND else b""
    assert path.read_bytes() == kept + b"first " + DATA


def test_what_waits_in_the_pipe_counts_as_taken() -> None:
    """A reader that is still: bytes are taken from the worker, and not passed on in full."""
    source, target = os.pipe()
    relay = Relay(target)
    assert relay.taken == 0
    put(relay, b"x" * 200_000)
    command.wait_for(lambda: relay.taken == 200_000, "200,000 bytes")
    assert relay.passed < 200_000
    relay.break_off()
    os.close(source)


def test_a_reader_that_ended_is_noticed_without_a_write() -> None:
    """The failure appears without a write, and the next writer gets a broken pipe."""
    source, target = os.pipe()
    relay = Relay(target)
    path = relay.path
    os.close(source)
    command.wait_for(lambda: not relay.is_alive, "the end of the relay")
    assert isinstance(relay.failure, BrokenPipeError)
    with pytest.raises(BrokenPipeError), open(path, "wb", buffering=0) as file:
        file.write(b"x")
    relay.break_off()


def test_a_full_disk_is_a_failure() -> None:
    """The error of the target is kept for the user."""
    relay = Relay(os.open("/dev/full", os.O_WRONLY))
    put(relay, b"x")
    command.wait_for(lambda: not relay.is_alive, "the end of the relay")
    assert relay.failure is not None
    assert relay.failure.strerror == "No space left on device"
    relay.break_off()


def test_nothing_is_left_open() -> None:
    """After its end, either way, every descriptor is closed and the thread has gone."""
    before, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    for finished in (True, False):
        source, target = os.pipe()
        relay = Relay(target)
        if finished:
            relay.finish()
            relay.wait(60)
        relay.break_off()
        os.close(source)
        # Fewer, where something of an earlier test has ended meanwhile.
        command.wait_for(lambda: len(os.listdir("/proc/self/fd")) <= before, "closed files")
        command.wait_for(lambda: threading.active_count() <= threads, "ended threads")
