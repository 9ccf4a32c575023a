"""The records, the journal, the staged files and the unfinished uploads in an object store.

All keys are in `_run`, except the keys of uploads to final names. S3 lists the unfinished uploads,
but it does not show which program began them. The uploads below `_run` belong to runs. Other
uploads are recognised by the patterns of final names, which a run writes into its lock before it
begins the first upload.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import combinations

from msgspec.structs import replace

from unloader.errors import OutputFailed
from unloader.storage.storage_protocol import JOURNAL, RUN
from writers.objects import s3_requests
from writers.objects.bucket import Bucket, together
from writers.objects.location import Location, is_location

PUBLICATION = "publication.json"
"""Name of the record of a publication."""


def is_plain(name: str) -> bool:
    """Return whether a name from a record stays within its place."""
    return name not in ("", ".", "..") and "/" not in name


class Room:
    """The `_run` of one place, and the bucket that it is in."""

    def __init__(self, place: str) -> None:
        self.location = Location.parse(place)
        self.bucket = Bucket(self.location)
        self.name = str(self.location)
        """The place, as messages name it."""
        self.prefix = f"{self.location.prefix}{RUN}/"
        """The beginning of all keys in `_run`."""
        self.lock = f"{self.prefix}lock.json"
        """The key of the lock."""

    def record(self, folder: str, name: str) -> str:
        """Return the key of a record of a run; `folder` is the run's own prefix in `_run`."""
        return f"{self.prefix}{folder}/{name}"

    def read_record(self, folder: str, name: str) -> bytes:
        """Return a record of a run, or no bytes if it does not exist.

        The journal has several objects: these are all lines of its latest epoch.
        """
        key = self.record(folder, name)
        if name == JOURNAL:
            keys = sorted(each.key for each in self.bucket.within(f"{key}/"))
            latest = [each for each in keys if _number(each)[0] == _number(keys[-1])[0]]
            return b"".join(together(self.bucket.read, latest))
        try:
            return self.bucket.read(key)
        except FileNotFoundError:
            return b""

    def staging(self, folder: str) -> Location:
        """Return where the files of a run are staged."""
        return self.location.below(RUN, folder, "staged")

    def staged(self, folder: str) -> dict[str, int]:
        """Return the sizes of the staged files of a run by their keys."""
        return dict(self.bucket.within(self.staging(folder).prefix))

    def staged_as(self, folder: str, key: str) -> str:
        """Return the name of a staged file, or of the folder of large objects that has it."""
        return key.removeprefix(self.staging(folder).prefix).partition("/")[0]

    def final(self, name: str) -> str:
        return f"{self.location.prefix}{name}"

    def finals(self) -> dict[str, int]:
        """Return the sizes of all objects at the place by their final names."""
        found = self.bucket.look(self.location.prefix)[1]
        return {each.key.rpartition("/")[2]: each.bytes for each in found}

    def keys_of(self, names: Iterable[str]) -> list[str]:
        """Return the keys of files with these final names, and of everything in such folders."""
        names = list(names)
        folders = {*names} & {*(self.bucket.look(self.location.prefix)[0] if names else ())}
        inner = [
            each.key for name in folders for each in self.bucket.within(f"{self.final(name)}/")
        ]
        return [*map(self.final, names), *inner]

    def names(self) -> list[str]:
        """Return the names of everything one level below the place."""
        levels, objects = self.bucket.look(self.location.prefix)
        return [*levels, *(each.key.rpartition("/")[2] for each in objects)]

    def others(self, places: Sequence[str]) -> list[Room]:
        """Return the `_run` of each place of a run; this place is one of them.

        A later process may reach the store at another address. So places that were recorded with
        the same options as this place are opened with the options that this place has now.
        """
        known = [Location.parse(each) for each in places]
        mine = next((each for each in known if self.is_same(str(each))), None)
        return [
            self
            if self.is_same(str(each))
            else Room(str(replace(each, options=self.location.options)))
            if mine is not None and each.options == mine.options
            else Room(str(each))
            for each in known
        ]

    def is_same(self, place: str) -> bool:
        """Return whether a recorded place is this one; its options do not count."""
        if not is_location(place):
            return False
        return replace(Location.parse(place), options=()) == replace(self.location, options=())


