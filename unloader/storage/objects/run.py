"""The places of one run in an object store, taken together and published together.

`unloader.storage.base.RunStorage` says what each method promises.
"""

from __future__ import annotations

import errno
import io
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import IO

from msgspec.structs import replace

from unloader.errors import OutputFailed
from unloader.storage.model import (
    JOURNAL,
    RECORDS,
    REQUESTS,
    RUN_RECORD,
    STATUS,
    Claim,
    Move,
    Place,
    Requests,
    Staging,
)
from unloader.storage.objects.holder import Holder
from unloader.storage.objects.publication import carry_out, is_published, publication_of, sweep
from unloader.storage.objects.recovery import refused
from unloader.storage.objects.room import (
    Journal,
    Room,
    abort_uploads,
    folder_name,
    look,
    read_journal,
    uploads_to_final_names,
)
from unloader.storage.objects.taking import (
    EarlierRuns,
    Locks,
    check_different,
    check_rights,
    not_free,
)
from writers.errors import WriteError
from writers.files.readable import RemoteFile
from writers.files.syncing import Steps, alone
from writers.model import UncompletedUpload
from writers.objects import multipart


class ObjectRun:
    """One or more prefixes, taken by one run."""

    def __init__(self, claim: Claim) -> None:
        """Take all the places or none; see `unloader.storage.base.Storage.take`.

        Raises:
            OutputFailed: As there; or one is named twice, or lies in another.
            WriteError: The store refused or failed.
        """
        self._rooms = tuple(Room(place) for place in claim.places)
        check_different(self._rooms)
        check_rights(claim)
        self._publishing = self._has_discarded = False
        self._is_shown, self._show_lock = True, threading.Lock()
        self._journal: Journal | None = None
        places = tuple(room.name for room in self._rooms)
        self._uploads_to_finals = uploads_to_final_names(claim, self._rooms)
        me = Holder.here(claim.run_id, places, home=claim.home)
        if self._uploads_to_finals:
            me = replace(me, names=(claim.names,))
        folder = folder_name(claim.run_id, me.nonce)
        with refused("take", self._rooms[0]), ExitStack() as undo:
            self._locks = Locks(self._rooms)
            self._me = self._locks.take(claim, me, folder, undo)
            self.notices = self._locks.notices
            # What a dead run has left may take long to remove.
            self._locks.keep_alive()
            undo.callback(self._locks.leave_alone)
            before = self._locks.before
            if not claim.overwrite:
                for room in self._rooms:
                    error = not_free(room, shared=claim.shared)
                    if error is not None:
                        raise error
            # What cannot be replaced in the end had better be known before the work.
            self._earlier = EarlierRuns(self._rooms, claim.read_index)
            if claim.resumed:
                self._go_on(claim, before)
            else:
                self._begin(claim, before)
            undo.pop_all()

    def _begin(self, claim: Claim, before: Sequence[Holder | None]) -> None:
        """Remove what dead runs have left."""
        kept = b""
        for room, holder in zip(self._rooms, before, strict=True):
            uploads = abort_uploads(room, holder.names) if holder is not None else 0
            left = look(room, holder, uploads=uploads)
            if not left.is_empty:
                self.notices += (f"removed {left.text()}",)
            if claim.keeps_record and holder is not None and room is self._rooms[0]:
                kept = room.read_record(holder.folder, RUN_RECORD)
        sweep(self._rooms)
        if kept:
            self.keep(RUN_RECORD, kept)

    def _go_on(self, claim: Claim, before: Sequence[Holder | None]) -> None:
        """Keep what the dead run has, uploads to final names included; see `discard_others`."""
        for room, holder in zip(self._rooms, before, strict=True):
            here = holder is not None and holder.run_id == claim.run_id
            if not here and not self._is_its_record(claim):
                # The lock of the one that is there instead goes back to it.
                raise OutputFailed(
                    f"run {claim.run_id} has no files in {room.name} any more",
                    "start the unload again, without resume",
                )
            abort_uploads(room, ())
            old = (STATUS, REQUESTS)
            room.bucket.delete(room.record(self._me.folder, name) for name in old)

    def _is_its_record(self, claim: Claim) -> bool:
        if claim.is_record_of_it is None:
            return False
        return claim.is_record_of_it(self.recorded(RUN_RECORD))

    @property
    def places(self) -> tuple[Place, ...]:
        """The places, in their order."""
        return tuple(Place(name=each.name, address=each.name) for each in self._rooms)

    def staging(self, place: int) -> Staging:
        """Return the prefix; what was appended before is in the store."""
        if self._journal is not None:
            self._journal.settle()
        location = self._rooms[place].staging(self._me.folder)
        finals = self._rooms[place].name if self._uploads_to_finals else ""
        return Staging(label=str(location), directory=str(location), finals=finals)

    def marks(self) -> tuple[str, ...]:
        """Return none: there are no files."""
        return ()

    def check(self) -> None:
        """Look whether a lock was lost."""
        self._locks.check()

    def check_names(self, finals: Iterable[tuple[int, str]]) -> None:
        """Check that under none of these names lies an object that is not an earlier run's."""
        with refused("read", self._rooms[0]):
            earlier = self._earlier.names()
            there = [set(room.names()) for room in self._rooms]
        for number, name in finals:
            if name in there[number] - earlier[number]:
                raise OutputFailed(
                    f"{name} already exists in {self._rooms[number].name}, and no earlier run "
                    "wrote it",
                    "move it away, or choose another --to or --file-name",
                )

    def open_staged(self, place: int, name: str) -> IO[bytes]:
        """Return memory that becomes the object once it is closed: these files are small."""
        room = self._rooms[place]
        key = room.staging(self._me.folder).below(name).key
        return SmallObject(lambda data: room.bucket.put_new(key, data))

    def staged_file(self, place: int, name: str) -> RemoteFile:
        """Return a staged object."""
        room = self._rooms[place]
        location = room.staging(self._me.folder).below(name)
        return RemoteFile(name=str(location), open=partial(room.bucket.open, location.key))

    def compare_upload(self, place: int, upload: UncompletedUpload) -> None:
        """Compare the parts of an upload with those in the store."""
        multipart.compare(self._rooms[place].location.below(upload.name), upload)

    def discard(self, *stems: str) -> None:
        """Remove whatever attempts with these stems have staged.

        What the store does not remove now is removed behind publishing: another attempt does not
        use the name again. So are uploads, of which the store does not say whose they are.
        """
        self._has_discarded = True
        for room in self._rooms:
            with suppress(OSError, WriteError):
                room.bucket.delete(
                    each.key
                    for each in room.staged(self._me.folder)
                    if each.key.rpartition("/")[2].startswith(tuple(f"{s}." for s in stems))
                )

    def discard_others(
        self, kept: Collection[tuple[int, str]], uploads: Collection[str] = ()
    ) -> None:
        """Remove all staged objects and uploads but these."""
        for number, (room, names) in enumerate(zip(self._rooms, self._locks.names, strict=True)):
            abort_uploads(room, names, kept=frozenset(uploads))
            stay = {name for place, name in kept if place == number}
            with refused("clear", room):
                room.bucket.delete(
                    each.key
                    for each in room.staged(self._me.folder)
                    if each.key.rpartition("/")[2] not in stay
                )

    def keep(self, name: str, data: bytes) -> None:
        """Write a record into the first place's `_run`."""
        if _known(name) == JOURNAL:
            self._opened_journal().replace(data)
        else:
            home = self._rooms[0]
            home.bucket.put(home.record(self._me.folder, name), data)

    def recorded(self, name: str) -> bytes:
        """Return a record from the first place's `_run`."""
        home = self._rooms[0]
        with refused("read", home):
            if _known(name) == JOURNAL:
                if self._journal is not None:
                    self._journal.settle()
                return read_journal(home, self._me.folder)
            return home.read_record(self._me.folder, name)

    def append(self, name: str, line: bytes) -> None:
        """Append to the journal; it is in the store a moment later, see `Journal`."""
        if _known(name) != JOURNAL:
            raise ValueError(f"lines can be appended only to {JOURNAL}")
        try:
            self._opened_journal().append(line)
        except WriteError as error:
            raise OutputFailed(error.message, error.hint) from error

    def _opened_journal(self) -> Journal:
        if self._journal is None:
            with refused("read", self._rooms[0]):
                self._journal = Journal(self._rooms[0], self._me.folder)
        return self._journal

    def sync_later(self, files: Iterable[tuple[int, str]]) -> None:
        """Do nothing: an object that is there stays there."""

    def show(self, data: bytes) -> None:
        """Replace the record of how far the run is."""
        home = self._rooms[0]
        with self._show_lock:
            if not self._is_shown:
                return
            try:
                home.bucket.put(home.record(self._me.folder, STATUS), data)
            except WriteError as error:
                raise OSError(errno.EIO, error.message) from error

    def stop_asked(self) -> bool:
        """Return whether an object in the first place's `_run` asks this process to end."""
        return self._requests().stop

    def wish(self) -> bytes:
        """Return the other settings that the object asks for."""
        return self._requests().change.encode()

    def _requests(self) -> Requests:
        with suppress(OSError):
            data = self._rooms[0].read_record(self._me.folder, REQUESTS)
            return Requests.read(data, self._me.nonce) if data else Requests()
        return Requests()

    def commit(
        self, moves: Sequence[Move], manifest: bytes, then: Callable[[], None] = lambda: None
    ) -> tuple[str, ...]:
        """Publish: complete every upload, or copy every staged object; the manifest is last."""
        return alone(self.committing(moves, manifest, then))

    def committing(
        self, moves: Sequence[Move], manifest: bytes, then: Callable[[], None] = lambda: None
    ) -> Steps[tuple[str, ...]]:
        """Do the same; there is nothing to be synced."""
        yield from ()
        home = self._rooms[0]
        with refused("publish in", home):
            self._earlier.check_unchanged()
            publication = publication_of(self._me, self._rooms, moves, self._earlier.names())
            home.bucket.put(home.manifest(self._me.folder), manifest)
            home.bucket.put(home.publication(self._me.folder), publication.to_bytes())
            # From here on the run is complete, and any process can finish it.
            self._locks.begin_publishing()
            self._publishing = True

            waiting = [then]

            def ending() -> None:
                while waiting:
                    waiting.pop()()
                self._show_no_more()

            try:
                if self._has_discarded:
                    for room, names in zip(self._rooms, self._locks.names, strict=True):
                        abort_uploads(room, names, kept=publication.uploads)
                carry_out(publication, self._rooms, ending)
                self._locks.remove()
            except (OutputFailed, WriteError, OSError) as error:
                if not is_published(home, manifest):
                    raise self._unfinished(error) from error
                # Another process has brought it to its end, or what is left to be cleared.
                ending()
                return (f"the staged files in {home.name} are not removed yet: {_said(error)}",)
        return ()

    def _unfinished(self, error: Exception) -> OutputFailed:
        name = self._rooms[0].name
        return OutputFailed(
            f"all files are written, but not all have their final names yet: {_said(error)}",
            f"complete the publication with: unloader resume '{name}'",
        )

    def abandon(self, manifest: bytes | None) -> None:
        """Keep what is staged with a partial manifest, or leave no trace."""
        if self._publishing:
            # What is on record is to be completed, and needs the manifest that is there.
            return
        self._show_no_more()
        home = self._rooms[0]
        if manifest is not None:
            home.bucket.put(home.manifest(self._me.folder), manifest)
            return
        with suppress(OutputFailed, WriteError, OSError):
            self.check()
            if self._journal is not None:
                self._journal.close()
                self._journal = None
            for room, names in zip(self._rooms, self._locks.names, strict=True):
                abort_uploads(room, names)
            sweep(self._rooms)
            self._locks.remove()

    def _show_no_more(self) -> None:
        with self._show_lock:
            self._is_shown = False

    def close(self) -> None:
        """Release the places to others."""
        self._locks.leave_alone()
        if self._journal is not None:
            self._journal.close()
        self._locks.release()

    def __enter__(self) -> ObjectRun:
        """Return the places themselves."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close them."""
        self.close()


def _said(error: Exception) -> str:
    return str(getattr(error, "message", error)).rstrip(". ")


def _known(name: str) -> str:
    if name not in RECORDS:
        raise ValueError(f"{name} is not the name of a record of a run")
    return name


class SmallObject(io.BytesIO):
    """Memory that becomes an object once it is closed.

    Args:
        put: Writes the object.
    """

    def __init__(self, put: Callable[[bytes], object]) -> None:
        super().__init__()
        self._put = put

    def close(self) -> None:
        """Write it, unless it was closed or is given up because of an error."""
        if not self.closed:
            data = self.getvalue()
            super().close()
            self._put(data)

    def __exit__(self, kind: object, *exception: object) -> None:
        """Write it, if all went well."""
        if kind is not None:
            super().close()
        self.close()
