"""The promises of a storage, checked on directories, and that the check can fail."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
from publications.storage_promises import check_storage

from unloader.storage.directories import directory_lock, directory_publishing, directory_storage
from unloader.storage.directories.directory_storage import LocalDirectories
from unloader.storage.storage_protocol import (
    Cleaning,
    Completed,
    Move,
    RunStorage,
    WhoWasHere,
)


class Killed(BaseException):
    """The end of the process."""


@pytest.mark.parametrize("several", [1, 2])
@pytest.mark.parametrize(
    ("one_by_one", "step"),
    [(False, "_settle"), (False, "_remove_old"), (True, "_settle"), (True, "remove_room")],
)
def test_local_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, several: int, one_by_one: bool, step: str
) -> None:
    """Directories keep all promises, exchanged or filled, one or two, wherever they are interrupted."""
    places = [tmp_path / f"m{number}" / "out" for number in range(several)]
    # Only this process asks for a lock meanwhile.
    monkeypatch.setattr(directory_lock, "_TRY_SECONDS", 0.001)

    if one_by_one:
        monkeypatch.setattr(directory_publishing, "_against_exchange", lambda _: "it must stay")
    cuts = [partial(cut_short, monkeypatch, step)]
    check_storage(LocalDirectories(), [str(place) for place in places], cuts=cuts)


def cut_short(
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    run: RunStorage,
    moves: Sequence[Move],
    manifest: bytes,
) -> None:
    """Begin to commit, and die before a step."""
    with monkeypatch.context() as patch:
        patch.setattr(directory_storage.RunDirectories, "_take_back", lambda *_: None)
        patch.setattr(directory_publishing, step, killed)
        with pytest.raises(Killed):
            run.commit(moves, manifest)


class Leaky(LocalDirectories):
    """A storage that breaks one promise."""

    def __init__(self, fault: str) -> None:
        self.fault = fault

    def names(self, place: str) -> tuple[str, ...]:
        """Show the names of staged files too."""
        staged = Path(place, "_run", "staged")
        if self.fault == "shows staged files" and staged.is_dir():
            return (
                *super().names(place),
                *(f"_run/staged/{each.name}" for each in staged.iterdir()),
            )
        return super().names(place)

    def file(self, place: str, name: str) -> Path:
        """Return another file."""
        return Path(__file__) if self.fault == "returns other bytes" else super().file(place, name)

    def clear(self, places: Sequence[str], *, dry_run: bool) -> Cleaning:
        """Remove nothing."""
        return super().clear(places, dry_run=dry_run or self.fault == "clears nothing")

    def who_was_here(self, place: str, *, counted: bool = True) -> WhoWasHere | None:
        """Return no run."""
        if self.fault == "forgets who was here":
            return None
        return super().who_was_here(place, counted=counted)

    def record(self, place: str, name: str) -> bytes:
        """Return no record."""
        return b"" if self.fault == "shows nothing" else super().record(place, name)

    def ask(self, place: str, *, stop: bool = False, change: str = "") -> None:
        """Ask no run."""
        if self.fault != "asks nobody":
            super().ask(place, stop=stop, change=change)

    def places_below(self, place: str, depth: int) -> tuple[str, ...]:
        """Find no place."""
        return () if self.fault == "finds no runs" else super().places_below(place, depth)

    def put_new(self, place: str, name: str, data: bytes) -> None:
        """Write over an existing file."""
        if self.fault == "overwrites":
            Path(place, name).write_bytes(data)
        else:
            super().put_new(place, name, data)

    def complete(self, *places: str) -> tuple[Completed, ...]:
        """Leave an interrupted commit as it is."""
        return () if self.fault == "finishes no commit" else super().complete(*places)


FAULTS = {
    "shows staged files": "have final names",
    "returns other bytes": "the committed files differ from the written files",
    "clears nothing": "after it was cleared",
    "forgets who was here": "not taken while a run has it",
    "finishes no commit": "the completion of a commit is not reported",
    "shows nothing": "the status that a run shows cannot be read",
    "asks nobody": "does not see the request",
    "overwrites": "was there is written again",
    "finds no runs": "a place with a run is not found",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_promise_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """Each fault of a storage is reported in one sentence."""
    cuts = [partial(cut_short, monkeypatch, "_settle")]
    with pytest.raises(AssertionError, match=FAULTS[fault]):
        check_storage(Leaky(fault), [str(tmp_path / "out")], cuts=cuts)


def killed(*_: object) -> None:
    """End the process."""
    raise Killed
