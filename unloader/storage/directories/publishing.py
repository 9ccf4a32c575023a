"""Carrying out a publication, from wherever it stands.

The usual way is the exchange: a twin of the directory is filled with the new files and the
manifest, and takes its place in one step; then the old one is removed. Where that cannot be, the
earlier run's files go out of sight first, then files get their final names one by one, and the
manifest is the last.

Each step looks at what is there, so all of it can be repeated after a kill at any time. States of
a directory: *here*, its `_run` is in it; *swapped*, its `_run` is in the twin, with the old files;
neither, all is done and cleared away.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from unloader.errors import OutputFailed
from unloader.storage.directories.leftovers import REPLACED, STAGED, remove_room, strangers
from unloader.storage.directories.publication import Placed, Publication, Share
from unloader.storage.storage_protocol import MANIFEST, RUN
from writers.files.exchange import exchange, make_twin, rename_if_free
from writers.files.syncing import Steps, alone

logger = logging.getLogger(__name__)


def carry_out(publication: Publication) -> tuple[str, ...]:
    """Bring a publication to its end; return messages for the user.

    Of several directories the first one is last, as it has the manifest. The caller holds their
    locks.

    Args:
        publication: What is on record.

    Raises:
        OutputFailed: A file is missing or changed, or another has taken its name.
        OSError: The file system refused; all can be repeated, or taken back.
        WriteError: As above.
    """
    check_real(publication)
    out = is_out(publication)
    check_found(publication, out=out)
    return alone(_carrying_out(publication, out=out))


def carrying_out(publication: Publication, clearing: Callable[[], None]) -> Steps[tuple[str, ...]]:
    """Do the same in steps for the run itself, of which nothing can be cleared away yet.

    Args:
        publication: What is on record.
        clearing: Called before a `_run` is removed, once all files have their final names.

    Raises:
        OutputFailed: As there.
        OSError: As there.
        WriteError: As there.
    """
    if len(publication.shares) == 1 and not publication.home.twin:
        # Who publishes has just made and checked all of it: there is one way to go.
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
        if len(publication.shares) > 1:
            # No manifest may stand while its files go, directory by directory.
            for share in publication.shares:
                yield from _retire(publication, share)
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
    """Undo a publication that `carry_out` gave up: new files are staged, the earlier run stands.

    Raises:
        OSError: The file system refused; the record stays then, and with it the way to the end.
        OutputFailed: What should be a directory of the run is somebody else's.
    """
    check_real(publication)
    for share in publication.shares:
        if publication.holds(share.beside / RUN):
            exchange(share.directory, share.beside)
        if not publication.holds(share.room):
            continue
        _gather(publication, share)
        _restore(share)
    publication.forget()


def _restore(share: Share) -> None:
    """Undo `_one_by_one`, as far as it came."""
    here, aside = share.directory, share.room / REPLACED
    kept = set(os.listdir(aside) if aside.exists() else ()) & set(share.replaced)
    # The new manifest goes first, the old one comes last: neither stands without its files.
    for file in () if share.twin else reversed(share.files):
        # Under a name that both runs use lies the new file once the old one has been put aside.
        is_new = file.final not in share.replaced or file.final in kept
        if is_new and not os.path.lexists(share.room / file.source):
            _move_if_there(here / file.final, share.room / file.source)
    for name in sorted(kept, key=lambda each: each == MANIFEST):
        os.rename(aside / name, here / name)


def is_out(publication: Publication) -> bool:
    """Tell whether the manifest has its final name, and all files with it."""
    home = publication.home
    if publication.holds(home.beside / RUN):
        return True
    if publication.holds(home.room):
        return not home.twin and not os.path.lexists(home.room / MANIFEST)
    # The first directory is cleared away last; while another one is not, it has been lost.
    return not any(publication.holds(share.room) for share in publication.shares)


def check_real(publication: Publication) -> None:
    """Check that renames stay within the run's own directories.

    Raises:
        OutputFailed: One is a symbolic link, or another user's.
    """
    for share in publication.shares:
        for room in (share.room, share.beside / RUN):
            if publication.holds(room):
                check_real_room(publication, room)


def check_real_room(publication: Publication, room: Path) -> None:
    """Check the same of one `_run`, which is the run's.

    Raises:
        OutputFailed: As there.
    """
    for path in (f"{room}/{STAGED}", f"{room}/{REPLACED}"):
        if os.path.lexists(path) and not publication.owns(Path(path)):
            raise OutputFailed(
                f"{path} is a symbolic link or belongs to another user, so nothing is moved there",
                "find out which program created it, remove it, and run the same command again",
            )


def check_found(publication: Publication, *, out: bool) -> None:
    """Check that each directory holds its part of the run; one that is not mounted does not.

    Args:
        publication: What is on record.
        out: All files have their final names, and a directory may have been cleared away.

    Raises:
        OutputFailed: One does not.
    """
    held = [
        next((room for room in (share.room, share.beside / RUN) if publication.holds(room)), None)
        for share in publication.shares
    ]
    record = next((room for room in held if room is not None), None)
    for share, room in zip(publication.shares, held, strict=True):
        # Where nothing is held any more all has been cleared away.
        if room is not None or (out and (record is None or _is_filled(share))):
            continue
        raise OutputFailed(
            f"run {publication.run_id} was interrupted while it was published, and its files in "
            f"{share.path} are missing",
            f"restore {share.path} as it was (is it mounted?), then run the same command again; "
            f"if it is lost, take the data that you need from {record} and remove that directory",
        )


def _is_filled(share: Share) -> bool:
    return all(os.path.lexists(share.directory / file.final) for file in share.files)


def _retire(publication: Publication, share: Share) -> Steps[None]:
    if MANIFEST in share.replaced and publication.holds(share.room):
        aside = yield from _replaced(share)
        _move_if_there(share.directory / MANIFEST, aside / MANIFEST)
        yield (share.directory,)


def _settle(publication: Publication, number: int) -> Steps[Publication]:
    """Give one directory its files; return the publication as it is on record then."""
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
        publication = publication.one_by_one(number)
        yield from publication.writing()
    yield from _one_by_one(publication.shares[number])
    return publication


def _against_exchange(share: Share) -> str:
    """Return why a directory has to stay the one it is; empty if it need not."""
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
    """Fill the twin and let it take the directory's place."""
    make_twin(share.directory, share.beside, {file.final for file in share.files})
    # No file may move to where a power cut would leave no way.
    yield (share.directory.parent,)
    for file in share.files:
        _move_if_there(share.room / file.source, share.beside / file.final)
        _check_size(share.beside, file)
    yield (share.beside,)
    exchange(share.directory, share.beside)
    yield (share.directory.parent,)


