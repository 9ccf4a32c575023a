"""A run over several directories: all are taken or none, all published or none."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from publications.staged_runs import as_bytes, content_of, manifest_of, taken

from unloader.errors import OutputFailed
from unloader.manifest.read import directories_of, read_manifest
from unloader.storage.directories import directory_publishing, directory_recovery, directory_storage
from unloader.storage.directories.directory_storage import RunDirectories
from unloader.storage.storage_protocol import Move

Files = dict[str, int]
"""Name of a file to the number of its directory."""


def stage(directories: RunDirectories, files: Files, content: str = "new\n") -> list[Move]:
    """Stage a file for each final name; return the moves."""
    for name, number in files.items():
        (directories.all[number].staged / f"{name}.part").write_text(content)
    return [Move(number, f"{name}.part", name) for name, number in files.items()]


def finish(paths: list[Path], files: Files, run: str = "one\n", *, overwrite: bool = False) -> None:
    """Do a whole run that leaves these files, each with the text `run`."""
    with taken(paths, overwrite=overwrite) as directories:
        directories.commit(stage(directories, files, run), as_bytes(manifest_of(files, run, paths)))


@pytest.fixture
def pair(tmp_path: Path) -> list[Path]:
    """Two directories that are not there yet."""
    return [tmp_path / "x", tmp_path / "y"]


def test_the_first_directory_may_have_moved(pair: list[Path], tmp_path: Path) -> None:
    """Where the manifest is found is the first directory; the others are where they were."""
    finish(pair, {"a.csv": 0, "b.csv": 1})
    moved = pair[0].rename(tmp_path / "moved")
    assert directories_of(read_manifest(moved), moved) == (moved, pair[1])


@pytest.mark.parametrize("form", ["same", "slash", "link", "relative"])
def test_one_directory_named_twice_is_refused(tmp_path: Path, form: str) -> None:
    """However it is written; nothing is made or left."""
    (tmp_path / "x").mkdir()
    (tmp_path / "link").symlink_to("x")
    again = {
        "same": str(tmp_path / "x"),
        "slash": f"{tmp_path}/x/",
        "link": str(tmp_path / "link"),
        "relative": os.path.relpath(tmp_path / "x"),
    }[form]
    with pytest.raises(OutputFailed, match="names the same directory twice"):
        taken([tmp_path / "x", Path(again)], overwrite=False)
    assert list((tmp_path / "x").iterdir()) == []


@pytest.mark.parametrize("below", ["_run", "_run/deeper"])
@pytest.mark.parametrize("inner_first", [True, False])
def test_a_directory_in_the_room_of_staged_files_is_refused(
    tmp_path: Path, below: str, inner_first: bool
) -> None:
    """The end of the run clears that room, and would take finished files with it."""
    pair = [tmp_path / "x" / below, tmp_path / "x"]
    with pytest.raises(OutputFailed, match="_run, which is removed when the run ends"):
        taken(pair if inner_first else pair[::-1], overwrite=True)
    assert list(tmp_path.iterdir()) == []


def test_a_refused_second_directory_costs_no_broken_run_in_the_first(tmp_path: Path) -> None:
    """What a broken run left in the first is cleared only once all directories are ours."""
    first, used = tmp_path / "x", tmp_path / "y"
    with taken([first], overwrite=False) as broken:
        stage(broken, {"a.csv": 0})
        broken.append(as_bytes({"event": "staged", "unit": "1"}))
        broken.abandon(as_bytes(manifest_of({}, "broken", [first])))
    before = content_of(first)
    with (
        taken([used], overwrite=False),
        pytest.raises(OutputFailed, match=f"another run is writing to {used}"),
    ):
        taken([first, used], overwrite=True)
    assert content_of(first) == before


def test_a_shared_directory_belongs_to_one_run(pair: list[Path], tmp_path: Path) -> None:
    """Two runs that share their second directory: the later one is refused and holds nothing."""
    with taken(pair, overwrite=False):
        with pytest.raises(OutputFailed, match=f"another run is writing to {pair[1]}"):
            taken([tmp_path / "z", pair[1]], overwrite=True)
        assert not (tmp_path / "z").exists()


def test_overwrite_replaces_the_run_in_all_directories(pair: list[Path], tmp_path: Path) -> None:
    """Files of the old run go wherever they lie, also where the directories come in new order."""
    finish(pair, {"a.csv": 0, "b.csv": 1, "c.csv": 1})
    (pair[1] / "mine.txt").write_text("mine")
    finish(pair[::-1], {"b.csv": 0, "d.csv": 1}, "two\n", overwrite=True)
    found = content_of(tmp_path)
    assert json.loads(found.pop("y/_manifest.json"))["run_id"] == "two\n"
    assert found == {"y/b.csv": "two\n", "x/d.csv": "two\n", "y/mine.txt": "mine"}


@pytest.mark.parametrize("only", [0, 1])
def test_a_part_of_a_run_is_not_replaced(pair: list[Path], tmp_path: Path, only: int) -> None:
    """Over one directory of two, the run is refused or its files are another user's."""
    finish(pair, {"a.csv": 0, "b.csv": 1})
    before = content_of(tmp_path)
    if only == 0:
        with pytest.raises(OutputFailed, match=f"also has files in {pair[1]}"):
            taken([pair[0]], overwrite=True)
    else:
        with taken([pair[1]], overwrite=True) as directories:
            with pytest.raises(OutputFailed, match=r"b\.csv already exists"):
                directories.check_names([(0, "b.csv")])
            directories.abandon(None)
    assert content_of(tmp_path) == before


