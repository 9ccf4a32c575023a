"""One look at the machine's counters. What cannot be read is None, never zero.

Counters only grow, so that the difference of two looks is exact however far apart they are. They
are those of the kernel, read through psutil; the length of a disk's queue is read from
/proc/diskstats, as psutil leaves it out. Without psutil nothing is known.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from numa.sysfs.quota import throttling

DISK_STATISTICS = Path("/proc/diskstats")
_BLOCK_DEVICES = Path("/sys/class/block")
_CONTROL_GROUPS = Path("/sys/fs/cgroup")
_WEIGHTED_MILLISECONDS = 13
"""Field of a line of /proc/diskstats (kernel doc: iostats.rst, field 11 after the name)."""


class CpuTimes(Struct, frozen=True, kw_only=True):
    """Seconds of one CPU, or of all, since the machine was started."""

    user: float
    system: float
    iowait: float
    idle: float
    stolen: float

    @property
    def busy(self) -> float:
        """Seconds in which it did something."""
        return self.user + self.system

    @property
    def total(self) -> float:
        """All seconds."""
        return self.busy + self.iowait + self.idle + self.stolen


class DiskCounters(Struct, frozen=True, kw_only=True):
    """What one disk has done since the machine was started."""

    read_bytes: int
    written_bytes: int
    busy_seconds: float | None
    """In which it had something to do."""
    queued_seconds: float | None
    """The same, counted once for each request that was not done yet."""


class Tree(Struct, frozen=True, kw_only=True):
    """A process and all below it."""

    seconds: float
    """CPU seconds, those of processes that have ended included."""
    memory_bytes: int | None
    """Resident; pages that several of them share count for each."""


class Reading(Struct, frozen=True, kw_only=True):
    """One look at everything."""

    at: float
    """By `time.monotonic`."""
    cpu: CpuTimes | None = None
    cpus: tuple[CpuTimes, ...] = ()
    """Of each CPU that is on, by number."""
    disks: Mapping[str, DiskCounters] = field(default_factory=dict)
    networks: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Bytes received and sent, by interface."""
    throttled: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """By control group with a CPU quota: periods of it, and those in which it was used up."""
    parent_seconds: float | None = None
    """CPU seconds of the process that steers the runs."""
    workers: Tree | None = None
    database: Tree | None = None
    clock_mhz: float | None = None
    """Mean of all CPUs at this moment."""


def psutil_or_none() -> Any:
    """Return psutil, or None where it is not installed."""
    try:
        import psutil
    except ImportError:
        return None
    return psutil


def read_machine(database_roots: tuple[int, ...] | None) -> Reading:
    """Look at the machine.

    Args:
        database_roots: Process ids of the database's processes that have no parent among them;
            None where they are not known.
    """
    psutil = psutil_or_none()
    at = time.monotonic()
    if psutil is None:
        return Reading(at=at)
    own, below = _own_trees(psutil)
    return Reading(
        at=at,
        cpu=_asked(lambda: _cpu_times(psutil.cpu_times())),
        cpus=_asked(lambda: tuple(map(_cpu_times, psutil.cpu_times(percpu=True)))) or (),
        disks=_disks(psutil),
        networks=_asked(lambda: _networks(psutil)) or {},
        throttled=_asked(lambda: throttling(_CONTROL_GROUPS, Path("/proc"))) or {},
        parent_seconds=own,
        workers=below,
        database=None if database_roots is None else _tree_of_roots(psutil, database_roots),
        clock_mhz=_clock(psutil),
    )


def disk_of(directory: str) -> str | None:
    """Return the disk that a directory, or the nearest one above it that exists, lies on.

    None for a file system that is on no disk of its own.
    """
    path = Path(directory).absolute()
    while not path.exists() and path != path.parent:
        path = path.parent
    try:
        device = path.stat().st_dev
        real = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve(strict=True)
    except OSError:
        return None
    # A partition is a folder in that of its disk.
    return real.parent.name if (real / "partition").exists() else real.name


