"""The types of a storage: places, what a run asks for, what was found there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec import Struct, to_builtins
from msgspec.json import Decoder

from unloader.nouns import counted
from writers.model import UncompletedUpload

RUN = "_run"
"""The directory of a run in its destination, until the run is published."""
MANIFEST = "_manifest.json"
"""Name of the file whose presence means that a run is finished. It gets its final name last."""

JOURNAL = "journal.jsonl"
"""Name of the record with a line for each step of a work unit."""

STAGED_LINE = b'{"event":"staged"'
"""How the journal's line for a finished, staged unit begins; finished units are counted by it."""

PUBLISHING_LINE = b'{"event":"publishing"'
"""How the last line of the journal begins in a directory whose publication has begun."""

RUN_RECORD = "run.json"
"""Name of the record of what the run is to do."""

RECORDS = (RUN_RECORD, JOURNAL)
"""The names that `keep` and `append` take. Clearing a place removes them as a run's."""

STATUS = "status.json"
"""Name of the record of how far a run is. It is replaced about once a second, for readers only."""

REQUESTS = "requests.json"
"""Name of the record of what other processes ask a run for."""


class Requests(Struct, frozen=True, kw_only=True):
    """What a process of a run is asked for. An empty file asks any process to end."""

    process: str = ""
    """The process that is asked. A later one of the same run is not."""
    stop: bool = False
    change: str = ""
    """The text of a `unloader.status` record of other settings; empty for none."""

    @classmethod
    def read(cls, data: bytes, process: str) -> Requests:
        """Return what a process is asked for; nothing, if the data are for another one."""
        if not data.strip():
            return cls(process=process, stop=True)
        try:
            found = _REQUESTS.decode(data)
        except (ValueError, RecursionError):
            return cls()
        return found if found.process == process else cls()


_REQUESTS = Decoder(Requests)


class Index(Struct, frozen=True, kw_only=True):
    """What a manifest says of its run's files, as far as a storage must know it."""

    run_id: str
    places: tuple[str, ...]
    """The first is where the manifest lies."""
    files: tuple[tuple[int, str], ...]
    """Number of the place, and name."""


ReadIndex = Callable[[bytes, str], Index]
"""From a manifest's bytes and the place it lies in. Raises OutputFailed if it is damaged."""


class Claim(Struct, frozen=True, kw_only=True):
    """What a run asks for when it takes its places."""

    places: tuple[str, ...]
    """As the user wrote them. The first gets the manifest and the records."""
    run_id: str
    """Tells this run from all others."""
    overwrite: bool
    """Earlier finished runs are replaced; without it the places must be empty."""
    read_index: ReadIndex
    resumed: bool = False
    """A run of this id has died here, and goes on with what it has staged."""
    is_record_of_it: Callable[[bytes], bool] | None = None
    """Tells whether a `RUN_RECORD` is that of this run. It is asked where the place was taken
    anew by a process that died before it had a record of its own."""
    keeps_record: bool = False
    """The record of the run that has died there stays until this one's takes its place."""
    shared: bool = False
    """Other runs have places within these. A place need not be empty, and stays what it is."""
    home: str = ""
    """Where the record of the run is that has many places, each taken by itself; empty for any
    other. The caller has brought publications into them that were cut short to their end
    (`Storage.complete_all`), and it may be lost in a power cut that a place was taken: until there
    is something to lose."""
    mode: int | None = None
    """Rights of files; None is as the umask has it. Directories get what goes with them."""
    owner_group: str = ""
    """`[USER][:GROUP]` of files and directories; empty is as the system chooses."""
    names: str = ""
    """What all final names are like, with `*` for any text, where no staged file is read before it
    is published; else empty. A storage may then have its files uploaded to their final names."""


class Place(Struct, frozen=True, kw_only=True):
    """One place of a run."""

    name: str
    """As the user wrote it."""
    address: str
    """The same, so that it is found from anywhere."""


class Disk(Struct, frozen=True, kw_only=True):
    """A disk of this machine that files of a place go to."""

    number: int
    """Tells it from the other ones."""
    directory: str
    """One that exists on it, where its speed can be measured."""


class Staging(Struct, frozen=True, kw_only=True):
    """Where a worker writes the files of an attempt, before they have final names; picklable."""

    label: str
    """As it is named to the user."""
    directory: str = ""
    """The local directory that writers make files in; empty if there is none."""
    finals: str = ""
    """The place, where files are uploaded to their final names and published by completing that;
    empty where they are staged. See `writers.model.FinalNames`."""


class Move(NamedTuple):
    """A staged file and its final name, both at the place of that number."""

    place: int
    staged: str
    final: str
    upload: UncompletedUpload | None = None
    """What there is of it instead, where it is not staged; see `Staging.finals`."""


class Leftover(Struct, frozen=True, kw_only=True):
    """What a run has left at a place without publishing it."""

    directory: str
    """The place."""
    run_id: str
    """Empty where it is not known."""
    units: int
    """Finished ones, by the journal."""
    files: int
    """Staged ones, unfinished ones included."""
    bytes: int

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing that anybody would miss."""
        return not (self.units or self.files)

    def text(self) -> str:
        """Return it in words."""
        run = f"run {self.run_id}" if self.run_id else "an earlier run"
        return (
            f"the unpublished files of {run} in {self.directory}: "
            f"{counted(self.units, 'finished work unit')}, {counted(self.files, 'staged file')}, "
            f"{counted(self.bytes, 'byte')}"
        )


class Completed(Struct, frozen=True, kw_only=True):
    """A run whose commit was cut short, and is brought to its end now."""

    place: str
    """The address of the place that has its manifest."""
    run_id: str
    record: bytes
    """Its `RUN_RECORD`; empty where that is gone."""
    messages: tuple[str, ...]
    """For the user."""


class WhoWasHere(Struct, frozen=True, kw_only=True):
    """The run that has taken a place and has not ended as it should."""

    run_id: str
    """Empty where it is not known."""
    pid: int
    """Of its process; 0 where it is not known."""
    places: tuple[str, ...]
    """The addresses of all its places."""
    is_running: bool
    """It still has the place's lock; where the lock does not reach its machine, its record of how
    far it is was replaced while that was watched."""
    left: Leftover
    host: str = ""
    """The machine of its process; empty where it is not known."""
    since: str = ""
    """When its process took the place, ISO 8601 in UTC; empty where it is not known."""
    home: str = ""
    """Where the record of the run was, if the place is one of many."""


class Cleaning(Struct, frozen=True, kw_only=True):
    """What was removed, or would be."""

    dry_run: bool
    completed: tuple[str, ...]
    """On runs that were cut short while they were published, and were brought to their end."""
    removed: tuple[Leftover, ...]
    kept: tuple[str, ...] = ()
    """Paths in a `_run` that no run has written; they are never removed."""

    def to_json(self) -> dict[str, Any]:
        """Return it as the answer of the command."""
        return {
            "dry_run": self.dry_run,
            "completed": list(self.completed),
            "removed": [to_builtins(each) for each in self.removed],
            "kept": list(self.kept),
            "files": sum(each.files for each in self.removed),
            "bytes": sum(each.bytes for each in self.removed),
        }
