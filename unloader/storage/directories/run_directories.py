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
from typing import Any, NamedTuple, TypeVar

from unloader.errors import OutputFailed
from unloader.manifest.read import MANIFEST, directories_of
from unloader.storage.directories.leftovers import JOURNAL, LOCK, RUN, STAGED, Holder
from unloader.storage.directories.publication import (
    Placed,
    Publication,
    Share,
    read_publication,
    twin_name,
)
from unloader.storage.directories.publishing import carry_out, check_real, take_back
from unloader.storage.directories.recovery import complete, is_under_way
from unloader.storage.directories.run_directory import RunDirectory
from unloader.storage.kinds import overlapping, two_are_one
from writers.files.publish import check_moves, remove_staged

_T = TypeVar("_T")
_TRIES = 3


class Move(NamedTuple):
    """A staged file and its final name, both in the directory of that number."""

    directory: int
    staged: str
    final: str


class RunDirectories:
    """One or more directories, taken by one run; use it as a context manager."""

    def __init__(self, paths: Sequence[Path], *, overwrite: bool, run_id: str = "") -> None:
        """Take all the directories or none, creating them where needed.

        What was being published into one of them, and was cut short, is brought to its end first.
        What else a run that died has left is removed; `notices` tell of both.

        Args:
            paths: The first gets the manifest.
            overwrite: Replace earlier finished runs.
            run_id: Tells this run from all others.

        Raises:
            OutputFailed: One cannot be created or written, is named twice, lies in the `_run` of
                another, another run is using it, it is not empty and `overwrite` is off, or the
                manifest of the run to replace is damaged or tells of directories that are not
                among these.
        """
        _check_different(paths)
        self.all: tuple[RunDirectory, ...]
        self.notices: tuple[str, ...] = ()
        self._publishing = False
        self._run_id = run_id or os.urandom(6).hex()
        with self._take(paths) as undo:
            if not overwrite:
                for directory in self.all:
                    _on(directory, directory.check_free)
            # What cannot be replaced in the end had better be known before the work.
            self._standing = self._runs(), self._earlier()
            holder = Holder(run_id=self._run_id, pid=os.getpid(), directories=self._real())
            left = [_on(directory, partial(directory.begin, holder)) for directory in self.all]
            self.notices += tuple(f"removed {each.text()}" for each in left if not each.is_empty)
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

    def publish(self, moves: Sequence[Move], manifest: Mapping[str, Any]) -> tuple[str, ...]:
        """Give every staged file its final name, together with the manifest; see `publishing`.

        Returns:
            What the user should be told.

        Raises:
            WriteError: A file that is not ours is in the way, there is no space for the manifest,
                or the file system refused; an earlier run is still, or again, as it was.
            OutputFailed: As above; or what was begun could be neither finished nor taken back.
        """
        self._check_held()
        earlier = self._earlier()
        self._check_standing(earlier)
        for number, directory in enumerate(self.all):
            ours = [(move.staged, move.final) for move in moves if move.directory == number]
            check_moves(directory.staged, ours, directory.path, earlier[number])
        self.first.write_record(MANIFEST, manifest)
        publication = self._publication(moves, earlier)
        check_real(publication)
        self._publishing = True
        try:
            publication.write()
            told = carry_out(publication, live=True)
            self._check_out(manifest)
            return told
        except BaseException as error:
            self._take_back(publication, error)
            if isinstance(error, OSError):
                raise self.first.refused("publish in", error) from error
            raise

    def abandon(self, manifest: Mapping[str, Any] | None) -> None:
        """End a broken run: keep what is staged with a partial manifest, or leave no trace.

        Args:
            manifest: What is done so far; None if no unit is.
        """
        if self._publishing:
            # What is on record is to be completed, and needs the manifest that is there.
            return
        # A directory that was lost may be another run's by now.
        held = [directory for directory in self.all if directory.is_held(self._run_id)]
        if manifest is not None:
            for directory in held:
                directory.write_record(MANIFEST, manifest)
            return
        for directory in reversed(held):
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

    def _take(self, paths: Sequence[Path]) -> ExitStack:
        """Take all directories once nothing is being published into them; return how to undo it."""
        for _ in range(_TRIES):
            for path in paths:
                self.notices += complete(path)
            with ExitStack() as undo:
                self.all = ()
                for path in paths:
                    directory = RunDirectory(path)
                    undo.callback(directory.close)
                    undo.callback(directory.give_back)
                    self.all = (*self.all, directory)
                # Another run may have begun to publish, and died, before the locks were ours.
                if not any(is_under_way(path) for path in paths):
                    return undo.pop_all()
        raise OutputFailed(
            f"another run is being published into {' or '.join(str(path) for path in paths)}",
            "wait until it ends, then start again",
        )

    def _check_standing(self, earlier: Sequence[set[str]]) -> None:
        """Check that no finished run has come since the start: what nobody agreed to stays."""
        runs, names = self._standing
        for directory, run, was, now, before in zip(
            self.all, self._runs(), runs, earlier, names, strict=True
        ):
            if (run and run != was) or now - before:
                raise OutputFailed(
                    f"a finished run ({run}) has appeared in {directory.path} while this one was "
                    "writing, so nothing is published",
                    "move it to another directory, then unload again; what was written is in "
                    f"{directory.staged}",
                )

    def _runs(self) -> list[str]:
        """Return for each directory the finished run whose manifest it holds, or nothing."""
        standing = [directory.finished() for directory in self.all]
        return [str(each["run_id"]) if each is not None else "" for each in standing]

    def _check_held(self) -> None:
        for directory in self.all:
            if not directory.is_held(self._run_id):
                raise OutputFailed(
                    f"{directory.room / LOCK} was removed, replaced or made unreadable while the "
                    "run was writing, so nothing is published",
                    f"find out what did it, and unload again; what was written is in "
                    f"{directory.staged}, if that is still there",
                )

    def _check_out(self, manifest: Mapping[str, Any]) -> None:
        """Check that what a reader finds now is this run."""
        path = self.first.path / MANIFEST
        try:
            found = json.loads(path.read_text(encoding="utf-8")).get("run_id")
        except (OSError, ValueError, AttributeError) as error:
            found = repr(error)
        if found != manifest.get("run_id"):
            raise OutputFailed(
                f"after publishing, {path} is not the manifest of this run: {found}",
                "find out what changes files there, then unload again",
            )

    def _publication(self, moves: Sequence[Move], earlier: Sequence[set[str]]) -> Publication:
        shares = []
        for number, directory in enumerate(self.all):
            here = Path(os.path.realpath(directory.path))
            files = [
                Placed(f"{STAGED}/{move.staged}", move.final, _size(directory.staged / move.staged))
                for move in moves
                if move.directory == number
            ]
            if directory is self.first:
                files.append(Placed(MANIFEST, MANIFEST, _size(directory.room / MANIFEST)))
            replaced = set(earlier[number])
            if directory.finished() is not None:
                replaced.add(MANIFEST)
            shares.append(
                Share(
                    path=str(here),
                    twin=twin_name(here, self._run_id),
                    files=tuple(files),
                    replaced=tuple(sorted(replaced)),
                )
            )
        owners = frozenset().union(*(directory.owners for directory in self.all))
        return Publication(run_id=self._run_id, shares=tuple(shares), owners=owners)

    def _take_back(self, publication: Publication, error: BaseException) -> None:
        """Undo what was begun.

        Raises:
            OutputFailed: It cannot be undone; the record stays, so that it can be finished.
        """
        try:
            # The record tells which directories got their files one by one after all.
            rooms = (publication.home.room, publication.home.beside / RUN)
            read = (read_publication(room, publication.owners) for room in rooms)
            known = [found for found in read if found is not None]
            take_back(known[0] if known else publication)
            self._publishing = False
        except OSError:
            raise OutputFailed(
                f"publishing in {self.first.path} broke off: {error}",
                f"mend the cause, then finish it with: unloader verify {self.first.path}",
            ) from error

    def _real(self) -> tuple[str, ...]:
        return tuple(os.path.realpath(directory.path) for directory in self.all)

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


def _on(directory: RunDirectory, act: Callable[[], _T], verb: str = "prepare") -> _T:
    try:
        return act()
    except OSError as error:
        raise directory.refused(verb, error) from error


def _size(path: Path) -> int:
    return path.stat().st_size


def _check_different(paths: Sequence[Path]) -> None:
    resolved = [Path(os.path.realpath(path)) for path in paths]
    for path, real in zip(paths, resolved, strict=True):
        if RUN in real.parts:
            # The end of a run into the directory around it removes it, finished files and all.
            raise OutputFailed(
                f"{path} lies in a directory {RUN}, which is removed when the run ends",
                "choose another directory",
            )
    pair = overlapping(resolved)
    if pair is not None:
        first, second = pair
        same = resolved[first] == resolved[second]
        raise OutputFailed(
            two_are_one(str(paths[first]), str(paths[second]), same=same),
            "name directories that lie apart",
        )
