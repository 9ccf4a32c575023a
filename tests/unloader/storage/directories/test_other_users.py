"""Publication beside other processes and other users, who may have planted what looks like ours."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from processes.program import forked, status_of
from publications.staged_runs import as_bytes, content_of, finish, manifest_of, stage, taken

from unloader.errors import OutputFailed
from unloader.manifest.read import read_manifest
from unloader.storage.directories import directory_publishing, directory_recovery, directory_storage
from unloader.storage.directories.directory_publishing import publishing_lines
from unloader.storage.directories.directory_storage import LocalDirectories
from unloader.storage.storage_protocol import JOURNAL, RUN, STATUS

USER = 1002
"""Not root, and the owner of nothing."""


def as_user(act: Callable[[], None], user: int = USER) -> None:
    """Do something in a child process that is another user."""

    def become_and_act() -> None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        act()

    assert status_of(forked(become_and_act)) == 0


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory that anyone can reach and write into, like /tmp."""
    if os.geteuid() != 0:
        pytest.skip("only root can act as two users")
    with tempfile.TemporaryDirectory(prefix="unloader-test-") as path:
        os.chmod(path, 0o1777)
        yield Path(path)


def test_a_parent_that_cannot_be_listed(shared: Path) -> None:
    """Files go in one by one then: the exchange needs to sync the names in the parent."""
    drop = shared / "drop"
    drop.mkdir()
    os.chown(drop, USER, USER)
    drop.chmod(0o333)
    as_user(lambda: finish(drop / "out", "a.csv"))
    assert sorted(content_of(drop)) == ["out/_manifest.json", "out/a.csv"]


def killed_halfway(out: Path) -> Callable[[], None]:
    read, write = os.pipe()

    def publish() -> None:
        rename, done = os.rename, []

        def halting(source: Path, target: Path) -> None:
            rename(source, target)
            done.append(source)
            if len(done) == 4:
                os.write(write, b"x")
                signal.pause()

        directory = taken([out], overwrite=True, run_id="A")
        moves = stage(directory, "n1.csv", "n2.csv", content="A\n")
        directory_publishing.os.rename = halting  # type: ignore[attr-defined]
        directory.commit(moves, as_bytes(manifest_of(["n1.csv", "n2.csv"], "A")))

    child = forked(publish)
    os.close(write)  # A child that fails before has the other one alone.
    assert os.read(read, 1) == b"x"

    def kill() -> None:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

    return kill


@pytest.mark.parametrize("comes", ["run", "clean"])
def test_a_publisher_killed_before_the_lock_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, comes: str
) -> None:
    """It lived when records were looked for, and has died since: its publication is not lost."""
    out = tmp_path / "out"
    finish(out, "o1.csv", "o2.csv")
    (out / "mine.txt").write_text("mine")
    kills = [killed_halfway(out)]
    module = directory_storage if comes == "run" else directory_recovery
    find = module.complete

    def then_killed(directory: Path) -> tuple[str, ...]:
        told = find(directory)
        if kills:
            kills.pop()()
        return told

    monkeypatch.setattr(module, "complete", then_killed)
    if comes == "run":
        taken([out], overwrite=True).close()
    else:
        with pytest.raises(OutputFailed, match=r"Next: run the same command again"):
            directory_recovery.clean([out], dry_run=False)
        directory_recovery.clean([out], dry_run=False)
    assert read_manifest(out).run_id == "A"
    found = content_of(out)
    assert (found["n1.csv"], found["n2.csv"], found["mine.txt"]) == ("A\n", "A\n", "mine")
    assert "o1.csv" not in found


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_finished_run_that_appears_meanwhile_stays(tmp_path: Path, overwrite: bool) -> None:
    """No one asked to replace it: the run fails and stays staged."""
    out = tmp_path / "out"
    if overwrite:
        finish(out, "o.csv")
    with taken([out], overwrite=overwrite) as directory:
        moves = stage(directory, "a.csv")
        finish(tmp_path / "other", "u.csv", run="users")
        for name in ("u.csv", "_manifest.json"):
            os.replace(tmp_path / "other" / name, out / name)
        with pytest.raises(
            OutputFailed, match=r"run \(users\) was published into .*Next: move the other run"
        ):
            directory.commit(moves, as_bytes(manifest_of(["a.csv"], "second")))
    assert read_manifest(out).run_id == "users"
    assert content_of(out)["u.csv"] == "users\n"
    assert (out / RUN / "staged" / "a.csv.part").exists()


def planted(shared: Path, home: Path) -> None:
    evil, twin = shared / "evil", shared / ".dest.unloader-x"
    shares = [
        {
            "path": str(evil),
            "twin": "evil-twin",
            "files": [["staged/.rc", ".rc", 4], ["_manifest.json", "_manifest.json", 1]],
            "replaced": [],
        },
        {"path": str(shared / "dest"), "twin": twin.name, "files": [], "replaced": []},
    ]
    holder = {"run_id": "x", "pid": 1, "places": [str(evil), str(shared / "dest")]}
    for room in (evil / RUN, twin / RUN):
        room.mkdir(parents=True)
        (room / "lock").write_text(json.dumps(holder))
        (room / "lock").chmod(0o666)
        record = json.dumps({"event": "publishing", "run_id": "x", "shares": shares})
        (room / JOURNAL).write_text(record.replace(" ", "") + "\n")
    (evil / "mine.txt").write_text("x")
    (evil / RUN / "staged").symlink_to(home)
    (shared / "evil-twin").mkdir()
    (shared / "evil-twin" / ".rc").write_text("evil")
    for path in (evil, evil / RUN, twin, twin / RUN, shared / "evil-twin"):
        path.chmod(0o777)


