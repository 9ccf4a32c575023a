"""Giving all files of a run their final names, so that the next process can finish what was begun.

An object cannot be renamed. A file that was uploaded to its final name appears there as its upload
is completed; a staged one is copied by the store, and removed after the manifest has its final
name. All steps can be done twice. The first step marks the lock of the first place: from then on
the run is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import NamedTuple

from msgspec import Struct
from msgspec.json import Decoder, encode

from unloader.errors import OutputFailed
from unloader.storage.model import MANIFEST, Move
from unloader.storage.objects.holder import Holder
from unloader.storage.objects.room import (
    PUBLICATION,
    Room,
    is_plain,
)
from writers.errors import StoreFailed, WriteError
from writers.model import UncompletedUpload
from writers.objects import multipart
from writers.objects.bucket import Found, together


class Placed(NamedTuple):
    """One file on its way to its final name."""

    place: int
    staged: str
    """Its key."""
    bytes: int
    final: str
    upload: UncompletedUpload | None = None
    """What becomes the object, where there is no staged one."""


class Publication(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All of it; it lies in the first place's `_run` before anything has its final name."""

    run_id: str
    folder: str
    places: tuple[str, ...]
    files: tuple[Placed, ...]
    replaced: tuple[tuple[str, ...], ...]
    """Of each place: names of earlier runs' files and manifests, all of which go."""

    @property
    def uploads(self) -> frozenset[str]:
        """The ids of the uploads that become objects."""
        return frozenset(each.upload.id for each in self.files if each.upload is not None)

    def to_bytes(self) -> bytes:
        """Return it as it lies in the store."""
        return encode(self)

    @classmethod
    def read(cls, data: bytes) -> Publication:
        """Return what `to_bytes` has written.

        Raises:
            ValueError: It is damaged.
        """
        return _PUBLICATION.decode(data)

    def check(self, rooms: Sequence[Room]) -> None:
        """Check that it stays within its own places: other programs may have written into them.

        Raises:
            ValueError: It does not.
        """
        if len(self.replaced) != len(rooms):
            raise ValueError("it does not list the files of each place")
        finals = [each.final for each in self.files]
        if not all(map(is_plain, (*finals, *(name for names in self.replaced for name in names)))):
            raise ValueError("a name points outside its place")
        for file in self.files:
            if not 0 <= file.place < len(rooms):
                raise ValueError(f"it has no place {file.place}")
            if file.upload is not None:
                if file.upload.name != file.final:
                    raise ValueError(f"{file.upload.name} was not uploaded to {file.final}")
                continue
            within = rooms[file.place].staging(self.folder).prefix
            if not (file.staged.startswith(within) and is_plain(file.staged[len(within) :])):
                raise ValueError(f"{file.staged} was not staged by this run")


_PUBLICATION = Decoder(Publication)


def carry_out(
    publication: Publication, rooms: Sequence[Room], then: Callable[[], None] = lambda: None
) -> None:
    """Do what is on record; all locks are the caller's, and stay.

    Raises:
        OutputFailed: Another manifest is there, or a staged file is gone.
        WriteError: The store refused or failed; the record stays.
        OSError: The same, of reading.
    """
    home = rooms[0]
    manifest = home.bucket.read(home.manifest(publication.folder))
    if not is_published(home, manifest):
        _remove_manifests(publication, rooms)
        _complete(publication, rooms)
        _copy(publication, rooms)
        _check_sizes(publication, rooms)
        _put_manifest(home, manifest)
    _remove_replaced(publication, rooms)
    then()
    sweep(rooms)


def is_published(home: Room, manifest: bytes) -> bool:
    """Return whether this manifest has its final name.

    Raises:
        OSError: The store refused.
    """
    try:
        return home.bucket.read(home.final(MANIFEST)) == manifest
    except FileNotFoundError:
        return False


def _remove_manifests(publication: Publication, rooms: Sequence[Room]) -> None:
    """Remove the manifests of earlier runs before their files: no manifest may lack a file."""
    for room, names in zip(rooms, publication.replaced, strict=True):
        room.bucket.delete(room.final(name) for name in names if name == MANIFEST)