@pytest.mark.parametrize("number", [2, -1])
def test_a_manifest_with_an_unknown_directory_is_damaged(pair: list[Path], number: int) -> None:
    """A file in a directory that the manifest does not list cannot be found, nor replaced."""
    finish(pair, {"a.csv": 0})
    manifest = manifest_of({"a.csv": number}, "one", pair)
    (pair[0] / "_manifest.json").write_bytes(as_bytes(manifest))
    with pytest.raises(OutputFailed, match=f"got {number} - at `.*directory`"):
        taken(pair, overwrite=True)


@pytest.mark.parametrize("moment", ["second exchanged", "all exchanged"])
@pytest.mark.parametrize("away", [0, 1])
def test_a_directory_that_is_not_mounted_gives_up_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, away: int
) -> None:
    """Cleaning the other one is refused until it is back, and then completes the run."""
    pair = [tmp_path / "m0" / "x", tmp_path / "m1" / "y"]
    finish(pair, {"a.csv": 0, "b.csv": 1})
    with taken(pair, overwrite=True) as directories:
        moves = stage(directories, {"c.csv": 0, "d.csv": 1})
        with monkeypatch.context() as patch:
            patch.setattr(directory_storage.RunDirectories, "_take_back", lambda *_: None)
            if moment == "all exchanged":
                patch.setattr(directory_publishing, "_remove_old", _break_off)
            else:
                settle = directory_publishing._settle
                patch.setattr(
                    directory_publishing,
                    "_settle",
                    lambda publication, number: (
                        settle(publication, number) if number else _break_off()
                    ),
                )
            with pytest.raises(KeyboardInterrupt):
                directories.commit(
                    moves, as_bytes(manifest_of({"c.csv": 0, "d.csv": 1}, "two\n", pair))
                )
    mount = tmp_path / f"m{away}"
    mount.rename(tmp_path / "unmounted")
    before = content_of(tmp_path)
    with pytest.raises(OutputFailed, match=rf"{pair[away]} are missing.*is it mounted"):
        directory_recovery.clean([pair[1 - away]], dry_run=False)
    assert content_of(tmp_path) == before
    (tmp_path / "unmounted").rename(mount)
    directory_recovery.clean([pair[1 - away]], dry_run=False)
    found = content_of(tmp_path)
    assert json.loads(found.pop("m0/x/_manifest.json"))["run_id"] == "two\n"
    assert found == {"m0/x/c.csv": "new\n", "m1/y/d.csv": "new\n"}


def _break_off(*_: object) -> Any:
    raise KeyboardInterrupt
