"""Giving finished files their final names: the act of one process, after all writers closed.

Whatever lies under a final name is complete and synced; the directories are synced too, so that
the names themselves survive a power cut.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from writers.errors import WriteError
from writers.files.exchange import rename_if_free
from writers.files.os_errors import write_error
from writers.files.regular import open_regular
from writers.files.staging import PART_SUFFIX
from writers.files.syncing import alone, sync_directory

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from writers.files.syncing import Steps


def publish(
    staging: Path,
    moves: Sequence[tuple[str, str]],
    directory: Path,
    *,
    overwrite: bool = False,
) -> None:
    """Move staged files to their final names and sync the directories.

    All names are checked before the first file is moved. One process publishes into a
    directory at a time; a file that appears under a final name meanwhile is replaced.

    Args:
        staging: Where the staged files lie, on the same file system as `directory`.
        moves: Staged name and final name, each relative to its directory.
        directory: Where the final names go.
        overwrite: Replace files that already have a final name.

    Raises:
        WriteError: A final name is taken or asked for twice, a staged file is missing, or the
            file system refused; what was moved by then is moved back.
    """
    replaceable = {final for _, final in moves} if overwrite else set()
    check_moves(staging, moves, directory, replaceable)
    touched = {staging, directory}
    done: list[tuple[Path, Path]] = []
    for staged, final in moves:
        source, target = staging / staged, directory / final
        try:
            os.rename(source, target)
        except OSError as exc:
            for former, published in reversed(done):
                with contextlib.suppress(OSError):
                    os.rename(published, former)
            raise write_error(f"publish {source} as", target, exc) from exc
        done.append((source, target))
        touched |= {source.parent, target.parent}
    for folder in sorted(touched):
        sync_directory(folder)


def check_moves(
    staging: Path,
    moves: Sequence[tuple[str, str]],
    directory: Path,
    replaceable: Collection[str],
) -> None:
    """Check that `publish` could make all these moves; change nothing.

    Args:
        staging: As for `publish`.
        moves: As for `publish`.
        directory: As for `publish`.
        replaceable: Final names that may be taken already.

    Raises:
        WriteError: Another final name is taken, one is asked for twice, or a staged file is
            missing.
    """
    finals: set[str] = set()
    for staged, final in moves:
        if final in finals:
            raise WriteError(
                f"two staged files would both become {directory / final}.",
                "choose file names that differ for each work unit.",
            )
        finals.add(final)
        if not os.path.isfile(f"{staging}/{staged}"):
            raise WriteError(
                f"the staged file {staging / staged} is missing, so {directory / final} cannot "
                f"be published.",
                "find out which program removed it, then write it again.",
            )
        if final not in replaceable and os.path.lexists(f"{directory}/{final}"):
            raise WriteError(
                f"{directory / final} already exists, so nothing was published.",
                "move it away, write to another directory, or ask for it to be replaced.",
            )


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a small file as a whole: readers see the old bytes or the new ones, synced.

    Raises:
        WriteError: It could not be written; the old file is untouched then.
    """
    alone(writing_atomically(path, data))


def writing_atomically(path: Path, data: bytes) -> Steps[None]:
    """Do the same in steps."""
    file = NamedLater(path, data)
    try:
        yield (file.descriptor,)
        file.name()
        file.close()
    except BaseException as exc:
        file.drop()
        if isinstance(exc, OSError):
            raise write_error("write", path, exc) from exc
        raise
    yield (path.parent,)


def write_new(path: Path, data: bytes) -> None:
    """Write a small file under a name that no file has: readers see all of it or nothing.

    Raises:
        FileExistsError: There is one, which is as it was.
        WriteError: It could not be written.
    """
    # Others may be at it at the same time.
    staged = path.with_name(f"{path.name}.{os.getpid()}-{os.urandom(4).hex()}")
    file = NamedLater(staged, data)
    try:
        os.fsync(file.descriptor)
        file.name_new(path)
        sync_directory(path.parent)
    except FileExistsError:
        raise
    except OSError as exc:
        raise write_error("write", path, exc) from exc
    finally:
        file.drop()


class NamedLater:
    """A small file that has all its bytes, unsynced, and not its name."""

    def __init__(self, path: Path, data: bytes) -> None:
        """Write it beside its name; end with `name` or `drop`.

        Raises:
            WriteError: There is no space for it, or the file system refused.
        """
        self.path = path
        self._staged = f"{path}{PART_SUFFIX}"
        try:
            self.descriptor = open_regular(self._staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        except OSError as exc:
            raise write_error("write", path, exc) from exc
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self.descriptor, rest) :]
        except OSError as exc:
            self.drop()
            raise write_error("write", path, exc) from exc

    def name(self) -> None:
        """Give it its name, in the place of whatever had that.

        Raises:
            WriteError: The file system refused.
        """
        try:
            os.replace(self._staged, self.path)
        except OSError as exc:
            raise write_error("write", self.path, exc) from exc

    def name_new(self, path: Path) -> None:
        """Give it a name that no file has.

        Raises:
            FileExistsError: One has it.
            OSError: The file system refused.
        """
        try:
            rename_if_free(Path(self._staged), path)
        except FileExistsError:
            raise
        except OSError:
            # Not every file system has such a rename, and not every one has links.
            os.link(self._staged, path)

    def close(self) -> None:
        """Close it."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def drop(self) -> None:
        """Close it, and remove what has no name; never raises."""
        with contextlib.suppress(OSError):
            self.close()
        with contextlib.suppress(OSError):
            os.unlink(self._staged)


def remove_staged(staging: Path, stems: Collection[str]) -> None:
    """Remove the staged files whose names begin with one of these and a dot; none is no error.

    Raises:
        WriteError: A file could not be removed.
    """
    for path in _staged(staging, frozenset(stems)):
        try:
            path.unlink(missing_ok=True)
        except OSError as exc:
            raise write_error("remove", path, exc) from exc


def _staged(staging: Path, stems: Collection[str]) -> Iterator[Path]:
    try:
        names = sorted(os.listdir(staging))
    except FileNotFoundError:
        return
    except OSError as exc:
        raise write_error("list", staging, exc) from exc
    for name in names:
        dots = (place for place, letter in enumerate(name) if letter == ".")
        if name.endswith(PART_SUFFIX) and any(name[:dot] in stems for dot in dots):
            yield staging / name
