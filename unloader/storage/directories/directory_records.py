"""The files in a directory's `_run`, the record of a publication, and the leftovers of dead runs.

DIR/_run/lock             locked by the running process; records the run
DIR/_run/run.json         the resolved run, in the first directory
DIR/_run/journal.jsonl    a line for each step of a work unit, in the first directory; in each
                          directory, the last line is the record of a publication
DIR/_run/staged/          files of finished and running units
DIR/_run/_manifest.json   of a failed run; during a publication the new manifest
DIR/_run/status.json      the run's progress, replaced every second, in the first directory
DIR/_run/requests.json    requests of other processes to the run, in the first directory
DIR/_run/replaced/        during a publication: files of the run that is being replaced
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct
from msgspec.json import Decoder, encode
from msgspec.structs import replace

from unloader.errors import OutputFailed
from unloader.storage.directories.directory_lock import (
    LOCK,
    holder_of,
    is_of,
    owners_for,
    read_holder,
)
from unloader.storage.storage_protocol import (
    JOURNAL,
    MANIFEST,
    PUBLISHING_LINE,
    RECORDS,
    REQUESTS,
    RUN,
    RUN_RECORD,
    STAGED_LINE,
    STATUS,
    Leftover,
)
from writers.files.publish import PART_SUFFIX
from writers.files.regular import open_regular, read_regular
from writers.files.syncing import Steps

STAGED = "staged"
REPLACED = "replaced"

_BULK = (STAGED, REPLACED, RUN_RECORD, STATUS, REQUESTS, MANIFEST, JOURNAL)
"""The names that a run writes into its `_run`, besides the lock and staged files. The journal has
the record of a publication, which lists the replaced files, so it is removed last."""

_PARTS = tuple(each + PART_SUFFIX for each in (*RECORDS, STATUS, REQUESTS, MANIFEST))
"""Records that are being written."""


def leftover(directory: Path) -> Leftover:
    """Count what a run has left in a directory's `_run`."""
    room = directory / RUN
    sizes = []
    for entry in staged_files(room):
        with suppress(OSError):
            sizes.append(entry.stat(follow_symlinks=False).st_size)
    units = 0
    with suppress(OSError):
        lines = read_regular(room / JOURNAL).splitlines(keepends=True)
        # A kill in mid-write leaves a last line without an end.
        units = sum(line.startswith(STAGED_LINE) and line.endswith(b"\n") for line in lines)
    return Leftover(
        directory=str(directory),
        run_id=read_holder(room).run_id,
        units=units,
        files=len(sizes),
        bytes=sum(sizes),
    )


def staged_files(room: Path) -> tuple[os.DirEntry[str], ...]:
    """Return the staged files of a `_run`, unfinished ones included.

    They are in a directory of the `_run`, or in the `_run` of one of many tables.
    """
    apart = filter(_is_staged, _entries(room / STAGED))
    return (*apart, *filter(_is_staged, _entries(room)))


def strangers(room: Path) -> tuple[Path, ...]:
    """Return the files in a `_run` that no run has written; they are never removed."""
    known = {LOCK, *_BULK, *_PARTS}
    here = _entries(room)
    found = [each for each in here if each.name not in known and not _is_staged(each)]
    names = {entry.name for entry in here}
    if STAGED in names:
        found += [entry for entry in _entries(room / STAGED) if not _is_staged(entry)]
    if REPLACED in names:
        replaced = _replaced_names(room)
        found += [entry for entry in _entries(room / REPLACED) if entry.name not in replaced]
    return tuple(sorted(Path(entry.path) for entry in found))


def remove_room(room: Path) -> None:
    """Remove a `_run`, except files that no run has written; never raises.

    The lock is removed last, so that an interrupted removal is recognised.
    """
    remove_bulk(room)
    with suppress(OSError):
        os.unlink(f"{room}/{LOCK}")
    with suppress(OSError):
        os.rmdir(room)


