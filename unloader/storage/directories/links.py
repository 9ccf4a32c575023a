"""Symbolic links that another user may have laid on the way to a directory."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def foreign_link(path: Path) -> Path | None:
    """Return a link on the way to a directory that anybody could have put there; None if none is.

    In a directory that everybody may write into, such as /tmp, another user can lay a link where a
    directory is expected, and choose where our files go. A link of this user or of the directory's
    owner is no such trap. Linux refuses the same where `fs.protected_symlinks` is on.
    """
    # As text: this is asked for each of a thousand directories.
    absolute = os.path.abspath(path)
    ends = [at for at, letter in enumerate(absolute) if letter == "/" and at]
    for end in (*ends, len(absolute)):
        each = absolute[:end]
        try:
            link = os.lstat(each)
            if not stat.S_ISLNK(link.st_mode):
                continue
            around = os.stat(os.path.dirname(each))
        except OSError:
            return None  # Nothing is there, or nothing can be seen: whoever makes it will say so.
        shared = around.st_mode & stat.S_IWOTH and around.st_mode & stat.S_ISVTX
        if shared and link.st_uid not in (os.geteuid(), around.st_uid):
            return Path(each)
    return None
