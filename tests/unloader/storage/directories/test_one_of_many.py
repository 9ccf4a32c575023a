"""The directory of one table of many: the order of syncs, and released resources."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from publications.staged_runs import as_bytes, manifest_of, stage, taken

from unloader.storage.directories.directory_recovery import complete
from unloader.storage.directories.directory_storage import RunDirectories
from unloader.storage.storage_protocol import JOURNAL


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    sync, datasync, rename, replace = os.fsync, os.fdatasync, os.rename, os.replace

    def recorded_sync(descriptor: int) -> None:
        found.append(("sync", os.readlink(f"/proc/self/fd/{descriptor}")))
        sync(descriptor)

    def recorded_datasync(descriptor: int) -> None:
        found.append(("sync", os.readlink(f"/proc/self/fd/{descriptor}")))
        datasync(descriptor)

    def recorded_rename(source: Path, target: Path) -> None:
        found.append(("rename", str(target)))
        rename(source, target)

    def recorded_replace(source: Path, target: Path) -> None:
        found.append(("rename", str(target)))
        replace(source, target)

    monkeypatch.setattr(os, "replace", recorded_replace)
    monkeypatch.setattr(os, "fsync", recorded_sync)
    monkeypatch.setattr(os, "fdatasync", recorded_datasync)
    monkeypatch.setattr(os, "rename", recorded_rename)
    return found


def published(directory: RunDirectories) -> None:
    """Publish one file."""
    directory.commit(stage(directory, "a.csv"), as_bytes(manifest_of(["a.csv"])))


def test_the_way_to_the_record_is_synced_before_the_first_final_name(
    tmp_path: Path, calls: list[tuple[str, str]]
) -> None:
    """A power cut loses neither whose the directory is nor where it is; until there is something
    to lose nothing is synced.
    """
    out = tmp_path / "made" / "out"
    with taken([out], overwrite=False, home="home") as directory:
        assert [call for call in calls if call[0] == "sync"] == []
        published(directory)
    first = calls.index(("rename", str(out / "a.csv")))
    # The record is the last line of the journal.
    record = calls.index(("sync", str(out / "_run" / JOURNAL)))
    assert ("sync", str(out / "_run")) in calls[record - 1 : first]
    before = [path for kind, path in calls[:record] if kind == "sync"]
    way = [out / "_run", out, out.parent, tmp_path]
    way += [out / "_run" / name for name in ("_manifest.json", "lock")]
    assert {str(each) for each in way} <= set(before)
    manifest = calls.index(("rename", str(out / "_manifest.json")))
    assert ("sync", str(out)) in calls[first:manifest]
    assert ("sync", str(out)) in calls[manifest:]


def test_a_journal_is_synced_behind_the_way_to_it(
    tmp_path: Path, calls: list[tuple[str, str]]
) -> None:
    """What a power cut leaves of a large table can be found, hours before it is published."""
    out = tmp_path / "out"
    with taken([out], overwrite=False, home="home") as directory:
        directory.append(b"{}\n")
    synced = [path for kind, path in calls if kind == "sync"]
    way = [out, tmp_path, out / "_run", out / "_run" / "lock"]
    # At a time, so in any order.
    assert sorted(synced[:-1]) == sorted(str(each) for each in way)
    assert synced[-1] == str(out / "_run" / JOURNAL)


def test_a_file_that_a_worker_has_not_synced_is_synced_before_it_is_on_record(
    tmp_path: Path, calls: list[tuple[str, str]]
) -> None:
    """Its final name leads to all of its bytes, whenever the power fails."""
    out = tmp_path / "out"
    with taken([out], overwrite=False, home="home") as directory:
        moves = stage(directory, "a.csv")
        del calls[:]
        directory.sync_later([(0, moves[0].staged), (0, "of a broken attempt.part")])
        directory.commit(moves, as_bytes(manifest_of(["a.csv"])))
    record = calls.index(("sync", str(out / "_run" / JOURNAL)))
    assert ("sync", str(out / "_run" / moves[0].staged)) in calls[:record]


def test_a_published_directory_gives_its_files_and_its_thread_back(tmp_path: Path) -> None:
    """A run over thousands of tables has few files open at a time."""
    before, threads = set(os.listdir("/proc/self/fd")), threading.active_count()
    directories = [
        taken([tmp_path / str(number)], overwrite=False, home="home") for number in range(5)
    ]
    for directory in directories:
        directory.append(b"{}\n")
    for directory in directories:
        published(directory)
        directory.close()
    assert threading.active_count() == threads
    assert set(os.listdir("/proc/self/fd")) == before


def test_what_was_cut_short_beside_many_directories_is_completed(tmp_path: Path) -> None:
    """A directory that was to be exchanged is found by its neighbours, once for all tables."""
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    twin = tmp_path / ".one.unloader-dead"
    twin.mkdir()
    assert complete(tmp_path / "one", tmp_path / "other", tmp_path / "missing") == ()
    assert twin.exists()
    taken([tmp_path / "one"], overwrite=False, home="home").close()
    assert not twin.exists()
