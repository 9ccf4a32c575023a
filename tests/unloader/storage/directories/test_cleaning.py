"""Cleaning: remains of dead runs are removed, published files stay, running runs are refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from processes import breaking
from publications.staged_runs import as_bytes, finish, manifest_of, taken

from unloader import api
from unloader.errors import OutputFailed
from unloader.storage.storage_protocol import RUN, Move

ROOT = Path(__file__).parents[4]
CHILD = """
import sys
from pathlib import Path
from publications.broken_publications import do_run, OLD, NEW
do_run([Path(sys.argv[1])], OLD, "old", lambda: None)
do_run([Path(sys.argv[1])], NEW, "new", lambda: None)
"""


def left_behind(*paths: Path, run: str = "dead") -> None:
    """Do a run that dies with one unit finished and another one staged."""
    directories = taken(paths, overwrite=True, run_id=run)
    directories.append(as_bytes({"event": "staged", "unit": "1"}))
    for directory in directories.all:
        (directory.staged / "1-a1.csv.part").write_text("1234")
        (directory.staged / "2-a1.csv.part").write_text("12")
    directories.close()


def names(path: Path) -> list[str]:
    """Return the paths of all files and directories below one."""
    return sorted(str(each.relative_to(path)) for each in path.rglob("*"))


def test_what_a_dead_run_left_goes_and_is_told(tmp_path: Path) -> None:
    """The answer has run, units, files and bytes; published files and foreign ones stay."""
    finish(tmp_path / "out", "a.csv", run="done")
    (tmp_path / "out" / "mine.txt").write_text("mine")
    before = names(tmp_path)
    left_behind(tmp_path / "out")
    expected = {
        "completed": [],
        "removed": [
            {
                "directory": str(tmp_path / "out"),
                "run_id": "dead",
                "units": 1,
                "files": 2,
                "bytes": 6,
            }
        ],
        "kept": [],
        "files": 2,
        "bytes": 6,
    }
    dirty = names(tmp_path)
    assert api.clean([tmp_path / "out"], dry_run=True) == {"dry_run": True, **expected}
    assert names(tmp_path) == dirty
    assert api.clean([tmp_path / "out"]) == {"dry_run": False, **expected}
    assert names(tmp_path) == before
    assert api.clean([tmp_path / "out"])["removed"] == []


def test_what_no_run_has_put_there_stays(tmp_path: Path) -> None:
    """A folder of that name may be someone's own."""
    (tmp_path / RUN).mkdir()
    (tmp_path / RUN / "mine.sh").write_text("mine")
    api.clean([tmp_path])
    assert names(tmp_path) == [RUN, f"{RUN}/mine.sh"]
    finish(tmp_path / "out", "a.csv", run="done")
    (tmp_path / "out" / RUN).mkdir()
    (tmp_path / "out" / RUN / "mine.sh").write_text("mine")
    left_behind(tmp_path / "out")
    assert (tmp_path / "out" / RUN / "mine.sh").exists()


def put_strangers(out: Path) -> list[Path]:
    for folder in ("staged", "replaced"):
        (out / RUN / folder).mkdir(parents=True, exist_ok=True)
    foreign = [
        out / RUN / "replaced" / "theirs.csv",
        out / RUN / "staged" / "notes.txt",
        out / RUN / "staged" / "old.part",
    ]
    for path in foreign[:2]:
        path.write_text("mine")
    foreign[2].mkdir()
    return foreign


def test_files_of_others_among_staged_ones_stay_and_are_named(tmp_path: Path) -> None:
    """Only names that a run gives are removed; what else is there is in the answer."""
    out = tmp_path / "out"
    left_behind(out)
    foreign = put_strangers(out)
    told = api.clean([out], dry_run=True)
    assert told["kept"] == [str(path) for path in foreign]
    assert told["files"] == 2
    assert api.clean([out]) == {**told, "dry_run": False}
    assert all(path.exists() for path in foreign)
    assert not list(out.rglob("*.csv.part"))
    again = api.clean([out])
    assert again["removed"] == []
    assert again["kept"] == told["kept"]


