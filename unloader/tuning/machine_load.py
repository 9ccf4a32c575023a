"""The load of the machine during a point of a sweep, from counters that are read once a second.

The counters of the kernel are read through psutil. An unreadable counter reads None, never zero.
Without psutil nothing is known. Counters only grow, so the figures of a whole point come from the
first reading and the last. The readings between are for memory, and for the curve over time.

The sessions of our workers lead to the processes of a database on this machine: the other end of a
connection is one of them. All processes that the same server has started count, also for our
sessions: parallel servers and writers. In-process databases have no separate processes.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from numa.errors import TopologyError
from numa.model import Topology
from numa.quota import throttling
from numa.topology import detect
from unloader.storage.storage_lookup import storage_at
from unloader.tuning.points import Load

try:
    import psutil
except ImportError:
    psutil = None

T = TypeVar("T")

INTERVAL_SECONDS = 1.0
_FIRST_SECONDS = 0.2
"""Sessions are open by then; a short point would be over before the first second is."""
_LOOKS_FOR_DATABASE = 5
"""Sessions are open within the first seconds, and looking for them takes tenths of one."""

_IN_PROCESS = ("duckdb", "sqlite")
"""Kinds whose database is a library of the workers."""
_NAMES = {"postgresql": ("postgres", "postmaster"), "oracle": ("oracle", "ora_")}
"""First letters of the names of a server's processes, by kind of source: for processes whose owner
is unknown, and for connections without addresses."""

CpuTime = tuple[float, float]
"""Busy seconds since the machine was started, and all seconds."""


class Reading(Struct, frozen=True, kw_only=True):
    """One look at everything."""

    at: float
    """By `time.monotonic`."""
    cpu: CpuTime | None = None
    cpus: tuple[CpuTime, ...] = ()
    """Of each CPU that is on, by number."""
    disks: Mapping[str, float] = field(default_factory=dict)
    """Seconds in which each disk of the output was busy."""
    networks: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Bytes received and sent, by interface."""
    throttled: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """By control group with a CPU quota: periods of it, and those in which it was used up."""
    parent_seconds: float | None = None
    """CPU seconds of the process that steers the runs."""
    worker_seconds: float | None = None
    """CPU seconds of all that it has started, also of ended processes."""
    database_seconds: float | None = None
    memory_bytes: int | None = None
    """Resident, of the workers; pages that several of them share count for each."""


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


class Moment(Struct, frozen=True, kw_only=True):
    """One second of a point."""

    at_seconds: float
    """Since its beginning, at the end of this second."""
    cpu_by_node: dict[str, float]
    """Share of the time of the CPUs of each NUMA node; empty if it is unknown."""


class Machine(Struct, frozen=True, kw_only=True):
    """What does not change while points are measured."""

    nodes: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """Number of each NUMA node, and the places of its CPUs among the CPUs that are on."""
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
    cpus_of = {node.id: (*node.cpus, *node.cpus_denied) for node in topology.nodes if node.cpus}
    known = sorted({c for node in topology.nodes for c in (*node.cpus, *node.cpus_denied)})
    places = {cpu: place for place, cpu in enumerate(known)}
    return replace(
        machine,
        nodes=tuple((node, tuple(places[cpu] for cpu in cpus)) for node, cpus in cpus_of.items()),
        cpu_quota=topology.cpu_quota,
        cores=usable_cores(topology),
    )


def disk_of(directory: str) -> str | None:
    """Return the disk that a directory, or the nearest existing one above it, is on.

    None for a file system without a disk.
    """
    disk = storage_at(directory).disk(directory)
    if disk is None:
        return None
    numbers = f"{os.major(disk.number)}:{os.minor(disk.number)}"
    try:
        real = Path(f"/sys/dev/block/{numbers}").resolve(strict=True)
    except OSError:
        return None
    # The folder of a partition is inside the folder of its disk.
    return real.parent.name if (real / "partition").exists() else real.name


