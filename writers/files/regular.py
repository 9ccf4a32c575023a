"""Opening files by names in directories that other programs may change meanwhile.

Where a file was, there may be a named pipe, which an ordinary `open` waits on without end. There
may be a device that has no end, or a link to a file somewhere else.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import IO

MOST_BYTES = 1 << 30
"""Of a file that is read into memory as a whole; a manifest of a million files has 400 MB."""

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

    Args:
        path: The file.
        flags: As for `os.open`.
        mode: Rights of a file that is made, before the umask.
        follow: The file may be a symbolic link: the user has named it.
        dir_fd: The directory that a relative path begins at.

    Raises:
        NotRegular: It is a pipe, a socket, a device or a directory; or a link without `follow`.
        OSError: It cannot be opened.
    """
    flags |= os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags, mode, dir_fd=dir_fd)
    except OSError as error:
        # These are what the system says of links, of sockets and of pipes without a reader.
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
    """Return all bytes of a regular file.

    Args:
        path: The file.
        follow: See `open_regular`.

    Raises:
        OSError: As `open_regular`; or the file is larger than `MOST_BYTES`.
    """
    with open(open_regular(path, follow=follow), "rb", buffering=0) as file:
        return _all_of(file, path)


def read_named(path: str | os.PathLike[str]) -> bytes:
    """Return all bytes of a file that the user has named, or of a pipe such as `<(COMMAND)`.

    A pipe must have its writer already, so that nothing waits for a program that never comes.

    Raises:
        OSError: As `read_regular`; or nobody writes into the pipe.
    """
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
