"""The lock of a table of many, which has its journal and the record of its publication, too."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
from publications.staged_runs import as_bytes, content_of, manifest_of, stage, taken

from unloader.errors import OutputFailed
from unloader.storage.directories import lock_lines
from unloader.storage.directories.publishing import carrying_out
from unloader.storage.directories.recovery import complete, pending
from unloader.storage.directories.run_directories import RunDirectories
from unloader.storage.model import JOURNAL, Leftover

STAGED = b'{"event":"staged","unit":"1"}\n'


def begun(out: Path, run_id: str = "dead") -> RunDirectories:
    """Return the directory of a table of many that has a line in its journal."""
    directory = taken([out], overwrite=False, run_id=run_id, home="home")
    directory.append(JOURNAL, STAGED)
    return directory


def broken_off(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave a table whose publication is on record, and none of whose files has its name."""
    with begun(out) as directory:
        moves = stage(directory, "a.csv")

        def killed(*_: object) -> object:
            raise KeyboardInterrupt

        monkeypatch.setattr(f"{RunDirectories.__module__}.{carrying_out.__name__}", killed)
        monkeypatch.setattr(RunDirectories, "_take_back", lambda *_: None)
        with pytest.raises(KeyboardInterrupt):
            directory.commit(moves, as_bytes(manifest_of(["a.csv"], "dead")))


def test_who_goes_on_has_the_journal(tmp_path: Path) -> None:
    """And the staged files; from then on the journal has a file of its own."""
    out = tmp_path / "out"
    with begun(out) as directory:
        stage(directory, "a.csv", "b.csv")
    for _ in range(2):
        with taken([out], overwrite=False, run_id="dead", home="home", resumed=True) as again:
            assert again.recorded(JOURNAL) == STAGED
            again.discard_others([(0, "a.csv.part")])
            assert again.staged_file(0, "a.csv.part").read_text() == "new\n"
            assert not again.staged_file(0, "b.csv.part").exists()
    with taken([out], overwrite=False, run_id="dead", home="home", resumed=True) as again:
        again.append(JOURNAL, STAGED)
        moves = stage(again, "a.csv")
        again.commit(moves, as_bytes(manifest_of(["a.csv"], "dead")))
    assert content_of(out).keys() == {"a.csv", "_manifest.json"}


def test_what_a_dead_run_has_left_is_counted_and_removed(tmp_path: Path) -> None:
    """Whoever comes next is told of it, and has no line of its journal."""
    out = tmp_path / "out"
    with begun(out) as directory:
        stage(directory, "a.csv")
    with taken([out], overwrite=False, run_id="next", home="home") as following:
        told = Leftover(directory=str(out), run_id="dead", units=1, files=1, bytes=4)
        assert following.notices == (f"removed {told.text()}",)
        assert following.recorded(JOURNAL) == b""
        assert lock_lines.journal(out / "_run") == b""


def test_lines_of_another_run_are_none(tmp_path: Path) -> None:
    """A power cut may leave the first line of a run in front of what the one before has written."""
    out = tmp_path / "out"
    begun(out).close()
    lock = out / "_run" / "lock"
    first, rest = lock.read_bytes().split(b"\n", 1)
    lock.write_bytes(json.dumps(json.loads(first) | {"run_id": "next"}).encode() + b"\n" + rest)
    assert lock_lines.journal(out / "_run") == b""


def test_a_publication_on_record_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By whoever comes into the directory."""
    broken_off(tmp_path / "out", monkeypatch)
    monkeypatch.undo()
    (done,) = complete(tmp_path / "out")
    assert done.run_id == "dead"
    assert content_of(tmp_path / "out").keys() == {"a.csv", "_manifest.json"}


@pytest.mark.parametrize("kept", [-2, -40])
def test_a_record_of_which_a_part_is_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    """The power failed before it was synced, so nothing has been renamed: the journal counts."""
    broken_off(tmp_path / "out", monkeypatch)
    lock = tmp_path / "out" / "_run" / "lock"
    for end in (b"", b"\n"):
        whole = lock.read_bytes().rstrip(b"\n")
        lock.write_bytes(whole[:kept] + end)
        assert pending(tmp_path / "out") == ()
        assert lock_lines.journal(tmp_path / "out" / "_run") == STAGED


def test_a_publication_that_fails_is_taken_out_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The staged files and the journal are as they were."""
    out = tmp_path / "out"

    def refused(source: str, target: str) -> None:
        assert lock_lines.record(out / "_run"), "nothing is renamed before that is on record"
        raise OSError(errno.ENOSPC, "no room")

    with begun(out) as directory:
        moves = stage(directory, "a.csv")
        monkeypatch.setattr(os, "rename", refused)
        with pytest.raises(OutputFailed, match="no room"):
            directory.commit(moves, as_bytes(manifest_of(["a.csv"], "dead")))
        assert pending(out) == ()
        assert lock_lines.journal(out / "_run") == STAGED
        assert directory.staged_file(0, "a.csv.part").exists()