def read_machine(machine: Machine, database_roots: tuple[int, ...] | None) -> Reading:
    """Look at the machine, and at the trees of the database's processes if they are known."""
    at = time.monotonic()
    if psutil is None:
        return Reading(at=at)
    parent = workers = memory = database = None
    with suppress(psutil.Error):
        own = psutil.Process()
        times = own.cpu_times()
        below, memory = _use_of(own.children(recursive=True))
        parent = times.user + times.system
        workers = times.children_user + times.children_system + below
    if database_roots is not None:
        processes = []
        for pid in database_roots:
            with suppress(psutil.Error):
                root = psutil.Process(pid)
                processes += [root, *root.children(recursive=True)]
        database = _use_of(processes)[0] if processes else None
    sent = _asked(lambda: psutil.net_io_counters(pernic=True, nowrap=False)) or {}
    disks = _asked(lambda: psutil.disk_io_counters(perdisk=True, nowrap=False)) or {}
    return Reading(
        at=at,
        cpu=_asked(lambda: _cpu_time(psutil.cpu_times())),
        cpus=_asked(lambda: tuple(map(_cpu_time, psutil.cpu_times(percpu=True)))) or (),
        disks={
            name: each.busy_time / 1000
            for name, each in disks.items()
            if name in machine.output_disks and hasattr(each, "busy_time")
        },
        networks={name: (each.bytes_recv, each.bytes_sent) for name, each in sent.items()},
        throttled=_asked(lambda: throttling(Path("/sys/fs/cgroup"), Path("/proc"))) or {},
        parent_seconds=parent,
        worker_seconds=workers,
        database_seconds=database,
        memory_bytes=memory,
    )


def _asked(question: Callable[[], T]) -> T | None:
    """Return the answer, or None if the system does not answer."""
    with suppress(OSError, NotImplementedError, AttributeError, RuntimeError, ValueError):
        return question()
    return None


def _cpu_time(times: Any) -> CpuTime:
    # Not every system reports all of them. Guests are counted in user already.
    known = times._asdict()
    busy = sum(known.get(each, 0.0) for each in ("user", "nice", "system", "irq", "softirq"))
    return busy, busy + sum(known.get(each, 0.0) for each in ("iowait", "idle", "steal"))


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


def load_between(before: Reading, after: Reading, machine: Machine) -> MeasuredLoad:
    """Return the load of the machine between two readings."""
    seconds = max(after.at - before.at, 1e-9)
    cpu = others = None
    shares: list[float | None] = [None, None, None]
    if before.cpu and after.cpu and (total := after.cpu[1] - before.cpu[1]) > 0:
        used: list[float | None] = []
        for name in ("worker_seconds", "parent_seconds", "database_seconds"):
            was, now = getattr(before, name), getattr(after, name)
            used.append(None if was is None or now is None else max(0.0, now - was))
        busy = after.cpu[0] - before.cpu[0]
        cpu, shares = _share(busy, total), [e if e is None else _share(e, total) for e in used]
        if used[0] is not None and used[1] is not None:
            others = _share(busy - sum(filter(None, used)), total)
        if machine.cpu_quota and used[0] is not None:
            cpu = max(cpu, _share(used[0] + (used[1] or 0.0), seconds * machine.cpu_quota))
    throttled = []
    for name in before.throttled.keys() & after.throttled.keys():
        periods = after.throttled[name][0] - before.throttled[name][0]
        if periods > 0:
            throttled.append(_share(after.throttled[name][1] - before.throttled[name][1], periods))
    links = []
    for name in machine.link_speeds.keys() & before.networks.keys() & after.networks.keys():
        ways = zip(before.networks[name], after.networks[name], strict=True)
        moved = max(now - was for was, now in ways)
        if moved:
            links.append(_share(moved, machine.link_speeds[name] * seconds))
    disks = before.disks.keys() & after.disks.keys()
    return MeasuredLoad(
        cpu=cpu,
        node=max(cpu_by_node(before, after, machine).values(), default=None),
        disk=max((_share(after.disks[d] - before.disks[d], seconds) for d in disks), default=None),
        network=max(links, default=None),
        throttled=max(throttled, default=None),
        workers=shares[0],
        parent=shares[1],
        database=shares[2],
        others=others,
    )


def cpu_by_node(before: Reading, after: Reading, machine: Machine) -> dict[str, float]:
    """Return how busy each NUMA node was; empty if its CPUs cannot be identified."""
    highest = max((cpu for _, cpus in machine.nodes for cpu in cpus), default=-1)
    if not (len(before.cpus) == len(after.cpus) > highest):
        return {}
    found = {}
    for node, cpus in machine.nodes:
        busy = sum(after.cpus[cpu][0] - before.cpus[cpu][0] for cpu in cpus)
        total = sum(after.cpus[cpu][1] - before.cpus[cpu][1] for cpu in cpus)
        if total > 0:
            found[str(node)] = _share(busy, total)
    return found


