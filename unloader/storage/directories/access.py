"""Rights and owner of what a run writes, where the user decides them and not the umask.

They are set before anything gets its final name, so nothing is ever found under it with other
rights. Until then only this user can enter the directory of staged files.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from msgspec import Struct

from unloader.errors import ConfigError, OutputFailed
from writers.files.regular import open_regular

_PROBE = "rights.part"
_OWN_DIRECTORY = 0o700
"""The run must be able to fill the directories that it makes."""


class Access(Struct, frozen=True, kw_only=True):
    """Who may use the files and directories of a run."""

    mode: int | None = None
    """Rights of files; None is as the umask has it."""
    user: int = -1
    """Number of the owner; -1 is this one."""
    group: int = -1
    """Number of the group; -1 is as the system chooses."""

    @classmethod
    def of(cls, mode: int | None, owner_group: str) -> Access:
        """Return it for the values of `--mode` and `--owner-group`.

        Raises:
            ConfigError: There is no such user or group.
        """
        user, _, group = owner_group.partition(":")
        return cls(mode=mode, user=_user(user), group=_group(group))

    @property
    def is_usual(self) -> bool:
        """Whether everything is left to the system."""
        return self.mode is None and self.user == self.group == -1

    @property
    def staging_mode(self) -> int:
        """Rights that the directory of staged files is made with, before the umask."""
        return 0o777 if self.mode is None else _OWN_DIRECTORY

    def check(self, staged: Path) -> None:
        """Check on an empty file that rights and owner can be set there.

        Raises:
            OutputFailed: They cannot, or the file system does not keep them.
        """
        if self.is_usual:
            return
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
        """Let nobody into the directory of the records who may not read the files.

        It stays this user's: whoever clears it away must know it as the run's.

        Raises:
            OSError: The file system refused.
        """
        if self.mode is not None:
            os.chmod(room, _of_directory(self.mode))

    def give(self, path: Path) -> None:
        """Set rights and owner of a file or a directory.

        Raises:
            OutputFailed: They may not be set.
        """
        if self.is_usual:
            return
        try:
            descriptor = (
                os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
                if path.is_dir()
                else open_regular(path)
            )
            try:
                self._give(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise OutputFailed(
                f"cannot set the permissions or the owner of {path}: {error.strerror or error}",
                "only root can give files to another user; other users can give files only to "
                "their own groups (id -Gn); change --owner-group or --mode, or choose another "
                "--to",
            ) from error

    def _give(self, descriptor: int) -> None:
        # The owner first: giving a file away takes some of its rights.
        if (self.user, self.group) != (-1, -1):
            os.fchown(descriptor, self.user, self.group)
        if self.mode is not None:
            is_directory = stat.S_ISDIR(os.fstat(descriptor).st_mode)
            os.fchmod(descriptor, _of_directory(self.mode) if is_directory else self.mode)
        # After a power cut the name would lead to a file with the rights of before.
        os.fsync(descriptor)


def _of_directory(mode: int) -> int:
    """Return the rights of a directory: who may read its files may enter and list it."""
    return _OWN_DIRECTORY | mode | (mode & 0o444) >> 2


def _user(name: str) -> int:
    if not name:
        return -1
    import pwd

    try:
        return int(name) if name.isdecimal() else pwd.getpwnam(name).pw_uid
    except KeyError:
        raise ConfigError(
            "this machine does not have the user in --owner-group",
            "give a name that `getent passwd` shows, or the user's number",
        ) from None


def _group(name: str) -> int:
    if not name:
        return -1
    import grp

    try:
        return int(name) if name.isdecimal() else grp.getgrnam(name).gr_gid
    except KeyError:
        raise ConfigError(
            "this machine does not have the group in --owner-group",
            "give a name that `getent group` shows, or the group's number",
        ) from None
