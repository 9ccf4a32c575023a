"""Whether the disks have room for the tables of a run."""

from __future__ import annotations

from collections.abc import Sequence

from unloader.events import Notice, Observer
from unloader.resolve.resolved import ResolvedRun
from unloader.run.room import RoomWatch
from unloader.storage.opening import storage_at


def room_watch(
    own: Sequence[str], runs: Sequence[ResolvedRun], observe: Observer
) -> RoomWatch | None:
    """Return what looks whether the disks have room, where that was asked for.

    A look at one directory of each disk is enough, however many tables there are.

    Args:
        own: Directories of the run, such as that around its tables.
        runs: One for each; the most that one of them wants free is kept free for all.
        observe: Gets a notice when the run waits, and when it goes on.
    """
    options = [output.options for run in runs for output in run.outputs]
    wanted = max((each.min_free_bytes for each in options), default=0)
    if not wanted:
        return None
    places = dict.fromkeys((*own, *(place for each in options for place in each.destinations)))
    disks: dict[int, str] = {}
    for place in places:
        disk = storage_at(place).disk(place)
        if disk is not None:
            disks.setdefault(disk.number, disk.directory)
    return RoomWatch(
        directories=tuple(disks.values()),
        min_free_bytes=wanted,
        pause_seconds=max(each.pause_seconds for each in options),
        tell=lambda text: observe(Notice(text=text)),
    )