def is_removed(room: Path) -> bool:
    """Return whether another process has removed a `_run`, with all records of the run."""
    return not any(os.path.lexists(room / name) for name in (LOCK, RUN_RECORD, JOURNAL))


def remove_bulk(room: Path, kept: Collection[str] = ()) -> None:
    """Remove the run's files from a `_run`, except its lock and `kept`; never raises."""
    try:
        there = set(os.listdir(room))
    except OSError:
        there = {*_BULK, *_PARTS}
    replaced = _replaced_names(room) if REPLACED in there else ()
    for name in (STAGED, REPLACED):
        folder = room / name
        if name not in there:
            continue
        with suppress(OSError):
            # Usually it is empty by now.
            os.rmdir(folder)
            continue
        for entry in _entries(folder):
            if _is_staged(entry) if name == STAGED else entry.name in replaced:
                with suppress(OSError):
                    os.unlink(entry.path)
        with suppress(OSError):
            folder.rmdir()
    if any(name.endswith(PART_SUFFIX) for name in there):
        for entry in filter(_is_staged, _entries(room)):
            with suppress(OSError):
                os.unlink(entry.path)
    for name in (*_PARTS, *_BULK):
        if name in there and name not in kept:
            with suppress(OSError):
                os.unlink(f"{room}/{name}")


def _entries(folder: Path) -> tuple[os.DirEntry[str], ...]:
    """Return the entries of a directory; none if it is a symbolic link or cannot be read."""
    with suppress(OSError):
        if not folder.is_symlink():
            with os.scandir(folder) as found:
                return tuple(found)
    return ()


