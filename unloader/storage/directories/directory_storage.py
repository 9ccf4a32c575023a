"""Local directories as a storage, and the requests of other commands to their runs."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from msgspec.json import encode

from unloader.errors import OutputFailed
from unloader.storage.directories.directory_leftovers import leftover
from unloader.storage.directories.directory_lock import (
    holder_of,
    is_directory_of,
    is_file_of,
    is_locked,
    lives_elsewhere,
    owners_for,
    read_record,
    read_requests,
)
from unloader.storage.directories.directory_recovery import clean, complete, complete_all
from unloader.storage.directories.directory_staging import missing, refusal
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
    """Directories of this machine, network file systems included; see `Storage`."""

    def refusal(self, place: str, *, overwrite: bool) -> OutputFailed | None:
        """Return why a run would be refused a directory."""
        return refusal(Path(place), overwrite=overwrite)

    def missing(self, places: Sequence[str]) -> frozenset[str]:
        """Return the directories that do not exist and can be made."""
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
        """Return the names of the files in a directory."""
        return tuple(sorted(path.name for path in Path(place).iterdir() if path.is_file()))

    def places_below(self, place: str, depth: int) -> tuple[str, ...]:
        """Return the directories with a manifest or a `_run`, except links and hidden ones."""
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
        """Return the names of the directories in one, except links."""
        with suppress(OSError):
            return tuple(sorted(name for name, inner in _entries(place).items() if inner))
        return ()

    def read(self, place: str, name: str) -> bytes:
        """Return a whole file. Devices and pipes are refused: they may have no end."""
        return read_regular(Path(place, name))

    def put_new(self, place: str, name: str, data: bytes) -> None:
        """Write a small file unless the name is in use."""
        write_new(Path(place, name), data)

    def size(self, place: str, name: str) -> int:
        """Return the bytes of a file."""
        return os.stat(Path(place, name)).st_size

    def file(self, place: str, name: str) -> Path:
        """Return the path of a file."""
        return Path(place, name)

    def disk(self, place: str) -> Disk | None:
        """Return the disk of a directory, or of the directory that it would be made in."""
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
        """Return a file of a directory's `_run`, if this user may trust it."""
        room, owners = Path(place) / RUN, owners_for(Path(place))
        if not (is_directory_of(room, owners) and is_file_of(room / name, owners)):
            return b""
        return read_record(room, name)

    def ask_to_stop(self, place: str) -> None:
        """Write a file into the `_run` of the run's first directory."""
        _ask(place, stop=True)

    def ask(self, place: str, wish: bytes) -> None:
        """Write a file into the `_run` of the run's first directory."""
        _ask(place, change=wish.decode())

    def who_was_here(self, place: str, *, counted: bool = True) -> WhoWasHere | None:
        """Return the run whose `_run` is in a directory, if this user may trust it."""
        directory = Path(place)
        room, owners = directory / RUN, owners_for(directory)
        if not is_directory_of(room, owners):
            return None
        holder = holder_of(room, owners)
        uncounted = Leftover(directory=str(directory), run_id=holder.run_id)
        return WhoWasHere(
            run_id=holder.run_id,
            pid=holder.pid,
            places=holder.directories,
            is_running=is_locked(room) or lives_elsewhere(room),
            left=leftover(directory) if counted else uncounted,
            host=holder.host,
            since=holder.started,
            home=holder.home,
        )

    def clear(self, places: Sequence[str], *, dry_run: bool) -> Cleaning:
        """Remove the leftovers of dead runs."""
        return clean([Path(place) for place in places], dry_run=dry_run)


def _ask(place: str, *, stop: bool = False, change: str = "") -> None:
    """Add a request to the file with the requests to the run of a directory."""
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
    # Another user's run must be able to read it.
    with open(open_regular(staged, flags, 0o644), "wb") as file:
        file.write(encode(asked))
    os.replace(staged, room / REQUESTS)


def _entries(directory: str) -> dict[str, bool]:
    """Return the names in a directory, and whether each is a directory and not a link."""
    with os.scandir(directory) as entries:
        return {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
