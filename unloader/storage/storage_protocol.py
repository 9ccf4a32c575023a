"""The protocol between a run and its places of any kind, and its types.

A storage handles bytes, names and places. It does not read what a file contains or which work unit
wrote it. A function of the caller (`ReadIndex`) reads which files belong to a finished run.

Nothing here relies on renames, syncs or folders, which object stores do not have.
"""

from __future__ import annotations

import os
import shlex
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

from msgspec import Struct, to_builtins
from msgspec.json import decode, encode

from unloader.errors import OutputFailed
from unloader.nouns import counted
from unloader.storage.place_names import real
from writers.files.syncing import Steps, alone
from writers.model import UncompletedUpload
from writers.objects.location import below

if TYPE_CHECKING:
    from writers.files.read_back import Readable

RUN = "_run"
"""The directory of a run in its destination, until the run is published."""
MANIFEST = "_manifest.json"
"""The file whose presence means that a run is finished. It gets its final name last."""
JOURNAL = "journal.jsonl"
"""The record with a line for each step of a work unit."""
STAGED_LINE = b'{"event":"staged"'
"""The beginning of the journal's line for a finished work unit."""
PUBLISHING_LINE = b'{"event":"publishing"'
"""The beginning of the journal's last line in a directory whose publication has begun."""
RUN_RECORD = "run.json"
"""The record of the resolved run."""
RECORDS = (RUN_RECORD, JOURNAL)
"""The names that `keep` and `append` take. A removal removes only files that it knows."""
STATUS = "status.json"
"""The record of the run's progress. It is replaced about once a second, for readers only."""
REQUESTS = "requests.json"
"""The record of the requests of other processes to a run."""


@cache
def boot_id() -> str:
    """Return the id of this start of the kernel, the same in its containers; empty if not shown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""


class Holder(Struct, frozen=True, kw_only=True):
    """The process of a run that has taken a place, as far as it is known."""

    run_id: str = ""
    """Empty also while a process cleans the place."""
    pid: int = 0
    places: tuple[str, ...] = ()
    """The addresses of all places of the run; the first has its records."""
    host: str = ""
    """The name of the machine of the process."""
    boot_id: str = ""
    """Distinguishes one start of that machine from another."""
    since: str = ""
    """When the process took the place, ISO 8601 in UTC."""
    home: str = ""
    """The place of the run's record, if this place is one of many."""

    @classmethod
    def here(cls, run_id: str, places: tuple[str, ...], **more: Any) -> Self:
        return cls(
            run_id=run_id,
            places=places,
            pid=os.getpid(),
            host=os.uname().nodename,
            boot_id=boot_id(),
            since=datetime.now(UTC).isoformat(timespec="seconds"),
            **more,
        )

    @property
    def process(self) -> str:
        """The name of this process of the run: a resumed run has several processes."""
        return " ".join((self.run_id, str(self.pid), self.boot_id, self.since))

    def text(self) -> str:
        fields = (
            ("run", self.run_id),
            ("on", self.host),
            ("process", self.pid),
            ("since", self.since),
        )
        return ", ".join(f"{name} {value}" for name, value in fields if value)


class Requests(Struct, frozen=True, kw_only=True):
    """The requests to a process of a run. An empty file asks any process to end."""

    process: str = ""
    """The process that is asked; a later process of the run is not asked."""
    stop: bool = False
    change: str = ""
    """The text of a `unloader.status` record of other settings; empty for none."""

    @classmethod
    def read(cls, data: bytes, process: str) -> Requests:
        """Return the requests to a process; no requests if the data are for another one."""
        if not data.strip():
            return cls(process=process, stop=True)
        try:
            found = decode(data, type=cls)
        except (ValueError, RecursionError):
            return cls()
        return found if found.process == process else cls()

    def with_more(self, process: str, *, stop: bool, change: str) -> bytes:
        """Return the file with a further request to a process; a change replaces an earlier one."""
        return encode(Requests(process=process, stop=stop or self.stop, change=change))


