"""Local directories as a storage; see `unloader.storage.storage_protocol.Storage`."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from msgspec.json import encode

from unloader.errors import OutputFailed
from unloader.storage.directories.leftovers import (
    Locked,
    holder_of,
    is_directory_of,
    is_file_of,
    is_locked,
    lives_elsewhere,
    look,
    owners_for,
    remove_room,
    strangers,
    take_lock,
)
from unloader.storage.directories.records import read_record, read_requests
from unloader.storage.directories.recovery import (
    complete,
    complete_all,
    give_up,
    is_under_way,
    pending,
    sweep,
)
from unloader.storage.directories.refusals import missing, refusal
from unloader.storage.directories.run_directories import RunDirectories
from unloader.storage.storage_protocol import (
    MANIFEST,
    REQUESTS,
    RUN,
    STATUS,
    Claim,
    Cleaning,
    Completed,
    Disk,
    Leftover,
    Requests,
    WhoWasHere,
)
from writers.files.publish import write_new
from writers.files.regular import open_regular, read_regular
from writers.files.staging import PART_SUFFIX


class LocalDirectories:
    """Directories of this machine, network file systems included."""

    def refusal(self, place: str, *, overwrite: bool) -> OutputFailed | None:
        """Return why a run would be refused a directory."""
        return refusal(Path(place), overwrite=overwrite)

    def missing(self, places: Sequence[str]) -> frozenset[str]:
        """Return those of many directories that are not there and can be made."""
        return missing(places)

    def take(self, claim: Claim) -> RunDirectories:
        """Take the directories of a run."""
        return RunDirectories(claim)

    def complete(self, *places: str) -> tuple[Completed, ...]:
        """Finish interrupted publications; many directories are looked at together."""
        if len(places) == 1:
            return complete(Path(places[0]))
        return complete_all(map(Path, places))

    def names(self, place: str) -> tuple[str, ...]:
        """Return the names of the files in a directory, its `_run` left out."""
        return tuple(sorted(path.name for path in Path(place).iterdir() if path.is_file()))

    def places_below(self, place: str, depth: int) -> tuple[str, ...]:
        """Return the directories with a manifest or a `_run`, but for links and hidden ones."""
        found: list[str] = []
        level = [place]
        for _ in range(depth + 1):
            below = []
            for directory in level:
                with suppress(*(() if directory == place else (OSError,))):
                    entries = _entries(directory)
                    found += [directory] if {MANIFEST, RUN} & entries.keys() else []
                    inner = (name for name in sorted(entries) if entries[name] and name != RUN)
                    below += [os.path.join(directory, name) for name in inner if name[0] != "."]
            level = below
        return tuple(sorted(found))

    def levels(self, place: str) -> tuple[str, ...]:
        """Return the names of the directories in one, links left out."""
        with suppress(OSError):
            return tuple(sorted(name for name, inner in _entries(place).items() if inner))
        return ()

    def read(self, place: str, name: str) -> bytes:
        """Return a whole file. Devices and pipes are refused: they may have no end."""
        return read_regular(Path(place, name))

    def put_new(self, place: str, name: str, data: bytes) -> None:
        """Write a small file under a name that no file has."""
        write_new(Path(place, name), data)

    def size(self, place: str, name: str) -> int:
        """Return the bytes of a file."""
        return os.stat(Path(place, name)).st_size

    def file(self, place: str, name: str) -> Path:
        """Return the path of a file."""
        return Path(place, name)

    def disk(self, place: str) -> Disk | None:
        """Return the disk of a directory, or of the one that it would be made in."""
        directory = Path(place).absolute()
        try:
            while not directory.exists() and directory != directory.parent:
                directory = directory.parent
            status = os.stat(directory)
        except OSError:
            return None
        if not stat.S_ISDIR(status.st_mode):
            return None
        return Disk(number=status.st_dev, directory=str(directory))

    def record(self, place: str, name: str) -> bytes:
        """Return a file of a directory's `_run`, if this user may believe it."""
        room, owners = Path(place) / RUN, owners_for(Path(place))
        if not (is_directory_of(room, owners) and is_file_of(room / name, owners)):
            return b""
        return read_record(room, name)

    def ask_to_stop(self, place: str) -> None:
        """Put a file into the `_run` of the run's first directory."""
        _ask(place, stop=True)

    def ask(self, place: str, wish: bytes) -> None:
        """Put a file into the `_run` of the run's first directory."""
        _ask(place, change=wish.decode())

    def who_was_here(self, place: str, *, counted: bool = True) -> WhoWasHere | None:
        """Return the run whose `_run` lies in a directory, if this user may believe it."""
        directory = Path(place)
        room, owners = directory / RUN, owners_for(directory)
        if not is_directory_of(room, owners):
            return None
        holder = holder_of(room, owners)
        return WhoWasHere(
            run_id=holder.run_id,
            pid=holder.pid,
            places=holder.directories,
            is_running=is_locked(room) or lives_elsewhere(room),
            left=look(directory)
            if counted
            else Leftover(directory=str(directory), run_id=holder.run_id),
            host=holder.host,
            since=holder.started,
            home=holder.home,
        )

    def clear(self, places: Sequence[str], *, dry_run: bool) -> Cleaning:
        """Remove what dead runs have left in directories."""
        return clean([Path(place) for place in places], dry_run=dry_run)


