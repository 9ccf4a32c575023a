"""The publication of a run in its directories: its record, its steps, and the runs it replaces.

The record is written and synced before the first file gets its final name. A later command that
finds it can complete the publication: each file is either still staged or already in its place.

Usually a twin of the directory is filled with the new files and the manifest, and takes its place
in one step; then the old directory is removed. Where that is not possible, the earlier run's files
are moved aside first. Then the files get their final names one by one, the manifest last.

Each step looks at the files that exist, so all steps can be repeated after a kill at any time. A
directory is in one of three states. *here*: its `_run` is in it. *swapped*: its `_run` is in the
twin, with the old files. Otherwise all is done and removed.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from unloader.errors import OutputFailed
from unloader.storage.directories.directory_lock import is_of
from unloader.storage.directories.directory_records import (
    REPLACED,
    STAGED,
    Placed,
    Publication,
    Share,
    remove_room,
    strangers,
)
from unloader.storage.storage_protocol import MANIFEST, RUN
from writers.files.publish import exchange, make_twin, rename_if_free
from writers.files.syncing import Steps

logger = logging.getLogger(__name__)

_LONGEST_NAME = 255
"""Bytes, on all usual file systems."""
TWIN = ".unloader-"
"""In the name of a twin, between the directory's own name and the run's id."""


def twin_name(directory: Path, run_id: str) -> str:
    """Return the name of the twin of a directory; empty if such a name would be too long.

    Readers of whole directories pass over names that begin with a dot.
    """
    name = f".{directory.name}{TWIN}{run_id}"
    return name if len(os.fsencode(name)) <= _LONGEST_NAME else ""


def carrying_out(
    publication: Publication, clearing: Callable[[], None] = lambda: None
) -> Steps[tuple[str, ...]]:
    """Complete the publication on record in steps; return messages for the user.

    The first of several directories is last, because it has the manifest. The caller holds their
    locks. `clearing` is called before a `_run` is removed, after all files have their final names.

    Raises OutputFailed if a file is missing or changed, or another file has its name. After an
    OSError or WriteError of the file system all can be repeated, or taken back.
    """
    check_real(publication)
    out = is_out(publication)
    check_found(publication, out=out)
    if not out:
        for share in publication.shares if len(publication.shares) > 1 else ():
            # No manifest may exist while its files are removed, directory by directory.
            if MANIFEST in share.replaced and publication.holds(share.room):
                aside = yield from _aside(share)
                _move_if_there(share.directory / MANIFEST, aside / MANIFEST)
                yield (share.directory,)
        for number in (*range(1, len(publication.shares)), 0):
            publication = yield from _settle(publication, number)
    messages: list[str] = []
    for share in reversed(publication.shares):
        if publication.holds(share.beside / RUN):
            messages += _remove_old(share, clearing)
        elif publication.holds(share.room):
            clearing()
            remove_room(share.room)
    return tuple(messages)


def take_back(publication: Publication) -> None:
    """Undo a publication that `carrying_out` gave up: staged files, and the earlier run."""
    check_real(publication)
    for share in publication.shares:
        if publication.holds(share.beside / RUN):
            exchange(share.directory, share.beside)
        if not publication.holds(share.room):
            continue
        _gather(publication, share)
        here, aside = share.directory, share.room / REPLACED
        kept = set(os.listdir(aside) if aside.exists() else ()) & set(share.replaced)
        # The new manifest is moved first and the old one last: neither may lack a file.
        for file in () if share.twin else reversed(share.files):
            # A name that both runs use leads to the new file once the old one is moved aside.
            is_new = file.final not in share.replaced or file.final in kept
            if is_new and not os.path.lexists(share.room / file.source):
                _move_if_there(here / file.final, share.room / file.source)
        for name in sorted(kept, key=lambda each: each == MANIFEST):
            os.rename(aside / name, here / name)
    publication.forget()


def is_out(publication: Publication) -> bool:
    """Return whether the manifest has its final name, and all files with it."""
    home = publication.home
    if publication.holds(home.beside / RUN):
        return True
    if publication.holds(home.room):
        return not home.twin and not os.path.lexists(home.room / MANIFEST)
    # The first directory is cleared last. If another one is not cleared, the first was lost.
    return not any(publication.holds(share.room) for share in publication.shares)


def check_real(publication: Publication) -> None:
    """Check that renames stay within the run's own directories."""
    rooms = [room for share in publication.shares for room in publication.rooms(share)]
    for path in (room / name for room in rooms for name in (STAGED, REPLACED)):
        if os.path.lexists(path) and not is_of(path, publication.owners):
            raise OutputFailed(
                f"{path} is a symbolic link or belongs to another user, so nothing is moved there",
                "find out which program created it, remove it, and run the same command again",
            )


def check_found(publication: Publication, *, out: bool) -> None:
    """Check that each directory has its share of the run; an unmounted one does not.

    `out` means that all files have their final names, and a directory may be cleared already.
    """
    held = [next(iter(publication.rooms(share)), None) for share in publication.shares]
    record = next((room for room in held if room is not None), None)
    for share, room in zip(publication.shares, held, strict=True):
        is_filled = all(os.path.lexists(share.directory / file.final) for file in share.files)
        # If no directory has a share any more, all are cleared.
        if room is not None or (out and (record is None or is_filled)):
            continue
        raise OutputFailed(
            f"run {publication.run_id} was interrupted while it was published, and its files in "
            f"{share.path} are missing",
            f"restore {share.path} as it was (is it mounted?), then run the same command again; "
            f"if it is lost, take the data that you need from {record} and remove that directory",
        )


