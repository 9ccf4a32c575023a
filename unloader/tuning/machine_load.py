"""The counters of the machine, and the load between two readings.

An unreadable counter reads None, never zero. Counters only grow, so that the difference of two
readings is exact at any distance. They are the counters of the kernel, read through psutil; the
length of the queue of a disk is read from /proc/diskstats, as psutil leaves it out. Without psutil
nothing is known.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from numa.errors import TopologyError
from numa.model import Topology
from numa.quota import throttling
from numa.topology import detect

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
    """CPU seconds, also of ended processes."""
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
        disks=_read_disks(psutil),
        networks=_asked(lambda: _read_networks(psutil)) or {},
        throttled=_asked(lambda: throttling(_CONTROL_GROUPS, Path("/proc"))) or {},
        parent_seconds=own,
        workers=below,
        database=None if database_roots is None else _tree_of_roots(psutil, database_roots),
        clock_mhz=_clock(psutil),
    )


def disk_of(directory: str) -> str | None:
    """Return the disk that a directory, or the nearest existing one above it, is on.

    None for a file system without a disk.
    """
    path = Path(directory).absolute()
    while not path.exists() and path != path.parent:
        path = path.parent
    try:
        device = path.stat().st_dev
        real = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve(strict=True)
    except OSError:
        return None
    # The folder of a partition is inside the folder of its disk.
    return real.parent.name if (real / "partition").exists() else real.name


def link_speeds() -> dict[str, float]:
    """Return the bytes per second that each network interface can carry, where it tells."""
    psutil = psutil_or_none()
    found = {} if psutil is None else _asked(psutil.net_if_stats) or {}
    # In megabits; 0 or -1 without a figure, as for the loopback interface.
    return {name: each.speed * 1e6 / 8 for name, each in found.items() if each.speed > 0}


def _asked(question: Any) -> Any:
    """Return the answer, or None if the system does not answer."""
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


def _read_disks(psutil: Any) -> dict[str, DiskCounters]:
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


def _read_networks(psutil: Any) -> dict[str, tuple[int, int]]:
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
        # A process counts an ended child after it has waited for it.
        seconds += times.user + times.system
        seconds += getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
        with suppress(psutil.Error):
            memory, known = memory + each.memory_info().rss, True
    return Tree(seconds=seconds, memory_bytes=memory if known else None)


class CpuShares(Struct, frozen=True, kw_only=True):
    """Of the time of all CPUs of the machine."""

    user: float
    system: float
    iowait: float
    idle: float
    stolen: float
    """Taken by the host of a virtual machine."""


class ProcessShares(Struct, frozen=True, kw_only=True):
    """Who has used the CPUs, as shares of the time of all of them."""

    workers: float | None
    parent: float | None
    database: float | None
    """Its processes on this machine; None without any, or if they are unknown."""
    rest: float | None
    """All others; the database is among them where it cannot be told."""


class DiskLoad(Struct, frozen=True, kw_only=True):
    """One disk."""

    name: str
    read_bytes_per_second: float
    write_bytes_per_second: float
    busy: float | None
    """Share of the time in which it had something to do."""
    queue: float | None
    """Requests that were not done yet, on average."""
    of_output: bool
    """Files of the run go to it."""


class NetworkLoad(Struct, frozen=True, kw_only=True):
    """One network interface."""

    name: str
    received_bytes_per_second: float
    sent_bytes_per_second: float
    busy: float | None
    """Share of the link's capacity, in the busier direction; None if the capacity is unknown."""


class NodeLoad(Struct, frozen=True, kw_only=True):
    """One NUMA node."""

    node: int
    busy: float
    """Share of the time of its CPUs."""


class MachineLoad(Struct, frozen=True, kw_only=True):
    """The load of the machine in some seconds. None marks an unknown figure."""

    cpu: CpuShares | None
    used: float | None
    """Share of the CPUs that were busy; of the quota of our control group, if that is more."""
    throttled: float | None
    """Share of the periods of such a quota in which it was used up; None without a quota."""
    processes: ProcessShares
    disks: tuple[DiskLoad, ...]
    """The active ones, and the disks of the output."""
    networks: tuple[NetworkLoad, ...]
    """The active ones."""
    nodes: tuple[NodeLoad, ...]
    clock_mhz: float | None
    """Mean over the time."""
    peak_memory_bytes: int | None
    """Of workers and parent together; pages that several share count for each."""