class Index(Struct, frozen=True, kw_only=True):
    """The files of a finished run, from its manifest."""

    run_id: str
    places: tuple[str, ...]
    """The first one has the manifest."""
    files: tuple[tuple[int, str], ...]
    """Number of the place, and name; of large objects the name of their folder and a slash."""


ReadIndex = Callable[[bytes, str], Index]
"""From a manifest's bytes and its place. Raises OutputFailed if the manifest is damaged."""


class Claim(Struct, frozen=True, kw_only=True):
    """The places that a run takes, and how."""

    places: tuple[str, ...]
    """As the user wrote them. The first gets the manifest and the records."""
    run_id: str
    overwrite: bool
    """Replace earlier finished runs; without it the places must be empty."""
    read_index: ReadIndex
    resumed: bool = False
    """A run with this id died here, and continues with its staged files."""
    is_record_of_it: Callable[[bytes], bool] | None = None
    """Returns whether a `RUN_RECORD` belongs to this run. It is called if a process took the place
    again and died before it wrote a record."""
    keeps_record: bool = False
    """The record of the dead run stays until this run's record replaces it."""
    shared: bool = False
    """Other runs have places within these. A place need not be empty, and is not exchanged."""
    home: str = ""
    """The place of the record, if the run has many places that are taken separately; else empty.
    The caller has completed interrupted publications into them. Until the first line of the
    journal a power cut may lose that a place was taken."""
    mode: int | None = None
    """Permissions of files; None leaves them to the umask. Directories get matching ones."""
    owner_group: str = ""
    """`[USER][:GROUP]` of files and directories; empty leaves them to the system."""
    names: tuple[str, ...] = ()
    """Patterns of all final names, with `*` for any text, if no staged file is read before it is
    published; else empty. With them a storage may upload files to their final names."""


class Move(NamedTuple):
    """A staged file or folder of large objects, and its final name, both at one place."""

    place: int
    staged: str
    final: str
    upload: UncompletedUpload | None = None
    """The upload that becomes the file, if it is not staged; see `RunStorage.uploads_to_finals`."""


class Leftover(Struct, frozen=True, kw_only=True):
    """The files that a run has left at a place without publishing them."""

    directory: str
    """The place."""
    run_id: str
    """Empty if it is unknown."""
    units: int = 0
    """Finished ones, by the journal."""
    files: int = 0
    """Staged files, unfinished ones included."""
    bytes: int = 0

    @property
    def is_empty(self) -> bool:
        return not (self.units or self.files)

    def text(self) -> str:
        run = f"run {self.run_id}" if self.run_id else "an earlier run"
        return (
            f"the unpublished files of {run} in {self.directory}: "
            f"{counted(self.units, 'finished work unit')}, {counted(self.files, 'staged file')}, "
            f"{counted(self.bytes, 'byte')}"
        )


class Completed(Struct, frozen=True, kw_only=True):
    """A run whose interrupted publication is finished now."""

    place: str
    """The address of the place that has its manifest."""
    run_id: str
    record: bytes
    """Its `RUN_RECORD`; empty if that is gone."""
    messages: tuple[str, ...]
    """For the user."""


class WhoWasHere(Holder, frozen=True, kw_only=True):
    """The run that has taken a place and has neither finished nor given it back."""

    is_running: bool
    """It still has the place's lock. Where the lock does not reach its machine, its status record
    was replaced while it was watched."""
    left: Leftover


class Cleaning(Struct, frozen=True, kw_only=True):
    """The leftovers that were removed, or would be removed."""

    dry_run: bool
    completed: tuple[str, ...]
    """Messages about interrupted publications that were finished."""
    removed: tuple[Leftover, ...]
    kept: tuple[str, ...] = ()
    """Paths in a `_run` that no run has written; they are never removed."""

    def to_json(self) -> dict[str, Any]:
        return {
            "dry_run": self.dry_run,
            "completed": list(self.completed),
            "removed": [to_builtins(each) for each in self.removed],
            "kept": list(self.kept),
            "files": sum(each.files for each in self.removed),
            "bytes": sum(each.bytes for each in self.removed),
        }


