"""The journal's file: lines that are there immediately, and on the disk soon."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from unloader.storage.directories.directory_staging import Journal


def test_lines_are_written_where_no_thread_can_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit on memory or threads costs speed: each line is synced immediately, and closing is safe."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    journal = Journal(tmp_path / "journal.jsonl", [tmp_path / "gone"])
    journal.append(b"1\n")
    journal.append(b"2\n")
    journal.close()
    assert (tmp_path / "journal.jsonl").read_bytes() == b"1\n2\n"


def test_lines_that_may_wait_are_synced_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that is not published soon has its lines on the disk, though nothing else happens."""
    synced, sync = threading.Event(), os.fdatasync

    def observed(descriptor: int) -> None:
        sync(descriptor)
        synced.set()

    monkeypatch.setattr(os, "fdatasync", observed)
    journal = Journal(tmp_path / "journal.jsonl", patience_seconds=0.05)
    journal.append(b"1\n")
    assert synced.wait(30)
    journal.close()
