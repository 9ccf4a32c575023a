"""Opens regular files in directories that other programs may change, and names their errors.

Instead of a file there may be a named pipe, on which an ordinary `open` waits without end. There
may be a device without an end, or a link to another file.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import IO

from writers.errors import WriteError

MOST_BYTES = 1 << 30
"""The limit for a file that is read as a whole; a manifest of a million files has 400 MB."""

_READ_BYTES = 1 << 20

_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISLNK, "a symbolic link"),
)


class NotRegular(OSError):
    """A name leads to something that is not a regular file."""


def open_regular(
    path: str | os.PathLike[str],
    flags: int = os.O_RDONLY,
    mode: int = 0o666,
    *,
    follow: bool = False,
    dir_fd: int | None = None,
) -> int:
    """Open a regular file and return its descriptor; never wait for another program.

    `flags`, `mode` and `dir_fd` are as for `os.open`. With `follow` the file may be a symbolic
    link: the user has named it.

    Raises NotRegular for a pipe, a socket, a device or a directory, and for a link without
    `follow`, or another OSError.
    """
    flags |= os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags, mode, dir_fd=dir_fd)
    except OSError as error:
        # The system's errors for links, for sockets and for pipes without a reader.
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            found = os.stat(path, dir_fd=dir_fd, follow_symlinks=error.errno != errno.ELOOP)
            if not (follow and stat.S_ISLNK(found.st_mode)):
                raise _not_regular(path, found.st_mode) from error
        raise
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise _not_regular(path, found.st_mode)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_regular(path: str | os.PathLike[str], *, follow: bool = False) -> bytes:
    """Return all bytes of a regular file; OSError if it is larger than `MOST_BYTES`."""
    with open(open_regular(path, follow=follow), "rb", buffering=0) as file:
        return _all_of(file, path)


def read_named(path: str | os.PathLike[str]) -> bytes:
    """Return all bytes of a file, or of a pipe that has its writer already, else an OSError."""
    try:
        return read_regular(path, follow=True)
    except NotRegular:
        if not stat.S_ISFIFO(os.stat(path).st_mode):
            raise
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0) as pipe:
        os.set_blocking(pipe.fileno(), True)
        if data := _all_of(pipe, path):
            return data
    raise NotRegular(errno.EINVAL, "it is a pipe that no program writes into", str(path))


def _all_of(file: IO[bytes], path: str | os.PathLike[str]) -> bytes:
    data = bytearray()
    # A file with holes may be larger than memory.
    too_large = os.fstat(file.fileno()).st_size > MOST_BYTES
    while not too_large and (piece := file.read(_READ_BYTES)):
        data += piece
        too_large = len(data) > MOST_BYTES
    if too_large:
        raise OSError(errno.EFBIG, f"it has more than {MOST_BYTES >> 20} MiB", str(path))
    return bytes(data)


def _not_regular(path: str | os.PathLike[str], mode: int) -> NotRegular:
    kind = next((text for is_kind, text in _KINDS if is_kind(mode)), "something else")
    return NotRegular(errno.EINVAL, f"it is {kind} and not a regular file", str(path))


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
    """Return the error for `exc`, which was raised while doing `action` (a verb) to `path`."""
    path = os.fspath(path)  # A Path would take a slash from `s3://`.
    if isinstance(exc, NotRegular):
        what, advice = exc.strerror, "move {path} away, and restore the file that was there"
    elif exc.errno is None:
        what = str(exc) or type(exc).__name__
        advice = None
    else:
        what = f"{os.strerror(exc.errno)} ({errno.errorcode.get(exc.errno, exc.errno)})"
        advice = (_NEXT_READ if action == "read" else _NEXT).get(exc.errno)
    advice = advice or "check {path} and its file system"
    return WriteError(
        f"cannot {action} {path}: {what}.",
        f"{advice.format(path=path, folder=os.path.dirname(path) or '.')}.",
    )
