"""Giving all files of a run their final names, so that whoever comes next can bring it to its end.

An object cannot be renamed: it is copied by the store to its final name, and the staged one goes
once the manifest stands. All steps can be done twice. It begins with the lock of the first place,
which says from then on that the run is complete.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import NamedTuple

from unloader.errors import OutputFailed
from unloader.records import dataclass
from unloader.storage.model import MANIFEST
from unloader.storage.objects.room import PUBLICATION, Room, is_plain
from writers.errors import StoreFailed
from writers.objects.bucket import Found


class Placed(NamedTuple):
    """One file on its way to its final name."""

    place: int
    staged: str
    """Its key."""
    bytes: int
    final: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """All of it; it lies in the first place's `_run` before anything has its final name."""

    run_id: str
    folder: str
    places: tuple[str, ...]
    files: tuple[Placed, ...]
    replaced: tuple[tuple[str, ...], ...]
    """Of each place: names of earlier runs' files and manifests, all of which go."""

    def to_bytes(self) -> bytes:
        """Return it as it lies in the store."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def read(cls, data: bytes) -> Publication:
        """Return what `to_bytes` has written.

        Raises:
            ValueError: It is damaged.
        """
        try:
            document = json.loads(data)
            return cls(
                run_id=str(document["run_id"]),
                folder=str(document["folder"]),
                places=tuple(map(str, document["places"])),
                files=tuple(Placed(*each) for each in document["files"]),
                replaced=tuple(tuple(map(str, names)) for names in document["replaced"]),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"it lacks {error}") from None

    def check(self, rooms: Sequence[Room]) -> None:
        """Check that it stays within its own places, whoever may have written into them.

        Raises:
            ValueError: It does not.
        """
        if len(self.replaced) != len(rooms):
            raise ValueError("it has not what each place gets")
        finals = [each.final for each in self.files]
        if not all(map(is_plain, (*finals, *(name for names in self.replaced for name in names)))):
            raise ValueError("a name leads out of its place")
        for file in self.files:
            if not 0 <= file.place < len(rooms):
                raise ValueError(f"there is no place {file.place}")
            within = rooms[file.place].staging(self.folder).prefix
            if not (file.staged.startswith(within) and is_plain(file.staged[len(within) :])):
                raise ValueError(f"{file.staged} was not staged by this run")


def carry_out(
    publication: Publication, rooms: Sequence[Room], then: Callable[[], None] = lambda: None
) -> None:
    """Do what is on record; all locks are the caller's, and stay.

    Raises:
        OutputFailed: Another manifest stands there, or what was staged is gone.
        WriteError: The store refused or failed; the record stays.
        OSError: The same, of reading.
    """
    home = rooms[0]
    manifest = home.bucket.read(home.manifest(publication.folder))
    if not stands(home, manifest):
        _remove_replaced(publication, rooms)
        _copy(publication, rooms)
        _check_sizes(publication, rooms)
        _put_manifest(home, manifest)
    then()
    sweep(rooms)


def stands(home: Room, manifest: bytes) -> bool:
    """Tell whether this manifest has its final name.

    Raises:
        OSError: The store refused.
    """
    try:
        return home.bucket.read(home.final(MANIFEST)) == manifest
    except FileNotFoundError:
        return False


def _remove_replaced(publication: Publication, rooms: Sequence[Room]) -> None:
    """Remove what earlier runs have here, their manifests first: none stands without its files."""
    for room, names in zip(rooms, publication.replaced, strict=True):
        room.bucket.delete(room.final(name) for name in names if name == MANIFEST)
    for number, (room, names) in enumerate(zip(rooms, publication.replaced, strict=True)):
        stay = {each.final for each in publication.files if each.place == number} | {MANIFEST}
        room.bucket.delete(room.final(name) for name in names if name not in stay)


def _copy(publication: Publication, rooms: Sequence[Room]) -> None:
    for number, room in enumerate(rooms):
        pairs = [
            (Found(each.staged, each.bytes), room.final(each.final))
            for each in publication.files
            if each.place == number
        ]
        try:
            room.bucket.copy_all(pairs)
        except FileNotFoundError as error:
            raise OutputFailed(
                f"a staged file is gone: {error.filename}",
                "find out what removed it; remove what the run has left with: unloader clean "
                f"'{rooms[0].name}'; then unload again",
            ) from None


def _check_sizes(publication: Publication, rooms: Sequence[Room]) -> None:
    """Compare the size of each copy with what was staged."""
    for number, room in enumerate(rooms):
        there = {each.key: each.bytes for each in room.bucket.look(room.location.prefix)[1]}
        for file in publication.files:
            key = room.final(file.final)
            if file.place == number and there.get(key) != file.bytes:
                raise StoreFailed(
                    f"the copy of {file.staged} to {key} has {there.get(key)} bytes, and not "
                    f"{file.bytes}.",
                    "run the same command again, which copies it again.",
                )


def _put_manifest(home: Room, manifest: bytes) -> None:
    try:
        home.bucket.put_new(home.final(MANIFEST), manifest)
    except FileExistsError:
        raise OutputFailed(
            f"the manifest of another run stands in {home.name}, written meanwhile",
            "find out which run that is; this one's files have been written beside its files",
        ) from None


def take_back(publication: Publication, rooms: Sequence[Room]) -> None:
    """Remove what has its final name already, of a publication that cannot be finished.

    Raises:
        WriteError: The store refused or failed.
    """
    for number, room in enumerate(rooms):
        room.bucket.delete(
            room.final(each.final) for each in publication.files if each.place == number
        )


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
