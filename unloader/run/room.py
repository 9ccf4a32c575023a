"""The pause of a run whose disk is nearly full: no new unit, a line in the log, and an end to it.

Workers in the middle of a unit look before they write more (`writers.files.disk_space`), and report
their waits. The parent looks at all directories, and pauses the whole run when one is full.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from msgspec import Struct

from unloader.errors import OutputFailed
from unloader.events import Notice, Observer
from unloader.resolve.resolved import ResolvedTable
from unloader.storage.storage_lookup import storage_at
from writers.files.disk_space import enough_bytes, free_bytes

_LOOK_SECONDS = 0.5
_HEARD_SECONDS = 5.0
"""A worker counts as waiting for this time after its last notice; it sends several a second."""


class RoomWatch(Struct, kw_only=True):
    """Whether the disks of a run have room; asked several times a second."""

    directories: Sequence[str]
    min_free_bytes: int
    pause_seconds: float
    tell: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    free: Callable[[str], int | None] = free_bytes
    """Bytes free in a directory; None if not known."""
    _looked: float = -math.inf
    _since: float | None = None
    _why: str = ""
    _heard: float = -math.inf
    _heard_of: str = ""

    def worker_waits(self, what: str) -> None:
        """Note what a worker waits for: a quota may be used up, which only a write finds out."""
        self._heard, self._heard_of = self.clock(), what

    def has_room(self) -> bool:
        now = self.clock()
        if now - self._looked >= _LOOK_SECONDS:
            self._looked = now
            self._look(now)
        return self._since is None

    def check(self) -> None:
        """End the run if a disk was full for too long.

        Raises:
            OutputFailed: A disk was.
        """
        if self.has_room() or self._since is None:
            return
        waited = self.clock() - self._since
        if waited >= self.pause_seconds:
            for_so_long = f", for {waited:.0f} s" if self.pause_seconds else ""
            raise OutputFailed(f"{self._why}{for_so_long}", "free disk space there")

    def _look(self, now: float) -> None:
        wanted = self.min_free_bytes
        if self._since is not None:
            wanted = enough_bytes(self.min_free_bytes)
        why = ""
        for directory in self.directories:
            free = self.free(directory)
            if free is not None and free < wanted:
                least = _size(self.min_free_bytes)
                why = f"{directory} has {_size(free)} free, and --min-free is {least}"
                break
        if not why and now - self._heard < _HEARD_SECONDS:
            why = f"a worker waits for {self._heard_of}"
        self._why = why
        if not why:
            if self._since is not None:
                self.tell(
                    f"there is enough disk space again after {now - self._since:.0f} s: the run "
                    "continues"
                )
            self._since = None
        elif self._since is None:
            self._since = now
            if self.pause_seconds:
                self.tell(
                    f"{why}: the run waits for disk space, at most {self.pause_seconds:g} s "
                    "(--pause-timeout)"
                )


def _size(size: int) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 10 * 2**30 else f"{size / 2**20:.1f} MiB"


def room_watch(
    own: Sequence[str], runs: Sequence[ResolvedTable], observe: Observer
) -> RoomWatch | None:
    """Return the watch of the disks; None if no limit was given.

    A look at one directory of each disk is enough, however many tables there are.

    Args:
        own: Directories of the run, such as that around its tables.
        runs: One for each; the most that one of them wants free is kept free for all.
        observe: Gets a notice when the run waits, and when it continues.
    """
    options = [output.options for run in runs for output in run.outputs]
    wanted = max((each.min_free_bytes for each in options), default=0)
    if not wanted:
        return None
    places = dict.fromkeys((*own, *(place for each in options for place in each.destinations)))
    disks: dict[int, str] = {}
    for place in places:
        disk = storage_at(place).disk(place)
        if disk is not None:
            disks.setdefault(disk.number, disk.directory)
    return RoomWatch(
        directories=tuple(disks.values()),
        min_free_bytes=wanted,
        pause_seconds=max(each.pause_seconds for each in options),
        tell=lambda text: observe(Notice(text=text)),
    )
