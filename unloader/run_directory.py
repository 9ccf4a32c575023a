"""The destination directory of a run: who may use it, what is staged, how it is published.

DEST/_manifest.json        written last; its presence means that the run is finished
DEST/<data files>          complete and synced, all of them or none
DEST/_run/lock             held by the running process
DEST/_run/journal.jsonl    one line a finished work unit
DEST/_run/staged/          files of finished and running units
DEST/_run/_manifest.json   of a broken run; while publishing the manifest to come
DEST/_run/_replaced.json   while publishing: the manifest of the run that is being replaced
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from unloader.errors import OutputFailed
from unloader.manifest import MANIFEST, files_of, read_manifest
from writers.publish import check_moves, publish, remove_staged, write_atomically

RUN = "_run"
STAGED = "staged"
JOURNAL = "journal.jsonl"
LOCK = "lock"
REPLACED = "_replaced.json"


class RunDirectory:
    """One destination, taken by one run; use it as a context manager."""

    def __init__(self, destination: Path, *, overwrite: bool) -> None:
        """Take the destination, creating it where needed.

        Raises:
            OutputFailed: It cannot be created or written, another run is using it, it is not
                empty and `overwrite` is off, or the manifest of the run to replace is damaged.
        """
        self.path = destination
        self.staged = destination / RUN / STAGED
        self._overwrite = overwrite
        self._created = self._create()
        try:
            self._lock = self._take_lock()
        except OSError as error:
            raise self._refused("prepare", error) from error
        try:
            self._check_free()
            self._clear_half_published()
            shutil.rmtree(self.staged, ignore_errors=True)
            (destination / RUN / JOURNAL).unlink(missing_ok=True)
            self.staged.mkdir()
        except OSError as error:
            self.close()
            raise self._refused("prepare", error) from error
        except BaseException:
            self.close()
            raise

    def check_names(self, finals: Iterable[str]) -> None:
        """Check that under none of these names lies a file that is not an earlier run's.

        Raises:
            OutputFailed: One does.
        """
        earlier = self._earlier_files()
        for name in finals:
            if name not in earlier and os.path.lexists(self.path / name):
                raise OutputFailed(
                    f"{self.path / name} exists already, and no earlier run wrote it",
                    "move it away, or choose another --to or --file-name",
                )

    def record(self, entry: dict[str, Any]) -> None:
        """Append one line to the journal.

        It is not synced: the journal is for a run that was killed, and the system's cache outlives
        the process. Syncing it after each unit would make all workers' dirty pages wait.

        Raises:
            OutputFailed: The disk is full or failed.
        """
        line = json.dumps(entry, ensure_ascii=False) + "\n"
        try:
            with open(self.path / RUN / JOURNAL, "a", encoding="utf-8") as file:
                file.write(line)
        except OSError as error:
            raise self._refused("write the journal in", error) from error

    def discard(self, stem: str) -> None:
        """Remove whatever an attempt with this stem has staged."""
        remove_staged(self.staged, stem + ".")

    def publish(self, moves: Sequence[tuple[str, str]], manifest: dict[str, Any]) -> None:
        """Give every staged file its final name, then write the manifest.

        The manifest is written first, into `_run`: there may be no space for it when all else is
        done, and if we are killed meanwhile it tells which files are ours. An earlier run's
        manifest goes first, then those of its files that have no successor: at no moment does a
        manifest stand beside files that it does not describe.

        Raises:
            WriteError: A file that is not ours is in the way or there is no space for the
                manifest, and an earlier run is still as it was; or the file system refused.
            OutputFailed: Files of the earlier run cannot be removed.
        """
        earlier = self._earlier_files()
        check_moves(self.staged, moves, self.path, earlier)
        self._write_manifest(manifest)
        try:
            if (self.path / MANIFEST).exists():
                os.replace(self.path / MANIFEST, self.path / RUN / REPLACED)
            for name in earlier - {final for _, final in moves}:
                (self.path / name).unlink(missing_ok=True)
        except OSError as error:
            raise self._refused("replace the run in", error) from error
        publish(self.staged, moves, self.path, overwrite=True)
        publish(self.path / RUN, [(MANIFEST, MANIFEST)], self.path)
        self._remove_run()

    def abandon(self, manifest: dict[str, Any] | None) -> None:
        """End a broken run: keep what is staged with a partial manifest, or leave no trace.

        Args:
            manifest: What is done so far; None if no unit is.
        """
        if manifest is None:
            self._remove_run()
            with suppress(OSError):
                for made in self._created:
                    made.rmdir()
            return
        self._write_manifest(manifest)

    def close(self) -> None:
        """Release the destination to others."""
        os.close(self._lock)

    def __enter__(self) -> RunDirectory:
        """Return the directory itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close it."""
        self.close()

    def _create(self) -> tuple[Path, ...]:
        """Create the directory; return what was not there before, innermost first."""
        try:
            missing = [each for each in (self.path, *self.path.parents) if not each.exists()]
            (self.path / RUN).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._refused("create", error) from error
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
        return descriptor

    def _check_free(self) -> None:
        if self._overwrite:
            # What cannot be replaced in the end had better be known before the work.
            self._earlier_files()
            return
        broken = any((self.path / RUN / name).exists() for name in (JOURNAL, MANIFEST, REPLACED))
        others = sorted(entry.name for entry in self.path.iterdir() if entry.name != RUN)
        if not others and not broken:
            return
        what = "a broken run" if broken and not others else f"{others[0]} and maybe more"
        if (self.path / MANIFEST).exists():
            what = "a finished run"
        if not broken:
            self._remove_run()
        raise OutputFailed(
            f"{self.path} is not empty: it holds {what}",
            "choose an empty directory with --to, or replace an earlier run with --overwrite",
        )

    def _write_manifest(self, manifest: dict[str, Any]) -> None:
        text = json.dumps(manifest, ensure_ascii=False, indent=2) + "\n"
        write_atomically(self.path / RUN / MANIFEST, text.encode())

    def _clear_half_published(self) -> None:
        """Remove what a run that was killed while publishing left under final names.

        They are its own files and those that it was replacing. One that has changed since is
        somebody else's. Where a manifest stands, the publishing had not begun or was done.
        """
        records = [self.path / RUN / name for name in (MANIFEST, REPLACED)]
        if not (self.path / MANIFEST).exists():
            for record in records:
                with suppress(OutputFailed):
                    for name, file in files_of(read_manifest(record.parent, record.name)).items():
                        if self._is_ours(name) and (self.path / name).stat().st_size == file.bytes:
                            (self.path / name).unlink()
        for record in records:
            record.unlink(missing_ok=True)

    def _earlier_files(self) -> set[str]:
        """Return the names of the files of the finished run here; none if there is none."""
        if not (self.path / MANIFEST).exists():
            return set()
        return {name for name in files_of(read_manifest(self.path)) if self._is_ours(name)}

    def _is_ours(self, name: str) -> bool:
        # Only files of this directory: a manifest that was tampered with may not reach out of it.
        return name == os.path.basename(name) != "" and (self.path / name).is_file()

    def _remove_run(self) -> None:
        shutil.rmtree(self.path / RUN, ignore_errors=True)

    def _refused(self, verb: str, error: OSError) -> OutputFailed:
        return OutputFailed(
            f"cannot {verb} {self.path}: {error.strerror or error}",
            "check the path, its permissions and the free space, or choose another --to",
        )