@pytest.mark.parametrize("earlier", [False, True])
def test_the_next_run_keeps_files_of_others_and_names_them(tmp_path: Path, earlier: bool) -> None:
    """It stages beside them, publishes, and leaves them where they are, over an old run too."""
    out = tmp_path / "out"
    if earlier:
        finish(out, "a.csv", run="done")
    left_behind(out)
    foreign = put_strangers(out)
    with taken([out], overwrite=True, run_id="new") as directories:
        assert [f"kept {path}: no run wrote it" for path in foreign] == [
            notice for notice in directories.notices if notice.startswith("kept ")
        ]
        (directories.first.staged / "b.part").write_text("new\n")
        directories.commit([Move(0, "b.part", "b.csv")], as_bytes(manifest_of([], "new")))
    assert (out / "b.csv").read_text() == "new\n"
    assert not (out / "a.csv").exists()
    assert not (out / RUN / "replaced" / "a.csv").exists()
    assert all(path.exists() for path in foreign)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    """A slip of the pen is reported; nothing is made."""
    with pytest.raises(OutputFailed, match="out is not a directory"):
        api.clean([tmp_path / "out"])
    assert names(tmp_path) == []


def killed(tmp_path: Path, call: str, path: str, *, foreign: bool = False) -> Path:
    """Replace a run and be killed on the way; return the directory."""
    out = tmp_path / "data" / "out"
    out.mkdir(parents=True)
    if foreign:
        (out / "mine.txt").write_text("mine")
    where = {"KILL_CALL": call, "KILL_PATH": path}
    paths = os.pathsep.join((str(ROOT), str(ROOT / "tests" / "support")))
    loaded = {"LD_PRELOAD": str(breaking.killing_library(tmp_path)), "PYTHONPATH": paths}
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(out)], env={**os.environ, **where, **loaded}, check=False
    )
    assert done.returncode == -9
    return out


@pytest.mark.parametrize("foreign", [False, True])
def test_a_run_that_is_published_by_half_is_completed(tmp_path: Path, foreign: bool) -> None:
    """It is complete and counted: cleaning gives it its final names, a dry run announces it."""
    out = killed(tmp_path, "rename", "/e.csv", foreign=foreign)
    before = names(out.parent)
    told = api.clean([out], dry_run=True)
    assert "run new was interrupted while it was published" in told["completed"][0]
    assert names(out.parent) == before
    told = api.clean([out])
    assert "run new was interrupted while it was published" in told["completed"][0]
    assert told["removed"] == []
    assert json.loads((out / "_manifest.json").read_text())["run_id"] == "new"
    rest = ["out/mine.txt"] if foreign else []
    assert names(out.parent) == sorted(
        ["out", "out/_manifest.json", *(f"out/{name}.csv" for name in "abef"), *rest]
    )


@pytest.mark.parametrize("foreign", [False, True])
def test_one_that_cannot_be_completed_is_taken_back_and_removed(
    tmp_path: Path, foreign: bool
) -> None:
    """Where a staged file has gone, the next run is refused and cleaning restores the old run."""
    out = killed(tmp_path, "rename", "/e.csv", foreign=foreign)
    (out / RUN / "staged" / "f.csv.part").unlink()
    with pytest.raises(OutputFailed, match=r"f\.csv is missing"):
        taken([out], overwrite=True)
    told = api.clean([out])
    assert "this publication is abandoned" in told["completed"][0]
    assert [each["run_id"] for each in told["removed"]] == ["new"]
    assert json.loads((out / "_manifest.json").read_text())["run_id"] == "old"
    rest = ["out/mine.txt"] if foreign else []
    assert names(out.parent) == sorted(
        ["out", "out/_manifest.json", *(f"out/{name}.csv" for name in "abcd"), *rest]
    )
    taken([out], overwrite=True).close()


def test_what_others_put_into_the_old_directory_moves_over(tmp_path: Path) -> None:
    """A file that comes just before the exchange is found in the new directory."""
    out = killed(tmp_path, "unlink", "/a.csv")
    (old,) = out.parent.glob(".out.unloader-*")
    (old / "late.txt").write_text("mine")
    api.clean([out])
    assert (out / "late.txt").read_text() == "mine"
    assert [path.name for path in out.parent.iterdir()] == ["out"]