def _gather(publication: Publication, share: Share) -> None:
    """Take everything out of a twin that has not been exchanged, and remove it.

    What still is staged has never been in the twin: a file of its name there is somebody else's.
    """
    if not publication.has_twin(share):
        return
    for file in share.files:
        if not os.path.lexists(share.room / file.source):
            _move_if_there(share.beside / file.final, share.room / file.source)
    with suppress(OSError):
        share.beside.rmdir()


def _one_by_one(share: Share) -> Steps[None]:
    """Put the earlier run's files aside, then the new ones in their places, the manifest last."""
    here, sources = share.directory, {file.final: file.source for file in share.files}
    # As text: there is much to do, and a thousand directories to do it in.
    room, place = str(share.room), share.path
    aside = (yield from _replaced(share)) if share.replaced else share.room / REPLACED
    # The manifest goes first: it must not stand while its files go.
    for name in sorted(share.replaced, key=lambda each: (each != MANIFEST, each)):
        # Under a name that both runs use lies the new file once it is not staged any more.
        if name not in sources or os.path.lexists(share.room / sources[name]):
            _move_if_there(here / name, aside / name)
        if name == MANIFEST:
            yield (here,)
    for file in share.files:
        if file.final == MANIFEST:
            yield (here,)
        source, final = f"{room}/{file.source}", f"{place}/{file.final}"
        if os.path.lexists(source):
            _move_to(source, final, place)
        _check_size(here, file)
    yield (here,)


def _move_to(source: str, final: str, place: str) -> None:
    if not os.path.lexists(final):
        os.rename(source, final)
    elif os.path.samestat(os.lstat(source), os.lstat(final)):
        # A power cut has left the file of a rename with both of its names.
        os.unlink(source)
    else:
        raise OutputFailed(
            f"{final} already exists, and no earlier run wrote it",
            f"move it away, then run: unloader verify {place}",
        )


def _remove_old(share: Share, clearing: Callable[[], None]) -> list[str]:
    """Remove the earlier run's directory; what others have put into it meanwhile moves over."""
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


def _replaced(share: Share) -> Steps[Path]:
    aside = share.room / REPLACED
    if not aside.exists():
        aside.mkdir()
        yield (share.room,)
    return aside


def _move_if_there(source: Path, target: Path) -> None:
    # Looked at first: between two mounts the kernel refuses also what is not there.
    if os.path.lexists(source):
        os.rename(source, target)
