"""The publication of a run in an object store: its record, its steps, and the runs it replaces.

An object cannot be renamed. A file that was uploaded to its final name appears there when its
upload is completed. The store copies a staged file, which is removed after the manifest has its
final name. Every step can be repeated, so the next process can finish an interrupted publication.
The first step marks the lock of the first place: from then on the run is complete.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import NamedTuple

from msgspec import Struct
from msgspec.json import Decoder

from unloader.errors import OutputFailed
from unloader.storage.objects.object_lock import ObjectHolder
from unloader.storage.objects.object_staging import PUBLICATION, Room, is_plain
from unloader.storage.storage_protocol import MANIFEST, Move
from writers.errors import StoreFailed, WriteError
from writers.files.publish import INDEX
from writers.files.read_back import RemoteFile, listed
from writers.model import UncompletedUpload
from writers.objects import s3_requests
from writers.objects.bucket import Found, together


class Placed(NamedTuple):
    place: int
    staged: str
    """Its key; of a folder of large objects the prefix of its keys, with a slash at the end."""
    bytes: int
    """Of a folder: the size of its index."""
    final: str
    upload: UncompletedUpload | None = None
    """The upload that is completed, if the file is not staged."""


class Publication(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The record of a publication, in the first place's `_run`."""

    run_id: str
    folder: str
    places: tuple[str, ...]
    files: tuple[Placed, ...]
    replaced: tuple[tuple[str, ...], ...]
    """For each place the names of earlier runs' files and manifests, which are removed."""

    def check(self, rooms: Sequence[Room]) -> None:
        """Check that it stays within its own places: other programs may have written into them."""
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
            if not (
                file.staged.startswith(within)
                and is_plain(file.staged[len(within) :].removesuffix("/"))
            ):
                raise ValueError(f"{file.staged} was not staged by this run")


_PUBLICATION = Decoder(Publication)


def read_publication(home: Room, folder: str) -> tuple[Publication, list[Room]]:
    """Return the publication on record and its places; the first one is `home`.

    A ValueError, FileNotFoundError or FormatError means that the record is damaged.
    """
    publication = _PUBLICATION.decode(home.bucket.read(home.record(folder, PUBLICATION)))
    rooms = home.others(publication.places)
    if publication.folder != folder or not rooms or rooms[0] is not home:
        raise ValueError("it belongs to another run")
    publication.check(rooms)
    return publication, rooms


def new_publication(
    me: ObjectHolder,
    rooms: Sequence[Room],
    moves: Sequence[Move],
    earlier: Sequence[AbstractSet[str]],
) -> Publication:
    """Return the publication of these files, after a check that it is possible.

    A WriteError: a file or an upload is missing, or a final name is in use or given twice.
    """
    files: list[Placed] = []
    for number, room in enumerate(rooms):
        mine = [move for move in moves if move.place == number]
        staging, staged, uploads = room.staging(me.folder), room.staged(me.folder), set()
        if any(move.upload is not None for move in mine):
            uploads = {each.id for each in s3_requests.pending_uploads(room.location, deep=False)}
        taken = set(room.names()) - earlier[number]
        for move in mine:
            key, what, where = staging.below(move.staged).key, f"{move.staged} is", str(staging)
            if move.upload is not None:
                what, where = f"the upload of {move.final} is", room.name
            shown = key
            if f"{key}/{INDEX}" in staged:
                key, shown = f"{key}/", f"{key}/{INDEX}"
            elif key not in staged if move.upload is None else move.upload.id not in uploads:
                raise WriteError(
                    f"{what} not in {where} any more.",
                    "find out which program removed it, then unload again.",
                )
            if move.final in taken:
                raise WriteError(
                    f"{room.name} already has {move.final}, or two files would get that name.",
                    "move that object away, or choose another --to or --file-name.",
                )
            taken.add(move.final)
            size = staged[shown] if move.upload is None else move.upload.bytes
            files.append(Placed(number, key, size, move.final, move.upload))
    return Publication(
        run_id=me.run_id,
        folder=me.folder,
        places=tuple(room.name for room in rooms),
        files=tuple(files),
        replaced=tuple(tuple(sorted(names)) for names in earlier),
    )


