"""The directories of one run, taken together and published together.

One is the usual case. With several, each has its own lock and its own staged files, so that a file
never crosses from one file system to another; journal and manifest are in the first.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from unloader.destinations.run_directory import JOURNAL, REPLACED, RUN, RunDirectory
from unloader.errors import OutputFailed
from unloader.manifest_reading import MANIFEST, directories_of
from writers.files.publish import check_moves, remove_staged


class Move(NamedTuple):
    """A staged file and its final name, both in the directory of that number."""

    directory: int
    staged: str
    final: str


class RunDirectories:
    """One or more directories, taken by one run; use it as a context manager."""

    def __init__(self, paths: Sequence[Path], *, overwrite: bool) -> None:
        """Take all the directories or none, creating them where needed.

        Args:
            paths: The first gets the manifest.
            overwrite: Replace earlier finished runs.

        Raises:
            OutputFailed: One cannot be created or written, is named twice, lies in the `_run` of
                another, another run is using it, it is not empty and `overwrite` is off, or the
                manifest of the run to replace is damaged or tells of directories that are not
                among these.
        """
        _check_different(paths)
        self.all: tuple[RunDirectory, ...] = ()
        with ExitStack() as undo:
            for path in paths:
                directory = RunDirectory(path)
                undo.callback(directory.close)
                undo.callback(directory.give_back)
                self.all = (*self.all, directory)
                if not overwrite:
                    _on(directory, directory.check_free)
            # What cannot be replaced in the end had better be known before the work.
            self._earlier()
            for directory in self.all:
                _on(directory, directory.clear)
            undo.pop_all()

    @property
    def first(self) -> RunDirectory:
        """The directory of journal and manifest."""
        return self.all[0]

    def check_names(self, finals: Iterable[tuple[int, str]]) -> None:
        """Check that under none of these names lies a file that is not an earlier run's.

        Args:
            finals: Number of the directory, and name.

        Raises:
            OutputFailed: One does.
        """
        earlier = self._earlier()
        for number, name in finals:
            path = self.all[number].path / name
            if name not in earlier[number] and os.path.lexists(path):
                raise OutputFailed(
                    f"{path} exists already, and no earlier run wrote it",
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
            with open(self.first.path / RUN / JOURNAL, "a", encoding="utf-8") as file:
                file.write(line)
        except OSError as error:
            raise self.first.refused("write the journal in", error) from error

    def discard(self, stem: str) -> None:
        """Remove whatever an attempt with this stem has staged."""
        for directory in self.all:
            remove_staged(directory.staged, stem + ".")

    def publish(self, moves: Sequence[Move], manifest: Mapping[str, Any]) -> None:
        """Give every staged file its final name, then write the manifest.

        The manifest is first written into each `_run`: there may be no space for it when all else
        is done, and if we are killed meanwhile it tells which files are ours. An earlier run's
        manifest goes first, then those of its files that have no successor: at no moment does a
        manifest stand beside files that it does not describe.

        Raises:
            WriteError: A file that is not ours is in the way or there is no space for the
                manifest, and an earlier run is still as it was; or the file system refused.
            OutputFailed: Files of the earlier run cannot be removed.
        """
        earlier = self._earlier()
        by_directory = [
            [(move.staged, move.final) for move in moves if move.directory == number]
            for number in range(len(self.all))
        ]
        for directory, ours, replaceable in zip(self.all, by_directory, earlier, strict=True):
            check_moves(directory.staged, ours, directory.path, replaceable)
        self._write_manifests(manifest)
        self._retire(earlier, by_directory)
        self._move(by_directory)
        self.first.finish()
        for directory in self.all:
            directory.remove_run()

    def abandon(self, manifest: Mapping[str, Any] | None) -> None:
        """End a broken run: keep what is staged with a partial manifest, or leave no trace.

        Args:
            manifest: What is done so far; None if no unit is.
        """
        if manifest is not None:
            self._write_manifests(manifest)
            return
        for directory in reversed(self.all):
            directory.leave_no_trace()

    def close(self) -> None:
        """Release the directories to others."""
        for directory in self.all:
            directory.close()

    def __enter__(self) -> RunDirectories:
        """Return the directories themselves."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close them."""
        self.close()

    def _write_manifests(self, manifest: Mapping[str, Any]) -> None:
        for directory in self.all:
            directory.write_record(MANIFEST, manifest)

    def _retire(
        self, earlier: Sequence[set[str]], by_directory: Sequence[list[tuple[str, str]]]
    ) -> None:
        """Take earlier runs away; each directory is left a record of which files were theirs."""
        for home in self.all:
            standing = home.finished()
            for directory in self.all:
                if directory is home or standing is None:
                    continue
                if directory.files_here(standing, home.path):
                    directory.write_record(REPLACED, _placed(standing, home.path))
        for directory in self.all:
            _on(directory, directory.retire, "replace the run in")
        for directory, names, moves in zip(self.all, earlier, by_directory, strict=True):
            gone = names - {final for _, final in moves}
            _on(directory, partial(directory.remove, gone), "replace the run in")

    def _move(self, by_directory: Sequence[list[tuple[str, str]]]) -> None:
        done: list[tuple[RunDirectory, list[tuple[str, str]]]] = []
        try:
            for directory, moves in zip(self.all, by_directory, strict=True):
                directory.move(moves)
                done.append((directory, moves))
        except BaseException:
            for directory, moves in done:
                directory.take_back(moves)
            raise

    def _earlier(self) -> list[set[str]]:
        """Return for each directory the files of finished runs that it holds.

        Raises:
            OutputFailed: A finished run has files in directories that are not ours to replace.
        """
        known = {os.path.realpath(directory.path) for directory in self.all}
        found: list[set[str]] = [set() for _ in self.all]
        for home in self.all:
            standing = home.finished()
            if standing is None:
                continue
            for path in directories_of(standing, home.path):
                if os.path.realpath(path) not in known:
                    raise OutputFailed(
                        f"the run in {home.path} has files in {path}, too",
                        f"name both with --to to replace it, or remove {home.path / MANIFEST}",
                    )
            for directory, names in zip(self.all, found, strict=True):
                names |= directory.files_here(standing, home.path)
        return found


def _on(directory: RunDirectory, act: Callable[[], None], verb: str = "prepare") -> None:
    try:
        act()
    except OSError as error:
        raise directory.refused(verb, error) from error


def _placed(manifest: Mapping[str, Any], home: Path) -> dict[str, Any]:
    """Return a manifest that tells where it lay, for the record in another directory."""
    listed = [dict(each) for each in manifest["directories"]]
    listed[0]["path"] = os.path.abspath(home)
    return {**manifest, "directories": listed}


def _check_different(paths: Sequence[Path]) -> None:
    seen: dict[str, Path] = {}
    for path in paths:
        real = os.path.realpath(path)
        if RUN in Path(real).parts:
            # The end of a run into the directory around it removes it, finished files and all.
            raise OutputFailed(
                f"{path} lies in a directory {RUN}, which is removed when the run ends",
                "choose another directory",
            )
        if real in seen:
            raise OutputFailed(
                f"--to names one directory twice: {seen[real]} and {path}", "name it once"
            )
        seen[real] = path
