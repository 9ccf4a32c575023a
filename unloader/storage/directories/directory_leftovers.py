"""The files in a directory's `_run`: how they are counted and removed, and which are not the run's.

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
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from msgspec.json import Decoder

from unloader.storage.directories.directory_lock import LOCK, read_holder
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
from writers.files.regular import read_regular
from writers.files.staging import PART_SUFFIX

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
    return (*apart, *filter(_is_staged_here, _entries(room)))


def strangers(room: Path) -> tuple[Path, ...]:
    """Return the files in a `_run` that no run has written; they are never removed."""
    known = {LOCK, *_BULK, *_PARTS}
    here = _entries(room)
    found = [each for each in here if each.name not in known and not _is_staged_here(each)]
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
    if STAGED in there:
        _remove(room / STAGED, _is_staged)
    if REPLACED in there:
        replaced = _replaced_names(room)
        _remove(room / REPLACED, lambda entry: entry.name in replaced)
    if any(name.endswith(PART_SUFFIX) for name in there):
        for entry in filter(_is_staged_here, _entries(room)):
            with suppress(OSError):
                os.unlink(entry.path)
    for name in (*_PARTS, *_BULK):
        if name in there and name not in kept:
            with suppress(OSError):
                os.unlink(f"{room}/{name}")


def _remove(folder: Path, is_ours: Callable[[os.DirEntry[str]], bool]) -> None:
    with suppress(OSError):
        # Usually it is empty by now.
        os.rmdir(folder)
        return
    for entry in filter(is_ours, _entries(folder)):
        with suppress(OSError):
            os.unlink(entry.path)
    with suppress(OSError):
        folder.rmdir()


def _entries(folder: Path) -> tuple[os.DirEntry[str], ...]:
    """Return the entries of a directory; none if it is a symbolic link or cannot be read."""
    with suppress(OSError):
        if not folder.is_symlink():
            with os.scandir(folder) as found:
                return tuple(found)
    return ()


def _is_staged(entry: os.DirEntry[str]) -> bool:
    with suppress(OSError):
        return entry.name.endswith(PART_SUFFIX) and entry.is_file(follow_symlinks=False)
    return False


def _is_staged_here(entry: os.DirEntry[str]) -> bool:
    return entry.name not in _PARTS and _is_staged(entry)


class _Share(Struct, frozen=True, kw_only=True):
    """The part of a publication's share that a removal needs."""

    replaced: tuple[str, ...]


class _Record(Struct, frozen=True, kw_only=True):
    """The part of a publication's record that a removal needs."""

    shares: tuple[_Share, ...]


_RECORD = Decoder(_Record)


def _replaced_names(room: Path) -> frozenset[str]:
    """Return the names of the files that a publication replaces, by its record in a `_run`."""
    try:
        _, lines = publishing_lines(room)
        shares = [share for line in lines for share in _RECORD.decode(line).shares]
    except (OSError, ValueError, RecursionError):
        return frozenset()
    return frozenset(name for share in shares for name in share.replaced)


def publishing_lines(room: Path) -> tuple[int, list[bytes]]:
    """Return the bytes of a journal before the record of a publication, and the record.

    The record has one line, or several with the latest first; none if no publication has begun.

    Raises:
        OSError: The journal cannot be read.
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
