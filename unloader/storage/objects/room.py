"""What a run has at a place besides its final files: records, a journal, staged files, uploads.

All keys are in `_run`, except those of uploads to final names. S3 lists the uploads that were
neither completed nor aborted, but not whose they are. Those below `_run` are ours. Uploads to final
names are recognised by the pattern of such names, which a run writes into its lock before it begins
the first of them.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import groupby
from urllib.parse import quote

from msgspec.structs import replace

from unloader.storage.model import JOURNAL, MANIFEST, STAGED_LINE, Claim, Leftover
from unloader.storage.objects.holder import Holder
from writers.objects import multipart
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
    """Return whether a name is one of the place itself: no record may name another place."""
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

        A store may have another address for a later process: places that were written with the
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
        """Return whether a place in a record is this one."""
        if not is_location(place):
            return False
        other = Location.parse(place)
        mine = self.location
        return (other.scheme, other.bucket, other.key) == (mine.scheme, mine.bucket, mine.key)


_MOST_PIECES = 500
"""A reader of the journal makes one request for each."""


class Journal:
    """The journal of one run, written by a thread.

    Objects cannot grow, so the journal is a sequence of objects. Lines that come while one is being
    written are in the next one together: a run of many short units does not wait for each line.

    Args:
        room: Of the place with the records.
        folder: Of the run.

    Raises:
        OSError: The store refused to list the journal.
    """

    def __init__(self, room: Room, folder: str) -> None:
        self._room, self._folder, self._prefix = room, folder, room.journal(folder)
        self._waiting: list[bytes] = []
        self._lock = threading.Lock()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="journal")
        self._last: Future[None] | None = None
        self._failure: Exception | None = None
        numbers = [_number(each.key) for each in room.bucket.within(self._prefix)]
        self._epoch, self._piece = max(numbers, default=(0, 0))

    def append(self, line: bytes) -> None:
        """Have a line written soon.

        Raises:
            WriteError: An earlier line could not be written.
        """
        with self._lock:
            self._check()
            self._waiting.append(line)
            if len(self._waiting) == 1:
                self._last = self._writer.submit(self._write)

    def settle(self) -> None:
        """Wait until all that was appended is in the store.

        Raises:
            WriteError: It could not be written.
        """
        if self._last is not None:
            self._last.result()
        self._check()

    def replace(self, data: bytes) -> None:
        """Replace all lines, in one step.

        Raises:
            WriteError: It could not be written.
        """
        self.settle()
        with self._lock:
            self._begin_with(data)

    def close(self) -> None:
        """Write what is waiting, and end the thread; `settle` reports failures."""
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
                    self._begin_with(read_journal(self._room, self._folder))
        # Whatever it is, the next call raises it.
        except Exception as error:
            self._failure = error

    def _begin_with(self, data: bytes) -> None:
        """Make one object of the journal, in one step."""
        old = [each.key for each in self._room.bucket.within(self._prefix)]
        self._room.bucket.put(self._key(self._epoch + 1, 0), data)
        self._epoch, self._piece = self._epoch + 1, 0
        self._room.bucket.delete(old)

    def _key(self, epoch: int, piece: int) -> str:
        return f"{self._prefix}{epoch:06d}-{piece:09d}"


def read_journal(room: Room, folder: str) -> bytes:
    """Return all lines of a journal; empty where there is none.

    Raises:
        OSError: It cannot be read.
    """
    keys = [each.key for each in room.bucket.within(room.journal(folder))]
    latest: list[str] = []
    for _, group in groupby(sorted(keys), key=lambda key: _number(key)[0]):
        latest = list(group)
    return b"".join(room.bucket.read_all(latest))


def _number(key: str) -> tuple[int, int]:
    epoch, _, piece = key.rpartition("/")[2].partition("-")
    return int(epoch), int(piece)


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


def uploads_to_final_names(claim: Claim, rooms: Sequence[Room]) -> bool:
    """Decide how the files of a run get their final names.

    True: a file is uploaded to its final name and the upload is completed when the run is
    published. False: it is staged as an object, and the store copies it then. A file is staged
    if it is read before it is published, because an upload cannot be read. So are files for Google
    and Azure, where only the process that began an upload can complete it, and files with a
    checksum that only obstore has.
    """
    return bool(claim.names) and all(
        room.location.scheme == "s3" and room.location.option("checksum") != "crc64nvme"
        for room in rooms
    )


def is_name_of(name: str, patterns: Collection[str]) -> bool:
    """Return whether a final name matches one of these, in which `*` is any text."""
    return any(
        re.fullmatch(".*".join(map(re.escape, each.split("*"))), name, re.DOTALL)
        for each in patterns
    )


def abort_uploads(
    room: Room, names: Collection[str], *, kept: Collection[str] = (), dry_run: bool = False
) -> int:
    """Abort the uploads at a place that were begun by us and not ended.

    Only S3 lists them. Azure drops such parts after a week, Google by a rule of the bucket.

    Args:
        room: Of the place.
        names: Patterns of final names whose uploads are ours.
        kept: The ids of uploads that are not aborted.
        dry_run: Only count them.

    Returns:
        How many there were.

    Raises:
        WriteError: The store refused.
    """
    if room.location.scheme != "s3":
        return 0
    found = multipart.pending_uploads(room.location.below(RUN))
    if names:
        found += [
            each
            for each in multipart.pending_uploads(room.location, deep=False)
            if is_name_of(each.key.removeprefix(room.location.prefix), names)
        ]
    found = [each for each in found if each.id not in kept]
    if not dry_run:
        multipart.abort_uploads(room.location, found)
    return len(found)
