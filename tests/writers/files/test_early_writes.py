"""What an output buffer holds is written before it is full where the writing thread has no work."""

from __future__ import annotations

import time
from pathlib import Path

from writers.files.sink import Sink
from writers.model import Compression

MIB = 1024 * 1024
PATIENCE = 180.0


def test_a_thread_without_work_is_given_a_part_of_a_buffer(tmp_path: Path) -> None:
    """A part of it is in the file while the producer still fills the rest, and only once."""
    sink = Sink(tmp_path / "f", compression=Compression(), buffer_bytes=4 * MIB, buffers=2)
    head, part, rest = b"h" * (4 * MIB), b"p" * MIB, b"r" * 1000
    sink.write(head)
    sink.settle()
    room = sink.room()
    room[:MIB] = part
    sink.advance(MIB)
    deadline = time.monotonic() + PATIENCE
    while sink.bytes_written < 5 * MIB and time.monotonic() < deadline:
        time.sleep(0.001)
    assert (tmp_path / "f").stat().st_size == 5 * MIB
    sink.write(rest)
    assert sink.close()[0] == 5 * MIB + 1000
    assert (tmp_path / "f").read_bytes() == head + part + rest
