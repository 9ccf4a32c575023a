"""Symbolic links on the way to a directory, and those that another user may have laid there."""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from pathlib import Path

_KEPT_SECONDS = 1.0
"""Who may lay a link above a directory can do so behind the last look, too."""


class Above:
    """What is known of the directory that many others are in, for a moment.

    To look at each name on the way to each of them takes longer than to make them. For any thread:
    what is known is taken and put down as a whole.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self._real: tuple[float, str, str] = (0.0, "", "")
        """Until when it is known, of which directory, and its path without links."""
        self._safe: tuple[float, str] = (0.0, "")

    def real(self, path: Path) -> str:
        """Return what `os.path.realpath` returns."""
        above, name = os.path.split(str(path))
        if not os.path.isabs(above) or name in ("", ".", ".."):
            return os.path.realpath(path)
        until, known, real = self._real
        now = time.monotonic()
        if known != above or now >= until:
            real = os.path.realpath(above)
            self._real = now + _KEPT_SECONDS, above, real
        found = os.path.join(real, name)
        return os.path.realpath(found) if os.path.islink(found) else found

    def foreign_link(self, path: Path) -> Path | None:
        """Return what `foreign_link` returns."""
        text = os.path.abspath(path)
        above = os.path.dirname(text)
        until, known = self._safe
        now = time.monotonic()
        if known == above and now < until:
            with suppress(OSError):
                return _foreign(text)
            return None
        found = foreign_link(path)
        if found is None and os.path.isdir(above):
            self._safe = now + _KEPT_SECONDS, above
        return found


def foreign_link(path: Path) -> Path | None:
    """Return a link on the way to a directory that anybody could have put there; None if none is.

    In a directory that everybody may write into, such as /tmp, another user can lay a link where a
    directory is expected, and choose where our files go. A link of this user or of the directory's
    owner is no such trap. Linux refuses the same where `fs.protected_symlinks` is on.
    """
    absolute = os.path.abspath(path)
    ends = [at for at, letter in enumerate(absolute) if letter == "/" and at]
    for end in (*ends, len(absolute)):
        try:
            found = _foreign(absolute[:end])
        except OSError:
            return None  # Nothing is there, or nothing can be seen: whoever makes it will say so.
        if found is not None:
            return found
    return None


def _foreign(path: str) -> Path | None:
    """Return a path if it is such a link itself.

    Raises:
        OSError: Nothing is there, or nothing can be seen.
    """
    link = os.lstat(path)
    if not stat.S_ISLNK(link.st_mode):
        return None
    around = os.stat(os.path.dirname(path))
    shared = around.st_mode & stat.S_IWOTH and around.st_mode & stat.S_ISVTX
    return Path(path) if shared and link.st_uid not in (os.geteuid(), around.st_uid) else None
