"""What a run relies on in a storage, checked over each of them, and that the check can fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from publications.memory_storage import MemoryRun, MemoryStorage, Plan

from unloader.storage.base import RunStorage
from unloader.storage.directories import leftovers, publishing, run_directories
from unloader.storage.directories.local import LocalDirectories
from unloader.storage.model import Claim, Cleaning, Completed, Move, WhoWasHere
from unloader.storage.testing import check_storage
from writers.files.readable import RemoteFile


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("several", [1, 2])
@pytest.mark.parametrize(
    ("one_by_one", "step"),
    [(False, "_settle"), (False, "_remove_old"), (True, "_settle"), (True, "remove_room")],
)
def test_local_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, several: int, one_by_one: bool, step: str
) -> None:
    """Directories keep all promises, exchanged or filled, one or two, wherever they are cut short."""
    places = [tmp_path / f"m{number}" / "out" for number in range(several)]
    # Nobody else asks for a lock meanwhile.
    monkeypatch.setattr(leftovers, "_TRY_SECONDS", 0.001)

    def cut_short(run: RunStorage, moves: Sequence[Move], manifest: bytes) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(run_directories.RunDirectories, "_take_back", lambda *_: None)
            patch.setattr(publishing, step, killed)
            with pytest.raises(Killed):
                run.commit(moves, manifest)

    if one_by_one:
        monkeypatch.setattr(publishing, "_against_exchange", lambda _: "it must stay")
    check_storage(LocalDirectories(), [str(place) for place in places], cuts=[cut_short])


@pytest.mark.parametrize(
    ("several", "steps"),
    [*((1, steps) for steps in range(6)), *((2, steps) for steps in range(10))],
)
def test_places_in_memory(several: int, steps: int) -> None:
    """A storage without rename, folder or sync keeps the same promises, wherever it is cut short."""
    storage = MemoryStorage()

    def cut_short(run: RunStorage, moves: Sequence[Move], manifest: bytes) -> None:
        left = [None] * steps

        def step() -> None:
            if not left:
                raise Killed
            left.pop()

        storage.before_step = step
        with pytest.raises(Killed):
            run.commit(moves, manifest)
        storage.before_step = lambda: None

    check_storage(storage, [f"bucket/{number}" for number in range(several)], cuts=[cut_short])


class Leaky(MemoryStorage):
    """A storage that breaks one promise."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault

    def names(self, place: str) -> tuple[str, ...]:
        """Show what is staged, too."""
        staged = self.rooms[place].staged if place in self.rooms else {}
        return (*super().names(place), *(staged if self.fault == "shows staged files" else ()))

    def file(self, place: str, name: str) -> RemoteFile:
        """Find staged files under their names, or return other bytes."""
        if (place, name) not in self.objects:
            self.objects[place, name] = b""
        if self.fault == "loses bytes":
            self.objects[place, name] = self.objects[place, name][:-1]
        return super().file(place, name)

    def take(self, claim: Claim) -> MemoryRun:
        """Take what another run has."""
        for room in self.rooms.values() if self.fault == "has no lock" else ():
            room.is_locked = False
        return super().take(claim)

    def carry_out(self, plan: Plan, then: Callable[[], None] = lambda: None) -> None:
        """Leave files of the earlier run."""
        gone = () if self.fault == "replaces by half" else plan.gone
        super().carry_out(replace(plan, gone=gone), then)

    def clear(self, places: Sequence[str], *, dry_run: bool) -> Cleaning:
        """Remove nothing."""
        return super().clear(places, dry_run=dry_run or self.fault == "clears nothing")

    def who_was_here(self, place: str, *, counted: bool = True) -> WhoWasHere | None:
        """Know nobody."""
        if self.fault == "forgets who was here":
            return None
        return super().who_was_here(place, counted=counted)

    def record(self, place: str, name: str) -> bytes:
        """Know nothing of how far a run is."""
        return b"" if self.fault == "shows nothing" else super().record(place, name)

    def ask_to_stop(self, place: str) -> None:
        """Tell it nobody."""
        if self.fault != "asks nobody":
            super().ask_to_stop(place)

    def places_below(self, place: str, depth: int) -> tuple[str, ...]:
        """Find nothing."""
        return () if self.fault == "finds no runs" else super().places_below(place, depth)

    def put_new(self, place: str, name: str, data: bytes) -> None:
        """Write over what is there."""
        if self.fault == "overwrites":
            self.objects[place, name] = data
        else:
            super().put_new(place, name, data)

    def complete(self, place: str) -> tuple[Completed, ...]:
        """Leave what was cut short."""
        return () if self.fault == "finishes no commit" else super().complete(place)


FAULTS = {
    "shows staged files": "have final names",
    "loses bytes": "the committed files differ from the written files",
    "has no lock": "a place that a run is using was not refused",
    "replaces by half": "not replaced as a whole",
    "clears nothing": "after it was cleared",
    "forgets who was here": "not taken while a run has it",
    "finishes no commit": "the completion of a commit is not reported",
    "shows nothing": "the status that a run shows cannot be read",
    "asks nobody": "does not see the request",
    "overwrites": "was there is written again",
    "finds no runs": "a place with a run is not found",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_promise_is_found(fault: str) -> None:
    """Each fault of a storage is named in a sentence."""
    storage = Leaky(fault)

    def cut_short(run: RunStorage, moves: Sequence[Move], manifest: bytes) -> None:
        storage.before_step = killed
        with pytest.raises(Killed):
            run.commit(moves, manifest)
        storage.before_step = lambda: None

    with pytest.raises(AssertionError, match=FAULTS[fault]):
        check_storage(storage, ["bucket"], cuts=[cut_short])


def killed(*_: object) -> None:
    """End the process."""
    raise Killed
