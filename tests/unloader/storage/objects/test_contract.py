"""What a run relies on in a storage, checked over prefixes in a real server of S3's protocol."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
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


@pytest.mark.parametrize("several", [1, 2])
@pytest.mark.parametrize(
    "step", ["_remove_replaced", "_copy", "_check_sizes", "_put_manifest", "sweep"]
)
def test_prefixes(s3: S3Server, monkeypatch: pytest.MonkeyPatch, several: int, step: str) -> None:
    """Prefixes keep all promises, one or two, wherever a publication is cut short."""
    places = [s3.place(f"contract/{step}-{several}/{number}/out") for number in range(several)]

    def cut_short(run: RunStorage, moves: Sequence[Move], manifest: bytes) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(publication, step, killed)
            with pytest.raises(Killed):
                run.commit(moves, manifest)

    check_storage(ObjectStorage(), places, cut_short=cut_short)
    assert not [key for key in s3.objects(f"contract/{step}-{several}/") if "_run" in key]
