"""Processes whose writes to one disk are throttled, by a control group of the kernel.

Version 1 of control groups throttles only what passes the page cache by: use `--direct-io`.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from processes.command import UNLOADER
from processes.program import LONGEST_SECONDS

_GROUPS = Path("/sys/fs/cgroup")


class NoThrottle(Exception):
    """This machine lets no one throttle a disk; the text says why."""


class Throttled:
    """A control group in which commands are started."""

    def __init__(self, group: Path) -> None:
        """Take the directory of the group."""
        self._group = group

    def run(self, *arguments: str) -> str:
        """Run a command in the group; return its standard output."""
        script = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
        done = subprocess.run(
            ["sh", "-c", script, str(self._group), *UNLOADER, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=LONGEST_SECONDS,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@contextmanager
def throttled(directory: Path, bytes_per_second: int) -> Iterator[Throttled]:
    """Yield a group that writes no faster than that to the disk of a directory.

    Raises:
        NoThrottle: It cannot be done here.
    """
    device = _disk_of(directory)
    group = _group()
    try:
        try:
            if (group / "io.max").exists():
                (group / "io.max").write_text(f"{device} wbps={bytes_per_second}\n")
            else:
                file = group / "blkio.throttle.write_bps_device"
                file.write_text(f"{device} {bytes_per_second}\n")
        except OSError as error:
            raise NoThrottle(f"the disk {device} cannot be throttled: {error}") from error
        yield Throttled(group)
    finally:
        with suppress(OSError):
            group.rmdir()


def _group() -> Path:
    """Return a new group that can throttle, of either version."""
    name = f"unloader-test-{os.getpid()}"
    for above in (_GROUPS / "blkio", _GROUPS):
        group = above / name
        with suppress(OSError):
            group.mkdir()
            if (group / "blkio.throttle.write_bps_device").exists() or (group / "io.max").exists():
                return group
            group.rmdir()
    raise NoThrottle("no control group that throttles disks can be made here")


def _disk_of(directory: Path) -> str:
    """Return the numbers of the whole disk that a directory is on."""
    number = os.stat(directory).st_dev
    entry = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve()
    if (entry / "partition").exists():
        entry = entry.parent
    try:
        return (entry / "dev").read_text().strip()
    except OSError:
        raise NoThrottle(f"{directory} lies on no disk of its own") from None
