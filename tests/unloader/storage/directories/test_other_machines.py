"""Who holds a directory, where the lock does not reach the machine of the run that holds it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import asdict, replace
from processes import command
from processes.program import Program
from publications.storage_promises import write_staged

from unloader.errors import OutputFailed
from unloader.storage.directories import directory_lock, directory_publishing
from unloader.storage.directories.directory_storage import LocalDirectories
from unloader.storage.storage_protocol import Claim, Holder, Index, Move, RunStorage, boot_id
from writers.files import syncing

HEARTBEAT = """
import itertools, os, sys, time
for number in itertools.count(1):
    with open(sys.argv[1] + '.part', 'w') as file:
        file.write('{"run_id": "%s", "sequence": %d}' % (sys.argv[2], number))
    os.replace(sys.argv[1] + '.part', sys.argv[1])
    time.sleep(0.2)
"""


def no_index(data: bytes, place: str) -> Index:
    """Fail: this test has no manifest."""
    raise AssertionError(place)


def taken(*places: Path) -> RunStorage:
    """Return a run that has taken directories."""
    names = tuple(map(str, places))
    return LocalDirectories().take(
        Claim(places=names, run_id="ours", overwrite=False, read_index=no_index)
    )


def left_by(holder: Holder, directory: Path) -> Path:
    """Make the `_run` of a run whose lock is free on this machine; return its record."""
    room = directory / "_run"
    (room / "staged").mkdir(parents=True)
    (room / "staged" / "1-a1.csv.part").write_text("1\n")
    (room / "lock").write_text(json.dumps(asdict(holder)))
    (room / "status.json").write_text('{"run_id": "theirs", "sequence": 0}')
    return room / "status.json"


ELSEWHERE = Holder(
    run_id="theirs", pid=os.getpid(), host="db77", boot_id="another", since="2026-01-01T00:00:00"
)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """The directory that a run wants."""
    return tmp_path / "out"


@contextmanager
def beating(record: Path, run_id: str) -> Iterator[None]:
    """Let a process replace the record of a run again and again."""
    before = record.read_bytes()
    program = Program([sys.executable, "-c", HEARTBEAT, str(record), run_id])
    try:
        command.wait_for(lambda: record.read_bytes() != before, "the first beat")
        yield
    finally:
        program.kill()
        program.wait()


@pytest.fixture
def heart(out: Path) -> Iterator[None]:
    """A run on another machine that lives, seen through a file system without locks for both."""
    with beating(left_by(replace(ELSEWHERE, places=(str(out),)), out), "theirs"):
        yield


@pytest.mark.usefixtures("heart")
def test_a_run_that_lives_elsewhere_is_left_alone(out: Path) -> None:
    """While it replaces its record, its directory is neither taken nor cleared."""
    with pytest.raises(OutputFailed, match=r"another run is writing to .*run theirs, on db77"):
        taken(out)
    with pytest.raises(OutputFailed, match="a run is writing to"):
        LocalDirectories().clear([str(out)], dry_run=False)
    who = LocalDirectories().who_was_here(str(out))
    assert who is not None
    assert (who.is_running, who.host, who.since) == (True, "db77", "2026-01-01T00:00:00")
    assert (out / "_run" / "staged" / "1-a1.csv.part").exists()


def test_the_record_of_a_run_over_several_directories_is_in_the_first(
    heart: None, out: Path, tmp_path: Path
) -> None:
    """Its other directories are left alone as well."""
    second = tmp_path / "second"
    left_by(replace(ELSEWHERE, places=(str(out), str(second))), second).unlink()
    with pytest.raises(OutputFailed, match=r"another run is writing to .*second"):
        taken(second)


@pytest.mark.parametrize(
    "holder",
    [
        pytest.param(ELSEWHERE, id="another machine"),
        pytest.param(replace(ELSEWHERE, host=os.uname().nodename), id="ours, started again since"),
        pytest.param(replace(ELSEWHERE, boot_id=""), id="another one that knows no boot id"),
    ],
)
def test_a_run_that_died_elsewhere_is_taken_over(
    out: Path, monkeypatch: pytest.MonkeyPatch, holder: Holder
) -> None:
    """Nothing grows: it is dead, although a process with its number lives."""
    monkeypatch.setattr(directory_lock, "WATCH_SECONDS", 0.6)
    left_by(replace(holder, places=(str(out),)), out)
    assert any("run theirs" in text for text in taken_and_left(out))


def test_the_record_of_another_run_is_no_sign_of_life(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first directory of a dead run may be another run's by now."""
    monkeypatch.setattr(directory_lock, "WATCH_SECONDS", 0.6)
    second = tmp_path / "second"
    both = (str(out), str(second))
    record = left_by(replace(ELSEWHERE, places=both), out)
    left_by(replace(ELSEWHERE, places=both), second)
    with beating(record, "another"):
        assert any("run theirs" in text for text in taken_and_left(second))


def test_on_one_machine_the_lock_alone_decides(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A living process with the number of the dead run does not count, and nothing is watched."""
    monkeypatch.setattr(directory_lock, "is_replaced", None)
    here = replace(ELSEWHERE, host=os.uname().nodename, boot_id=boot_id(), places=(str(out),))
    left_by(here, out)
    assert any("run theirs" in text for text in taken_and_left(out))


def test_a_run_on_a_full_disk_still_gives_signs_of_life(out: Path) -> None:
    """Where the record cannot be written, it gets another time at least."""
    run = taken(out)
    run.show(b'{"sequence": 1}')
    record = out / "_run" / "status.json"
    os.utime(record, (1, 1))
    (out / "_run" / "status.json.part").mkdir()
    with pytest.raises(OSError, match="directory"):
        run.show(b'{"sequence": 2}')
    assert record.stat().st_mtime > 1
    run.close()


def taken_and_left(directory: Path) -> tuple[str, ...]:
    """Take a directory; return the notices of the run about an earlier one there."""
    run = taken(directory)
    run.abandon(None)
    run.close()
    return run.notices


@pytest.mark.parametrize("one_by_one", [False, True])
def test_a_run_that_is_published_shows_itself_until_it_clears_up(
    out: Path, monkeypatch: pytest.MonkeyPatch, one_by_one: bool
) -> None:
    """Wherever its `_run` is by then; nothing of that is left behind."""
    if one_by_one:
        monkeypatch.setattr(directory_publishing, "_against_exchange", lambda _: "it must stay")
    run = taken(out)
    write_staged(run, 0, "1-a1.csv.part", b"1\n")
    shown = []

    def synced(directory: Path) -> None:
        run.show(json.dumps({"sequence": len(shown)}).encode())
        shown.append([path.read_text() for path in out.parent.glob("**/_run/status.json")])

    monkeypatch.setattr(syncing, "sync", synced)
    run.commit([Move(0, "1-a1.csv.part", "1.csv")], b"{}")
    run.show(b"late")
    run.close()
    assert shown == [[f'{{"sequence": {number}}}'] for number in range(len(shown))] != []
    assert sorted(path.name for path in out.parent.rglob("*")) == ["1.csv", "_manifest.json", "out"]
