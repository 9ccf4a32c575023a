"""What runs have left in the `_run` of a place, counted and removed."""

from __future__ import annotations

from unloader.storage.model import STAGED_LINE, Leftover
from unloader.storage.objects.holder import Holder
from unloader.storage.objects.journal import read_journal
from unloader.storage.objects.room import Room


def look(room: Room, holder: Holder | None, *, uploads: int = 0) -> Leftover:
    """Count what is left at a place.

    Args:
        room: Of the place.
        holder: Whose lock is there; None if there is none.
        uploads: Broken-off uploads found there, which are unfinished files.

    Raises:
        OSError: The store refused.
    """
    files = [each for each in room.bucket.within(room.prefix) if "/staged/" in each.key]
    journal = read_journal(room, holder.folder) if holder is not None else b""
    return Leftover(
        directory=room.name,
        run_id=holder.run_id if holder is not None else "",
        units=sum(line.startswith(STAGED_LINE) for line in journal.splitlines()),
        files=len(files) + uploads,
        bytes=sum(each.bytes for each in files),
    )


def nothing_counted(room: Room, holder: Holder) -> Leftover:
    """Return whose it is that is left at a place, as if that were nothing."""
    return Leftover(directory=room.name, run_id=holder.run_id, units=0, files=0, bytes=0)
