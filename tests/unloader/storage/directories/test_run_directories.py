"""The destination of a run: locks, kept files, removed files, and files of others."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from publications.staged_runs import as_bytes, content_of, finish, manifest_of, stage, taken

from unloader.errors import OutputFailed
from unloader.storage.storage_protocol import RUN
from writers.errors import WriteError


def test_a_refusal_holds_no_lock_and_no_descriptor(tmp_path: Path) -> None:
    """Refused as often as you like, a destination stays free and nothing stays open."""
    (tmp_path / "foreign.txt").write_text("mine")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(OutputFailed, match=r"foreign\.txt"):
            taken([tmp_path], overwrite=False)
    assert len(os.listdir("/proc/self/fd")) == before
    assert content_of(tmp_path) == {"foreign.txt": "mine"}
    taken([tmp_path], overwrite=True).close()


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
    """The old run, the foreign file and the staged files are kept after the refusal."""
    finish(tmp_path, "a.csv", "b.csv")
    if kind == "file":
        (tmp_path / "c.csv").write_text("mine")
    elif kind == "directory":
        (tmp_path / "c.csv").mkdir()
    else:
        (tmp_path / "c.csv").symlink_to("nowhere")
    before = content_of(tmp_path)
    with taken([tmp_path], overwrite=True) as directory:
        moves = stage(directory, "b.csv", "c.csv")
        with pytest.raises(WriteError, match=r"c\.csv already exists, so nothing was published"):
            directory.commit(moves, as_bytes(manifest_of(["b.csv", "c.csv"], "second")))
        directory.abandon(as_bytes(manifest_of([], "second")))
    found = content_of(tmp_path)
    assert {name: text for name, text in found.items() if not name.startswith(RUN)} == before
    assert found[f"{RUN}/staged/b.csv.part"] == "new\n"
    assert os.path.lexists(tmp_path / "c.csv")


def test_foreign_files_are_told_before_the_work(tmp_path: Path) -> None:
    """A file that no run wrote is in the way at the start, not after hours; ours are not."""
    finish(tmp_path, "a.csv")
    (tmp_path / "b.csv").write_text("mine")
    (tmp_path / "link.csv").symlink_to("nowhere")
    with taken([tmp_path], overwrite=True) as directory:
        directory.check_names([(0, "a.csv"), (0, "c.csv")])
        for name in ("b.csv", "link.csv"):
            with pytest.raises(OutputFailed, match=rf"{name} already exists.*--file-name"):
                directory.check_names([(0, "a.csv"), (0, name)])
        directory.abandon(None)


@pytest.mark.parametrize("overwrite", [False, True])
def test_the_new_directory_has_the_rights_of_the_old_one(tmp_path: Path, overwrite: bool) -> None:
    """Mode with its special bits, owner and attributes are kept from the earlier directory."""
    out = tmp_path / "out"
    out.mkdir()
    if overwrite:
        finish(out, "a.csv")
    out.chmod(0o2751)
    os.setxattr(out, "user.unloader", b"kept")
    before = out.stat()
    finish(out, "b.csv", run="second", overwrite=overwrite)
    after = out.stat()
    assert after.st_ino != before.st_ino
    assert (after.st_mode, after.st_uid, after.st_gid) == (
        before.st_mode, before.st_uid, before.st_gid,
    )  # fmt: skip
    assert os.getxattr(out, "user.unloader") == b"kept"
    assert list(tmp_path.iterdir()) == [out]


def test_a_link_to_the_directory_stays_one(tmp_path: Path) -> None:
    """Its target is exchanged in place."""
    (tmp_path / "far").mkdir()
    (tmp_path / "link").symlink_to("far")
    finish(tmp_path / "link", "a.csv")
    finish(tmp_path / "link", "b.csv", run="second", overwrite=True)
    assert (tmp_path / "link").is_symlink()
    assert sorted(content_of(tmp_path / "far")) == ["_manifest.json", "b.csv"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["far", "link"]


@pytest.mark.parametrize("why", ["foreign", "current", "long"])
def test_a_directory_that_must_stay_is_filled(
    tmp_path: Path, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user's file, our current directory, no room for the twin's name: it stays itself."""
    out = tmp_path / ("x" * 250 if why == "long" else "out")
    out.mkdir()
    if why == "foreign":
        (out / ".keep").write_text("")
    if why == "current":
        monkeypatch.chdir(out)
    before = out.stat().st_ino
    finish(out, "a.csv", "b.csv", overwrite=why == "foreign")
    finish(out, "b.csv", run="second", overwrite=True)
    assert out.stat().st_ino == before
    found = content_of(out)
    found.pop(".keep", None)
    assert found.keys() == {"_manifest.json", "b.csv"}
    assert found["b.csv"] == "second\n"


def test_a_mount_point_of_the_same_file_system_is_filled(tmp_path: Path) -> None:
    """A bind mount looks like a directory like any other, until something is moved out of it."""
    (tmp_path / "far").mkdir()
    out = tmp_path / "out"
    out.mkdir()
    mounted = subprocess.run(["mount", "--bind", str(tmp_path / "far"), str(out)], check=False)
    if mounted.returncode:
        pytest.skip("there is no right to mount a directory")
    try:
        finish(out, "a.csv", "b.csv")
        finish(out, "b.csv", run="second", overwrite=True)
        assert sorted(content_of(out)) == ["_manifest.json", "b.csv"]
        assert sorted(path.name for path in tmp_path.iterdir()) == ["far", "out"]
    finally:
        subprocess.run(["umount", str(out)], check=True)


HARMFUL = ("../outside.txt", "..", ".", "", "folder", "folder/x", "a\0b", RUN)