def _is_staged(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry of a `_run`, or of its `staged`, is a staged file."""
    with suppress(OSError):
        is_part = entry.name.endswith(PART_SUFFIX) and entry.name not in _PARTS
        return is_part and entry.is_file(follow_symlinks=False)
    return False


def _replaced_names(room: Path) -> frozenset[str]:
    """Return the names of the files that a publication replaces, by its record in a `_run`."""
    try:
        found = [_PUBLICATION.decode(line) for line in publishing_lines(room)[1]]
    except (OSError, ValueError, RecursionError):
        return frozenset()
    return frozenset(name for each in found for share in each.shares for name in share.replaced)


def publishing_lines(room: Path) -> tuple[int, list[bytes]]:
    """Return the bytes of a journal before the record of a publication, and the record.

    The record has one line, or several with the latest first; none if no publication has begun.
    """
    try:
        data = read_regular(room / JOURNAL)
    except (FileNotFoundError, NotADirectoryError):
        return 0, []
    end, lines = data.rfind(b"\n") + 1, []
    while end:
        begin = data.rfind(b"\n", 0, end - 1) + 1
        if not data.startswith(PUBLISHING_LINE, begin):
            break
        lines.append(data[begin:end])
        end = begin
    return end, lines


class Placed(NamedTuple):
    """A staged file and its final name."""

    source: str
    """Relative to `_run`."""
    final: str
    bytes: int


class Share(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The part of a publication that concerns one directory."""

    path: str
    """Absolute, without symbolic links."""
    twin: str
    """Name of the twin, next to the directory; empty if the files get their names one by one."""
    files: tuple[Placed, ...]
    """In the first directory the manifest is the last one."""
    replaced: tuple[str, ...]
    """Names of earlier runs' files and manifest here; all of them are removed."""

    @property
    def directory(self) -> Path:
        return Path(self.path)

    @property
    def room(self) -> Path:
        """Its `_run`, until it is exchanged."""
        return Path(self.path, RUN)

    @property
    def beside(self) -> Path:
        """The twin: before the exchange with the new files, after it with the old ones."""
        if not self.twin:
            return Path(self.path, RUN, "twin")
        return Path(self.path).with_name(self.twin)

    def check(self) -> None:
        """Check that it stays within its directory: other programs may have changed the record."""
        if not os.path.isabs(self.path):
            raise ValueError(f"the path {self.path!r} is not absolute")
        names = [self.twin, *self.replaced, *(file.final for file in self.files)]
        for file in self.files:
            folder, name = os.path.split(file.source)
            names.append(name)
            is_staged = name.endswith(PART_SUFFIX)
            if folder not in (STAGED, "") or not (folder or is_staged or name == MANIFEST):
                raise ValueError(f"it names a file from {file.source!r}")
        for name in names:
            if name != os.path.basename(name) or name in (".", ".."):
                raise ValueError(f"the name {name!r} is not a plain file name")


class Publication(
    Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="event",
    tag="publishing",
):
    """The record of a publication."""

    run_id: str
    shares: Annotated[tuple[Share, ...], Meta(min_length=1)]
    """In the order of the run's directories; the first one gets the manifest."""
    owners: frozenset[int] = frozenset()
    """Users whose directories and locks are trusted, see `owners_for`. They are not recorded."""

    @property
    def home(self) -> Share:
        return self.shares[0]

    def writing(self) -> Steps[None]:
        """Append it to the journal in each directory, synced, beginning with the first one."""
        line = encode(replace(self, owners=frozenset())) + b"\n"
        assert line.startswith(PUBLISHING_LINE)
        for share in self.shares:
            if not self.holds(share.room):
                continue
            path = share.room / JOURNAL
            is_new = not os.path.lexists(path)
            descriptor = open_regular(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
            try:
                end = os.fstat(descriptor).st_size
                if end and os.pread(descriptor, 1, end - 1) != b"\n":
                    # A power cut has torn the line before.
                    end = read_regular(path).rfind(b"\n") + 1
                    os.ftruncate(descriptor, end)
                try:
                    written = 0
                    # After a short write the next one reports the reason.
                    while written < len(line):
                        written += os.write(descriptor, line[written:])
                except OSError:
                    os.ftruncate(descriptor, end)
                    raise
                yield (descriptor, *((path.parent,) if is_new else ()))
            finally:
                os.close(descriptor)

    def forget(self) -> None:
        """Remove the record, from the first directory last."""
        for share in reversed(self.shares):
            if self.holds(share.room):
                end, lines = publishing_lines(share.room)
                if lines:
                    # It is not synced. A record that a power cut restores is carried out, because
                    # all that it needs exists.
                    os.truncate(share.room / JOURNAL, end)

    def holds(self, room: Path) -> bool:
        """Return whether a `_run` belongs to this run, not to a later one in the same directory."""
        for share in self.shares:
            if room.parent == share.beside and not self.has_twin(share):
                return False
        return holder_of(room, self.owners).run_id == self.run_id

    def rooms(self, share: Share) -> list[Path]:
        """Return where the `_run` of one directory is: in it, in the twin, or nowhere any more."""
        return [room for room in (share.room, share.beside / RUN) if self.holds(room)]

    def has_twin(self, share: Share) -> bool:
        """Return whether a directory's twin exists and was not made by another user.

        It may have been given the directory's owner.
        """
        return is_of(share.beside, self.owners | owners_for(share.directory))


_PUBLICATION = Decoder(Publication)


def read_publication(room: Path, owners: frozenset[int]) -> Publication | None:
    """Return the publication on record in a `_run` of these users; None without a record."""
    path = room / JOURNAL
    try:
        if not (is_of(room, owners) and is_of(path, owners, stat.S_IFREG)):
            return None
        for line in publishing_lines(room)[1]:
            # A power cut may leave zeros in a line that was not synced. Nothing was renamed then.
            if b"\0" not in line:
                publication = replace(_PUBLICATION.decode(line), owners=owners)
                for share in publication.shares:
                    share.check()
                return publication
    except (OSError, ValueError, RecursionError) as error:
        why = (error.strerror if isinstance(error, OSError) else "") or str(error)
        raise OutputFailed(
            f"{path} may have the record of a run that was interrupted while it was published, but "
            f"it cannot be read: {why}",
            f"restore it, or remove {room} and the files that are not in a manifest",
        ) from error
    return None