def _ask(place: str, *, stop: bool = False, change: str = "") -> None:
    """Ask the run of a directory for something, in one file that is replaced as a whole."""
    room, owners = Path(place) / RUN, owners_for(Path(place))
    holder = holder_of(room, owners)
    if holder.directories[:1] and not (room / STATUS).exists():
        room = Path(holder.directories[0]) / RUN
    if not is_directory_of(room, owners) or not holder.process.strip():
        raise FileNotFoundError(errno.ENOENT, "the directory has no run", str(room))
    before = read_requests(room, holder)
    asked = Requests(process=holder.process, stop=stop or before.stop, change=change)
    staged = room / f"{REQUESTS}{PART_SUFFIX}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    # The run may be another user's, who must be able to read it.
    with open(open_regular(staged, flags, 0o644), "wb") as file:
        file.write(encode(asked))
    os.replace(staged, room / REQUESTS)


def _entries(directory: str) -> dict[str, bool]:
    """Return the names in a directory, and whether each is a directory and no link to one."""
    with os.scandir(directory) as entries:
        return {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}


def clean(directories: Sequence[Path], *, dry_run: bool) -> Cleaning:
    """Remove what runs that died have left unpublished in directories, and beside them.

    A run that was cut short while it was published is complete and counted, so it is brought to its
    end first. Where that cannot be, it is taken back and removed. Of a run over several directories
    all are cleaned, whichever is named.

    Args:
        directories: As they were given with `--to`.
        dry_run: Change nothing.

    Raises:
        OutputFailed: A directory is not there, a run is writing to it, or the system refused.
    """
    completed: list[str] = []
    removed: list[Leftover] = []
    kept: list[str] = []
    for directory in _seen(directories):
        try:
            completed += _would_complete(directory) if dry_run else _complete(directory)
            foreign = strangers(directory / RUN)
            kept += map(str, foreign)
            left = _clear(directory, dry_run=dry_run)
            removed += (each for each in left if each.run_id or not (each.is_empty and foreign))
        except OSError as error:
            raise OutputFailed(
                f"cannot clean {directory}: {error.strerror or error}",
                "check the path and its permissions",
            ) from error
    return Cleaning(
        dry_run=dry_run, completed=tuple(completed), removed=tuple(removed), kept=tuple(kept)
    )


def _seen(directories: Sequence[Path]) -> list[Path]:
    try:
        return _with_others(directories)
    except OSError as error:
        raise OutputFailed(
            f"cannot clean: {error.filename}: {error.strerror or error}",
            "check the path and its permissions",
        ) from error


def _with_others(directories: Sequence[Path]) -> list[Path]:
    """Return the directories, and the others of the runs that left something in them."""
    found: dict[str, Path] = {}
    for directory in directories:
        if not directory.is_dir():
            raise OutputFailed(
                f"{directory} is not a directory", "give the directory that was given with --to"
            )
        found.setdefault(os.path.realpath(directory), directory)
    for real, directory in tuple(found.items()):
        owners = owners_for(directory)
        holder = holder_of(directory / RUN, owners)
        if real not in holder.directories:
            # A copy: the run in the directories that its lock names may still be resumed.
            continue
        for other in holder.directories:
            if holder.run_id and holder_of(Path(other) / RUN, owners).run_id == holder.run_id:
                found.setdefault(other, Path(other))
    return list(found.values())


def _would_complete(directory: Path) -> tuple[str, ...]:
    return tuple(
        f"run {each.run_id} was interrupted while it was published into {each.home.path}: the "
        "publication would be completed"
        for each in pending(directory)
    )


def _complete(directory: Path) -> tuple[str, ...]:
    try:
        return tuple(text for run in complete(directory) for text in run.messages)
    except OutputFailed as error:
        give_up(directory)
        return (f"{error.message}; this publication is abandoned",)


def _clear(directory: Path, *, dry_run: bool) -> list[Leftover]:
    room = directory / RUN
    if not room.is_dir():
        if not dry_run:
            sweep(directory)
        return []
    if not is_directory_of(room, owners_for(directory)):
        raise OutputFailed(
            f"{room} is a symbolic link or belongs to another user",
            "run the same command as its owner, or find out which program created it",
        )
    try:
        lock = take_lock(room, create=not dry_run)
    except Locked:
        raise OutputFailed(
            f"a run is writing to {directory}",
            f"wait until the run ends, or end it with: unloader stop {directory}",
        ) from None
    except FileNotFoundError:
        # It has no lock, so no run has it; or its run has just ended.
        return [look(directory)] if dry_run and room.is_dir() else []
    try:
        if not dry_run and is_under_way(directory):
            # A run that had its lock until now has begun to publish, and died.
            raise OutputFailed(
                f"a run was interrupted a moment ago while it was published into {directory}",
                "run the same command again, which completes the publication",
            )
        left = look(directory)
        if not dry_run:
            remove_room(room)
            sweep(directory)
        return [left]
    finally:
        os.close(lock)
