"""The keys of what a run has at a place besides the files with final names: all in `_run`."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from msgspec.structs import replace

from unloader.storage.model import JOURNAL, MANIFEST
from writers.objects.bucket import Bucket, Found
from writers.objects.location import Location, is_location

RUN = "_run"
_LOCK = "lock.json"
_STAGED = "staged"
PUBLICATION = "publication.json"


def folder_name(run_id: str, nonce: str) -> str:
    """Return the name of a run's own prefix, which no earlier run of that id has had."""
    return f"{quote(run_id, safe='-_.')}.{nonce}"


def is_plain(name: str) -> bool:
    """Tell whether a name is one of the place itself: what was tampered with may not reach out."""
    return name not in ("", ".", "..") and "/" not in name


class Room:
    """The `_run` of one place, in the bucket that it lies in.

    Args:
        place: As the user wrote it.

    Raises:
        FormatError: It is no place in an object store, or that cannot be opened.
    """

    def __init__(self, place: str) -> None:
        self.location = Location.parse(place)
        self.bucket = Bucket(self.location)

    @property
    def name(self) -> str:
        """The place, as it is named to the user and found from anywhere."""
        return str(self.location)

    @property
    def prefix(self) -> str:
        """What all keys in it begin with."""
        return f"{self.location.prefix}{RUN}/"

    @property
    def lock(self) -> str:
        """The key of the lock."""
        return f"{self.prefix}{_LOCK}"

    def record(self, folder: str, name: str) -> str:
        """Return the key of a record of a run."""
        return f"{self.prefix}{folder}/{name}"

    def read_record(self, folder: str, name: str) -> bytes:
        """Return a record of a run; empty where there is none.

        Raises:
            OSError: It cannot be read.
        """
        try:
            return self.bucket.read(self.record(folder, name))
        except FileNotFoundError:
            return b""

    def journal(self, folder: str) -> str:
        """Return what the keys of a journal's pieces begin with."""
        return f"{self.prefix}{folder}/{JOURNAL}/"

    def publication(self, folder: str) -> str:
        """Return the key of the record of a publication."""
        return self.record(folder, PUBLICATION)

    def manifest(self, folder: str) -> str:
        """Return the key of the manifest before it has its final name."""
        return self.record(folder, MANIFEST)

    def staging(self, folder: str) -> Location:
        """Return where the files are staged."""
        return self.location.below(RUN, folder, _STAGED)

    def staged(self, folder: str) -> list[Found]:
        """Return the staged files.

        Raises:
            OSError: The store refused.
        """
        return self.bucket.within(self.staging(folder).prefix)

    def final(self, name: str) -> str:
        """Return the key of a final name."""
        return f"{self.location.prefix}{name}"

    def names(self) -> list[str]:
        """Return all final names at the place.

        Raises:
            OSError: The store refused.
        """
        return [each.key.rpartition("/")[2] for each in self.bucket.look(self.location.prefix)[1]]

    def others(self, places: Sequence[str]) -> list[Room]:
        """Return the `_run` of each place of a run, as seen from this one of them.

        A store may have another address for whoever comes later: places that were written with the
        options that this one was written with are reached with those it has now.
        """
        mine = next((Location.parse(each) for each in places if self.is_same(each)), None)
        found = []
        for each in map(Location.parse, places):
            now = each
            if mine is not None and each.options == mine.options:
                now = replace(each, options=self.location.options)
            found.append(self if self.is_same(str(each)) else Room(str(now)))
        return found

    def is_same(self, place: str) -> bool:
        """Tell whether a place that is written down is this one."""
        if not is_location(place):
            return False
        other = Location.parse(place)
        mine = self.location
        return (other.scheme, other.bucket, other.key) == (mine.scheme, mine.bucket, mine.key)
