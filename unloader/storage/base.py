"""What a run needs of the places that its files go to, whatever kind of place that is.

A storage knows bytes, names and places. It does not know what a file holds, which work unit wrote
it, or what a manifest says: where it must know which files belong to a finished run, it is given
a function that reads that (`ReadIndex`).

Nothing here relies on a rename, a sync or a folder, which object stores do not have. A storage
makes files visible in its own way: an exchange of directories, completed uploads, or a dictionary.
`unloader.storage.testing.check_storage` checks all that is promised here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import IO, Protocol

from unloader.errors import OutputFailed
from unloader.storage.model import (
    Claim,
    Cleaning,
    Completed,
    Disk,
    Move,
    Place,
    Staging,
    WhoWasHere,
)
from writers.files.readable import Readable
from writers.files.syncing import Steps
from writers.model import UncompletedUpload


class LiveStorage(Protocol):
    """Where others see how far a run is, and can ask it to end."""

    def show(self, data: bytes) -> None:
        """Replace the record of how far the run is, as a whole; it need not survive a power cut.

        Nothing happens once the run is committed or abandoned. May be called from any thread.

        Raises:
            OSError: It could not be written; what was shown before may be gone.
        """

    def marks(self) -> tuple[str, ...]:
        """Return paths of files that hold the run's id until it is complete or given up.

        None where there are no files.
        """

    def stop_asked(self) -> bool:
        """Tell whether somebody has asked the run to end since the places were taken."""

    def wish(self) -> bytes:
        """Return what this process of the run was last asked by `Storage.ask`; empty if nothing."""


class RunStorage(LiveStorage, Protocol):
    """Places that keep what is written to them: it is staged, read again and taken back.

    They are taken when this is made and given back by `close`. A stream has none of it.
    """

    @property
    def places(self) -> tuple[Place, ...]:
        """All of them, in the order of their numbers."""

    def staging(self, place: int) -> Staging:
        """Return where workers write what goes to a place."""

    def check(self) -> None:
        """Raise OutputFailed if a place is lost; called several times a second."""

    def commit(
        self, moves: Sequence[Move], manifest: bytes, then: Callable[[], None] = ...
    ) -> tuple[str, ...]:
        """Give all these files their final names and the manifest its own, last; or none.

        Earlier finished runs at the places are replaced. A commit that is cut short is finished
        by whoever comes next, or by `Storage.complete`. Staged files that are not among `moves`
        are removed.

        Args:
            moves: The files.
            manifest: All of it.
            then: Called once all have their final names; must not raise. If the process dies before
                it has returned, `Storage.complete` still knows the run.

        Returns:
            Messages for the user.

        Raises:
            WriteError: A file that is no run's has the name, a staged file is missing, or there
                is no space for the manifest; an earlier run is still, or again, as it was.
            OutputFailed: As above; or what was begun could be neither finished nor taken back.
        """

    def abandon(self, manifest: bytes | None) -> None:
        """End a broken run: keep what is staged with a partial manifest, or leave no trace.

        Args:
            manifest: What is done so far; None if there is nothing.
        """

    def close(self) -> None:
        """Release the places to others."""

    @property
    def notices(self) -> tuple[str, ...]:
        """Messages for the user about earlier runs found while taking the places."""

    def check_names(self, finals: Iterable[tuple[int, str]]) -> None:
        """Check that none of these final names is taken by a file that is no earlier run's.

        Args:
            finals: Number of the place, and name.

        Raises:
            OutputFailed: One is.
        """

    def open_staged(self, place: int, name: str) -> IO[bytes]:
        """Open a new staged file for writing in this process; it counts once it is closed.

        Raises:
            OSError: It is there already, or cannot be written.
        """

    def staged_file(self, place: int, name: str) -> Readable:
        """Return a staged file, to be read again."""

    def compare_upload(self, place: int, upload: UncompletedUpload) -> None:
        """Compare an upload to a final name with what the store has of it.

        Raises:
            WriteError: They differ, or it is gone.
        """

    def discard(self, *stems: str) -> None:
        """Remove the staged files whose names begin with one of these and a dot, at all places."""

    def keep(self, name: str, data: bytes) -> None:
        """Write or replace a record of the run as a whole; it survives a power cut.

        Args:
            name: One of `RECORDS`.
            data: All of it.

        Raises:
            WriteError: It could not be written; what was kept before is untouched.
        """

    def committing(
        self, moves: Sequence[Move], manifest: bytes, then: Callable[[], None] = ...
    ) -> Steps[tuple[str, ...]]:
        """Do as `commit` does, in steps, so that the waits of many commits are one.

        Raises:
            WriteError: As `commit`.
            OutputFailed: As `commit`.
        """

    def recorded(self, name: str) -> bytes:
        """Return a record of the run; empty where there is none.

        Raises:
            OutputFailed: It cannot be read.
        """

    def discard_others(
        self, kept: Collection[tuple[int, str]], uploads: Collection[str] = ()
    ) -> None:
        """Remove all staged files and uploads but these.

        Args:
            kept: Number of the place, and name.
            uploads: Their ids.
        """

    def sync_later(self, files: Iterable[tuple[int, str]]) -> None:
        """Take staged files that are not on the disk yet.

        They are before the next line that is appended, and before they have final names.

        Args:
            files: Number of the place, and name.
        """

    def append(self, name: str, line: bytes) -> None:
        """Append a line to a record of the run; it survives a kill of the process.

        A power cut may cost the lines of the last second or two: to wait for the disk here would
        make every unit wait for all workers' data.

        Args:
            name: One of `RECORDS`.
            line: With its end.

        Raises:
            OutputFailed: The storage is full or failed.
        """


class Storage(Protocol):
    """One kind of place."""

    def refusal(self, place: str, *, overwrite: bool) -> OutputFailed | None:
        """Return why a run would be refused a place, as far as that is seen; change nothing.

        Args:
            place: It may be missing.
            overwrite: An earlier run there may be replaced.
        """

    def missing(self, places: Sequence[str]) -> frozenset[str]:
        """Return those of many places at which nothing lies; change nothing.

        Nothing is seen that would keep a run from making them, so each can be taken later: as far
        as can be known before, no run is refused one. A storage that cannot tell cheaply returns
        none.
        """

    def take(self, claim: Claim) -> RunStorage:
        """Take all places of a run or none, making them where needed.

        What was being committed at one of them, and was cut short, is finished first. What else
        a dead run has left there is removed; `RunStorage.notices` report both. A run that is
        resumed keeps what it has staged and recorded.

        Raises:
            OutputFailed: A place cannot be made or written, another run has it, it is not empty
                and `overwrite` is off, the manifest of the run to replace is damaged or names
                places that are not among these, or the run to be resumed has left nothing there.
        """

    def complete(self, place: str) -> tuple[Completed, ...]:
        """Finish commits at a place that were cut short; return whose they were.

        A run that is still committing is left alone.

        Raises:
            OutputFailed: One cannot be finished; everything is as it was.
        """

    def complete_all(self, places: Sequence[str]) -> tuple[Completed, ...]:
        """Do the same for many places.

        Raises:
            OutputFailed: As `complete`.
        """

    def names(self, place: str) -> tuple[str, ...]:
        """Return the names of the files at a place that have final names, in order.

        Raises:
            FileNotFoundError: There is no such place.
        """

    def places_below(self, place: str, depth: int) -> tuple[str, ...]:
        """Return where runs are or have been, at a place and so many levels below it, in order.

        Raises:
            FileNotFoundError: There is no such place.
            OSError: It cannot be read; what cannot be read below it is left out.
        """

    def levels(self, place: str) -> tuple[str, ...]:
        """Return the names of the places within one, in order; none where it is not there.

        Raises:
            OSError: An object store refused.
        """

    def read(self, place: str, name: str) -> bytes:
        """Return a small file with a final name.

        Raises:
            FileNotFoundError: There is none.
            OSError: It cannot be read.
        """

    def put_new(self, place: str, name: str, data: bytes) -> None:
        """Write a small file with a final name, whole and lasting, unless there is one.

        Raises:
            FileExistsError: There is one, which is as it was.
            WriteError: It could not be written, and is not there.
        """

    def size(self, place: str, name: str) -> int:
        """Return the bytes of a file with a final name.

        Raises:
            FileNotFoundError: There is none.
            OSError: It cannot be seen.
        """

    def file(self, place: str, name: str) -> Readable:
        """Return a file with a final name, to be read in pieces."""

    def disk(self, place: str) -> Disk | None:
        """Return the disk that a place, which need not be there yet, lies on.

        None if that is no disk of this machine, or if there can be no such place.
        """

    def record(self, place: str, name: str) -> bytes:
        """Return a record of the run that has a place or had it; empty where there is none.

        Raises:
            OSError: It cannot be read.
        """

    def ask_to_stop(self, place: str) -> None:
        """Ask the run that has a place to end; `LiveStorage.stop_asked` tells it so.

        Raises:
            OSError: This user may not, or there is no run.
        """

    def ask(self, place: str, wish: bytes) -> None:
        """Ask the run that has a place for something; `LiveStorage.wish` tells it so.

        What was asked before, and not seen yet, is forgotten.

        Raises:
            OSError: This user may not, or there is no run.
        """

    def who_was_here(self, place: str, *, counted: bool = True) -> WhoWasHere | None:
        """Return the run that has a place, or had it when it died; None if there is none.

        Args:
            place: As everywhere.
            counted: Count what it has left there. That takes a look at each file.

        Raises:
            OSError: What it left cannot be read.
        """

    def clear(self, places: Sequence[str], *, dry_run: bool) -> Cleaning:
        """Remove what dead runs have left unpublished at these places.

        A commit that was cut short is finished first; where that cannot be, it is taken back. Of
        a run over several places all are cleared, whichever is named. Published files stay.

        Args:
            places: As the user wrote them.
            dry_run: Change nothing.

        Raises:
            OutputFailed: A place is not there, a run is using it, or it cannot be changed.
        """
