"""Object stores as a storage: the places of one run, and the requests of other commands."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from urllib.parse import quote

from msgspec.json import encode
from msgspec.structs import replace

from unloader.errors import OutputFailed
from unloader.storage.objects.object_lock import Lock, ObjectHolder, is_alive, read_lock
from unloader.storage.objects.object_publishing import (
    carry_out,
    is_published,
    new_publication,
    sweep,
)
from unloader.storage.objects.object_recovery import clean, complete, leftover
from unloader.storage.objects.object_staging import (
    PUBLICATION,
    Journal,
    Room,
    abort_uploads,
    check_different,
    refused,
)
from unloader.storage.storage_protocol import (
    JOURNAL,
    MANIFEST,
    REQUESTS,
    RUN_RECORD,
    STATUS,
    Claim,
    Cleaning,
    Completed,
    EarlierRuns,
    Holder,
    Leftover,
    Move,
    Requests,
    RunStorage,
    Storage,
    WhoWasHere,
    held,
    no_files,
    not_free,
)
from writers.errors import WriteError
from writers.files.read_back import RemoteFile
from writers.files.syncing import Steps
from writers.model import UncompletedUpload
from writers.objects import s3_requests
from writers.objects.bucket import together

BEAT_SECONDS = 5.0
"""Between two renewals of the locks."""
_PATIENCE_SECONDS = 10.0
"""How long the end of a run waits for a renewal that is on its way."""
_TRIES = 3


class ObjectRun(RunStorage):
    """The places of one run; see `RunStorage`."""

    def __init__(self, claim: Claim) -> None:
        """Lock all the places, by the rules of `Storage.take`."""
        self._show_lock = threading.Lock()
        self._rooms = tuple(Room(place) for place in claim.places)
        check_different(self._rooms)
        if claim.mode is not None or claim.owner_group:
            raise OutputFailed(
                "objects do not have a mode or an owner on this machine",
                "leave out --mode and --owner-group, and set the permissions on the bucket",
            )
        self._has_discarded = False
        self._journal: Journal | None = None
        self.places = tuple(each.name for each in self._rooms)
        # A file is uploaded to its final name only if it is not read before: an upload cannot be
        # read. Other files are staged, and so are all files for Google and Azure, where only the
        # process that began an upload can complete it, and files with a checksum that only obstore
        # has.
        self.uploads_to_finals = bool(claim.names) and all(
            room.location.scheme == "s3" and room.location.option("checksum") != "crc64nvme"
            for room in self._rooms
        )
        with refused("take", self._rooms[0]), ExitStack() as undo:
            self._locks = self._taken(claim, undo)
            self._folder = self._locks[0].holder.folder
            self._nonce = self._locks[0].holder.nonce
            self._ended = threading.Event()
            self._renewing = threading.Thread(target=self._renew, name="lock", daemon=True)
            self._renewing.start()
            undo.callback(self._renew_no_more)
            for room in () if claim.overwrite else self._rooms:
                if error := not_free(room.name, room.names(), shared=claim.shared):
                    raise error
            self._earlier = EarlierRuns(ObjectStorage(), self.places, claim.read_index)
            if claim.resumed:
                self._resume(claim)
            else:
                self._begin(claim)
            undo.pop_all()

    def _taken(self, claim: Claim, undo: ExitStack) -> tuple[Lock, ...]:
        """Take the locks when nothing is being published at any of the places."""
        me = ObjectHolder.here(claim.run_id, self.places, home=claim.home)
        folder = f"{quote(claim.run_id, safe='-_.')}.{me.nonce}"
        names = claim.names if self.uploads_to_finals else ()
        for _ in range(_TRIES):
            for room in () if claim.home else self._rooms:
                self.notices += tuple(text for run in complete(room.name) for text in run.messages)
            if claim.resumed and (seen := read_lock(self._rooms[0])) is not None:
                folder = seen[0].folder
            with ExitStack() as leaving:
                locks = []
                for room in self._rooms:
                    lock = Lock(room, replace(me, folder=folder, names=names))
                    lock.take()
                    leaving.callback(lock.undo)
                    locks.append(lock)
                # Another run may have begun to publish, and died, before the locks were ours.
                if not any(each.before and each.before.is_publishing for each in locks):
                    undo.push(leaving.pop_all())
                    return tuple(locks)
        raise OutputFailed(
            f"another run is being published into {' or '.join(self.places)}",
            "wait until it ends, then start again",
        )

    def _renew(self) -> None:
        # A store that is out of reach for a while is asked again.
        while not self._ended.wait(BEAT_SECONDS):
            for lock in self._locks:
                with suppress(WriteError, OutputFailed):
                    lock.renew()

    def _renew_no_more(self) -> None:
        self._ended.set()
        self._renewing.join(_PATIENCE_SECONDS)

    def _begin(self, claim: Claim) -> None:
        """Remove the leftovers of dead runs."""
        kept = b""
        for lock in self._locks:
            before, uploads = lock.before, 0
            if before is not None:
                uploads = abort_uploads(lock.room, before.names)
                if claim.keeps_record and lock is self._locks[0]:
                    kept = lock.room.read_record(before.folder, RUN_RECORD)
            left = leftover(lock.room, before, uploads)
            if not left.is_empty:
                self.notices += (f"removed {left.text()}",)
        sweep(self._rooms)
        if kept:
            self.keep(RUN_RECORD, kept)

    def _resume(self, claim: Claim) -> None:
        """Keep the files of the dead run, uploads to final names included."""
        for lock in self._locks:
            here = lock.before is not None and lock.before.run_id == claim.run_id
            is_its_record = claim.is_record_of_it
            if not here and not (is_its_record and is_its_record(self.recorded(RUN_RECORD))):
                # The lock goes back to the run that is there.
                raise no_files(claim.run_id, lock.room.name)
            abort_uploads(lock.room, ())
            for name in (STATUS, REQUESTS):
                lock.room.bucket.delete([lock.room.record(self._folder, name)])

    def staging(self, place: int) -> str:
        if self._journal is not None:
            # All queued lines are in the store before a unit begins.
            self._journal.settle()
        return str(self._rooms[place].staging(self._folder))

    def check(self) -> None:
        for lock in self._locks:
            lock.check()

    def _foreign(self, place: int) -> set[str]:
        room = self._rooms[place]
        with refused("read", room):
            return set(room.names()) - self._earlier.files[place]

    def staged_file(self, place: int, name: str) -> RemoteFile:
        location = self._rooms[place].staging(self._folder).below(name)
        return RemoteFile(
            name=str(location), open=partial(self._rooms[place].bucket.open, location.key)
        )

    def compare_upload(self, place: int, upload: UncompletedUpload) -> None:
        s3_requests.compare(self._rooms[place].location.below(upload.name), upload)

    def discard(self, *stems: str) -> None:
        """Remove the staged objects with these stems.

        An object that the store does not remove now is removed after the publication, because
        another attempt does not use its name. Uploads are removed then too, because the store does
        not show which attempt began them.
        """
        self._has_discarded = True
        for room in self._rooms:
            with suppress(OSError, WriteError):
                room.bucket.delete(
                    key
                    for key in room.staged(self._folder)
                    if room.staged_as(self._folder, key).startswith(
                        tuple(f"{stem}." for stem in stems)
                    )
                )

    def discard_others(
        self, kept: Collection[tuple[int, str]], uploads: Collection[str] = ()
    ) -> None:
        """Remove all other staged objects and uploads."""
        self._abort_uploads(uploads)
        stay = frozenset(kept)
        for number, room in enumerate(self._rooms):
            with refused("clear", room):
                room.bucket.delete(
                    key
                    for key in room.staged(self._folder)
                    if (number, room.staged_as(self._folder, key)) not in stay
                )

    def _abort_uploads(self, kept: Collection[str]) -> None:
        for lock in self._locks:
            abort_uploads(lock.room, lock.holder.names, kept=kept)

    def keep(self, name: str, data: bytes) -> None:
        if name == JOURNAL:
            self._opened_journal().replace(data)
        else:
            self._put(name, data)

    def _put(self, name: str, data: bytes) -> None:
        home = self._rooms[0]
        home.bucket.put(home.record(self._folder, name), data)

    def recorded(self, name: str) -> bytes:
        home = self._rooms[0]
        with refused("read", home):
            if name == JOURNAL and self._journal is not None:
                self._journal.settle()
            return home.read_record(self._folder, name)

    def append(self, line: bytes) -> None:
        try:
            self._opened_journal().append(line)
        except WriteError as error:
            raise OutputFailed(error.message, error.hint) from error

    def _opened_journal(self) -> Journal:
        if self._journal is None:
            with refused("read", self._rooms[0]):
                self._journal = Journal(self._rooms[0], self._folder)
        return self._journal

    def sync_later(self, files: Iterable[tuple[int, str]]) -> None:
        """Do nothing: an object in the store survives."""

    def _show(self, data: bytes) -> None:
        try:
            self._put(STATUS, data)
        except WriteError as error:
            raise OSError(errno.EIO, error.message) from error

    def requests(self) -> Requests:
        with suppress(OSError):
            data = self._rooms[0].read_record(self._folder, REQUESTS)
            return Requests.read(data, self._nonce) if data else Requests()
        return Requests()

    def committing(
        self, moves: Sequence[Move], manifest: bytes, then: Callable[[], None] = lambda: None
    ) -> Steps[tuple[str, ...]]:
        """Complete every upload, copy every staged object, write the manifest last; in one step."""
        yield from ()
        home = self._rooms[0]
        with refused("publish in", home):
            self._earlier = self._earlier.unchanged()
            me = self._locks[0].holder
            publication = new_publication(me, self._rooms, moves, self._earlier.replaced)
            self._put(MANIFEST, manifest)
            self._put(PUBLICATION, encode(publication))
            # From here on the run is complete, and any process can finish it.
            for lock in self._locks[1:]:
                lock.renew()
            self._locks[0].renew(is_publishing=True)
            self._publishing = True

            what = ""
            try:
                if self._has_discarded:
                    self._abort_uploads(
                        {each.upload.id for each in publication.files if each.upload is not None}
                    )
                carry_out(publication, self._rooms)
            except (OutputFailed, WriteError, OSError) as error:
                what = _said(error)
                if not is_published(home, manifest):
                    raise OutputFailed(
                        f"all files are written, but not all have their final names yet: {what}",
                        f"complete the publication with: unloader resume '{home.name}'",
                    ) from error
                # All is published. Another process may have finished it.
            then()
            self._show_no_more()
            try:
                if not what:
                    self._sweep()
            except (OutputFailed, WriteError, OSError) as error:
                what = _said(error)
        return (f"the staged files in {home.name} are not removed yet: {what}",) if what else ()

    def _abandon(self, manifest: bytes | None) -> None:
        if manifest is not None:
            self._put(MANIFEST, manifest)
            return
        with suppress(OutputFailed, WriteError, OSError):
            self.check()
            if self._journal is not None:
                self._journal.close()
                self._journal = None
            self._abort_uploads(())
            self._sweep()

    def _sweep(self) -> None:
        """Remove the rest of each `_run`, then the locks, the first lock last."""
        sweep(self._rooms)
        for lock in reversed(self._locks):
            lock.remove()

    def close(self) -> None:
        self._renew_no_more()
        if self._journal is not None:
            self._journal.close()
        # If the store does not answer, the next process sees that the lock is not renewed.
        for lock in () if self._renewing.is_alive() else self._locks:
            lock.release()


def _said(error: Exception) -> str:
    return str(getattr(error, "message", error)).rstrip(". ")


class ObjectStorage(Storage):
    """S3 and stores with its protocol, Google's and Azure's; see `Storage`."""

    def refusal(self, place: str, *, overwrite: bool) -> OutputFailed | None:
        # The right to write is not tried.
        room = Room(place)
        try:
            with refused("read", room):
                seen = read_lock(room)
                if seen is not None and is_alive(room, seen[0]):
                    return held(room.name, seen[0])
                return None if overwrite else not_free(room.name, room.names())
        except OutputFailed as error:
            return error

    def take(self, claim: Claim) -> ObjectRun:
        return ObjectRun(claim)

    def complete(self, *places: str) -> tuple[Completed, ...]:
        return tuple(each for found in together(complete, places) for each in found)

    def look(self, place: str) -> tuple[list[str], list[str]]:
        room = Room(place)
        places, objects = room.bucket.look(room.location.prefix)
        if not (places or objects):
            raise FileNotFoundError(errno.ENOENT, "the place is empty", room.name)
        return places, [each.key.rpartition("/")[2] for each in objects]

    def read(self, place: str, name: str) -> bytes:
        room = Room(place)
        return room.bucket.read(room.final(name))

    def put_new(self, place: str, name: str, data: bytes) -> None:
        room = Room(place)
        room.bucket.put_new(room.final(name), data)

    def size(self, place: str, name: str) -> int:
        room = Room(place)
        found = room.bucket.size(room.final(name))
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "the object does not exist", f"{place}/{name}")
        return found

    def file(self, place: str, name: str) -> RemoteFile:
        room = Room(place)
        key = room.final(name)
        return RemoteFile(name=str(room.location.below(name)), open=partial(room.bucket.open, key))

    def disk(self, place: str) -> None:
        """Return None: the place is not on a disk of this machine."""

    def record(self, place: str, name: str) -> bytes:
        room = Room(place)
        seen = read_lock(room)
        if seen is None:
            return b""
        return room.others(seen[0].places)[0].read_record(seen[0].folder, name)

    def ask(self, place: str, *, stop: bool = False, change: str = "") -> None:
        room = Room(place)
        seen = read_lock(room)
        if seen is None or not seen[0].places:
            raise FileNotFoundError(errno.ENOENT, "the place has no run", place)
        home, holder = room.others(seen[0].places)[0], seen[0]
        data = home.read_record(holder.folder, REQUESTS)
        before = Requests.read(data, holder.nonce) if data else Requests()
        asked = before.with_more(holder.nonce, stop=stop, change=change)
        try:
            home.bucket.put(home.record(holder.folder, REQUESTS), asked)
        except WriteError as error:
            raise OSError(errno.EIO, error.message, home.name) from error

    def who_was_here(self, place: str, *, counted: bool = True) -> WhoWasHere | None:
        room = Room(place)
        seen = read_lock(room)
        if seen is None:
            return None
        holder = seen[0]
        is_running = is_alive(room, holder)
        if counted:
            uploads = abort_uploads(room, holder.names, dry_run=True) if holder.names else 0
            left = leftover(room, holder, uploads)
        else:
            left = Leftover(directory=room.name, run_id=holder.run_id)
        known = {name: getattr(holder, name) for name in Holder.__struct_fields__}
        return WhoWasHere(**known, is_running=is_running, left=left)

    def clear(self, places: Sequence[str], *, dry_run: bool) -> Cleaning:
        return clean(places, dry_run=dry_run)