def link_speeds() -> dict[str, float]:
    """Return the bytes per second that each network interface can carry, where it tells."""
    psutil = psutil_or_none()
    found = {} if psutil is None else _asked(psutil.net_if_stats) or {}
    # In megabits; 0 or -1 of what has no such figure, as that of the machine itself.
    return {name: each.speed * 1e6 / 8 for name, each in found.items() if each.speed > 0}


def _asked(question: Any) -> Any:
    """Return the answer, or None where the system has none."""
    with suppress(OSError, NotImplementedError, AttributeError, RuntimeError, ValueError):
        return question()
    return None


def _cpu_times(times: Any) -> CpuTimes:
    # Not every system tells all of them.
    get = times._asdict().get
    return CpuTimes(
        user=get("user", 0.0) + get("nice", 0.0),
        system=get("system", 0.0) + get("irq", 0.0) + get("softirq", 0.0),
        iowait=get("iowait", 0.0),
        idle=get("idle", 0.0),
        stolen=get("steal", 0.0),
    )


def _disks(psutil: Any) -> dict[str, DiskCounters]:
    counters = _asked(lambda: psutil.disk_io_counters(perdisk=True, nowrap=False)) or {}
    queues = _queues()
    found = {}
    for name, each in counters.items():
        if (
            name.startswith(("loop", "ram", "zram"))
            or (_BLOCK_DEVICES / name / "partition").exists()
        ):
            continue
        busy = getattr(each, "busy_time", None)
        found[name] = DiskCounters(
            read_bytes=each.read_bytes,
            written_bytes=each.write_bytes,
            busy_seconds=None if busy is None else busy / 1000,
            queued_seconds=queues.get(name),
        )
    return found


def _queues() -> dict[str, float]:
    try:
        lines = DISK_STATISTICS.read_text(encoding="ascii").splitlines()
    except OSError:
        return {}
    rows = (line.split() for line in lines)
    return {
        row[2]: int(row[_WEIGHTED_MILLISECONDS]) / 1000
        for row in rows
        if len(row) > _WEIGHTED_MILLISECONDS
    }


def _networks(psutil: Any) -> dict[str, tuple[int, int]]:
    counters = psutil.net_io_counters(pernic=True, nowrap=False)
    return {name: (each.bytes_recv, each.bytes_sent) for name, each in counters.items()}


def _clock(psutil: Any) -> float | None:
    found = _asked(psutil.cpu_freq)
    return found.current or None if found is not None else None


def _own_trees(psutil: Any) -> tuple[float | None, Tree | None]:
    """Return this process's CPU seconds, and the tree of all that it has started."""
    try:
        own = psutil.Process()
        times = own.cpu_times()
        below = _tree(psutil, own.children(recursive=True))
    except psutil.Error:
        return None, None
    ended = times.children_user + times.children_system
    memory = None if below is None else below.memory_bytes
    seconds = ended + (below.seconds if below else 0.0)
    return times.user + times.system, Tree(seconds=seconds, memory_bytes=memory)


def _tree_of_roots(psutil: Any, roots: tuple[int, ...]) -> Tree | None:
    processes = []
    for pid in roots:
        try:
            root = psutil.Process(pid)
            processes += [root, *root.children(recursive=True)]
        except psutil.Error:
            continue
    return _tree(psutil, processes) if processes else None


def _tree(psutil: Any, processes: list[Any]) -> Tree | None:
    seconds, memory, known = 0.0, 0, False
    for each in processes:
        try:
            times = each.cpu_times()
        except psutil.Error:
            continue
        # What has ended below a process is in its own account once it has waited for it.
        seconds += times.user + times.system
        seconds += getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
        with suppress(psutil.Error):
            memory, known = memory + each.memory_info().rss, True
    return Tree(seconds=seconds, memory_bytes=memory if known else None)
