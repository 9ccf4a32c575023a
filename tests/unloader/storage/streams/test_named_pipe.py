"""Named pipes: ours are made and removed, others' are used and left, and each wait ends."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from unloader.errors import OutputFailed
from unloader.storage.stream_relay import NamedPipe, open_for_reader


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_anything_else_is_refused(tmp_path: Path, kind: str) -> None:
    """It is named and left as it is."""
    path = tmp_path / "data"
    path.write_text("mine") if kind == "file" else path.mkdir()
    with pytest.raises(OutputFailed, match=r"data already exists and is not a named pipe"):
        NamedPipe(path).provide()
    assert path.exists()


def test_a_pipe_that_became_a_file_is_not_removed(tmp_path: Path) -> None:
    """A file of another program in its place stays."""
    pipe = NamedPipe(tmp_path / "p")
    pipe.provide()
    (tmp_path / "new").write_text("mine")
    (tmp_path / "new").replace(tmp_path / "p")
    pipe.close()
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
        target=lambda: waited.wait(60) and got.append((tmp_path / "p").read_bytes()), daemon=True
    )
    reader.start()
    descriptor = open_for_reader(str(tmp_path / "p"), 60, waited.set)
    os.write(descriptor, b"data")
    os.close(descriptor)
    reader.join(60)
    assert got == [b"data"]