class Machine(Struct, frozen=True, kw_only=True):
    """What does not change while points are measured."""

    nodes: tuple[tuple[int, tuple[int, ...]], ...]
    """Number of each NUMA node, and the places of its CPUs among the CPUs that are on."""
    cpu_quota: float | None
    """CPUs that our control group grants; None is all."""
    output_disks: frozenset[str]
    link_speeds: Mapping[str, float] = field(default_factory=dict)
    """Bytes per second that network interfaces can carry, if they report it."""
    cores: int | None = None
    """That may be used, threads of one core counted once."""


def usable_cores(topology: Topology) -> int:
    """Return the number of cores that may be used; threads of one core are counted once."""
    # A node that does not tell its cores has one for each of its CPUs.
    cores = sum(len(node.cores or node.cpus) for node in topology.nodes)
    return max(1, min(topology.usable_cpus, cores))


def machine_of(directories: Sequence[str]) -> Machine:
    """Return the fixed properties of this machine.

    Args:
        directories: Where output goes.
    """
    disks = frozenset(filter(None, map(disk_of, directories)))
    try:
        topology = detect()
    except TopologyError:
        return Machine(nodes=(), cpu_quota=None, output_disks=disks, link_speeds=link_speeds())
    known = {cpu for node in topology.nodes for cpu in (*node.cpus, *node.cpus_denied)}
    places = {cpu: place for place, cpu in enumerate(sorted(known))}
    nodes = tuple(
        (node.id, tuple(places[cpu] for cpu in (*node.cpus, *node.cpus_denied)))
        for node in topology.nodes
        if node.cpus
    )
    return Machine(
        nodes=nodes,
        cpu_quota=topology.cpu_quota,
        output_disks=disks,
        link_speeds=link_speeds(),
        cores=usable_cores(topology),
    )


def load_between(
    before: Reading, after: Reading, machine: Machine, *, clock_mhz: float | None, peak: int | None
) -> MachineLoad:
    """Return the load of the machine between two readings.

    Args:
        before: The first one.
        after: The second one.
        machine: It.
        clock_mhz: Mean of the clock over all looks.
        peak: The most memory that was seen in any look.
    """
    seconds = max(after.at - before.at, 1e-9)
    cpu = _cpu(before.cpu, after.cpu)
    total = _spent(before.cpu, after.cpu)
    processes = _processes(before, after, total)
    return MachineLoad(
        cpu=cpu,
        used=_used(cpu, processes, total, seconds, machine.cpu_quota),
        throttled=_throttled(before.throttled, after.throttled),
        processes=processes,
        disks=_disks(before.disks, after.disks, seconds, machine.output_disks),
        networks=_networks(before, after, seconds, machine.link_speeds),
        nodes=nodes_between(before, after, machine),
        clock_mhz=clock_mhz,
        peak_memory_bytes=peak,
    )


def nodes_between(before: Reading, after: Reading, machine: Machine) -> tuple[NodeLoad, ...]:
    """Return how busy each node was; nothing where its CPUs cannot be told."""
    highest = max((cpu for _, cpus in machine.nodes for cpu in cpus), default=-1)
    if not (len(before.cpus) == len(after.cpus) > highest):
        return ()
    found = []
    for node, cpus in machine.nodes:
        total = sum(after.cpus[cpu].total - before.cpus[cpu].total for cpu in cpus)
        busy = sum(after.cpus[cpu].busy - before.cpus[cpu].busy for cpu in cpus)
        if total > 0:
            found.append(NodeLoad(node=node, busy=_share(busy, total)))
    return tuple(found)


def _spent(before: CpuTimes | None, after: CpuTimes | None) -> float:
    return after.total - before.total if before is not None and after is not None else 0.0


