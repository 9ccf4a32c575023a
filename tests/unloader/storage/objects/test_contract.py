"""What a run relies on in a storage, checked over prefixes in a real server of S3's protocol."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from long_tests import also
from object_stores.s3_server import S3Server

from unloader.storage.base import RunStorage
from unloader.storage.model import Move
from unloader.storage.objects import publication
from unloader.storage.objects.storage import ObjectStorage
from unloader.storage.testing import check_storage


class Killed(BaseException):
    """Stands for the end of the process."""


def killed(*_: object) -> None:
    raise Killed


_COMMON = ("_remove_manifests", "_check_sizes", "_put_manifest", "_remove_replaced", "sweep")


@pytest.mark.long("runs into object stores")
@pytest.mark.parametrize(
    ("several", "step", "uploads"),
    [
        *((1, step, False) for step in ("_copy", *_COMMON)),
        *((2, step, False) for step in ("_copy", "sweep")),
        (2, "_complete", True),
        *also("runs into object stores", *((2, step, True) for step in _COMMON)),
    ],
)
def test_prefixes(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch, several: int, step: str, uploads: bool
) -> None:
    """Prefixes keep all promises, one or two, wherever a publication is cut short."""
    key = f"contract/{step}-{several}-{uploads}"
    places = [s3.place(f"{key}/{number}/out") for number in range(several)]

    def cut_short(run: RunStorage, moves: Sequence[Move], manifest: bytes) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(publication, step, killed)
            with pytest.raises(Killed):
                run.commit(moves, manifest)

    check_storage(ObjectStorage(), places, cut_short=cut_short, uploads=uploads)
    assert not [each for each in s3.objects(f"{key}/") if "_run" in each]
    assert s3.uploads(f"{key}/") == []