class RunStorage(Protocol):
    """The places of a run. They are taken when this is made, and given back by `close`.

    A place has a number, and a staged file a name at its place. The arguments `finals`, `kept` and
    `files` are such pairs. Methods raise OutputFailed, WriteError or OSError if the storage is
    full, refuses or fails.
    """

    places: tuple[str, ...]
    """All of them as the user wrote them, in the order of their numbers."""
    notices: tuple[str, ...] = ()
    """Messages for the user about earlier runs found while taking the places."""
    uploads_to_finals: bool = False
    """Files are uploaded to their final names, see `writers.model.FinalNames`."""
    marks: tuple[str, ...] = ()
    """Paths of files that hold the run's id until it is complete or given up."""
    _is_shown: bool = True
    _publishing: bool = False
    _show_lock: threading.Lock

    def show(self, data: bytes) -> None:
        """Replace the status record, which need not survive a power cut; any thread may call it.

        It does nothing once the run is committed or abandoned. After an OSError the earlier record
        may be gone.
        """
        with self._show_lock:
            if self._is_shown:
                self._show(data)

    def _show_no_more(self) -> None:
        # A process that clears or moves a place must be alone in it.
        with self._show_lock:
            self._is_shown = False

    def _show(self, data: bytes) -> None: ...

    def requests(self) -> Requests:
        """Return what other processes ask of this process."""

    def staging(self, place: int) -> str:
        """Return the directory or prefix where workers write the files for a place."""

    def check(self) -> None:
        """Raise OutputFailed if a place is lost; called several times a second."""

    def check_names(self, finals: Iterable[tuple[int, str]]) -> None:
        """Raise OutputFailed if a file that no earlier run wrote has one of these final names."""
        there = [self._foreign(number) for number in range(len(self.places))]
        for number, name in finals:
            if name in there[number]:
                raise OutputFailed(
                    f"{below(self.places[number], name)} already exists, and no earlier run wrote "
                    "it",
                    "move it away, or choose another --to or --file-name",
                )

    def _foreign(self, place: int) -> AbstractSet[str]:
        """Return the names at a place that no earlier run wrote."""

    def staged_file(self, place: int, name: str) -> Readable: ...

    def compare_upload(self, place: int, upload: UncompletedUpload) -> None:
        """Compare an upload with its parts in the store; WriteError if they differ."""

    def discard(self, *stems: str) -> None:
        """Remove the staged files at all places whose names begin with a stem and a dot."""

    def discard_others(
        self, kept: Collection[tuple[int, str]], uploads: Collection[str] = ()
    ) -> None:
        """Remove all staged files, folders and uploads except these; uploads are given by ids."""

    def keep(self, name: str, data: bytes) -> None:
        """Write or replace one of `RECORDS` as a whole, synced; a WriteError changes nothing."""

    def recorded(self, name: str) -> bytes:
        """Return one of `RECORDS`; empty if it does not exist."""

    def append(self, line: bytes) -> None:
        """Append a line, with its end, to the `JOURNAL`; it survives a kill of the process.

        A power cut may lose the lines of the last one or two seconds: if each line waited for the
        disk, every unit would wait for all workers' data.
        """

    def sync_later(self, files: Iterable[tuple[int, str]]) -> None:
        """Sync staged files before the next appended line, and before they get final names."""

    def committing(
        self, moves: Sequence[Move], manifest: bytes, then: Callable[[], None] = lambda: None
    ) -> Steps[tuple[str, ...]]:
        """Give all these files and then the manifest their final names, or none of them.

        Earlier finished runs at the places are replaced. The next command, or `Storage.complete`,
        finishes an interrupted commit. Staged files that are not among `moves` are removed. The
        steps let one sync serve many commits. Returns messages for the user.

        `then` is called once all have their final names, and must not raise. If the process dies
        before it has returned, `Storage.complete` still knows the run.

        Raises WriteError or OutputFailed if a file that belongs to no run has the name, a staged
        file is missing, or the manifest does not fit; an earlier run is as it was. Raises
        OutputFailed also if the commit could be neither finished nor taken back.
        """

    def commit(
        self, moves: Sequence[Move], manifest: bytes, then: Callable[[], None] = lambda: None
    ) -> tuple[str, ...]:
        return alone(self.committing(moves, manifest, then))

    def abandon(self, manifest: bytes | None) -> None:
        """End a failed run: keep the staged files with a partial manifest, or remove everything."""
        # The publication on record needs the manifest that is there.
        if not self._publishing:
            self._show_no_more()
            self._abandon(manifest)

    def _abandon(self, manifest: bytes | None) -> None: ...

    def close(self) -> None:
        """Release the places to others."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


_UNSEEN = (PermissionError, FileNotFoundError, NotADirectoryError)
"""The errors of a place that this user may not see, or that has just been removed."""


class Storage(Protocol):
    """One kind of place.

    Methods raise FileNotFoundError if a place or a file does not exist, else OutputFailed or
    OSError.
    """

    def refusal(self, place: str, *, overwrite: bool) -> OutputFailed | None:
        """Return why a run would be refused a place, as far as that is seen; change nothing."""

    def take(self, claim: Claim) -> RunStorage:
        """Take all places of a run or none, making them where needed.

        Interrupted commits at the places are finished first. Other leftovers of dead runs are
        removed; `RunStorage.notices` reports both. A resumed run keeps its staged files and its
        records.

        Raises OutputFailed if a place cannot be made or written, another run has it, it is not
        empty and `overwrite` is off, the manifest of the run to replace is damaged or names other
        places, or the run to be resumed has left nothing there.
        """

    def complete(self, *places: str) -> tuple[Completed, ...]:
        """Finish interrupted commits at these places, of dead runs only; return their runs.

        After an OutputFailed everything is as it was.
        """

    def look(self, place: str) -> tuple[list[str], list[str]]:
        """Return the names one level below a place, in order: of places, no links, and of files."""

    def names(self, place: str) -> tuple[str, ...]:
        """Return the names of the files at a place that have final names, in order."""
        return tuple(self.look(place)[1])

    def levels(self, place: str) -> tuple[str, ...]:
        """Return in order the names of the places within one; none if it does not exist."""
        with suppress(FileNotFoundError, NotADirectoryError):
            return tuple(self.look(place)[0])
        return ()

    def places_below(self, place: str, depth: int) -> tuple[str, ...]:
        """Return in order where runs are or have been, at a place and `depth` levels below it.

        Links, hidden places, and places below it that this user may not see are left out.
        """
        found: list[str] = []
        level = [place]
        for _ in range(depth + 1):
            inner = []
            for each in level:
                with suppress(*(() if each == place else _UNSEEN)):
                    places, files = self.look(each)
                    if RUN in places or MANIFEST in files:
                        found.append(each)
                    inner += [below(each, n) for n in places if n != RUN and n[0] != "."]
            level = inner
        return tuple(sorted(found))

    def read(self, place: str, name: str) -> bytes: ...

    def put_new(self, place: str, name: str, data: bytes) -> None:
        """Write a small file with a final name, as a whole, synced.

        After a FileExistsError the file of that name is unchanged; after a WriteError none exists.
        """

    def size(self, place: str, name: str) -> int: ...

    def file(self, place: str, name: str) -> Readable:
        """Return a file with a final name, for reading in pieces."""

    def disk(self, place: str) -> tuple[int, str] | None:
        """Return the disk of a place, which need not exist; None if no disk here has it.

        The result is its device number, and an existing directory where its speed can be measured.
        """

    def record(self, place: str, name: str) -> bytes:
        """Return a record of the run that has or had a place; empty without a trusted one."""

    def ask(self, place: str, *, stop: bool = False, change: str = "") -> None:
        """Ask the run that has a place to end, or for other settings; see `RunStorage.requests`."""

    def who_was_here(self, place: str, *, counted: bool = True) -> WhoWasHere | None:
        """Return the run that has a place, or had it when it died; None if the place is free.

        With `counted` its leftovers are counted, which takes a look at each file.
        """

    def clear(self, places: Sequence[str], *, dry_run: bool) -> Cleaning:
        """Remove the unpublished leftovers of dead runs at these places, or only list them.

        An interrupted commit is finished first, or else taken back. All places of a run are
        cleared. Raises OutputFailed if a place does not exist, a run is using it, or it cannot be
        changed.
        """


def not_free(place: str, names: Collection[str], *, shared: bool = False) -> OutputFailed | None:
    """Return the error for a place with anything except leftovers of dead runs, else None.

    `names` are of everything at the place. In a shared place only a finished run is an error.
    """
    others = sorted({*names} - {RUN})
    finished = MANIFEST in others
    if not others or (shared and not finished):
        return None
    what = "a finished run" if finished else f"{others[0]} and possibly other files"
    return OutputFailed(
        f"{place} is not empty: it holds {what}",
        "choose an empty place with --to, or replace an earlier run with --overwrite",
    )


def held(place: str, holder: Holder) -> OutputFailed:
    who = holder.text()
    return OutputFailed(
        f"another run is writing to {place}{who and f': {who}'}",
        f"look at that run with: unloader status {shlex.quote(place)}; or choose another --to",
    )


def no_files(run_id: str, place: str) -> OutputFailed:
    return OutputFailed(
        f"run {run_id} has no files in {place} any more", "start the unload again, without resume"
    )


class EarlierRuns:
    """The finished runs at the places of a run.

    Raises OutputFailed if a manifest is damaged, or its run also has files at other places.
    """

    def __init__(self, storage: Storage, places: Sequence[str], read_index: ReadIndex) -> None:
        self._storage, self._places, self._read_index = storage, tuple(places), read_index
        self.files: list[set[str]] = [set() for _ in self._places]
        """For each place the names of the files and folders of finished runs."""
        self.replaced: list[set[str]] = []
        """The same names, and the names of manifests."""
        self._run_ids = ["" for _ in self._places]
        for home_number, home in enumerate(self._places):
            try:
                data = self._storage.read(home, MANIFEST)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise OutputFailed(
                    f"{below(home, MANIFEST)} cannot be read: {error.strerror or error}",
                    "restore it and check its permissions, or unload again to another place",
                ) from error
            index = self._read_index(data, home)
            self._run_ids[home_number] = index.run_id
            known = {real(each): number for number, each in enumerate(self._places)}
            for at, place in enumerate(index.places):
                number = known.get(real(place))
                if number is None:
                    raise OutputFailed(
                        f"the run in {home} also has files in {place}",
                        "give both with --to to replace the run, or remove "
                        f"{below(home, MANIFEST)}",
                    )
                with suppress(FileNotFoundError):
                    # A manifest that another program has changed may not lead out of the place.
                    folders, files = self._storage.look(self._places[number])
                    there = {*files, *(f"{each}/" for each in folders)}
                    listed = {name for n, name in index.files if n == at} & there
                    self.files[number] |= {name.rstrip("/") for name in listed}
        self.replaced = [
            names | {MANIFEST} if run_id else names
            for run_id, names in zip(self._run_ids, self.files, strict=True)
        ]

    def unchanged(self) -> EarlierRuns:
        """Look again; check that no run was published: the user did not agree to replace it."""
        now = EarlierRuns(self._storage, self._places, self._read_index)
        for number, (place, run_id) in enumerate(zip(self._places, now._run_ids, strict=True)):
            is_other = run_id and run_id != self._run_ids[number]
            if is_other or now.files[number] - self.files[number]:
                raise OutputFailed(
                    f"another run ({run_id}) was published into {place} while this run was "
                    "writing, so nothing is published",
                    "move the other run to another place, then unload again; the files of this "
                    f"run are in {below(place, RUN)}",
                )
        return now
