"""Why a place cannot be taken by a run, found out without changing anything."""

from __future__ import annotations

from unloader.errors import OutputFailed
from unloader.storage.model import MANIFEST
from unloader.storage.objects.holder import Holder
from unloader.storage.objects.room import RUN, Room


def not_free(room: Room, *, shared: bool = False) -> OutputFailed | None:
    """Return the error for a place that holds anything but leftovers of dead runs, else None.

    Args:
        room: Of the place.
        shared: Other runs may have places in it; only a finished run is in the way.

    Raises:
        OSError: The store refused.
    """
    levels, objects = room.bucket.look(room.location.prefix)
    names = sorted({*levels, *(each.key.rpartition("/")[2] for each in objects)} - {RUN})
    finished = MANIFEST in names
    if not names or (shared and not finished):
        return None
    what = "a finished run" if finished else f"{names[0]} and maybe more"
    return OutputFailed(
        f"{room.name} is not empty: it holds {what}",
        "choose an empty prefix with --to, or replace an earlier run with --overwrite",
    )


def held(room: Room, holder: Holder) -> OutputFailed:
    """Return the error for a place that another run is writing to."""
    return OutputFailed(
        f"another run is writing to {room.name}: {holder.text()}",
        f"see it with: unloader status '{room.name}'; or choose another --to",
    )
