"""Which files may hold a secret: those that no other user can read.

A file is refused if its rights let its group or everybody in, as `ssh` and libpq refuse a key.
Four things make up for such rights, because service managers hand secrets over in these ways:

- The file is root's, and its group may only read it. So are systemd's credentials, whose access
  list shows as rights of the group, and volumes of Kubernetes with an `fsGroup`.
- A directory on the way to the file lets nobody in but its owner.
- The file is root's, only readable, and on a file system in memory that is mounted read-only. So
  are the secrets of Docker and Kubernetes.
- It is no regular file: a pipe of the shell has no rights that matter.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from unloader.errors import ConfigError

OTHERS = 0o077
"""Rights of the group and of everybody."""

_MEMORY = frozenset(("tmpfs", "ramfs"))


def check_private(path: Path, what: str) -> None:
    """Return if no other user can read or change a file; also if it is not there.

    Args:
        path: The file.
        what: What it is called in the error.

    Raises:
        ConfigError: Another user can; the hint has the command that ends it.
    """
    try:
        real = Path(os.path.realpath(path))
        status = real.stat()
    except OSError:
        return  # Whoever reads it will say so.
    if not stat.S_ISREG(status.st_mode) or not status.st_mode & OTHERS:
        return
    if _is_handed_over(real, status) or any(map(_keeps_others_out, real.parents)):
        return
    import shlex

    mode = stat.S_IMODE(status.st_mode)
    raise ConfigError(
        f"other users can read the {what} {path} (mode {mode:03o})",
        f"chmod 600 {shlex.quote(str(path))}; if other users could read it until now, change the "
        "secret",
    )


def _is_handed_over(real: Path, status: os.stat_result) -> bool:
    """Return whether a service manager or root has made the file, for us alone to read."""
    if status.st_uid != 0:
        return False
    rights = status.st_mode & OTHERS
    if rights == stat.S_IRGRP:
        return True
    return not rights & ~(stat.S_IRGRP | stat.S_IROTH) and _is_read_only_memory(real, status)


def _keeps_others_out(directory: Path) -> bool:
    try:
        return not directory.stat().st_mode & (stat.S_IXGRP | stat.S_IXOTH)
    except OSError:
        return False


def _is_read_only_memory(real: Path, status: os.stat_result) -> bool:
    """Return whether the file is on a tmpfs that nobody can write to from here."""
    device = f"{os.major(status.st_dev)}:{os.minor(status.st_dev)}"
    try:
        read_only = bool(os.statvfs(real).f_flag & os.ST_RDONLY)
        mounts = Path("/proc/self/mountinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return False
    return read_only and any(_is_memory(line, device) for line in mounts)


def _is_memory(mount: str, device: str) -> bool:
    """Return whether a line of mountinfo, see proc(5), is of a device, and that in memory."""
    fields, _, rest = mount.partition(" - ")
    return fields.split(" ")[2:3] == [device] and rest.split(" ")[0] in _MEMORY
