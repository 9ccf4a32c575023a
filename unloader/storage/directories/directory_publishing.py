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
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct
from msgspec.json import Decoder, encode
from msgspec.structs import replace

from unloader.errors import OutputFailed
from unloader.storage.directories.directory_leftovers import (
    REPLACED,
    STAGED,
    publishing_lines,
    remove_room,
    strangers,
)
from unloader.storage.directories.directory_lock import (
    holder_of,
    is_directory_of,
    is_file_of,
    owners_for,
)
from unloader.storage.storage_protocol import (
    JOURNAL,
    MANIFEST,
    PUBLISHING_LINE,
    RUN,
)
from writers.files.publish import exchange, make_twin, rename_if_free
from writers.files.regular import open_regular, read_regular
from writers.files.staging import PART_SUFFIX
from writers.files.syncing import Steps, alone

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


class Placed(NamedTuple):
    """A staged file and its final name."""

    source: str
    """Relative to `_run`."""
    final: str
    bytes: int


class Share(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The part of a publication that concerns one directory."""

    path: str
    """Absolute, without symbolic links."""
    twin: str
    """Name of the twin, next to the directory; empty if the files get their names one by one."""
    files: tuple[Placed, ...]
    """In the first directory the manifest is the last one."""
    replaced: tuple[str, ...]
    """Names of earlier runs' files and manifest here; all of them are removed."""

    @property
    def directory(self) -> Path:
        """The directory itself."""
        return Path(self.path)

    @property
    def room(self) -> Path:
        """Its `_run`, until it is exchanged."""
        return Path(self.path, RUN)

    @property
    def beside(self) -> Path:
        """The twin: before the exchange with the new files, after it with the old ones."""
        if not self.twin:
            return Path(self.path, RUN, "twin")
        return Path(self.path).with_name(self.twin)


class Publication(
    Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="event",
    tag="publishing",
):
    """The record of a publication."""

    run_id: str
    shares: Annotated[tuple[Share, ...], Meta(min_length=1)]
    """In the order of the run's directories."""
    owners: frozenset[int] = frozenset()
    """Users whose directories and locks are trusted, see `owners_for`. They are not recorded."""

    @property
    def home(self) -> Share:
        """The share of the first directory, which gets the manifest."""
        return self.shares[0]

    def line(self) -> bytes:
        """Return the record, one line of a journal."""
        data = encode(replace(self, owners=frozenset())) + b"\n"
        assert data.startswith(PUBLISHING_LINE)
        return data

    def writing(self) -> Steps[None]:
        """Append it to the journal in each directory, synced, beginning with the first one.

        Raises:
            OSError: The file system refused, for example because it is full.
            WriteError: It did not sync.
        """
        for share in self.shares:
            if self.holds(share.room):
                yield from _append(share.room / JOURNAL, self.line())

    def forget(self) -> None:
        """Remove the record, from the first directory last.

        Raises:
            OSError: The file system refused.
        """
        for share in reversed(self.shares):
            if self.holds(share.room):
                end, lines = publishing_lines(share.room)
                if lines:
                    # It is not synced. A record that a power cut restores is carried out, because
                    # all that it needs exists.
                    os.truncate(share.room / JOURNAL, end)

    def holds(self, room: Path) -> bool:
        """Return whether a `_run` belongs to this run, not to a later one in the same directory."""
        for share in self.shares:
            if room.parent == share.beside and not self.has_twin(share):
                return False
        return holder_of(room, self.owners).run_id == self.run_id

    def has_twin(self, share: Share) -> bool:
        """Return whether a directory's twin exists and was not made by another user.

        It may have been given the directory's owner.
        """
        return is_directory_of(share.beside, self.owners | owners_for(share.directory))


_PUBLICATION = Decoder(Publication)


def _append(path: Path, line: bytes) -> Steps[None]:
    """Append a line to a journal, which need not exist, and sync it."""
    is_new = not os.path.lexists(path)
    descriptor = open_regular(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
    try:
        end = os.fstat(descriptor).st_size
        if end and os.pread(descriptor, 1, end - 1) != b"\n":
            # A power cut has torn the line before.
            end = read_regular(path).rfind(b"\n") + 1
            os.ftruncate(descriptor, end)
        try:
            written = 0
            # After a short write the next one reports the reason.
            while written < len(line):
                written += os.write(descriptor, line[written:])
        except OSError:
            os.ftruncate(descriptor, end)
            raise
        yield (descriptor, *((path.parent,) if is_new else ()))
    finally:
        os.close(descriptor)


def read_publication(room: Path, owners: frozenset[int]) -> Publication | None:
    """Return the publication on record in a `_run` of these users; None without a record.

    Raises:
        OutputFailed: It cannot be read.
    """
    path = room / JOURNAL
    try:
        if not (is_directory_of(room, owners) and is_file_of(path, owners)):
            return None
        for line in publishing_lines(room)[1]:
            # A power cut may leave zeros in a line that was not synced. Nothing was renamed then.
            if b"\0" not in line:
                publication = replace(_PUBLICATION.decode(line), owners=owners)
                for share in publication.shares:
                    _check(share)
                return publication
    except (OSError, ValueError, RecursionError) as error:
        why = (error.strerror if isinstance(error, OSError) else "") or str(error)
        raise OutputFailed(
            f"{path} may have the record of a run that was interrupted while it was published, but "
            f"it cannot be read: {why}",
            f"restore it, or remove {room} and the files that are not in a manifest",
        ) from error
    return None


def _check(share: Share) -> None:
    """Check that a record stays within its directory: other programs may have changed it.

    Raises:
        ValueError: It does not.
    """
    if not os.path.isabs(share.path):
        raise ValueError(f"the path {share.path!r} is not absolute")
    names = [share.twin, *share.replaced, *(file.final for file in share.files)]
    for file in share.files:
        folder, name = os.path.split(file.source)
        names.append(name)
        is_staged = name.endswith(PART_SUFFIX)
        if folder not in (STAGED, "") or not (folder or is_staged or name == MANIFEST):
            raise ValueError(f"it names a file from {file.source!r}")
    for name in names:
        if name != os.path.basename(name) or name in (".", ".."):
            raise ValueError(f"the name {name!r} is not a plain file name")


def carry_out(publication: Publication) -> tuple[str, ...]:
    """Complete a publication; return messages for the user.

    The first of several directories is last, because it has the manifest. The caller holds their
    locks.

    Args:
        publication: The one on record.

    Raises:
        OutputFailed: A file is missing or changed, or another file has its name.
        OSError: The file system refused; all can be repeated, or taken back.
        WriteError: The file system refused a sync; all can be repeated, or taken back.
    """
    check_real(publication)
    out = is_out(publication)
    check_found(publication, out=out)
    return alone(_carrying_out(publication, out=out))


def carrying_out(publication: Publication, clearing: Callable[[], None]) -> Steps[tuple[str, ...]]:
    """Complete a publication in steps, for the run itself, which has just made the record.

    Args:
        publication: The one on record.
        clearing: Called before a `_run` is removed, after all files have their final names.

    Raises:
        OutputFailed: As `carry_out`.
        OSError: As `carry_out`.
        WriteError: As `carry_out`.
    """
    if len(publication.shares) == 1 and not publication.home.twin:
        # The caller has just made and checked all of it.
        yield from _one_by_one(publication.home)
        clearing()
        remove_room(publication.home.room)
        return ()
    check_real(publication)
    check_found(publication, out=False)
    return (yield from _carrying_out(publication, out=False, clearing=clearing))


def _carrying_out(
    publication: Publication, *, out: bool, clearing: Callable[[], None] = lambda: None
) -> Steps[tuple[str, ...]]:
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
    """Undo a publication that `carry_out` gave up, back to staged files and the earlier run.

    Raises:
        OSError: The file system refused; the record stays, so that it can be completed.
        OutputFailed: A directory of the run belongs to another user.
    """
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
    """Check that renames stay within the run's own directories.

    Raises:
        OutputFailed: A directory is a symbolic link, or belongs to another user.
    """
    for share in publication.shares:
        for room in (share.room, share.beside / RUN):
            if publication.holds(room):
                check_real_room(publication, room)


def check_real_room(publication: Publication, room: Path) -> None:
    """Check the same for one `_run` of the run.

    Raises:
        OutputFailed: As `check_real`.
    """
    for path in (f"{room}/{STAGED}", f"{room}/{REPLACED}"):
        if os.path.lexists(path) and not is_directory_of(Path(path), publication.owners):
            raise OutputFailed(
                f"{path} is a symbolic link or belongs to another user, so nothing is moved there",
                "find out which program created it, remove it, and run the same command again",
            )


def check_found(publication: Publication, *, out: bool) -> None:
    """Check that each directory has its share of the run; an unmounted one does not.

    Args:
        publication: The one on record.
        out: All files have their final names, and a directory may be cleared already.

    Raises:
        OutputFailed: A directory does not have its share.
    """
    held = [
        next((room for room in (share.room, share.beside / RUN) if publication.holds(room)), None)
        for share in publication.shares
    ]
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
                yield from _exchange(share)
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


def _exchange(share: Share) -> Steps[None]:
    """Fill the twin, and exchange it with the directory."""
    make_twin(share.directory, share.beside, {file.final for file in share.files})
    # After a power cut there must be a path to every file that was moved.
    yield (share.directory.parent,)
    for file in share.files:
        _move_if_there(share.room / file.source, share.beside / file.final)
        _check_size(share.beside, file)
    yield (share.beside,)
    exchange(share.directory, share.beside)
    yield (share.directory.parent,)


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
