"""Two directories swapped in one step, and a directory made to look like another.

After a swap each name leads to what the other one held, and each name exists at all times. The
kernel does it (`renameat2`, Linux 3.15) where the file system can: ext4, XFS, Btrfs, tmpfs can, NFS
and many FUSE file systems cannot. Callers have another way for such places.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Collection
from pathlib import Path

_AT_FDCWD = -100
_RENAME_NOREPLACE = 1
_RENAME_EXCHANGE = 2
"""From linux/fs.h."""


def exchange(one: Path, other: Path) -> None:
    """Swap what two names of one file system lead to, in one step.

    Raises:
        OSError: The file system cannot, one is a mount point, or there is no right to.
    """
    _renameat2(one, other, _RENAME_EXCHANGE)


def rename_if_free(source: Path, target: Path) -> None:
    """Rename, never over something that is there.

    Raises:
        OSError: FileExistsError where something is there; what else the file system refuses.
    """
    _renameat2(source, target, _RENAME_NOREPLACE)


def make_twin(original: Path, twin: Path, names: Collection[str] = ()) -> None:
    """Make an empty directory with owner, mode, ACLs and other attributes of another one.

    Args:
        original: The directory to look like.
        twin: The new one; one of this user's own that is there is taken, but for the attributes.
        names: What a twin that is there may hold.

    Raises:
        OSError: It cannot be made, or cannot be made to look the same.
    """
    wanted = os.stat(original)
    # No other user gets in before it has the rights of the original.
    try:
        twin.mkdir(mode=0o700)
    except FileExistsError:
        found = os.lstat(twin)
        own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
        # In a place that anyone can write into another user may have made it, with his files.
        if not own or set(os.listdir(twin)) - set(names):
            raise
    had = os.stat(twin)
    if (had.st_uid, had.st_gid) != (wanted.st_uid, wanted.st_gid):
        os.chown(twin, wanted.st_uid, wanted.st_gid)
    _copy_attributes(original, twin)
    os.chmod(twin, stat.S_IMODE(wanted.st_mode))
    now = os.stat(twin)
    for name in ("st_uid", "st_gid", "st_mode", "st_dev"):
        if getattr(now, name) != getattr(wanted, name):
            raise OSError(errno.EPERM, f"{name} cannot belong to {original}", str(twin))


def _copy_attributes(original: Path, twin: Path) -> None:
    if not hasattr(os, "listxattr"):
        return
    wanted = _attributes(original)
    had = _attributes(twin)
    for name in had.keys() - wanted.keys():
        os.removexattr(twin, name)
    for name, value in wanted.items():
        if had.get(name) != value:
            os.setxattr(twin, name, value)


def _attributes(path: Path) -> dict[str, bytes]:
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
