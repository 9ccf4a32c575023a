"""A directory's `_run`, and the publication of a run in its directories.

DIR/_run/lock             locked by the running process; records the run
DIR/_run/run.json         the resolved run, in the first directory
DIR/_run/journal.jsonl    a line for each step of a work unit, in the first directory; in each
                          directory, the last line is the record of a publication
DIR/_run/staged/          files of finished and running units
DIR/_run/_manifest.json   of a failed run; during a publication the new manifest
DIR/_run/status.json      the run's progress, replaced every second, in the first directory
DIR/_run/requests.json    requests of other processes to the run, in the first directory
DIR/_run/replaced/        during a publication: files of the run that is being replaced

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
import stat
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct
from msgspec.json import Decoder, encode
from msgspec.structs import replace

from unloader.errors import OutputFailed
from unloader.storage.directories.directory_lock import (
    LOCK,
    holder_of,
    is_of,
    owners_for,
    read_holder,
)
from unloader.storage.storage_protocol import (
    JOURNAL,
    MANIFEST,
    PUBLISHING_LINE,
    RECORDS,
    REQUESTS,
    RUN,
    RUN_RECORD,
    STAGED_LINE,
    STATUS,
    Leftover,
)
from writers.files.publish import (
    PART_SUFFIX,
    exchange,
    is_staged_folder,
    make_twin,
    remove,
    rename_if_free,
    shown,
)
from writers.files.regular import open_regular, read_regular
from writers.files.syncing import Steps

logger = logging.getLogger(__name__)

_LONGEST_NAME = 255
"""Bytes, on all usual file systems."""
TWIN = ".unloader-"
"""In the name of a twin, between the directory's own name and the run's id."""
STAGED = "staged"
REPLACED = "replaced"

_BULK = (STAGED, REPLACED, RUN_RECORD, STATUS, REQUESTS, MANIFEST, JOURNAL)
"""The names that a run writes into its `_run`, besides the lock and staged files. The journal has
the record of a publication, which lists the replaced files, so it is removed last."""

_PARTS = tuple(each + PART_SUFFIX for each in (*RECORDS, STATUS, REQUESTS, MANIFEST))
"""Records that are being written."""


def leftover(directory: Path) -> Leftover:
    room = directory / RUN
    sizes = []
    for entry in staged_files(room):
        with suppress(OSError):
            sizes.append(entry.stat(follow_symlinks=False).st_size)
    units = 0
    with suppress(OSError):
        lines = read_regular(room / JOURNAL).splitlines(keepends=True)
        # A kill in mid-write leaves a last line without an end.
        units = sum(line.startswith(STAGED_LINE) and line.endswith(b"\n") for line in lines)
    return Leftover(
        directory=str(directory),
        run_id=read_holder(room).run_id,
        units=units,
        files=len(sizes),
        bytes=sum(sizes),
    )


def staged_files(room: Path) -> tuple[os.DirEntry[str], ...]:
    """Return the staged files of a `_run`, unfinished ones included.

    They are in a directory of the `_run`, or in the `_run` of one of many tables.
    """
    return tuple(filter(_is_staged, (*_entries(room / STAGED), *_entries(room))))


def strangers(room: Path) -> tuple[Path, ...]:
    """Return the files in a `_run` that no run has written; they are never removed."""
    known = {LOCK, *_BULK, *_PARTS}
    here = [entry for entry in _entries(room) if entry.name not in known]
    found = {entry.path for entry in (*here, *_entries(room / STAGED), *_entries(room / REPLACED))}
    ours = {entry.path for entry in (*staged_files(room), *_replaced_files(room))}
    return tuple(sorted(map(Path, found - ours)))


def remove_room(room: Path) -> None:
    """Remove a `_run`, the lock last, except files that no run has written; never raises."""
    remove_bulk(room)
    with suppress(OSError):
        os.unlink(f"{room}/{LOCK}")
    with suppress(OSError):
        os.rmdir(room)


def is_removed(room: Path) -> bool:
    """Return whether another process has removed a `_run`, with all records of the run."""
    return not any(os.path.lexists(room / name) for name in (LOCK, RUN_RECORD, JOURNAL))


def remove_bulk(room: Path, kept: Collection[str] = ()) -> None:
    """Remove the run's files from a `_run`, except its lock and `kept`; never raises."""
    for entry in (*staged_files(room), *_replaced_files(room)):
        with suppress(OSError):
            remove(entry.path)
    for name in (STAGED, REPLACED):
        with suppress(OSError):
            os.rmdir(f"{room}/{name}")
    for name in (*_PARTS, *_BULK):
        if name not in kept:
            with suppress(OSError):
                os.unlink(f"{room}/{name}")


def _entries(folder: Path) -> tuple[os.DirEntry[str], ...]:
    """Return the entries of a directory; none if it is a symbolic link or cannot be read."""
    with suppress(OSError):
        if not folder.is_symlink():
            with os.scandir(folder) as found:
                return tuple(found)
    return ()


