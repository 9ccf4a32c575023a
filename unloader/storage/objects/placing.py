"""Which objects and uploads get which final names, looked at before anything gets one."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from unloader.storage.model import Move
from unloader.storage.objects.holder import Holder
from unloader.storage.objects.publication import Placed, Publication
from unloader.storage.objects.room import Room
from unloader.storage.objects.uploads import ids_of_uploads
from writers.errors import WriteError


def publication_of(
    me: Holder, rooms: Sequence[Room], moves: Sequence[Move], earlier: Sequence[AbstractSet[str]]
) -> Publication:
    """Return what is to be done, all of it possible as far as can be seen.

    Args:
        me: The run.
        rooms: Of its places.
        moves: From staged to final names.
        earlier: Of each place, the names of earlier runs' objects, which go.

    Raises:
        WriteError: A staged file is missing, a final name is another's or is given twice.
    """
    files: list[Placed] = []
    for number, room in enumerate(rooms):
        mine = [move for move in moves if move.place == number]
        placed = _placed(room, me.folder, mine)
        taken = set(room.names()) - earlier[number]
        for move in mine:
            if move.final in taken:
                raise WriteError(
                    f"{room.name} already has {move.final}, or two files would get that name.",
                    "move that object away, or choose another --to or --file-name.",
                )
            taken.add(move.final)
        files += placed
    return Publication(
        run_id=me.run_id,
        folder=me.folder,
        places=tuple(room.name for room in rooms),
        files=tuple(files),
        replaced=tuple(tuple(sorted(names)) for names in earlier),
    )


def _placed(room: Room, folder: str, moves: Sequence[Move]) -> list[Placed]:
    """Return what the files of a place are made of.

    Raises:
        WriteError: A staged one is missing, or an upload.
    """
    staged = {each.key: each.bytes for each in room.staged(folder)}
    uploads = ids_of_uploads(room) if any(move.upload is not None for move in moves) else set()
    found = []
    for move in moves:
        key = room.staging(folder).below(move.staged).key
        if move.upload is None and key in staged:
            found.append(Placed(move.place, key, staged[key], move.final))
        elif move.upload is not None and move.upload.id in uploads:
            found.append(Placed(move.place, key, move.upload.bytes, move.final, move.upload))
        else:
            what = f"{move.staged} is" if move.upload is None else f"the upload of {move.final} is"
            raise WriteError(
                f"{what} not in {room.staging(folder) if move.upload is None else room.name} any "
                "more.",
                "find out which program removed it, then unload again.",
            )
    return found
