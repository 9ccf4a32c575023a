"""The finished runs that lie in the directories of a new one, which may replace them."""

from __future__ import annotations

import os
from collections.abc import Sequence

from unloader.errors import OutputFailed
from unloader.storage.directories.run_directory import RunDirectory
from unloader.storage.storage_protocol import MANIFEST, Index, ReadIndex


class EarlierRuns:
    """What stood in the directories when they were taken, and what stands there now.

    A look reads each manifest. There is one at the start and one before the run is published; what
    is asked in between is answered from the last one.
    """

    def __init__(self, directories: Sequence[RunDirectory], read_index: ReadIndex) -> None:
        """Look at the directories.

        Raises:
            OutputFailed: A manifest is damaged, or its run has files in other directories, too.
        """
        self._directories = tuple(directories)
        self._read_index = read_index
        self._standing: list[Index | None] = []
        self._files: list[set[str]] = []
        self._look()
        self._before = self._runs(), self._files

    @property
    def files(self) -> Sequence[set[str]]:
        """For each directory the files of finished runs that it holds."""
        return self._files

    def replaced(self) -> list[set[str]]:
        """Return for each directory the names that go with earlier runs, manifests included."""
        return [
            names if standing is None else names | {MANIFEST}
            for standing, names in zip(self._standing, self._files, strict=True)
        ]

    def check_unchanged(self) -> None:
        """Look again; check that no finished run has come since: nobody agreed to replace it.

        Raises:
            OutputFailed: One has, or as at the start.
        """
        runs, names = self._before
        self._look()
        for directory, run, was, now, before in zip(
            self._directories, self._runs(), runs, self._files, names, strict=True
        ):
            if (run and run != was) or now - before:
                raise OutputFailed(
                    f"another run ({run}) was published into {directory.path} while this run was "
                    "writing, so nothing is published",
                    "move the other run to another directory, then unload again; the files of "
                    f"this run are in {directory.staged}",
                )

    def _look(self) -> None:
        self._standing = [directory.finished(self._read_index) for directory in self._directories]
        self._files = self._files_of_runs()

    def _files_of_runs(self) -> list[set[str]]:
        found: list[set[str]] = [set() for _ in self._directories]
        if not any(self._standing):
            return found
        known = {os.path.realpath(directory.path) for directory in self._directories}
        for home, standing in zip(self._directories, self._standing, strict=True):
            if standing is None:
                continue
            for path in standing.places:
                if os.path.realpath(path) not in known:
                    raise OutputFailed(
                        f"the run in {home.path} also has files in {path}",
                        f"give both with --to to replace the run, or remove {home.path / MANIFEST}",
                    )
            for directory, names in zip(self._directories, found, strict=True):
                names |= directory.files_here(standing)
        return found

    def _runs(self) -> list[str]:
        """Return for each directory the finished run whose manifest it holds, or nothing."""
        return [each.run_id if each is not None else "" for each in self._standing]
