"""The promises of a storage, checked on directories."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
from publications.storage_promises import check_storage

from unloader.storage.directories import directory_lock, directory_publishing, directory_storage
from unloader.storage.directories.directory_storage import LocalDirectories
from unloader.storage.storage_protocol import Move, RunStorage


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


def killed(*_: object) -> None:
    """End the process."""
    raise Killed
