"""Gives finished files their names: small files as a whole, and directories that are exchanged.

After an exchange each of two names leads to the former content of the other one, and each name
exists at all times. The kernel does it (`renameat2`, Linux 3.15) on ext4, XFS, Btrfs and tmpfs, but
not on NFS and many FUSE file systems. Callers have another way there.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import shutil
import stat
from collections.abc import Collection, Sequence
from pathlib import Path

from writers.codecs.compression import CODECS, SUFFIXES, check_codec
from writers.encryption.age import SUFFIX
from writers.errors import WriteError
from writers.files.regular import open_regular, write_error
from writers.files.syncing import sync
from writers.model import PLAIN, Compression, Encryption, TextFormat

PART_SUFFIX = ".part"
"""The end of the name of every file that is not published yet."""

INDEX = "_index.txt"
"""The file in a folder of large objects that lists the others, see `writers.lob_files`."""

_AT_FDCWD = -100
_RENAME_NOREPLACE = 1
_RENAME_EXCHANGE = 2
"""From linux/fs.h."""


def text_extension(
    text_format: TextFormat, compression: Compression, encryption: Encryption = PLAIN
) -> str:
    """Return `csv`, or `tsv` where tabs separate fields, with `.gz` and the like if compressed.

    After that comes `.age` if the text is encrypted. Raises FormatError if text cannot be
    compressed with this codec or level.
    """
    check_codec("csv", compression, CODECS["csv"])
    separated_by_tabs = text_format.delimiter == "\t" and not text_format.fixed
    name = ("tsv" if separated_by_tabs else "csv") + SUFFIXES[compression.codec]
    return name + SUFFIX if encryption.recipients else name


def shown(path: str | Path) -> str:
    """Return the path of a file, or of the index of a folder of large objects."""
    return f"{path}/{INDEX}" if os.path.isdir(path) else str(path)


def is_staged_folder(name: str) -> bool:
    """Return whether a name is one that `writers.lob_files` gives to a staged folder."""
    return re.fullmatch(rf".+\.lob\d+{re.escape(PART_SUFFIX)}", name) is not None


def remove(path: str | Path) -> None:
    """Remove a file, or a folder of large objects with everything in it; else OSError.

    The index goes last: a folder whose removal was interrupted is recognised by it.
    """
    if not os.path.isdir(path) or os.path.islink(path):
        os.unlink(path)
        return
    if is_staged_folder(os.path.basename(path)) or os.path.isfile(f"{path}/{INDEX}"):
        with os.scandir(path) as entries:
            others = [each for each in entries if each.name != INDEX]
        for each in others:
            if each.is_dir(follow_symlinks=False):
                shutil.rmtree(each.path)
            else:
                os.unlink(each.path)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{path}/{INDEX}")
    os.rmdir(path)


def check_moves(
    staging: Path, moves: Sequence[tuple[str, str]], directory: Path, replaceable: Collection[str]
) -> None:
    """Check that staged files can get their final names; change nothing.

    WriteError: one is in use and not `replaceable`, is given twice, or its staged file is missing.
    """
    finals: set[str] = set()
    for staged, final in moves:
        if final in finals:
            raise WriteError(
                f"two staged files would both become {directory / final}.",
                "choose file names that differ for each work unit.",
            )
        finals.add(final)
        if not os.path.isfile(shown(f"{staging}/{staged}")):
            raise WriteError(
                f"the staged file {staging / staged} is missing, so {directory / final} cannot "
                f"be published.",
                "find out which program removed it, then write it again.",
            )
        if final not in replaceable and os.path.lexists(f"{directory}/{final}"):
            raise WriteError(
                f"{directory / final} already exists, so nothing was published.",
                "move it away, write to another directory, or ask for it to be replaced.",
            )


def write_atomically(path: Path, data: bytes, *, synced: bool = True) -> None:
    """Replace a small file as a whole; after a WriteError it is unchanged."""
    staged = f"{path}{PART_SUFFIX}"
    try:
        try:
            _write(staged, data, synced=synced)
            os.replace(staged, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(staged)
            raise
    except OSError as exc:
        raise write_error("write", path, exc) from exc
    if synced:
        sync(path.parent)


def write_new(path: Path, data: bytes) -> None:
    """Write a small file under a new name, as a whole; FileExistsError if that is in use."""
    # Several processes may do this at the same time.
    staged = path.with_name(f"{path.name}.{os.getpid()}-{os.urandom(4).hex()}{PART_SUFFIX}")
    try:
        _write(staged, data, synced=True)
        try:
            rename_if_free(staged, path)
        except FileExistsError:
            raise
        except OSError:
            # Some file systems do not have such a rename, others do not have links.
            os.link(staged, path)
        sync(path.parent)
    except FileExistsError:
        raise
    except OSError as exc:
        raise write_error("write", path, exc) from exc
    finally:
        with contextlib.suppress(OSError):
            os.unlink(staged)


def _write(path: str | Path, data: bytes, *, synced: bool) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with open(open_regular(path, flags), "wb", buffering=0) as file:
        rest = memoryview(data)
        while rest:
            rest = rest[file.write(rest) :]
        if synced:
            os.fsync(file.fileno())


def remove_staged(staging: Path, stems: Collection[str]) -> None:
    """Remove the staged files whose names begin with a stem and a dot, if there are any."""
    try:
        names = sorted(os.listdir(staging))
    except FileNotFoundError:
        return
    except OSError as exc:
        raise write_error("list", staging, exc) from exc
    for name in names:
        dots = (place for place, letter in enumerate(name) if letter == ".")
        if name.endswith(PART_SUFFIX) and any(name[:dot] in stems for dot in dots):
            try:
                with contextlib.suppress(FileNotFoundError):
                    remove(staging / name)
            except OSError as exc:
                raise write_error("remove", staging / name, exc) from exc


def exchange(one: Path, other: Path) -> None:
    """Exchange names in one step; OSError if the system cannot, or one is a mount point."""
    _renameat2(one, other, _RENAME_EXCHANGE)


def rename_if_free(source: Path, target: Path) -> None:
    """Rename, but never over an existing file: FileExistsError then."""
    _renameat2(source, target, _RENAME_NOREPLACE)


def make_twin(original: Path, twin: Path, names: Collection[str] = ()) -> None:
    """Make an empty directory with owner, mode, ACLs and other attributes of another one.

    An existing directory of this user that contains only `names` is taken, and gets the attributes.
    An OSError means that it cannot be made, or cannot be made to look the same.
    """
    wanted = os.stat(original)
    # Only this user may enter it before it has the permissions of the original.
    try:
        twin.mkdir(mode=0o700)
    except FileExistsError:
        found = os.lstat(twin)
        own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
        # In a directory that all users may write to, another user may have made it, with files.
        if not own or set(os.listdir(twin)) - set(names):
            raise
    had = os.stat(twin)
    if (had.st_uid, had.st_gid) != (wanted.st_uid, wanted.st_gid):
        os.chown(twin, wanted.st_uid, wanted.st_gid)
    attributes, own_attributes = _attributes(original), _attributes(twin)
    for name in own_attributes.keys() - attributes.keys():
        os.removexattr(twin, name)
    for name, value in attributes.items():
        if own_attributes.get(name) != value:
            os.setxattr(twin, name, value)
    os.chmod(twin, stat.S_IMODE(wanted.st_mode))
    now = os.stat(twin)
    for name in ("st_uid", "st_gid", "st_mode", "st_dev"):
        if getattr(now, name) != getattr(wanted, name):
            raise OSError(errno.EPERM, f"{name} cannot belong to {original}", str(twin))


def _attributes(path: Path) -> dict[str, bytes]:
    if not hasattr(os, "listxattr"):
        return {}
    try:
        return {name: os.getxattr(path, name) for name in os.listxattr(path)}
    except OSError as error:
        if error.errno in (errno.ENOTSUP, errno.ENOSYS):
            return {}
        raise


def _renameat2(source: Path, target: Path, flags: int) -> None:
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        raise OSError(errno.ENOSYS, "the C library does not have renameat2", str(source))
    call.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    if call(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), flags):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(source), None, str(target))
