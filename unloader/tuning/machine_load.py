"""The load of the machine during a point of a sweep, from counters that are read once a second.

The counters of the kernel are read through psutil. An unreadable counter is left out, never zero.
Without psutil nothing is known. Counters only grow, so the figures of a whole point come from the
first reading and the last. The readings between are for memory.

The processes of a database on this machine are known by their names: all servers of the source's
kind count, with their parallel servers and writers. In-process databases have no processes.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from numa.model import Topology, TopologyError
from numa.topology import detect, throttling
from unloader.placement.evidence import node_times
from unloader.storage.storage_lookup import storage_at
from unloader.tuning.points import Load

try:
    import psutil
except ImportError:
    psutil = None

T = TypeVar("T")

INTERVAL_SECONDS = 1.0
_NAMES = {
    "postgresql": ("postgres", "postmaster"),
    "oracle": ("oracle", "ora_"),
    "mysql": ("mysqld", "mariadbd"),
}
"""First letters of the names of a server's processes, by kind of source."""

Counts: TypeAlias = dict[tuple[str, str], tuple[float, float]]
"""By kind and name of a resource: how much of it was used, and how much there was to use. The units
are the resource's own, and both figures only grow."""


class MeasuredLoad(Load, frozen=True, kw_only=True):
    """The load during a measurement, and the processes that used the CPUs; None is unknown.

    Shares are of the time of all CPUs. Workers that use the quota of our control group make `cpu`
    as high as the used share of the quota.
    """

    workers: float | None = None
    parent: float | None = None
    others: float | None = None
    """The database is among them where its processes are not known."""
    memory_bytes: int | None = None
    """The most of the workers together; pages that several share count for each."""


class Machine(Struct, frozen=True, kw_only=True):
    """What does not change while points are measured."""

    nodes: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """The CPUs of each NUMA node that are on, ours or not."""
    cpu_quota: float | None = None
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
    """Return the fixed properties of this machine, whose output goes to these directories."""
    links = {} if psutil is None else _asked(psutil.net_if_stats) or {}
    machine = Machine(
        output_disks=frozenset(filter(None, map(disk_of, directories))),
        # In megabits; 0 or -1 without a figure, as for the loopback interface.
        link_speeds={name: e.speed * 1e6 / 8 for name, e in links.items() if e.speed > 0},
    )
    try:
        topology = detect()
    except TopologyError:
        return machine
    return replace(
        machine,
        nodes={node.id: (*node.cpus, *node.cpus_denied) for node in topology.nodes if node.cpus},
        cpu_quota=topology.cpu_quota,
        cores=usable_cores(topology),
    )


def interface_of(address: str) -> str | None:
    """Return the network interface that has an address of this machine, if it is known."""
    found = {} if psutil is None else _asked(psutil.net_if_addrs) or {}
    has = (name for name, each in found.items() if address in [one.address for one in each])
    return next(has, None)


def bytes_received(interface: str | None) -> int | None:
    """Return the bytes that an interface has received since it exists, if they are known."""
    if psutil is None or interface is None:
        return None
    found = _asked(lambda: psutil.net_io_counters(pernic=True, nowrap=False)) or {}
    return found[interface].bytes_recv if interface in found else None


def disk_of(directory: str) -> str | None:
    """Return the disk of the nearest existing directory, if its file system has one."""
    disk = storage_at(directory).disk(directory)
    if disk is None:
        return None
    numbers = f"{os.major(disk[0])}:{os.minor(disk[0])}"
    try:
        real = Path(f"/sys/dev/block/{numbers}").resolve(strict=True)
    except OSError:
        return None
    # The folder of a partition is inside the folder of its disk.
    return real.parent.name if (real / "partition").exists() else real.name