def _remove_replaced(publication: Publication, rooms: Sequence[Room]) -> None:
    """Remove what else earlier runs have here, and was not written again."""
    for number, (room, names) in enumerate(zip(rooms, publication.replaced, strict=True)):
        stay = {each.final for each in publication.files if each.place == number} | {MANIFEST}
        room.bucket.delete(room.final(name) for name in names if name not in stay)


def _complete(publication: Publication, rooms: Sequence[Room]) -> None:
    for number, room in enumerate(rooms):
        try:
            together(
                partial(_complete_upload, room, frozenset(publication.replaced[number])),
                [each for each in publication.files if each.place == number and each.upload],
            )
        except FileNotFoundError as error:
            raise _gone("an upload", error, rooms[0]) from None
        except FileExistsError as error:
            raise OutputFailed(
                f"another object was created at {error.filename}, and no earlier run wrote it",
                "move that object away",
            ) from None


def _complete_upload(room: Room, earlier: Collection[str], file: Placed) -> None:
    assert file.upload is not None
    location = room.location.below(file.final)
    multipart.complete(location, file.upload, replaces=file.final in earlier)


def _copy(publication: Publication, rooms: Sequence[Room]) -> None:
    for number, room in enumerate(rooms):
        pairs = [
            (Found(each.staged, each.bytes), room.final(each.final))
            for each in publication.files
            if each.place == number and each.upload is None
        ]
        try:
            room.bucket.copy_all(pairs)
        except FileNotFoundError as error:
            raise _gone("a staged file", error, rooms[0]) from None


def _gone(what: str, error: FileNotFoundError, home: Room) -> OutputFailed:
    return OutputFailed(
        f"{what} is missing: {error.filename}",
        "find out which program removed it; remove the run's leftovers with: unloader clean "
        f"'{home.name}'; then unload again",
    )


def _check_sizes(publication: Publication, rooms: Sequence[Room]) -> None:
    """Compare the size of each object with what was written."""
    for number, room in enumerate(rooms):
        there = {each.key: each.bytes for each in room.bucket.look(room.location.prefix)[1]}
        for file in publication.files:
            key = room.final(file.final)
            if file.place == number and there.get(key) != file.bytes:
                raise StoreFailed(
                    f"{key} has {there.get(key)} bytes in the store instead of {file.bytes}.",
                    "run the same command again, which writes the object again.",
                )


def _put_manifest(home: Room, manifest: bytes) -> None:
    try:
        home.bucket.put_new(home.final(MANIFEST), manifest)
    except FileExistsError:
        raise OutputFailed(
            f"{home.name} now has the manifest of another run, written meanwhile",
            "find out which run that is; the files of this run are next to its files",
        ) from None


def take_back(publication: Publication, rooms: Sequence[Room]) -> None:
    """Remove what has its final name already, of a publication that cannot be finished.

    The files that it was to replace are removed, too, unless their manifest is still there.

    Raises:
        WriteError: The store refused or failed.
        OSError: The same, of reading.
    """
    for number, (room, earlier) in enumerate(zip(rooms, publication.replaced, strict=True)):
        names = {each.final for each in publication.files if each.place == number}
        has_manifest = room.bucket.size(room.final(MANIFEST)) is not None
        names = names - set(earlier) if has_manifest else names | set(earlier)
        room.bucket.delete(room.final(name) for name in names)


def sweep(rooms: Sequence[Room]) -> None:
    """Remove all in the `_run` of these places but the locks.

    Raises:
        WriteError: The store refused or failed.
        OSError: The same, of reading.
    """
    for room in reversed(rooms):
        keys = {each.key for each in room.bucket.within(room.prefix)} - {room.lock}
        staged = {key for key in keys if "/staged/" in key}
        last = {key for key in keys - staged if key.endswith(PUBLICATION)}
        # The records go after the staged files that they tell of. Without its record a publication
        # has nothing left to be done but this.
        for part in (staged, keys - staged - last, last):
            room.bucket.delete(part)


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
        placed = _staged_files(room, me.folder, mine)
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


def _staged_files(room: Room, folder: str, moves: Sequence[Move]) -> list[Placed]:
    """Return what the files of a place are made of.

    Raises:
        WriteError: A staged one is missing, or an upload.
    """
    staged = {each.key: each.bytes for each in room.staged(folder)}
    uploads = set()
    if any(move.upload is not None for move in moves):
        uploads = {each.id for each in multipart.pending_uploads(room.location, deep=False)}
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
