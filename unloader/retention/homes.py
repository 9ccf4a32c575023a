"""What follows a run over several tables: the link to its directory, and the end of older nights.

An earlier night is removed as a whole, and only if all that lies in its directory is that run, as
it was when it was published. Anything else stays, and the reason is told.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from unloader.errors import UnloaderError
from unloader.events import Notice, Observer
from unloader.manifest.model import TablesManifest
from unloader.manifest.read import (
    digest_at_end,
    directories_of,
    home_manifest,
    manifest_data,
    read_manifest,
)
from unloader.request.directory_names import beside, home_template
from unloader.resolve.places import directory_values
from unloader.resolve.resolved import ResolvedRun
from unloader.retention.earlier_runs import EarlierRun, why_not_ours
from unloader.retention.link import link_of, switch_link
from unloader.retention.removing import LEAVING, empty, is_below, is_ours, within
from unloader.retention.unfinished import remove_unfinished
from unloader.storage.storage_protocol import MANIFEST


class Night(Struct, frozen=True, kw_only=True):
    """A finished run over several tables, in a directory of its own."""

    manifest: TablesManifest
    home: Path

    @property
    def tables(self) -> tuple[Path, ...]:
        """The directories of its tables."""
        return tuple(self.home / each.directory for each in self.manifest.tables)


def follow_tables(run: ResolvedRun, manifest: TablesManifest, home: str, observe: Observer) -> None:
    """Switch the link to a run that is published, then remove what is older than `--keep`.

    Args:
        run: Any of its tables.
        manifest: Of the run.
        home: Where that lies.
        observe: Gets a notice on each night that is removed, or kept for a reason.

    Raises:
        FollowUpFailed: The link could not be switched; nothing is removed then.
    """
    output = run.request.output
    if output.latest_link is not None:
        link = link_of(home, output.latest_link)
        newer = _night_at(link)
        if newer and _is_same_job(newer, manifest) and newer.manifest.run_id > manifest.run_id:
            observe(
                Notice(text=f"{link} still leads to run {newer.manifest.run_id}, which is newer")
            )
        else:
            switch_link(home, output.latest_link, manifest.run_id)
    if output.keep is not None:
        for text in _removed(run, manifest, output.keep):
            observe(Notice(text=text))


def _removed(run: ResolvedRun, manifest: TablesManifest, keep: int) -> list[str]:
    """Remove older nights; return what is to be told."""
    if any(each.verified != "ok" for each in manifest.tables):
        return ["no earlier run is removed, because not all tables of this run could be verified"]
    template = home_template(run.request.output.destination)
    parent, names = beside(template, directory_values(run.extract, run.run_id))
    try:
        others = _other_nights(Path(parent), names, manifest)
    except OSError as error:
        return [f"cannot look for earlier runs, so no run is removed: {error}"]
    newer = sum(each.manifest.run_id > manifest.run_id for each in others)
    older = others[newer:]
    told = []
    for each in reversed(older[max(0, keep - 1 - newer) :]):
        what = f"run {each.manifest.run_id} in {each.home}"
        try:
            why = _why_kept(each)
            if not why:
                _remove(each)
        except (OSError, UnloaderError) as error:
            why = str(error)
        told.append(
            f"{what} is kept: {why}" if why else f"removed {what}, because of --keep {keep}"
        )
    ids = [each.manifest.run_id for each in others]
    return told + remove_unfinished(Path(parent), names, manifest, ids, keep)


def _other_nights(parent: Path, names: re.Pattern[str], new: TablesManifest) -> list[Night]:
    """Return the finished nights of the same job, the newest first."""
    with os.scandir(parent) as entries:
        listed = sorted(each.name for each in entries if each.is_dir(follow_symlinks=False))
    for name in listed:
        if name.startswith(LEAVING) and (hidden := _night_at(parent / name)):
            with suppress(OSError, UnloaderError):
                _finish_removal(hidden)
    found = [_night_at(parent / name) for name in listed if names.fullmatch(name)]
    same = [each for each in found if each is not None and _is_same_job(each, new)]
    others = (each for each in same if each.manifest.run_id != new.run_id)
    # The id of a run begins with the time of its start.
    return sorted(others, key=lambda each: each.manifest.run_id, reverse=True)


def _finish_removal(night: Night) -> None:
    """Continue the removal of a night that was killed."""
    hidden = night.home
    if hidden.name.startswith(f"{LEAVING}{night.manifest.run_id}-") and is_ours(hidden):
        _empty(night)


def _night_at(home: Path) -> Night | None:
    """Return the finished night in a directory; None if that is unfinished, or another run."""
    manifest = home_manifest(home)
    return Night(manifest=manifest, home=home) if manifest else None


def _is_same_job(night: Night, new: TablesManifest) -> bool:
    """Return whether two runs are of one job: which tables there are may differ."""
    old = night.manifest
    return (old.status, old.options.to, old.source.kind, old.source.location) == (
        *("complete", new.options.to),
        *(new.source.kind, new.source.location),
    )


def _why_kept(night: Night) -> str:
    """Return why a night is not to be removed; empty if it may be."""
    for entry, place in zip(night.manifest.tables, night.tables, strict=True):
        if not is_below(place, night.home):
            return f"{place} is not inside it"
        if digest_at_end(manifest_data(place)) != entry.digest:
            return f"{place} was unloaded again after the run"
        manifest = read_manifest(place)
        if len(directories_of(manifest, place)) != 1:
            return f"the run in {place} also has files in other directories"
        if why := why_not_ours(EarlierRun(manifest=manifest, directories=(place,)), 0, place):
            return why
    for path in _strangers(night):
        return f"{path} is not a table of the run"
    return ""


def _strangers(night: Night) -> Iterator[Path]:
    """Yield what lies between a home and the directories of its tables and is of neither."""
    tables = set(night.tables)
    above = within(night.home, tables)
    for directory in sorted(above | {night.home}):
        for name in sorted(os.listdir(directory)):
            path = directory / name
            if path not in tables and path not in above and path != night.home / MANIFEST:
                yield path


def _remove(night: Night) -> None:
    """Remove a night: at once for its readers, the manifest of the run last.

    Raises:
        OSError: The file system refused, or something has come into the directory meanwhile.
    """
    hidden = night.home.with_name(f"{LEAVING}{night.manifest.run_id}-{night.home.name}")
    os.rename(night.home, hidden)
    moved = Night(manifest=night.manifest, home=hidden)
    try:
        why = _why_kept(moved)
    except (OSError, UnloaderError) as error:
        why = str(error)
    if why:
        os.rename(hidden, night.home)
        raise OSError(f"{night.home} was changed during its removal: {why}")
    _empty(moved)


def _empty(night: Night) -> None:
    """Remove what is there of the files of a night, and its directories."""
    tables = set(night.tables)
    for place in night.tables:
        if place.is_dir() and is_below(place, night.home) and (place / MANIFEST).exists():
            run = EarlierRun(manifest=read_manifest(place), directories=(place,))
            empty(run, (place,))
        elif place.is_dir():
            os.rmdir(place)  # The removal was killed just there.
    for directory in sorted(within(night.home, tables), key=lambda path: -len(path.parts)):
        if directory.is_dir():
            os.rmdir(directory)
    (night.home / MANIFEST).unlink()
    os.rmdir(night.home)