@contextmanager
def refused(verb: str, room: Room) -> Iterator[None]:
    """Turn an OSError of the store into OutputFailed, with the place and advice."""
    try:
        yield
    except OSError as error:
        raise OutputFailed(
            f"cannot {verb} {room.name}: {error.strerror or error}",
            "check the name of the bucket, the credentials and their rights, and the network",
        ) from error


def check_different(rooms: Sequence[Room]) -> None:
    """Check that places are apart from each other, and of one kind."""
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


_MOST_PIECES = 500
"""A reader of the journal makes one request for each piece."""


class Journal:
    """The journal of one run, written by a thread.

    Objects cannot grow, so the journal is a sequence of objects. Lines that arrive while one object
    is being written go into the next object together. So a run of many short units does not wait
    for each line.
    """

    def __init__(self, room: Room, folder: str) -> None:
        self._room, self._folder, self._prefix = room, folder, f"{room.record(folder, JOURNAL)}/"
        self._waiting: list[bytes] = []
        self._lock = threading.Lock()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="journal")
        self._last: Future[None] | None = None
        self._failure: Exception | None = None
        numbers = [_number(each.key) for each in room.bucket.within(self._prefix)]
        self._epoch, self._piece = max(numbers, default=(0, 0))

    def append(self, line: bytes) -> None:
        """Queue a line for writing; raise the error of an earlier line."""
        with self._lock:
            self._check()
            self._waiting.append(line)
            if len(self._waiting) == 1:
                self._last = self._writer.submit(self._write)

    def settle(self) -> None:
        """Wait until all queued lines are in the store, or raise the error."""
        if self._last is not None:
            self._last.result()
        self._check()

    def replace(self, data: bytes) -> None:
        """Replace all lines in one step."""
        self.settle()
        with self._lock:
            self._restart(data)

    def close(self) -> None:
        """Write the queued lines, and end the thread; `settle` reports failures."""
        self._writer.shutdown()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _write(self) -> None:
        with self._lock:
            data = b"".join(self._waiting)
            self._waiting.clear()
        try:
            # After a failure no line may follow: a gap would look like a unit that was not read.
            if self._failure is None:
                self._piece += 1
                self._room.bucket.put(self._key(self._epoch, self._piece), data)
                if self._piece >= _MOST_PIECES:
                    self._restart(self._room.read_record(self._folder, JOURNAL))
        except Exception as error:
            # The next call raises it.
            self._failure = error

    def _restart(self, data: bytes) -> None:
        """Write the journal as the first object of the next epoch, then remove the old objects."""
        old = [each.key for each in self._room.bucket.within(self._prefix)]
        self._room.bucket.put(self._key(self._epoch + 1, 0), data)
        self._epoch, self._piece = self._epoch + 1, 0
        self._room.bucket.delete(old)

    def _key(self, epoch: int, piece: int) -> str:
        return f"{self._prefix}{epoch:06d}-{piece:09d}"


def _number(key: str) -> tuple[int, int]:
    epoch, _, piece = key.rpartition("/")[2].partition("-")
    return int(epoch), int(piece)


def abort_uploads(
    room: Room, names: Collection[str], *, kept: Collection[str] = (), dry_run: bool = False
) -> int:
    """Abort the unfinished uploads of runs at a place, or only count them; return their number.

    Uploads to final names that match one of the patterns `names` belong to runs; `kept` has ids
    that stay. Only S3 lists them: Azure drops parts after a week, Google by a rule of the bucket.
    """
    if room.location.scheme != "s3":
        return 0
    found = s3_requests.pending_uploads(room.location.below(RUN))
    if names:
        # `*` in a pattern is any text.
        patterns = [".*".join(map(re.escape, each.split("*"))) for each in names]
        found += [
            each
            for each in s3_requests.pending_uploads(room.location, deep=False)
            for name in (each.key.removeprefix(room.location.prefix),)
            if any(re.fullmatch(pattern, name, re.DOTALL) for pattern in patterns)
        ]
    found = [each for each in found if each.id not in kept]
    if not dry_run:
        s3_requests.abort_uploads(room.location, found)
    return len(found)