def test_a_tampered_manifest_reaches_nothing_outside(tmp_path: Path) -> None:
    """Names that point elsewhere are passed over: nothing is removed, the new run is published."""
    out = tmp_path / "out"
    finish(out, "a.csv")
    (tmp_path / "outside.txt").write_text("mine")
    (out / "folder").mkdir()
    (out / "folder" / "x").write_text("mine")
    tampered = manifest_of([*HARMFUL, str(tmp_path / "outside.txt"), "a.csv", "_manifest.json"])
    (out / "_manifest.json").write_bytes(as_bytes(tampered))
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
        taken([tmp_path], overwrite=True)
    assert {name: text for name, text in content_of(tmp_path).items() if RUN not in name} == before


def break_off(path: Path, *, tidily: bool) -> None:
    """Do a run that dies after its first unit, with a partial manifest or by SIGKILL."""
    directory = taken([path], overwrite=True, run_id="broken")
    stage(directory, "half.csv")
    directory.append(as_bytes({"event": "staged", "unit": "1"}))
    if tidily:
        directory.abandon(as_bytes(manifest_of([])))
    directory.close()


@pytest.mark.parametrize("tidily", [True, False])
@pytest.mark.parametrize("overwrite", [True, False])
def test_what_a_dead_run_left_is_dropped_with_a_notice(
    tmp_path: Path, tidily: bool, overwrite: bool
) -> None:
    """It blocks no run, for any kind of death; the notice names the run and its units."""
    break_off(tmp_path, tidily=tidily)
    with taken([tmp_path], overwrite=overwrite) as directory:
        assert directory.notices == (
            f"removed the unpublished files of run broken in {tmp_path}: 1 finished work unit, "
            "1 staged file, 4 bytes",
        )
        directory.commit(stage(directory, "b.csv"), as_bytes(manifest_of(["b.csv"])))
    assert sorted(content_of(tmp_path)) == ["_manifest.json", "b.csv"]


@pytest.mark.parametrize("tidily", [True, False])
def test_what_a_dead_run_left_beside_a_finished_one_does_not_change_the_rule(
    tmp_path: Path, tidily: bool
) -> None:
    """A finished run still needs --overwrite, and a refusal removes nothing of either."""
    finish(tmp_path, "a.csv")
    break_off(tmp_path, tidily=tidily)
    before = content_of(tmp_path)
    with pytest.raises(OutputFailed, match=r"a finished run.*--overwrite"):
        taken([tmp_path], overwrite=False)
    assert content_of(tmp_path) == before
    finish(tmp_path, "b.csv", overwrite=True)
    assert sorted(content_of(tmp_path)) == ["_manifest.json", "b.csv"]


def test_no_space_for_the_manifest_keeps_the_old_run(tmp_path: Path) -> None:
    """The manifest is written before the first file gets its name: the old run is untouched."""
    finish(tmp_path, "a.csv")
    before = content_of(tmp_path)
    with taken([tmp_path], overwrite=True) as directory:
        moves = stage(directory, "a.csv")
        (tmp_path / RUN / "_manifest.json").mkdir()
        with pytest.raises(WriteError, match=r"_manifest\.json"):
            directory.commit(moves, as_bytes(manifest_of(["a.csv"], "second")))
        directory.abandon(None)
    assert content_of(tmp_path) == before


@pytest.mark.parametrize("existing", [0, 1, 3])
def test_abandon_leaves_no_trace(tmp_path: Path, existing: int) -> None:
    """Every directory the run made is gone again, none that was there before it."""
    parts = ("a", "b", "out")
    (tmp_path / Path(*parts[:existing])).mkdir(parents=True, exist_ok=True)
    before = sorted(tmp_path.rglob("*"))
    with taken([tmp_path / Path(*parts)], overwrite=False) as directory:
        stage(directory, "x.csv")
        directory.abandon(None)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("fault", ["gone", "replaced", "foreign"])
def test_a_lost_lock_is_no_publication(tmp_path: Path, fault: str) -> None:
    """A run whose lock is not its own any more fails, and its files stay staged."""
    with taken([tmp_path / "out"], overwrite=False) as directory:
        moves = stage(directory, "a.csv")
        lock = tmp_path / "out" / RUN / "lock"
        text = lock.read_text()
        if fault == "foreign":
            lock.write_text("")
        else:
            lock.unlink()
        if fault == "replaced":
            lock.write_text(text)
        with pytest.raises(OutputFailed, match=r"lock was removed.*Next: find out"):
            directory.commit(moves, as_bytes(manifest_of(["a.csv"])))
        directory.abandon(as_bytes(manifest_of([])))
    assert (tmp_path / "out" / RUN / "staged" / "a.csv.part").read_text() == "new\n"
    assert [entry.name for entry in (tmp_path / "out").iterdir()] == [RUN]


def test_the_old_manifest_goes_before_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One by one: also names that sort before the manifest's."""
    out = tmp_path / "out"
    finish(out, "A.csv", "B.csv")
    (out / "mine.txt").write_text("mine")
    renamed = []
    rename = os.rename

    def seen(source: Path, target: Path) -> None:
        renamed.append(Path(source).name)
        rename(source, target)

    with taken([out], overwrite=True) as directory:
        moves = stage(directory, "A.csv", "C.csv")
        monkeypatch.setattr(os, "rename", seen)
        directory.commit(moves, as_bytes(manifest_of(["A.csv", "C.csv"], "second")))
    assert renamed[0] == renamed[-1] == "_manifest.json"
    assert sorted(content_of(out)) == ["A.csv", "C.csv", "_manifest.json", "mine.txt"]
