"""The destination of a run: who may have it, what stays, what goes, what is never touched."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from unloader.destinations.run_directories import Move, RunDirectories
from unloader.destinations.run_directory import JOURNAL, RUN
from unloader.errors import OutputFailed
from unloader.manifest_reading import read_manifest
from writers.errors import WriteError

ROOT = Path(__file__).parents[3]

OTHER_RUN = """
import sys
from pathlib import Path
from unloader.errors import OutputFailed
from unloader.destinations.run_directories import RunDirectories
try:
    RunDirectories([Path(sys.argv[1])], overwrite=True)
except OutputFailed as error:
    print(error)
"""


def manifest_of(names: Iterable[str], run: str = "first") -> dict[str, Any]:
    """Return a manifest of one unit with files of these names."""
    files = [{"path": name, "rows": 1, "bytes": 4, "checksum": "xxh3:0"} for name in names]
    units = [{"id": "1", "files": files}]
    totals = {"rows": len(files), "bytes": 4 * len(files), "files": len(files)}
    rest = {"table": None, "query": "q", "snapshot": None, "options": {}, "totals": totals}
    return {"format_version": 1, "run_id": run, "units": units, **rest}


def stage(directory: RunDirectories, *names: str, content: str = "new\n") -> list[Move]:
    """Stage a file for each final name; return the moves."""
    for name in names:
        (directory.first.staged / f"{name}.part").write_text(content)
    return [Move(0, f"{name}.part", name) for name in names]


def finish(path: Path, *names: str, run: str = "first", overwrite: bool = False) -> None:
    """Do a whole run that leaves these files."""
    with RunDirectories([path], overwrite=overwrite) as directory:
        directory.publish(stage(directory, *names, content=f"{run}\n"), manifest_of(names, run))


def content_of(path: Path) -> dict[str, str]:
    """Return every file under a directory with its text."""
    return {
        str(file.relative_to(path)): file.read_text() for file in path.rglob("*") if file.is_file()
    }


def test_a_published_run_is_its_files_and_the_manifest(tmp_path: Path) -> None:
    """After publishing, nothing but the files under final names and the manifest is there."""
    finish(tmp_path / "out", "a.csv", "b.csv")
    assert sorted(content_of(tmp_path / "out")) == ["_manifest.json", "a.csv", "b.csv"]
    assert not (tmp_path / "out" / RUN).exists()
    assert read_manifest(tmp_path / "out")["run_id"] == "first"


def test_nothing_has_a_final_name_before_publishing(tmp_path: Path) -> None:
    """Staged files and the journal lie under _run only."""
    with RunDirectories([tmp_path / "out"], overwrite=False) as directory:
        stage(directory, "a.csv")
        directory.record({"unit": "1", "name": "ü\n"})
        assert [entry.name for entry in (tmp_path / "out").iterdir()] == [RUN]


def test_the_journal_has_a_line_for_each_record(tmp_path: Path) -> None:
    """Each entry is one line of JSON, in order, whatever its text."""
    entries = [{"unit": "1", "partition": "a\nb"}, {"unit": "2", "partition": "ü"}]
    with RunDirectories([tmp_path], overwrite=False) as directory:
        for entry in entries:
            directory.record(entry)
        lines = (tmp_path / RUN / JOURNAL).read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == entries


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_destination_in_use_is_refused(tmp_path: Path, overwrite: bool) -> None:
    """A second run is told to wait, in this process or another; the first is not disturbed."""
    with RunDirectories([tmp_path / "out"], overwrite=False) as directory:
        moves = stage(directory, "a.csv")
        with pytest.raises(OutputFailed, match="another run is writing"):
            RunDirectories([tmp_path / "out"], overwrite=overwrite)
        done = subprocess.run(
            [sys.executable, "-c", OTHER_RUN, str(tmp_path / "out")],
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=True,
        )
        assert "another run is writing" in done.stdout
        directory.publish(moves, manifest_of(["a.csv"]))
    assert content_of(tmp_path / "out")["a.csv"] == "new\n"


def test_a_closed_destination_is_free_again(tmp_path: Path) -> None:
    """The lock goes with the run, also one that ends in an error."""

    def fail() -> None:
        with RunDirectories([tmp_path], overwrite=False):
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError):
        fail()
    RunDirectories([tmp_path], overwrite=False).close()


def test_a_refusal_holds_no_lock_and_no_descriptor(tmp_path: Path) -> None:
    """Refused as often as you like, a destination stays free and nothing stays open."""
    (tmp_path / "foreign.txt").write_text("mine")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(OutputFailed, match=r"foreign\.txt"):
            RunDirectories([tmp_path], overwrite=False)
    assert len(os.listdir("/proc/self/fd")) == before
    assert content_of(tmp_path) == {"foreign.txt": "mine"}
    RunDirectories([tmp_path], overwrite=True).close()


@pytest.mark.parametrize("names", [(), ("a.csv",)])
def test_a_finished_run_is_not_replaced_unasked(tmp_path: Path, names: tuple[str, ...]) -> None:
    """Without overwrite a finished run is refused by what it is, and stays to the byte."""
    finish(tmp_path, *names)
    before = content_of(tmp_path)
    with pytest.raises(OutputFailed, match=r"a finished run.*--overwrite"):
        RunDirectories([tmp_path], overwrite=False)
    assert content_of(tmp_path) == before


def test_overwrite_keeps_the_old_run_until_publish(tmp_path: Path) -> None:
    """While the new run goes on, and where it is abandoned, the old one is whole."""
    finish(tmp_path, "a.csv", "b.csv")
    before = content_of(tmp_path)
    with RunDirectories([tmp_path], overwrite=True) as directory:
        stage(directory, "b.csv", "c.csv")
        left = {name: text for name, text in content_of(tmp_path).items() if RUN not in name}
        assert left == before
        directory.abandon(None)
    assert content_of(tmp_path) == before


def test_overwrite_replaces_the_whole_old_run(tmp_path: Path) -> None:
    """Files without a successor go, those with one are replaced, foreign ones stay."""
    finish(tmp_path, "a.csv", "b.csv")
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.csv").write_text("mine too")
    finish(tmp_path, "b.csv", "c.csv", run="second", overwrite=True)
    found = content_of(tmp_path)
    assert json.loads(found.pop("_manifest.json"))["run_id"] == "second"
    assert found == {
        "b.csv": "second\n",
        "c.csv": "second\n",
        "notes.txt": "mine",
        "folder/a.csv": "mine too",
    }


@pytest.mark.parametrize("kind", ["file", "directory", "dangling link"])
def test_a_foreign_file_in_the_way_is_refused_with_nothing_lost(tmp_path: Path, kind: str) -> None:
    """The old run, the foreign file and what is staged are all still there after the refusal."""
    finish(tmp_path, "a.csv", "b.csv")
    if kind == "file":
        (tmp_path / "c.csv").write_text("mine")
    elif kind == "directory":
        (tmp_path / "c.csv").mkdir()
    else:
        (tmp_path / "c.csv").symlink_to("nowhere")
    before = content_of(tmp_path)
    with RunDirectories([tmp_path], overwrite=True) as directory:
        moves = stage(directory, "b.csv", "c.csv")
        with pytest.raises(WriteError, match=r"c\.csv exists already and nothing was published"):
            directory.publish(moves, manifest_of(["b.csv", "c.csv"], "second"))
        directory.abandon(manifest_of([], "second"))
    found = content_of(tmp_path)
    assert {name: text for name, text in found.items() if not name.startswith(RUN)} == before
    assert found[f"{RUN}/staged/b.csv.part"] == "new\n"
    assert os.path.lexists(tmp_path / "c.csv")


def test_a_missing_staged_file_loses_nothing(tmp_path: Path) -> None:
    """Where a staged file has gone, the old run stays as it was."""
    finish(tmp_path, "a.csv")
    before = content_of(tmp_path)
    with RunDirectories([tmp_path], overwrite=True) as directory:
        moves = stage(directory, "a.csv", "b.csv")
        (directory.first.staged / "b.csv.part").unlink()
        with pytest.raises(WriteError, match=r"b\.csv\.part is missing"):
            directory.publish(moves, manifest_of(["a.csv", "b.csv"], "second"))
        directory.abandon(None)
    assert content_of(tmp_path) == before


def test_foreign_files_are_told_before_the_work(tmp_path: Path) -> None:
    """A file that no run wrote is in the way at the start, not after hours; ours are not."""
    finish(tmp_path, "a.csv")
    (tmp_path / "b.csv").write_text("mine")
    (tmp_path / "link.csv").symlink_to("nowhere")
    with RunDirectories([tmp_path], overwrite=True) as directory:
        directory.check_names([(0, "a.csv"), (0, "c.csv")])
        for name in ("b.csv", "link.csv"):
            with pytest.raises(OutputFailed, match=rf"{name} exists already.*--file-name"):
                directory.check_names([(0, "a.csv"), (0, name)])
        directory.abandon(None)


HARMFUL = ("../outside.txt", "..", ".", "", "folder", "folder/x", "a\0b", RUN)


def test_a_tampered_manifest_reaches_nothing_outside(tmp_path: Path) -> None:
    """Names that point elsewhere are passed over: nothing is removed, the new run is published."""
    out = tmp_path / "out"
    finish(out, "a.csv")
    (tmp_path / "outside.txt").write_text("mine")
    (out / "folder").mkdir()
    (out / "folder" / "x").write_text("mine")
    tampered = manifest_of([*HARMFUL, str(tmp_path / "outside.txt"), "a.csv", "_manifest.json"])
    (out / "_manifest.json").write_text(json.dumps(tampered))
    finish(out, "b.csv", run="second", overwrite=True)
    found = content_of(tmp_path)
    assert json.loads(found.pop("out/_manifest.json"))["run_id"] == "second"
    assert found == {"outside.txt": "mine", "out/folder/x": "mine", "out/b.csv": "second\n"}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format_version": 1}', '{"format_version": 99}'])
def test_a_damaged_manifest_is_told_before_the_work(tmp_path: Path, text: str) -> None:
    """A run that could not replace the old one in the end is refused at its start."""
    finish(tmp_path, "a.csv")
    (tmp_path / "_manifest.json").write_text(text)
    before = content_of(tmp_path)
    with pytest.raises(OutputFailed, match=r"_manifest\.json"):
        RunDirectories([tmp_path], overwrite=True)
    assert {name: text for name, text in content_of(tmp_path).items() if RUN not in name} == before


def test_a_broken_run_is_told_and_replaced_on_request(tmp_path: Path) -> None:
    """Finished units of a broken run are not thrown away unasked; with overwrite they are."""
    with RunDirectories([tmp_path], overwrite=False) as directory:
        stage(directory, "a.csv")
        directory.record({"unit": "1"})
        directory.abandon(manifest_of([]))
    before = content_of(tmp_path)
    assert json.loads(before[f"{RUN}/_manifest.json"])["run_id"] == "first"
    with pytest.raises(OutputFailed, match=r"a broken run.*--overwrite"):
        RunDirectories([tmp_path], overwrite=False)
    assert content_of(tmp_path) == before
    finish(tmp_path, "b.csv", overwrite=True)
    assert sorted(content_of(tmp_path)) == ["_manifest.json", "b.csv"]


def test_a_killed_run_without_results_is_in_nobodys_way(tmp_path: Path) -> None:
    """Staged leftovers of a run that finished no unit are cleared away by the next one."""
    directory = RunDirectories([tmp_path], overwrite=False)
    stage(directory, "half.csv")
    directory.close()
    with RunDirectories([tmp_path], overwrite=False) as again:
        assert list(again.first.staged.iterdir()) == []


KILLED_PUBLISHING = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_run_directories import manifest_of, stage
from unloader.destinations.run_directories import RunDirectories

def rename(*arguments, real=os.rename, calls=[]):
    real(*arguments)
    calls.append(arguments)
    if len(calls) == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)

directory = RunDirectories([Path(sys.argv[1])], overwrite=True)
moves = stage(directory, "a.csv", "c.csv")
os.rename = rename
directory.publish(moves, manifest_of(["a.csv", "c.csv"], "killed"))
"""
"""Ends itself after so many files have their final names; there is no other way to that moment."""