def read_machine(machine: Machine, source_kind: str) -> tuple[Counts, int | None]:
    """Return the counts of the machine, and the bytes that the workers have resident."""
    if psutil is None:
        return {}, None
    at, found, memory = time.monotonic(), Counts(), None
    for node, (used, passed) in node_times(machine.nodes).items():
        ticks = os.sysconf("SC_CLK_TCK")
        found["node", str(node)] = used / ticks, passed / ticks
    busy, cpus = (sum(pair) for pair in zip(*found.values(), strict=True)) if found else (0, 0)
    if found:
        found["cpu", ""] = busy, cpus
    with suppress(psutil.Error):
        own = psutil.Process()
        times = own.cpu_times()
        below, memory = _use_of(own.children(recursive=True))
        workers = times.children_user + times.children_system + below
        found["parent", ""] = times.user + times.system, cpus
        found["workers", ""] = workers, cpus
        if machine.cpu_quota:
            used = workers + times.user + times.system
            found["quota", ""] = used, at * machine.cpu_quota
    names = _NAMES.get(source_kind, ())
    every = psutil.process_iter(["name"]) if names else ()
    if servers := [each for each in every if (each.info["name"] or "").startswith(names)]:
        found["database", ""] = _use_of(servers)[0], cpus
    for name, each in (
        _asked(lambda: psutil.disk_io_counters(perdisk=True, nowrap=False)) or {}
    ).items():
        if name in machine.output_disks and hasattr(each, "busy_time"):
            found["disk", name] = each.busy_time / 1000, at
    for name, each in (
        _asked(lambda: psutil.net_io_counters(pernic=True, nowrap=False)) or {}
    ).items():
        if (speed := machine.link_speeds.get(name)) is not None:
            found["network", f"to {name}"] = each.bytes_recv, at * speed
            found["network", f"from {name}"] = each.bytes_sent, at * speed
    throttled = _asked(lambda: throttling(Path("/sys/fs/cgroup"), Path("/proc"))) or {}
    for folder, (periods, used_up) in throttled.items():
        found["throttled", folder] = used_up, periods
    return found, memory


def _asked(question: Callable[[], T]) -> T | None:
    """Return the answer, or None if the system does not answer."""
    with suppress(OSError, NotImplementedError, AttributeError, RuntimeError, ValueError):
        return question()
    return None


def _use_of(processes: list[Any]) -> tuple[float, int | None]:
    """Return the CPU seconds of processes and of their ended children, and their memory."""
    seconds, memory = 0.0, None
    for each in processes:
        with suppress(psutil.Error):
            times = each.cpu_times()
            # A process counts an ended child after it has waited for it.
            seconds += times.user + times.system
            seconds += getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
            memory = (memory or 0) + each.memory_info().rss
    return seconds, memory


def load_between(before: Counts, after: Counts) -> MeasuredLoad:
    """Return the load of the machine between two readings; of several disks, the busiest one's."""
    shares = dict[str, Any]()
    for key in before.keys() & after.keys():
        used, whole = (now - was for was, now in zip(before[key], after[key], strict=True))
        if whole > 0:
            # Counters of CPUs tick coarsely, and at different times.
            share = min(1.0, max(0.0, used / whole))
            shares[key[0]] = max(share, shares.get(key[0], 0.0))
    if shares.keys() >= {"cpu", "workers", "parent"}:
        known = sum(shares.get(name, 0.0) for name in ("workers", "parent", "database"))
        shares["others"] = max(0.0, shares["cpu"] - known)
    if "cpu" in shares:
        shares["cpu"] = max(shares["cpu"], shares.get("quota", 0.0))
    shares.pop("quota", None)
    return MeasuredLoad(**shares)


class Sampler:
    """Watches the machine from `start` to `stop`, and the processes of a kind of database."""

    def __init__(
        self, machine: Machine, source_kind: str, *, interval_seconds: float = INTERVAL_SECONDS
    ) -> None:
        self._machine = machine
        self._kind = source_kind
        self._interval = interval_seconds
        self._readings: list[tuple[Counts, int | None]] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def start(self) -> None:
        self._readings.append(read_machine(self._machine, self._kind))
        self._thread.start()

    def stop(self) -> None:
        """End with a last look; may be called again, and without a start."""
        if self._readings:
            self._end.set()
            self._thread.join()

    def _run(self) -> None:
        over = False
        while not over:
            over = self._end.wait(self._interval)
            self._readings.append(read_machine(self._machine, self._kind))

    def load(self) -> MeasuredLoad:
        """Return the load of the machine; nothing is known without two readings."""
        if not self._readings:
            return MeasuredLoad()
        (first, _), (last, _) = self._readings[0], self._readings[-1]
        memory = (size for _, size in self._readings if size is not None)
        return replace(load_between(first, last), memory_bytes=max(memory, default=None))