def _settle(publication: Publication, number: int) -> Steps[Publication]:
    """Give one directory its files; return the publication that is on record then."""
    share = publication.shares[number]
    if publication.holds(share.beside / RUN):
        return publication
    if share.twin:
        why = _against_exchange(share)
        if not why:
            try:
                make_twin(share.directory, share.beside, {file.final for file in share.files})
                # After a power cut there must be a path to every file that was moved.
                yield (share.directory.parent,)
                for file in share.files:
                    _move_if_there(share.room / file.source, share.beside / file.final)
                    _check_size(share.beside, file)
                yield (share.beside,)
                exchange(share.directory, share.beside)
                yield (share.directory.parent,)
                return publication
            except OSError as error:
                why = error.strerror or str(error)
        logger.info("%s: the files get their names one by one, because %s", share.path, why)
        _gather(publication, share)
        share = replace(share, twin="")
        shares = (*publication.shares[:number], share, *publication.shares[number + 1 :])
        publication = replace(publication, shares=shares)
        yield from publication.writing()
    yield from _one_by_one(share)
    return publication


def _against_exchange(share: Share) -> str:
    """Return the reason why a directory cannot be exchanged; empty if it can."""
    here = share.directory
    with suppress(OSError):
        if os.path.samefile(here, os.getcwd()):
            return "it is the current directory"
    if os.path.ismount(here):
        return "it is a mount point"
    others = set(os.listdir(here)) - {RUN} - set(share.replaced)
    if others:
        return f"it contains {min(others)}, which does not belong to a run"
    foreign = strangers(share.room)
    if foreign:
        return f"it contains {foreign[0]}, which does not belong to a run"
    # Reading is needed to sync its names, and to find the twin after a kill.
    effective = os.access in os.supports_effective_ids
    if not os.access(here.parent, os.R_OK | os.W_OK | os.X_OK, effective_ids=effective):
        return f"this user may not both read and write {here.parent}"
    return ""


def _gather(publication: Publication, share: Share) -> None:
    """Move everything out of a twin that has not been exchanged, and remove it.

    A file that is still staged has never been in the twin: a file with its name there is foreign.
    """
    if not publication.has_twin(share):
        return
    for file in share.files:
        if not os.path.lexists(share.room / file.source):
            _move_if_there(share.beside / file.final, share.room / file.source)
    with suppress(OSError):
        share.beside.rmdir()


def _one_by_one(share: Share) -> Steps[None]:
    """Move the earlier run's files aside, then the new ones to their places, the manifest last."""
    here, sources = share.directory, {file.final: file.source for file in share.files}
    # Texts are faster than paths, for thousands of directories.
    room, place = str(share.room), share.path
    aside = (yield from _aside(share)) if share.replaced else share.room / REPLACED
    # The manifest is moved first: it must not exist while its files are moved.
    for name in sorted(share.replaced, key=lambda each: (each != MANIFEST, each)):
        # A name that both runs use leads to the new file once that is not staged any more.
        if name not in sources or os.path.lexists(share.room / sources[name]):
            _move_if_there(here / name, aside / name)
        if name == MANIFEST:
            yield (here,)
    for file in share.files:
        if file.final == MANIFEST:
            yield (here,)
        source, final = f"{room}/{file.source}", f"{place}/{file.final}"
        if os.path.lexists(source):
            if not os.path.lexists(final):
                os.rename(source, final)
            elif os.path.samestat(os.lstat(source), os.lstat(final)):
                # A power cut has left a renamed file with both of its names.
                os.unlink(source)
            else:
                raise OutputFailed(
                    f"{final} already exists, and no earlier run wrote it",
                    f"move it away, then run: unloader verify {place}",
                )
        _check_size(here, file)
    yield (here,)


def _remove_old(share: Share, clearing: Callable[[], None]) -> list[str]:
    """Remove the earlier run's directory; move files of other programs to the new one."""
    old, messages = share.beside, []
    try:
        for name in share.replaced:
            (old / name).unlink(missing_ok=True)
        others = set(os.listdir(old)) - {RUN}
    except OSError as error:
        # Its record stays in it: the next command there tries again.
        return [f"cannot remove {old}: {error.strerror or error}"]
    for name in sorted(others):
        try:
            rename_if_free(old / name, share.directory / name)
        except OSError as error:
            messages.append(f"{old / name} was not moved: {error.strerror or error}")
    messages += [f"{path} was kept: no run wrote it" for path in strangers(old / RUN)]
    clearing()
    remove_room(old / RUN)
    with suppress(OSError):
        old.rmdir()
    return messages


def _check_size(directory: Path, file: Placed) -> None:
    try:
        found = os.lstat(f"{directory}/{file.final}").st_size
    except FileNotFoundError:
        raise OutputFailed(
            f"the staged file of {directory / file.final} is missing, so the run cannot be "
            "published",
            "find out which program removed it, then unload again",
        ) from None
    if found != file.bytes:
        raise OutputFailed(
            f"{directory / file.final} has {found:,} bytes, but the run wrote {file.bytes:,}",
            "find out which program changed it, then unload again",
        )


def _aside(share: Share) -> Steps[Path]:
    aside = share.room / REPLACED
    if not aside.exists():
        aside.mkdir()
        yield (share.room,)
    return aside


def _move_if_there(source: Path, target: Path) -> None:
    # Between two mounts the kernel refuses also a rename of a missing file.
    if os.path.lexists(source):
        os.rename(source, target)
