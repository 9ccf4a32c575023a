"""Publishing: final names appear whole or not at all, and never over another file."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from writers.errors import WriteError
from writers.files.publish import publish, remove_staged, write_atomically, write_new


@pytest.fixture
def staging(tmp_path: Path) -> Path:
    """A staging directory inside the destination, with two staged files."""
    directory = tmp_path / "staging"
    directory.mkdir()
    (directory / "a.csv.part").write_bytes(b"a")
    (directory / "b.csv.part").write_bytes(b"b")
    return directory


MOVES = (("a.csv.part", "a.csv"), ("b.csv.part", "b.csv"))


@pytest.mark.parametrize("kind", ["file", "directory", "dangling link"])
def test_nothing_is_moved_when_a_name_is_taken(tmp_path: Path, staging: Path, kind: str) -> None:
    """A taken final name is refused before the first file moves, whatever lies under it."""
    taken = tmp_path / "b.csv"
    if kind == "file":
        taken.write_bytes(b"old")
    elif kind == "directory":
        taken.mkdir()
    else:
        taken.symlink_to(tmp_path / "nowhere")
    with pytest.raises(WriteError, match=r"b\.csv already exists.*Next: "):
        publish(staging, MOVES, tmp_path)
    assert len(list(staging.iterdir())) == 2
    assert not (tmp_path / "a.csv").exists()


def test_what_fails_halfway_is_taken_back(tmp_path: Path, staging: Path) -> None:
    """If the second file cannot get its name, the first one has lost its own again."""
    moves = [MOVES[0], (MOVES[1][0], "x" * 300)]
    with pytest.raises(WriteError, match=r"\(ENAMETOOLONG\)"):
        publish(staging, moves, tmp_path)
    assert (staging / "a.csv.part").read_bytes() == b"a"
    assert [path.name for path in tmp_path.iterdir()] == [staging.name]


def test_missing_staged_file_is_named(tmp_path: Path, staging: Path) -> None:
    """A staged file that has gone is named, and nothing is moved."""
    (staging / "b.csv.part").unlink()
    with pytest.raises(WriteError, match=r"b\.csv\.part is missing.*Next: "):
        publish(staging, MOVES, tmp_path)
    assert (staging / "a.csv.part").exists()


def test_other_file_system_is_told(full_disk: Path, tmp_path: Path, staging: Path) -> None:
    """A staging directory on another file system is an error, never a silent copy.

    Without the right to mount there is no second file system, and the move just succeeds.
    """
    if os.stat(full_disk).st_dev == os.stat(staging).st_dev:
        publish(staging, MOVES, full_disk)
        return
    with pytest.raises(WriteError, match=r"\(EXDEV\).*Next: .*one file system"):
        publish(staging, MOVES, full_disk)
    assert (staging / "a.csv.part").exists()
    assert not list(full_disk.iterdir())


def test_small_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    """The new bytes are there, and no temporary file is."""
    path = tmp_path / "_manifest.json"
    write_atomically(path, b"old")
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert [found.name for found in tmp_path.iterdir()] == ["_manifest.json"]


def test_failed_replacement_leaves_the_old_file(full_disk: Path) -> None:
    """On a full disk the old bytes stay, the temporary file goes, and the error says why."""
    path = full_disk / "_manifest.json"
    write_atomically(path, b"old")
    with pytest.raises(WriteError, match=r"_manifest\.json: .*\((ENOSPC|EFBIG)\)\. Next: "):
        write_atomically(path, bytes(2 << 20))
    assert path.read_bytes() == b"old"
    assert [found.name for found in full_disk.iterdir()] == ["_manifest.json"]


def test_staged_files_of_one_attempt_are_removed(tmp_path: Path) -> None:
    """Only staged files with such a stem go; a missing directory has none."""
    for name in ("u1.csv.part", "u1.001.csv.part", "u2.csv.part", "u1.csv", "u12.part"):
        (tmp_path / name).write_bytes(b"")
    remove_staged(tmp_path, ["u1", "u3"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["u1.csv", "u12.part", "u2.csv.part"]
    remove_staged(tmp_path, ["u2", "u12"])
    assert [path.name for path in tmp_path.iterdir()] == ["u1.csv"]
    remove_staged(tmp_path / "gone", ["u1"])


@pytest.mark.parametrize("renames", [True, False])
def test_a_new_file_is_never_written_over_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames: bool
) -> None:
    """What is there stays, and nothing else is left beside it; also where a link must do.

    That is so on NFS, whose refusal cannot be had on this disk.
    """

    def refused(source: Path, target: Path) -> None:
        raise OSError(errno.EINVAL, "refused", str(source))

    if not renames:
        monkeypatch.setattr("writers.files.publish.rename_if_free", refused)
    path = tmp_path / "m.json"
    write_new(path, b"first")
    with pytest.raises(FileExistsError):
        write_new(path, b"second")
    assert path.read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["m.json"]