def _cpu(before: CpuTimes | None, after: CpuTimes | None) -> CpuShares | None:
    total = _spent(before, after)
    if before is None or after is None or total <= 0:
        return None
    return CpuShares(
        user=_share(after.user - before.user, total),
        system=_share(after.system - before.system, total),
        iowait=_share(after.iowait - before.iowait, total),
        idle=_share(after.idle - before.idle, total),
        stolen=_share(after.stolen - before.stolen, total),
    )


def _used(
    cpu: CpuShares | None,
    processes: ProcessShares,
    total: float,
    seconds: float,
    quota: float | None,
) -> float | None:
    if cpu is None:
        return None
    # The two were rounded apart from one another.
    busy = min(1.0, cpu.user + cpu.system)
    if not quota or processes.workers is None:
        return busy
    ours = (processes.workers + (processes.parent or 0.0)) * total / seconds
    return min(1.0, max(busy, ours / quota))


def _processes(before: Reading, after: Reading, total: float) -> ProcessShares:
    if total <= 0 or before.cpu is None or after.cpu is None:
        return ProcessShares(workers=None, parent=None, database=None, rest=None)
    parent = _grown(before.parent_seconds, after.parent_seconds)
    workers = _grown(_seconds(before.workers), _seconds(after.workers))
    database = _grown(_seconds(before.database), _seconds(after.database))
    busy = after.cpu.busy - before.cpu.busy
    known = sum(each or 0.0 for each in (parent, workers, database))
    return ProcessShares(
        workers=None if workers is None else _share(workers, total),
        parent=None if parent is None else _share(parent, total),
        database=None if database is None else _share(database, total),
        rest=None if workers is None or parent is None else _share(busy - known, total),
    )


def _seconds(tree: Tree | None) -> float | None:
    return None if tree is None else tree.seconds


def _grown(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else max(0.0, after - before)


def _disks(
    before: Mapping[str, DiskCounters],
    after: Mapping[str, DiskCounters],
    seconds: float,
    of_output: frozenset[str],
) -> tuple[DiskLoad, ...]:
    found = []
    for name in sorted(before.keys() & after.keys()):
        was, now = before[name], after[name]
        read, written = now.read_bytes - was.read_bytes, now.written_bytes - was.written_bytes
        if not (read or written or name in of_output):
            continue
        busy = _grown(was.busy_seconds, now.busy_seconds)
        queued = _grown(was.queued_seconds, now.queued_seconds)
        found.append(
            DiskLoad(
                name=name,
                read_bytes_per_second=read / seconds,
                write_bytes_per_second=written / seconds,
                busy=None if busy is None else _share(busy, seconds),
                queue=None if queued is None else queued / seconds,
                of_output=name in of_output,
            )
        )
    return tuple(found)


def _networks(
    before: Reading, after: Reading, seconds: float, speeds: Mapping[str, float]
) -> tuple[NetworkLoad, ...]:
    found = []
    for name in sorted(before.networks.keys() & after.networks.keys()):
        received, sent = (
            now - was for was, now in zip(before.networks[name], after.networks[name], strict=True)
        )
        if received or sent:
            found.append(
                NetworkLoad(
                    name=name,
                    received_bytes_per_second=received / seconds,
                    sent_bytes_per_second=sent / seconds,
                    busy=_share(max(received, sent), speeds[name] * seconds)
                    if name in speeds
                    else None,
                )
            )
    return tuple(found)


def _throttled(
    before: Mapping[str, tuple[int, int]], after: Mapping[str, tuple[int, int]]
) -> float | None:
    """Return the largest share of any control group; None where none counts."""
    shares = []
    for name in before.keys() & after.keys():
        periods, used_up = (now - was for was, now in zip(before[name], after[name], strict=True))
        if periods > 0:
            shares.append(_share(used_up, periods))
    return max(shares, default=None)


def _share(part: float, whole: float) -> float:
    # Counters of CPUs tick coarsely, and at different times.
    return min(1.0, max(0.0, part / whole))
