"""What a run relies on in a storage, checked over prefixes in a real server of S3's protocol."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest
from object_stores.s3_server import S3Server
from publications.storage_promises import check_storage

from unloader.storage.objects import object_publishing
from unloader.storage.objects.object_storage import ObjectStorage
from unloader.storage.storage_protocol import Move, RunStorage


class Killed(BaseException):
    """The end of the process."""


def killed(*_: object) -> None:
    raise Killed


_COMMON = ("_remove_manifests", "_check_sizes", "_put_manifest", "_remove_replaced", "sweep")


@pytest.mark.long("runs into object stores")
@pytest.mark.parametrize(
    ("several", "uploads", "steps"),
    [
        (1, False, ("_copy", *_COMMON)),
        (2, False, ("_copy",)),
        (2, True, ("_complete_uploads", "sweep")),
    ],
)
def test_prefixes(
    s3: S3Server,
    monkeypatch: pytest.MonkeyPatch,
    several: int,
    uploads: bool,
    steps: tuple[str, ...],
) -> None:
    """Prefixes keep all promises, one or two, wherever a publication is interrupted."""
    key = f"contract/{several}-{uploads}"
    places = [s3.place(f"{key}/{number}/out") for number in range(several)]

    def cut_at(step: str, run: RunStorage, moves: Sequence[Move], manifest: bytes) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(object_publishing, step, killed)
            with pytest.raises(Killed):
                run.commit(moves, manifest)

    cuts = [partial(cut_at, step) for step in steps]
    check_storage(ObjectStorage(), places, cuts=cuts, uploads=uploads)
    assert not [each for each in s3.objects(f"{key}/") if "_run" in each]
    assert s3.uploads(f"{key}/") == []
