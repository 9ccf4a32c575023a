"""One directory of a destination: who may use it, what is staged, what has its final name.

DIR/_manifest.json        written last; its presence means that the run is finished. Of several
                          directories only the first has one
DIR/<data files>          complete and synced, all of them or none
DIR/_run/lock             held by the running process
DIR/_run/journal.jsonl    one line a finished work unit, in the first directory
DIR/_run/staged/          files of finished and running units
DIR/_run/_manifest.json   of a broken run; while publishing the manifest to come
DIR/_run/_replaced.json   while publishing: the manifest of the run that is being replaced
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from unloader.errors import OutputFailed
from unloader.manifest_reading import (
    MANIFEST,
    directories_of,
    files_of,
    places_of,
    read_manifest,
)
from writers.files.publish import publish, write_atomically

RUN = "_run"
STAGED = "staged"
JOURNAL = "journal.jsonl"
LOCK = "lock"
REPLACED = "_replaced.json"


class RunDirectory:
    """One directory, taken by one run until `close`."""

    def __init__(self, path: Path) -> None:
        """Take the directory, creating it where needed; change nothing else in it.

        Raises:
            OutputFailed: It cannot be created or written, or another run is using it.
        """
        self.path = path
        self.staged = path / RUN / STAGED
        self._created = self._create()
        try:
            self._lock = self._take_lock()
        except OSError as error:
            raise self.refused("prepare", error) from error

    def check_free(self) -> None:
        """Check that nothing but leftovers without any use is in the directory.

        Raises:
            OutputFailed: Something is.
        """
        broken = self._is_broken()
        others = sorted(entry.name for entry in self.path.iterdir() if entry.name != RUN)
        if not others and not broken:
            return
        what = "a broken run" if broken and not others else f"{others[0]} and maybe more"
        if (self.path / MANIFEST).exists():
            what = "a finished run"
        raise OutputFailed(
            f"{self.path} is not empty: it holds {what}",
            "choose an empty directory with --to, or replace an earlier run with --overwrite",
        )

    def clear(self) -> None:
        """Remove what earlier runs left but finished files, and make room for staged ones.

        Raises:
            OSError: The file system refused.
        """
        self._clear_half_published()
        shutil.rmtree(self.staged, ignore_errors=True)
        (self.path / RUN / JOURNAL).unlink(missing_ok=True)
        self.staged.mkdir()

    def finished(self) -> Mapping[str, Any] | None:
        """Return the manifest of the finished run here, None if there is none.

        Raises:
            OutputFailed: It is damaged.
        """
        return read_manifest(self.path) if (self.path / MANIFEST).exists() else None

    def files_here(self, manifest: Mapping[str, Any], home: Path) -> set[str]:
        """Return the names of those files of a manifest that lie in this directory.

        Args:
            manifest: Of any run.
            home: The directory that the manifest lies in, or is to lie in.
        """
        here = os.path.realpath(self.path)
        ours = {
            number
            for number, directory in enumerate(directories_of(manifest, home))
            if os.path.realpath(directory) == here
        }
        places = places_of(manifest)
        return {name for name, place in places.items() if place in ours and self._is_ours(name)}

    def write_record(self, name: str, manifest: Mapping[str, Any]) -> None:
        """Write a manifest into `_run`.

        Raises:
            WriteError: It could not be written.
        """
        text = json.dumps(manifest, ensure_ascii=False, indent=2) + "\n"
        write_atomically(self.path / RUN / name, text.encode())

    def retire(self) -> None:
        """Take the earlier run's manifest away, into `_run`; none there is no error.

        Raises:
            OSError: The file system refused.
        """
        if (self.path / MANIFEST).exists():
            os.replace(self.path / MANIFEST, self.path / RUN / REPLACED)

    def remove(self, names: Collection[str]) -> None:
        """Remove finished files.

        Raises:
            OSError: The file system refused.
        """
        for name in names:
            (self.path / name).unlink(missing_ok=True)

    def move(self, moves: Sequence[tuple[str, str]]) -> None:
        """Give staged files their final names.

        Raises:
            WriteError: The file system refused; what was moved by then is moved back.
        """
        publish(self.staged, moves, self.path, overwrite=True)

    def take_back(self, moves: Sequence[tuple[str, str]]) -> None:
        """Undo `move`."""
        for staged, final in moves:
            with suppress(OSError):
                os.rename(self.path / final, self.staged / staged)

    def finish(self) -> None:
        """Give the manifest in `_run` its place.

        Raises:
            WriteError: The file system refused.
        """
        publish(self.path / RUN, [(MANIFEST, MANIFEST)], self.path)

    def remove_run(self) -> None:
        """Remove everything that is not finished."""
        shutil.rmtree(self.path / RUN, ignore_errors=True)

    def give_back(self) -> None:
        """Leave the directory as if it had never been taken, but for results of a broken run."""
        if not self._is_broken():
            self.leave_no_trace()

    def leave_no_trace(self) -> None:
        """Remove all of our own, and the directories that were not there before us."""
        self.remove_run()
        with suppress(OSError):
            for made in self._created:
                made.rmdir()

    def close(self) -> None:
        """Release the directory to others."""
        os.close(self._lock)

    def refused(self, verb: str, error: OSError) -> OutputFailed:
        """Return the error for what the file system said."""
        return OutputFailed(
            f"cannot {verb} {self.path}: {error.strerror or error}",
            "check the path, its permissions and the free space, or choose another --to",
        )

    def _create(self) -> tuple[Path, ...]:
        """Create the directory; return what was not there before, innermost first."""
        try:
            missing = [each for each in (self.path, *self.path.parents) if not each.exists()]
            (self.path / RUN).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self.refused("create", error) from error
        return tuple(missing)

    def _take_lock(self) -> int:
        descriptor = os.open(self.path / RUN / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise OutputFailed(
                f"another run is writing to {self.path}",
                "wait for it, or choose another --to",
            ) from None
        if not self._holds(descriptor):
            # The run that held it has just ended, and removed it.
            os.close(descriptor)
            raise OutputFailed(f"another run was writing to {self.path}", "start again")
        return descriptor

    def _holds(self, descriptor: int) -> bool:
        """Tell whether a lock is on the file that the next run will find."""
        try:
            return os.path.samestat(os.fstat(descriptor), os.stat(self.path / RUN / LOCK))
        except FileNotFoundError:
            return False

    def _is_broken(self) -> bool:
        return any((self.path / RUN / name).exists() for name in (JOURNAL, MANIFEST, REPLACED))

    def _clear_half_published(self) -> None:
        """Remove what a run that was killed while publishing left under final names.

        They are its own files and those that it was replacing. One that has changed since is
        somebody else's. Where a manifest stands, the publishing had not begun or was done.
        """
        for name in (MANIFEST, REPLACED):
            record = self.path / RUN / name
            if record.exists() and not (self.path / MANIFEST).exists():
                with suppress(OutputFailed):
                    self._remove_half(read_manifest(record.parent, name))
        for name in (MANIFEST, REPLACED):
            (self.path / RUN / name).unlink(missing_ok=True)

    def _remove_half(self, manifest: Mapping[str, Any]) -> None:
        home = directories_of(manifest, self.path, recorded=True)[0]
        if (home / MANIFEST).exists():
            standing = read_manifest(home)
            if standing["run_id"] == manifest["run_id"] or self.files_here(standing, home):
                return
        files = files_of(manifest)
        for name in self.files_here(manifest, home):
            if (self.path / name).stat().st_size == files[name].bytes:
                (self.path / name).unlink()

    def _is_ours(self, name: str) -> bool:
        # Only files of this directory: a manifest that was tampered with may not reach out of it.
        return name == os.path.basename(name) != "" and (self.path / name).is_file()
