"""Acts in steps: what is on the disk before which step, alone and together with others."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from writers.errors import WriteError
from writers.files.syncing import Steps, SyncThreads, alone, together


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happens, in order: steps of acts, and the names of what is synced."""
    found: list[str] = []
    sync = os.fsync

    def recorded(descriptor: int) -> None:
        found.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", recorded)
    return found


def act(log: list[str], name: str, *steps: tuple[Any, ...]) -> Steps[str]:
    """Do so many steps."""
    for number, wanted in enumerate(steps):
        log.append(f"{name}{number}")
        yield wanted
    log.append(f"{name} ends")
    return name


def test_an_act_goes_on_once_all_it_wants_is_synced(tmp_path: Path, log: list[str]) -> None:
    """Files by their descriptors, directories by their paths; what it returns is returned."""
    (tmp_path / "d").mkdir()
    with open(tmp_path / "f", "wb") as file:
        steps = ((file.fileno(), tmp_path / "d"), (tmp_path,))
        assert alone(act(log, "a", *steps)) == "a"
    assert log == ["a0", "f", "d", "a1", tmp_path.name, "a ends"]


def test_no_act_goes_on_before_all_of_a_step_is_synced(tmp_path: Path, log: list[str]) -> None:
    """What several want is synced once a step; an act of fewer steps ends before the others."""
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    acts = [
        act(log, "a", (tmp_path / "one", tmp_path), (tmp_path / "one",)),
        act(log, "b", (tmp_path / "other", tmp_path)),
    ]
    with SyncThreads() as threads:
        assert list(together(acts, threads)) == [(1, "b"), (0, "a")]
    assert log[:2] == ["a0", "b0"]
    assert sorted(log[2:5]) == sorted(["one", "other", tmp_path.name])
    assert log[5:] == ["a1", "b ends", "one", "a ends"]


def test_an_error_is_that_of_the_act_that_waits(tmp_path: Path, log: list[str]) -> None:
    """It may mend it, or end with it; the others go on."""

    def mending() -> Steps[str]:
        try:
            yield (tmp_path / "gone",)
        except WriteError:
            yield (tmp_path,)
        return "mended"

    acts = [act(log, "a", (tmp_path / "gone",)), mending(), act(log, "c", (tmp_path,), ())]
    with SyncThreads() as threads:
        found = dict(together(acts, threads))
    assert isinstance(found[0], WriteError)
    assert (found[1], found[2]) == ("mended", "c")
    with pytest.raises(WriteError, match="gone"):
        alone(act(log, "d", (tmp_path / "gone",)))


def test_an_error_of_any_kind_is_told_and_hangs_nobody(tmp_path: Path) -> None:
    """What no file can be called is refused by Python itself; the threads do what comes next."""
    wrong = [tmp_path / f"{number}\0" for number in range(8)]
    with SyncThreads() as threads:
        failed = threads.sync(wrong)
        assert failed.keys() == set(wrong)
        assert {type(error) for error in failed.values()} == {ValueError}
        assert threads.sync([tmp_path, *wrong[:3]]).keys() == set(wrong[:3])


def test_where_no_thread_can_be_had_it_is_slower_and_nothing_else(
    tmp_path: Path, log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit of the system ends no run."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    (tmp_path / "one").mkdir()
    acts = [act(log, "a", (tmp_path, tmp_path / "one")), act(log, "b", (tmp_path / "gone",))]
    with SyncThreads() as threads:
        found = dict(together(acts, threads))
    assert found[0] == "a"
    assert isinstance(found[1], WriteError)
