"""The one place where what the operating system says becomes a `WriteError` for the user."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from writers.errors import WriteError
from writers.files.regular import NotRegular

_NEXT = {
    errno.ENOSPC: "free space on the file system of {folder}, or write to another one",
    errno.EDQUOT: "raise the disk quota of this user, or write to another file system",
    errno.EROFS: "remount the file system of {folder} writable, or write to another one",
    errno.EACCES: "give this user write permission on {folder}",
    errno.EPERM: "give this user write permission on {folder}",
    errno.ENOENT: "create the directory {folder}, and check that no program removes it meanwhile",
    errno.ENOTDIR: "{folder} must be a directory; move the file of that name away",
    errno.EEXIST: "move {path} away, or write to another directory",
    errno.EFBIG: "raise the limit on file sizes (ulimit -f), or ask for smaller files",
    errno.EIO: "the device failed; read the kernel's log (dmesg) before writing there again",
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
    errno.ENAMETOOLONG: "choose a shorter file name",
    errno.EPIPE: "find out why the reader of {path} ended before it had all data, then write again",
    errno.EXDEV: "keep the staging directory and {folder} on one file system",
}

_NEXT_READ = {
    errno.EACCES: "give this user read permission on {path}",
    errno.EPERM: "give this user read permission on {path}",
    errno.ENOENT: "restore {path}, or write it again",
    errno.EIO: _NEXT[errno.EIO],
    errno.EMFILE: _NEXT[errno.EMFILE],
}


def write_error(action: str, path: str | os.PathLike[str], exc: OSError) -> WriteError:
    """Return the error to raise for `exc`, met while doing `action` (a verb) to `path`."""
    path = Path(path)
    if isinstance(exc, NotRegular):
        said, advice = exc.strerror, "move {path} away, and restore the file that was there"
    elif exc.errno is None:
        said = str(exc) or type(exc).__name__
        advice = None
    else:
        said = f"{os.strerror(exc.errno)} ({errno.errorcode.get(exc.errno, exc.errno)})"
        advice = (_NEXT_READ if action == "read" else _NEXT).get(exc.errno)
    advice = advice or "check {path} and its file system"
    return WriteError(
        f"cannot {action} {path}: {said}.", f"{advice.format(path=path, folder=path.parent)}."
    )
