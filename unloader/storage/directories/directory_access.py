"""Permissions, owners and symbolic links: who may use the files of a run, and who may mislead it.

Permissions and owner are set before anything gets its final name, so no file with a final name ever
has others. Until then only this user can enter the directory of staged files.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path

from msgspec import Struct

from unloader.errors import ConfigError, OutputFailed
from writers.files.regular import open_regular

_PROBE = "rights.part"
_OWN_DIRECTORY = 0o700
"""The run must be able to fill the directories that it makes."""


class Access(Struct, frozen=True, kw_only=True):
    """The requested permissions and owner of the files and directories of a run."""

    mode: int | None = None
    """Permissions of files; None leaves them to the umask."""
    user: int = -1
    """Number of the owner; -1 is this user."""
    group: int = -1
    """Number of the group; -1 leaves it to the system."""

    @classmethod
    def of(cls, mode: int | None, owner_group: str) -> Access | None:
        """Return the access for `--mode` and `--owner-group`; None leaves all to the system.

        Raises:
            ConfigError: The user or the group does not exist.
        """
        if mode is None and not owner_group.strip(":"):
            return None
        user, _, group = owner_group.partition(":")
        return cls(mode=mode, user=_number("user", user), group=_number("group", group))

    @property
    def staging_mode(self) -> int:
        """Permissions of a new directory of staged files, before the umask."""
        return 0o777 if self.mode is None else _OWN_DIRECTORY

    def check(self, staged: Path) -> None:
        """Check on an empty file that permissions and owner can be set in a directory."""
        probe = staged / _PROBE
        try:
            os.close(open_regular(probe, os.O_WRONLY | os.O_CREAT, 0o600))
            try:
                self.give(probe)
                kept = stat.S_IMODE(probe.stat().st_mode)
            finally:
                probe.unlink()
        except OSError as error:
            raise OutputFailed(
                f"cannot test the permissions in {staged}: {error.strerror or error}",
                "check the path, its permissions and the free space, or choose another --to",
            ) from error
        if self.mode is not None and kept != self.mode:
            raise OutputFailed(
                f"the file system of {staged} does not keep --mode {self.mode:03o}: it sets "
                f"{kept:03o}",
                "leave --mode out, or choose another --to",
            )

    def close(self, room: Path) -> None:
        """Set the permissions of a `_run` to match its files.

        The directory stays this user's, so that `clean` recognises it.
        """
        if self.mode is not None:
            os.chmod(room, _of_directory(self.mode))

    def give(self, path: Path) -> None:
        """Set permissions and owner of a file or a directory, synced."""
        try:
            is_directory = path.is_dir()
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
            descriptor = os.open(path, flags) if is_directory else open_regular(path)
            try:
                # The owner first: giving a file away takes some of its permissions.
                if (self.user, self.group) != (-1, -1):
                    os.fchown(descriptor, self.user, self.group)
                if self.mode is not None:
                    os.fchmod(descriptor, _of_directory(self.mode) if is_directory else self.mode)
                # After a power cut the name would lead to a file with the old permissions.
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise OutputFailed(
                f"cannot set the permissions or the owner of {path}: {error.strerror or error}",
                "only root can give files to another user; other users can give files only to "
                "their own groups (id -Gn); change --owner-group or --mode, or choose another "
                "--to",
            ) from error


def _of_directory(mode: int) -> int:
    """Return the permissions of a directory: users who may read its files may enter and list it."""
    return _OWN_DIRECTORY | mode | (mode & 0o444) >> 2


def _number(kind: str, name: str) -> int:
    """Return the number of a user or a group; -1 for an empty name."""
    if not name:
        return -1

    try:
        if name.isdecimal():
            return int(name)
        return pwd.getpwnam(name).pw_uid if kind == "user" else grp.getgrnam(name).gr_gid
    except KeyError:
        shown = "passwd" if kind == "user" else "group"
        raise ConfigError(
            f"this machine does not have the {kind} in --owner-group",
            f"give a name that `getent {shown}` shows, or the {kind}'s number",
        ) from None


def foreign_link(path: Path) -> Path | None:
    """Return a symbolic link on the way to a directory that any user could have made; else None.

    In a directory that all users may write to, such as /tmp, another user can make a link with the
    name of an expected directory, and so choose where our files go. Links of this user or of the
    directory's owner are safe. Linux refuses the same links where `fs.protected_symlinks` is on.
    """
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
            # It does not exist or cannot be seen. The caller that makes it reports that.
            return None
        shared = around.st_mode & stat.S_IWOTH and around.st_mode & stat.S_ISVTX
        if shared and link.st_uid not in (os.geteuid(), around.st_uid):
            return Path(each)
    return None