def _is_staged(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry of a `_run`, or of its `staged`, is a staged file."""
    with suppress(OSError):
        is_part = entry.name.endswith(PART_SUFFIX) and entry.name not in _PARTS
        is_file = entry.is_file(follow_symlinks=False)
        is_folder = is_staged_folder(entry.name) and entry.is_dir(follow_symlinks=False)
        return is_part and (is_file or is_folder)
    return False


def _replaced_files(room: Path) -> tuple[os.DirEntry[str], ...]:
    """Return the files in `replaced` that the record of the publication lists."""
    if not (found := _entries(room / REPLACED)):
        return ()
    try:
        records = [_PUBLICATION.decode(line) for line in publishing_lines(room)[1]]
    except (OSError, ValueError, RecursionError):
        return ()
    names = {name for each in records for share in each.shares for name in share.replaced}
    return tuple(entry for entry in found if entry.name in names)


def publishing_lines(room: Path) -> tuple[int, list[bytes]]:
    """Return the bytes of a journal before the record of a publication, and the record.

    The record has one line, or several with the latest first; none if no publication has begun.
    """
    try:
        data = read_regular(room / JOURNAL)
    except (FileNotFoundError, NotADirectoryError):
        return 0, []
    end, lines = data.rfind(b"\n") + 1, []
    while end:
        begin = data.rfind(b"\n", 0, end - 1) + 1
        if not data.startswith(PUBLISHING_LINE, begin):
            break
        lines.append(data[begin:end])
        end = begin
    return end, lines


class Placed(NamedTuple):
    source: str
    """Relative to `_run`."""
    final: str
    bytes: int
    """Of a folder of large objects: the size of its index."""


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

    def check(self) -> None:
        """Check that it stays within its directory: other programs may have changed the record."""
        if not os.path.isabs(self.path):
            raise ValueError(f"the path {self.path!r} is not absolute")
        names = [self.twin, *self.replaced, *(file.final for file in self.files)]
        for file in self.files:
            folder, name = os.path.split(file.source)
            names.append(name)
            is_staged = name.endswith(PART_SUFFIX)
            if folder not in (STAGED, "") or not (folder or is_staged or name == MANIFEST):
                raise ValueError(f"it names a file from {file.source!r}")
        for name in names:
            if name != os.path.basename(name) or name in (".", ".."):
                raise ValueError(f"the name {name!r} is not a plain file name")


class Publication(
    Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="event",
    tag="publishing",
):
    run_id: str
    shares: Annotated[tuple[Share, ...], Meta(min_length=1)]
    """In the order of the run's directories; the first one gets the manifest."""
    owners: frozenset[int] = frozenset()
    """Users whose directories and locks are trusted, see `owners_for`. They are not recorded."""

    @property
    def home(self) -> Share:
        return self.shares[0]

    def writing(self) -> Steps[None]:
        """Append it to the journal in each directory, synced, beginning with the first one."""
        line = encode(replace(self, owners=frozenset())) + b"\n"
        assert line.startswith(PUBLISHING_LINE)
        for share in self.shares:
            if not self.holds(share.room):
                continue
            path = share.room / JOURNAL
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

    def forget(self) -> None:
        """Remove the record, from the first directory last."""
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

    def rooms(self, share: Share) -> list[Path]:
        """Return where the `_run` of one directory is: in it, in the twin, or nowhere any more."""
        return [room for room in (share.room, share.beside / RUN) if self.holds(room)]

    def has_twin(self, share: Share) -> bool:
        """Return whether a directory's twin exists, and belongs to a trusted user or its owner."""
        return is_of(share.beside, self.owners | owners_for(share.directory))


_PUBLICATION = Decoder(Publication)


def read_publication(room: Path, owners: frozenset[int]) -> Publication | None:
    """Return the publication on record in a `_run` of these users; None without a record."""
    path = room / JOURNAL
    try:
        if not (is_of(room, owners) and is_of(path, owners, stat.S_IFREG)):
            return None
        for line in publishing_lines(room)[1]:
            # A power cut may leave zeros in a line that was not synced. Nothing was renamed then.
            if b"\0" not in line:
                publication = replace(_PUBLICATION.decode(line), owners=owners)
                for share in publication.shares:
                    share.check()
                return publication
    except (OSError, ValueError, RecursionError) as error:
        why = (error.strerror if isinstance(error, OSError) else "") or str(error)
        raise OutputFailed(
            f"{path} may have the record of a run that was interrupted while it was published, but "
            f"it cannot be read: {why}",
            f"restore it, or remove {room} and the files that are not in a manifest",
        ) from error
    return None


def twin_name(directory: Path, run_id: str) -> str:
    """Return the name of a directory's twin, hidden from readers; empty if it would be too long."""
    name = f".{directory.name}{TWIN}{run_id}"
    return name if len(os.fsencode(name)) <= _LONGEST_NAME else ""


def carrying_out(
    publication: Publication, then: Callable[[], None] = lambda: None
) -> Steps[tuple[str, ...]]:
    """Complete the publication on record in steps; return messages for the user.

    The first of several directories is last, because it has the manifest. The caller holds their
    locks. `then` is called once all files have their final names; no `_run` is removed before.

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
    then()
    messages: list[str] = []
    for share in reversed(publication.shares):
        if publication.holds(share.beside / RUN):
            messages += _remove_old(share)
        elif publication.holds(share.room):
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

    A file in it with the name of a file that is still staged is foreign.
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


def _remove_old(share: Share) -> list[str]:
    """Remove the earlier run's directory; move files of other programs to the new one."""
    old, messages = share.beside, []
    try:
        for name in share.replaced:
            with suppress(FileNotFoundError):
                remove(old / name)
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
    remove_room(old / RUN)
    with suppress(OSError):
        old.rmdir()
    return messages


def _check_size(directory: Path, file: Placed) -> None:
    try:
        found = os.lstat(shown(f"{directory}/{file.final}")).st_size
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
        if os.path.isdir(source) and os.path.isdir(target):
            remove(target)  # Left over by an earlier run. A file would be replaced by the rename.
        os.rename(source, target)