@pytest.mark.parametrize("comes", ["run", "clean", "verify"])
def test_a_record_of_another_user_is_not_believed(shared: Path, comes: str) -> None:
    """Anyone can put one beside a directory in /tmp; nothing is done that it says."""
    home = shared / "home"
    for path in (shared / "dest", home):
        path.mkdir()
        path.chmod(0o755)
    (home / ".rc").write_text("victim")
    as_user(lambda: planted(shared, home))
    before = content_of(shared)
    if comes == "run":
        taken([shared / "dest"], overwrite=True).all[0].leave_no_trace()
    elif comes == "clean":
        assert directory_recovery.clean([shared / "dest"], dry_run=False).completed == ()
    else:
        assert directory_storage.complete(shared / "dest") == ()
    assert content_of(shared) == before


@pytest.mark.parametrize("form", ["open", "closed", "link"])
def test_a_twin_of_another_user_is_not_taken(shared: Path, form: str) -> None:
    """Files are moved one by one, and the twin's files stay there."""
    out, twin = shared / "out", shared / ".out.unloader-r1"

    def plant() -> None:
        if form == "link":
            twin.symlink_to(out)
            return
        twin.mkdir()
        (twin / "a.csv").write_text("evl\n")
        twin.chmod(0o777 if form == "open" else 0o700)

    def run() -> None:
        with taken([out], overwrite=False, run_id="r1") as directory:
            directory.commit(stage(directory, "a.csv"), as_bytes(manifest_of(["a.csv"], "r1")))

    as_user(plant)
    as_user(run, USER + 1)
    assert content_of(out)["a.csv"] == "new\n"
    assert not (out / RUN).exists()


def test_a_file_system_that_maps_users(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run trusts its own files, for any displayed owner."""
    (shared / "out").mkdir()
    (shared / "out").chmod(0o777)
    monkeypatch.setattr(os, "geteuid", lambda: USER + 1)
    as_user(lambda: finish(shared / "out", "a.csv"))
    assert sorted(content_of(shared)) == ["out/_manifest.json", "out/a.csv"]


def test_the_room_of_another_user_is_not_used(shared: Path) -> None:
    """That user could change staged files; neither a run nor clean uses them."""
    out = shared / "out"
    out.mkdir()
    out.chmod(0o777)

    def plant() -> None:
        (out / RUN).mkdir()
        (out / RUN).chmod(0o777)
        (out / RUN / JOURNAL).write_text("{}")

    as_user(plant)
    for act in (
        lambda: taken([out], overwrite=True),
        lambda: directory_recovery.clean([out], dry_run=False),
    ):
        with pytest.raises(
            OutputFailed, match=r"_run is a symbolic link or belongs to another user"
        ):
            act()
    assert LocalDirectories().who_was_here(str(out)) is None
    assert content_of(shared) == {"out/_run/journal.jsonl": "{}"}


def test_a_twin_with_other_files_is_not_taken(tmp_path: Path) -> None:
    """Of the same user, but not what a publication left: its files do not become the run's."""
    out, twin = tmp_path / "out", tmp_path / ".out.unloader-r1"
    with taken([out], overwrite=False, run_id="r1") as directory:
        moves = stage(directory, "a.csv")
        twin.mkdir()
        for name in ("a.csv", "mine.txt"):
            (twin / name).write_text("mine")
        directory.commit(moves, as_bytes(manifest_of(["a.csv"], "r1")))
    assert content_of(out)["a.csv"] == "new\n"
    assert content_of(twin) == {"a.csv": "mine", "mine.txt": "mine"}


def test_a_staging_directory_that_is_a_link_is_refused(tmp_path: Path) -> None:
    """Renames would take another directory's files."""
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    with taken([out], overwrite=False, run_id="r1") as directory:
        moves = stage(directory, "a.csv")
        directory.first.staged.rename(elsewhere)
        directory.first.staged.symlink_to(elsewhere)
        with pytest.raises(OutputFailed, match=r"staged is a symbolic link.*Next: find out"):
            directory.commit(moves, as_bytes(manifest_of(["a.csv"], "r1")))
    assert content_of(elsewhere) == {"a.csv.part": "new\n"}
    assert not publishing_lines(out / RUN)[1]


def test_a_run_is_seen_and_ended_by_others(shared: Path) -> None:
    """Who may read its directory sees it go on; only who may write there can ask it to end."""
    run = taken([shared / "out"], overwrite=False)
    room = shared / "out" / RUN
    run.show(b"how far it is")
    storage = LocalDirectories()

    def look() -> None:
        who = storage.who_was_here(str(shared / "out"))
        assert who is not None
        assert who.is_running
        assert storage.record(str(shared / "out"), STATUS) == b"how far it is"

    def ask() -> None:
        storage.ask(str(shared / "out"), stop=True)

    def refused() -> None:
        with pytest.raises(PermissionError):
            ask()

    as_user(look)
    as_user(refused)
    assert not run.requests().stop
    room.chmod(0o777)
    as_user(ask)
    assert run.requests().stop
    run.close()
