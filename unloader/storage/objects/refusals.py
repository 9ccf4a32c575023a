"""Why a place cannot be taken by a run, found out without changing anything."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from unloader.errors import OutputFailed
from unloader.storage.model import MANIFEST, Claim
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
    what = "a finished run" if finished else f"{names[0]} and possibly other objects"
    return OutputFailed(
        f"{room.name} is not empty: it holds {what}",
        "choose an empty prefix with --to, or replace an earlier run with --overwrite",
    )


def held(room: Room, holder: Holder) -> OutputFailed:
    """Return the error for a place that another run is writing to."""
    return OutputFailed(
        f"another run is writing to {room.name}: {holder.text()}",
        f"look at that run with: unloader status '{room.name}'; or choose another --to",
    )


def check_different(rooms: Sequence[Room]) -> None:
    """See that places are apart from each other, and of one kind.

    Raises:
        OutputFailed: They are not.
    """
    for one, other in combinations(rooms, 2):
        first, second = one.location, other.location
        if first.store == second.store and (
            first.prefix.startswith(second.prefix) or second.prefix.startswith(first.prefix)
        ):
            raise OutputFailed(
                "--to names two places that are the same, or one is inside the other: "
                f"{one.name} and {other.name}",
                "give separate places",
            )
        if first.scheme != second.scheme:
            raise OutputFailed(
                f"--to names places of two kinds: {one.name} and {other.name}",
                "give places of one kind, because a run publishes all of its files in one step",
            )


def check_rights(claim: Claim) -> None:
    """See that a run asks for no rights that files have and objects do not.

    Raises:
        OutputFailed: It does.
    """
    if claim.mode is not None or claim.owner_group:
        raise OutputFailed(
            "objects do not have a mode or an owner on this machine",
            "leave out --mode and --owner-group, and set the permissions on the bucket",
        )