@pytest.mark.parametrize("renamed", [1, 2])
def test_a_run_killed_while_publishing_is_cleared_away(tmp_path: Path, renamed: int) -> None:
    """What it left under final names is not finished, is nobody's, and blocks no --overwrite."""
    out = tmp_path / "out"
    finish(out, "a.csv", "b.csv", run="first")
    (out / "mine.csv").write_text("mine")
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            KILLED_PUBLISHING,
            str(out),
            str(Path(__file__).parent),
            str(renamed),
        ],
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    assert not (out / "_manifest.json").exists()
    with pytest.raises(OutputFailed, match="is not empty"):
        RunDirectories([out], overwrite=False)
    with RunDirectories([out], overwrite=True) as directory:
        directory.check_names([(0, "a.csv"), (0, "b.csv"), (0, "c.csv")])
        directory.publish(stage(directory, "b.csv"), manifest_of(["b.csv"], "last"))
    assert sorted(content_of(out)) == ["_manifest.json", "b.csv", "mine.csv"]


def test_a_file_changed_since_is_not_cleared_away(tmp_path: Path) -> None:
    """After a run that was killed while publishing, a file of another size is somebody else's."""
    out = tmp_path / "out"
    subprocess.run(
        [sys.executable, "-c", KILLED_PUBLISHING, str(out), str(Path(__file__).parent), "1"],
        cwd=ROOT,
        check=False,
    )
    (out / "a.csv").write_text("mine, and longer")
    with (
        RunDirectories([out], overwrite=True) as directory,
        pytest.raises(OutputFailed, match=r"a\.csv exists already"),
    ):
        directory.check_names([(0, "a.csv")])
    assert (out / "a.csv").read_text() == "mine, and longer"


