"""The directory that those of all tables of a run are in: its record, its status, its manifest."""

from __future__ import annotations

from unloader.manifest.read import read_index
from unloader.storage.base import RunStorage
from unloader.storage.model import Claim
from unloader.storage.opening import storage_at


def take_home(place: str, run_id: str, *, overwrite: bool, resumed: bool) -> RunStorage:
    """Take the directory; the caller closes it.

    Raises:
        OutputFailed: Another run has it, or it holds a finished run and `overwrite` is off.
    """
    return storage_at(place).take(
        Claim(
            places=(place,),
            run_id=run_id,
            overwrite=overwrite,
            read_index=read_index,
            resumed=resumed,
            shared=True,
        )
    )
