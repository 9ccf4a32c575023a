"""Removing what runs that died have left in a directory; published files are never touched."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from unloader.errors import OutputFailed
from unloader.storage.directories.leftovers import (
    RUN,
    Locked,
    holder_of,
    is_directory_of,
    look,
    owners_for,
    remove_room,
    strangers,
    take_lock,
)
from unloader.storage.directories.recovery import complete, give_up, is_under_way, pending, sweep
from unloader.storage.model import Cleaning, Leftover


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