def _share(part: float, whole: float) -> float:
    # Counters of CPUs tick coarsely, and at different times.
    return min(1.0, max(0.0, part / whole))


class Sampler:
    """Watches the machine from `start` to `stop`, and the processes of a kind of database."""

    def __init__(
        self, machine: Machine, source_kind: str, *, interval_seconds: float = INTERVAL_SECONDS
    ) -> None:
        self._machine = machine
        self._kind = source_kind
        self._interval = interval_seconds
        self._readings: list[Reading] = []
        self._roots: tuple[int, ...] | None = None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def start(self) -> None:
        """Begin with a first look."""
        self._readings.append(read_machine(self._machine, None))
        self._thread.start()

    def stop(self) -> None:
        """End with a last look; may be called again, and without a start."""
        if self._end.is_set() or not self._readings:
            return
        self._end.set()
        self._thread.join()
        self._readings.append(read_machine(self._machine, self._roots))

    def _run(self) -> None:
        wait, looks = min(_FIRST_SECONDS, self._interval), 0
        while not self._end.wait(wait):
            wait = self._interval
            if self._roots is None and looks < _LOOKS_FOR_DATABASE:
                looks += 1
                self._roots = database_roots(self._kind)
            self._readings.append(read_machine(self._machine, self._roots))

    def load(self) -> MeasuredLoad:
        """Return the load of the machine; nothing is known without two readings."""
        if len(self._readings) < 2:
            return MeasuredLoad()
        first, last = self._readings[0], self._readings[-1]
        # The database counts from when its processes were first seen, if a later look has it, too.
        seen = [each.database_seconds for each in self._readings[:-1]]
        first = replace(first, database_seconds=next((s for s in seen if s is not None), None))
        memory = [e.memory_bytes for e in self._readings if e.memory_bytes is not None]
        found = load_between(first, last, self._machine)
        return replace(found, memory_bytes=max(memory, default=None))

    def moments(self) -> tuple[Moment, ...]:
        """Return the seconds one by one."""
        return tuple(
            Moment(
                at_seconds=after.at - self._readings[0].at,
                cpu_by_node=cpu_by_node(before, after, self._machine),
            )
            for before, after in pairwise(self._readings)
        )


def database_roots(kind: str) -> tuple[int, ...] | None:
    """Return the ids of the root processes of the database, whose sessions must be open.

    None if the database is not on this machine, or cannot be found.
    """
    if psutil is None or kind in _IN_PROCESS:
        return None
    try:
        own = psutil.Process()
        ours = {own.pid, *(each.pid for each in own.children(recursive=True))}
        # The programs that started us are not a database, even if our connections lead to them;
        # their connections are not sessions.
        known = ours.union(each.pid for each in own.parents())
    except (psutil.Error, OSError):
        return None
    try:
        connections = list(psutil.net_connections(kind="inet"))
    except (psutil.Error, OSError, RuntimeError, ValueError):
        # Tables of the kernel may change while psutil reads them.
        connections = []
    sessions = [(each.laddr, each.raddr) for each in connections if each.pid in ours and each.raddr]
    ends = {
        each.pid
        for each in connections
        if (each.raddr, each.laddr) in sessions and each.pid not in known
    }
    found = {pid for pid in ends if pid is not None}
    if not found and (None in ends or (not sessions and kind == "postgresql")):
        found = _named(kind)
    roots = set[int]()
    for pid in found:
        # Each process of Oracle is a child of the system.
        if kind == "oracle" and (named := _named(kind)):
            roots |= {pid, *named}
            continue
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            name = process.name()
            while (parent := process.parent()) is not None and parent.pid not in known:
                if parent.name() != name:
                    break
                process = parent
            roots.add(process.pid)
    return tuple(sorted(roots - known)) or None


def _named(kind: str) -> set[int]:
    names = _NAMES.get(kind, ())
    found = psutil.process_iter(["name"]) if names else ()
    return {each.pid for each in found if (each.info["name"] or "").startswith(names)}
