"""The record of a publication, which is the last line of a journal."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from publications.staged_runs import as_bytes, content_of, manifest_of, stage, taken

from unloader.errors import OutputFailed
from unloader.storage.directories.directory_publishing import carrying_out, publishing_lines
from unloader.storage.directories.directory_recovery import pending
from unloader.storage.directories.directory_storage import RunDirectories
from unloader.storage.storage_protocol import JOURNAL

STAGED = b'{"event":"staged","unit":"1"}\n'


def begun(out: Path, run_id: str = "dead") -> RunDirectories:
    """Return the directory of a table of many that has a line in its journal."""
    directory = taken([out], overwrite=False, run_id=run_id, home="home")
    directory.append(STAGED)
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


def lines_before_record(out: Path) -> bytes:
    """Return the lines of the journal that are not the record of a publication."""
    room = out / "_run"
    return (room / JOURNAL).read_bytes()[: publishing_lines(room)[0]]


def test_a_table_of_many_has_two_files_beside_those_that_are_staged(tmp_path: Path) -> None:
    """Its lock and its journal; the records of the run are in the directory of all tables."""
    with begun(tmp_path / "out") as directory:
        stage(directory, "a.csv")
        files = ["a.csv.part", JOURNAL, "lock"]
        assert sorted(os.listdir(tmp_path / "out" / "_run")) == files


def test_who_goes_on_has_the_journal(tmp_path: Path) -> None:
    """And the staged files."""
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
        again.append(STAGED)
        moves = stage(again, "a.csv")
        again.commit(moves, as_bytes(manifest_of(["a.csv"], "dead")))
    assert content_of(out).keys() == {"a.csv", "_manifest.json"}


@pytest.mark.parametrize("torn", [-1, -40])
def test_a_record_of_which_a_part_is_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torn: int
) -> None:
    """The power failed before it was synced, so nothing has been renamed: the journal counts."""
    out = tmp_path / "out"
    broken_off(out, monkeypatch)
    journal = out / "_run" / JOURNAL
    whole = journal.read_bytes()
    for left in (whole[:torn], whole[: torn - 1] + bytes(-torn) + b"\n"):
        journal.write_bytes(left)
        assert pending(out) == ()
        assert lines_before_record(out) == STAGED


def test_a_damaged_record_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not taken for one that was never synced: files may have their final names."""
    out = tmp_path / "out"
    broken_off(out, monkeypatch)
    journal = out / "_run" / JOURNAL
    journal.write_bytes(journal.read_bytes().replace(b'"shares"', b'"sharks"'))
    with pytest.raises(OutputFailed, match="cannot be read"):
        pending(out)


def test_a_publication_that_fails_is_taken_out_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The staged files and the journal are as they were."""
    out = tmp_path / "out"

    def refused(source: str, target: str) -> None:
        assert publishing_lines(out / "_run")[1], "nothing is renamed before that is on record"
        raise OSError(errno.ENOSPC, "no room")

    with begun(out) as directory:
        moves = stage(directory, "a.csv")
        monkeypatch.setattr(os, "rename", refused)
        with pytest.raises(OutputFailed, match="no room"):
            directory.commit(moves, as_bytes(manifest_of(["a.csv"], "dead")))
        assert pending(out) == ()
        assert (out / "_run" / JOURNAL).read_bytes() == STAGED
        assert directory.staged_file(0, "a.csv.part").exists()