def carry_out(publication: Publication, rooms: Sequence[Room]) -> None:
    """Do all steps of a publication on record except `sweep`; the caller holds all locks.

    Raises OutputFailed if another manifest is there, or a staged file is missing. After a
    WriteError or OSError of the store the record stays.
    """
    home = rooms[0]
    manifest = home.bucket.read(home.record(publication.folder, MANIFEST))
    if not is_published(home, manifest):
        for room, names in zip(rooms, publication.replaced, strict=True):
            # They go before the files that they list: no manifest may lack a file.
            if MANIFEST in names:
                room.bucket.delete([room.final(MANIFEST)])

        def copy(room: Room, source: Found, target: str) -> None:
            room.bucket.copy(source.key, source.bytes, target)

        def name_file(file: Placed) -> None:
            room = rooms[file.place]
            if file.upload is None:
                copy(room, Found(file.staged, file.bytes), room.final(file.final))
            else:
                replaces = file.final in publication.replaced[file.place]
                s3_requests.complete(
                    room.location.below(file.final), file.upload, replaces=replaces
                )

        def steps(file: Placed) -> Iterator[Callable[[], None]]:
            if not _is_folder(file):
                yield partial(name_file, file)
                return
            room = rooms[file.place]
            for each in _in_folder(room, file.staged)[0]:
                name = each.key.removeprefix(file.staged)
                yield partial(copy, room, each, f"{room.final(file.final)}/{name}")

        try:
            together(
                lambda step: step(), [each for file in publication.files for each in steps(file)]
            )
        except FileNotFoundError as error:
            raise OutputFailed(
                f"a staged file or an upload is missing: {error.filename}",
                "find out which program removed it; remove the run's leftovers with: unloader "
                f"clean '{rooms[0].name}'; then unload again",
            ) from None
        except FileExistsError as error:
            raise OutputFailed(
                f"another object was created at {error.filename}, and no earlier run wrote it",
                "move that object away",
            ) from None
        found = [room.finals() for room in rooms]
        for file in publication.files:
            if _is_folder(file):
                _in_folder(rooms[file.place], f"{rooms[file.place].final(file.final)}/")
                continue
            size = found[file.place].get(file.final)
            if size != file.bytes:
                raise StoreFailed(
                    f"{rooms[file.place].final(file.final)} has {size} bytes in the store instead "
                    f"of {file.bytes}.",
                    "run the same command again, which writes the object again.",
                )
        try:
            home.bucket.put_new(home.final(MANIFEST), manifest)
        except FileExistsError:
            raise OutputFailed(
                f"{home.name} now has the manifest of another run, written meanwhile",
                "find out which run that is; the files of this run are next to its files",
            ) from None
    for number, (room, names) in enumerate(zip(rooms, publication.replaced, strict=True)):
        stay = {each.final for each in publication.files if each.place == number} | {MANIFEST}
        old = room.keys_of(name for name in names if name not in stay)
        for file in publication.files:
            if _is_folder(file) and file.place == number and file.final in names:
                old += _in_folder(room, f"{room.final(file.final)}/")[1]
        room.bucket.delete(old)


def _is_folder(file: Placed) -> bool:
    return file.upload is None and file.staged.endswith("/")


def _in_folder(room: Room, prefix: str) -> tuple[list[Found], list[str]]:
    """Return the objects of a folder that its index lists, the index last, and the other keys.

    FileNotFoundError: an object is missing or has another size.
    """
    there = {each.key: each for each in room.bucket.within(prefix)}
    key, mine = f"{prefix}{INDEX}", list[Found]()
    for each in listed(RemoteFile(name=key, open=partial(room.bucket.open, key))):
        found = there.pop(prefix + each.name, None)
        if found is None or found.bytes != each.bytes:
            raise FileNotFoundError(errno.ENOENT, "a large object is missing", prefix + each.name)
        mine.append(found)
    return [*mine, there.pop(key)], list(there)


def is_published(home: Room, manifest: bytes) -> bool:
    try:
        return home.bucket.read(home.final(MANIFEST)) == manifest
    except FileNotFoundError:
        return False


def take_back(publication: Publication, rooms: Sequence[Room]) -> None:
    """Remove the files with final names of a publication that cannot be finished.

    The files that it was to replace are removed too, unless their manifest is still there.
    """
    for number, (room, earlier) in enumerate(zip(rooms, publication.replaced, strict=True)):
        names = {each.final for each in publication.files if each.place == number}
        has_manifest = room.bucket.size(room.final(MANIFEST)) is not None
        names = names - set(earlier) if has_manifest else names | set(earlier)
        room.bucket.delete(room.keys_of(names))


def sweep(rooms: Sequence[Room]) -> None:
    """Remove everything in the `_run` of these places except the locks."""
    for room in reversed(rooms):
        keys = {each.key for each in room.bucket.within(room.prefix)} - {room.lock}
        staged = {key for key in keys if "/staged/" in key}
        last = {key for key in keys - staged if key.endswith(PUBLICATION)}
        # The records go after the staged files that they list. Without its record a publication
        # has no step left except this one.
        for part in (staged, keys - staged - last, last):
            room.bucket.delete(part)