def test_no_space_for_the_manifest_keeps_the_old_run(tmp_path: Path) -> None:
    """The manifest is written before the first file gets its name: the old run is untouched."""
    finish(tmp_path, "a.csv")
    before = content_of(tmp_path)
    with RunDirectories([tmp_path], overwrite=True) as directory:
        moves = stage(directory, "a.csv")
        (tmp_path / RUN / "_manifest.json").mkdir()
        with pytest.raises(WriteError, match=r"_manifest\.json"):
            directory.publish(moves, manifest_of(["a.csv"], "second"))
        directory.abandon(None)
    assert content_of(tmp_path) == before


def test_discard_removes_the_files_of_one_attempt(tmp_path: Path) -> None:
    """Only staged files of that very stem go, not those of an attempt whose number begins alike."""
    with RunDirectories([tmp_path], overwrite=False) as directory:
        for name in ("1-a1.csv", "1-a1.001.csv", "1-a12.csv", "11-a1.csv"):
            stage(directory, name)
        directory.discard("1-a1")
        left = sorted(path.name for path in directory.first.staged.iterdir())
    assert left == ["1-a12.csv.part", "11-a1.csv.part"]


@pytest.mark.parametrize("existing", [0, 1, 3])
def test_abandon_leaves_no_trace(tmp_path: Path, existing: int) -> None:
    """Every directory the run made is gone again, none that was there before it."""
    parts = ("a", "b", "out")
    (tmp_path / Path(*parts[:existing])).mkdir(parents=True, exist_ok=True)
    before = sorted(tmp_path.rglob("*"))
    with RunDirectories([tmp_path / Path(*parts)], overwrite=False) as directory:
        stage(directory, "x.csv")
        directory.abandon(None)
    assert sorted(tmp_path.rglob("*")) == before


def test_abandon_keeps_what_others_put_there(tmp_path: Path) -> None:
    """A directory of ours in which somebody left a file stays with that file."""
    with RunDirectories([tmp_path / "a" / "out"], overwrite=False) as directory:
        (tmp_path / "a" / "notes.txt").write_text("mine")
        directory.abandon(None)
    assert content_of(tmp_path) == {"a/notes.txt": "mine"}


@pytest.mark.parametrize("below", ["file", "file/out"])
def test_a_path_that_can_be_no_directory_is_refused(tmp_path: Path, below: str) -> None:
    """A file where the directory should be is named, with what to do."""
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OutputFailed, match=r"cannot create .*file.*--to"):
        RunDirectories([tmp_path / below], overwrite=True)
    assert content_of(tmp_path) == {"file": "mine"}
