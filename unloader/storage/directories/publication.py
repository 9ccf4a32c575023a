"""The record of a publication: what gets which final name where, and what it replaces.

It is written and synced before the first file gets its final name. The command that finds it later
can bring the publication to its end: each file is either still where it was staged, or already in
its place.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct
from msgspec.json import Decoder, encode
from msgspec.structs import replace

from unloader.errors import OutputFailed
from unloader.storage.directories.leftovers import (
    STAGED,
    holder_of,
    is_directory_of,
    is_file_of,
    owners_for,
    publishing_lines,
)
from unloader.storage.storage_protocol import JOURNAL, MANIFEST, PUBLISHING_LINE, RUN
from writers.files.regular import open_regular, read_regular
from writers.files.staging import PART_SUFFIX
from writers.files.syncing import Steps

_REMEMBERED = 256
_LONGEST_NAME = 255
"""Bytes, on all usual file systems."""


TWIN = ".unloader-"
"""In the name of a twin, between the directory's own and the run's id."""


def twin_name(directory: Path, run_id: str) -> str:
    """Return the name of the directory that takes the place of another one.

    Readers of whole directories pass over names that begin with a dot. Empty where there is no room
    for such a name.
    """
    name = f".{directory.name}{TWIN}{run_id}"
    return name if len(os.fsencode(name)) <= _LONGEST_NAME else ""


class Placed(NamedTuple):
    """One file on its way from `_run` to its final name."""

    source: str
    """Relative to `_run`."""
    final: str
    bytes: int


# Each step of a publication asks for these paths, and making one costs more than most of what is
# done with it. Those that go on at a time are remembered: two threads, 48 tables each.
@lru_cache(maxsize=_REMEMBERED)
def _path(text: str) -> Path:
    return Path(text)


@lru_cache(maxsize=_REMEMBERED)
def _room(text: str) -> Path:
    return Path(text) / RUN


@lru_cache(maxsize=_REMEMBERED)
def _beside(text: str, twin: str) -> Path:
    return Path(text).with_name(twin) if twin else Path(text) / RUN / "twin"


class Share(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one directory gets."""

    path: str
    """Absolute, without symbolic links."""
    twin: str
    """Name, beside the directory, of the one that takes its place; empty: files go in one by one.
    """
    files: tuple[Placed, ...]
    """In the first directory the manifest is the last one."""
    replaced: tuple[str, ...]
    """Names of earlier runs' files and manifest here, all of which go."""

    @property
    def directory(self) -> Path:
        """The directory itself."""
        return _path(self.path)

    @property
    def room(self) -> Path:
        """Its `_run`, as long as it has not been exchanged."""
        return _room(self.path)

    @property
    def beside(self) -> Path:
        """The twin: before the exchange with the new files, after it with the old ones."""
        return _beside(self.path, self.twin)


class _Record(
    Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="event",
    tag="publishing",
):
    """What is written of a publication."""

    run_id: str
    shares: Annotated[tuple[Share, ...], Meta(min_length=1)]


_RECORD = Decoder(_Record)


class Publication(Struct, frozen=True, kw_only=True):
    """All of it, in the order of the run's directories."""

    run_id: str
    shares: tuple[Share, ...]
    owners: frozenset[int]
    """Users whose directories and locks are taken for the run's; see `owners_for`."""

    @property
    def home(self) -> Share:
        """The share of the first directory, which gets the manifest."""
        return self.shares[0]

    def one_by_one(self, number: int) -> Publication:
        """Return the publication with files that go into one directory one by one."""
        shares = list(self.shares)
        shares[number] = replace(shares[number], twin="")
        return replace(self, shares=tuple(shares))

    def line(self) -> bytes:
        """Return the record, one line of a journal."""
        data = encode(_Record(run_id=self.run_id, shares=self.shares)) + b"\n"
        assert data.startswith(PUBLISHING_LINE)
        return data

    def writing(self) -> Steps[None]:
        """Append it to the journal in each directory, synced; the first one's comes first.

        Raises:
            OSError: The file system refused, such as for want of space.
            WriteError: It did not sync.
        """
        for share in self.shares:
            if self.holds(share.room):
                yield from _append(share.room / JOURNAL, self.line())

    def forget(self) -> None:
        """Take the record back, from the first directory last.

        Raises:
            OSError: The file system refused.
        """
        for share in reversed(self.shares):
            if self.holds(share.room):
                end, lines = publishing_lines(share.room)
                if lines:
                    # It is not synced. A record that a power cut brings back is carried out, as all
                    # that it needs is there.
                    os.truncate(share.room / JOURNAL, end)

    def holds(self, room: Path) -> bool:
        """Tell whether a `_run` is that of this run, not of a later one in the same directory."""
        for share in self.shares:
            if room.parent == share.beside and not self.has_twin(share):
                return False
        return holder_of(room, self.owners).run_id == self.run_id

    def has_twin(self, share: Share) -> bool:
        """Tell whether a directory's twin is there, and not one that somebody else has put there.

        It may have been given the directory's owner.
        """
        return is_directory_of(share.beside, self.owners | owners_for(share.directory))

    def owns(self, directory: Path) -> bool:
        """Tell whether a directory is of one of the owners, and no symbolic link to one."""
        return is_directory_of(directory, self.owners)


def _append(path: Path, line: bytes) -> Steps[None]:
    """Append a line to a journal, which may not be there yet, and sync it."""
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
            while written < len(line):  # What is refused of the rest says why.
                written += os.write(descriptor, line[written:])
        except OSError:
            os.ftruncate(descriptor, end)
            raise
        yield (descriptor, *((path.parent,) if is_new else ()))
    finally:
        os.close(descriptor)


def read_publication(room: Path, owners: frozenset[int]) -> Publication | None:
    """Return the publication that a `_run` has on record, None if there is none of these users.

    Raises:
        OutputFailed: It cannot be read.
    """
    path = room / JOURNAL
    try:
        if not (is_directory_of(room, owners) and is_file_of(path, owners)):
            return None
        for line in publishing_lines(room)[1]:
            # A power cut may leave zeros in a line that was not synced. Nothing was renamed then.
            if b"\0" not in line:
                return _parsed(owners, line)
    except (OSError, ValueError, RecursionError) as error:
        raise OutputFailed(
            f"{path} has the record of a run that was interrupted while it was published, and it "
            f"cannot be read: {error}",
            f"restore it, or remove {room} and the files that are not in a manifest",
        ) from error
    return None


def _parsed(owners: frozenset[int], data: bytes) -> Publication:
    record = _RECORD.decode(data)
    for share in record.shares:
        _check(share)
    return Publication(run_id=record.run_id, shares=record.shares, owners=owners)


def _check(share: Share) -> None:
    """Check a share of a record: one that was tampered with may not reach out of the directory.

    Raises:
        ValueError: It does.
    """
    if not os.path.isabs(share.path):
        raise ValueError(f"the path {share.path!r} is not absolute")
    for name in (share.twin, *share.replaced, *(file.final for file in share.files)):
        _check_plain(name)
    for file in share.files:
        folder, name = os.path.split(file.source)
        _check_plain(name)
        is_staged = name.endswith(PART_SUFFIX)
        if folder not in (STAGED, "") or not (folder or is_staged or name == MANIFEST):
            raise ValueError(f"it names a file from {file.source!r}")


def _check_plain(name: str) -> None:
    if name != os.path.basename(name) or name in (".", ".."):
        raise ValueError(f"the name {name!r} is not a plain file name")
