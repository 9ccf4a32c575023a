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
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from numa.errors import TopologyError
from numa.model import Topology
from numa.quota import throttling
from numa.topology import detect
from unloader.storage.storage_lookup import storage_at

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


class CpuTimes(Struct, frozen=True, kw_only=True):
    """Seconds of one CPU or of all since the machine was started; or shares of their time."""

    user: float
    system: float
    iowait: float
    idle: float
    stolen: float
    """Taken by the host of a virtual machine."""

    @property
    def busy(self) -> float:
        return self.user + self.system

    @property
    def total(self) -> float:
        return self.busy + self.iowait + self.idle + self.stolen


class DiskCounters(Struct, frozen=True, kw_only=True):
    """What one disk has done since the machine was started."""

    read_bytes: int
    written_bytes: int
    busy_seconds: float | None
    """In which it had something to do."""


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
    worker_seconds: float | None = None
    """CPU seconds of all that it has started, also of ended processes."""
    database_seconds: float | None = None
    memory_bytes: int | None = None
    """Resident, of the workers; pages that several of them share count for each."""


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

    cpu: CpuTimes | None
    """Shares of the time of all CPUs."""
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
    peak_memory_bytes: int | None
    """Of the workers together; pages that several share count for each."""


class Moment(Struct, frozen=True, kw_only=True):
    """One second of a point."""

    at_seconds: float
    """Since its beginning, at the end of this second."""
    nodes: tuple[NodeLoad, ...]
    memory_bytes: int | None


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


def read_machine(database_roots: tuple[int, ...] | None) -> Reading:
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
    return Reading(
        at=at,
        cpu=_asked(lambda: _cpu_times(psutil.cpu_times())),
        cpus=_asked(lambda: tuple(map(_cpu_times, psutil.cpu_times(percpu=True)))) or (),
        disks=_read_disks(),
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


def _read_disks() -> dict[str, DiskCounters]:
    counters = _asked(lambda: psutil.disk_io_counters(perdisk=True, nowrap=False)) or {}
    found = {}
    for name, each in counters.items():
        is_partition = Path(f"/sys/class/block/{name}/partition").exists()
        if name.startswith(("loop", "ram", "zram")) or is_partition:
            continue
        busy = getattr(each, "busy_time", None)
        found[name] = DiskCounters(
            read_bytes=each.read_bytes,
            written_bytes=each.write_bytes,
            busy_seconds=None if busy is None else busy / 1000,
        )
    return found


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


def load_between(
    before: Reading, after: Reading, machine: Machine, *, peak: int | None = None
) -> MachineLoad:
    """Return the load of the machine between two readings, with the peak of the memory."""
    seconds = max(after.at - before.at, 1e-9)
    cpu = used = None
    processes = ProcessShares(workers=None, parent=None, database=None, rest=None)
    if before.cpu and after.cpu and (total := after.cpu.total - before.cpu.total) > 0:
        names = CpuTimes.__struct_fields__
        grown = {name: getattr(after.cpu, name) - getattr(before.cpu, name) for name in names}
        cpu = CpuTimes(**{name: _share(each, total) for name, each in grown.items()})
        parent = _grown(before.parent_seconds, after.parent_seconds)
        workers = _grown(before.worker_seconds, after.worker_seconds)
        database = _grown(before.database_seconds, after.database_seconds)
        rest = after.cpu.busy - before.cpu.busy
        rest -= sum(each or 0.0 for each in (parent, workers, database))
        processes = ProcessShares(
            workers=None if workers is None else _share(workers, total),
            parent=None if parent is None else _share(parent, total),
            database=None if database is None else _share(database, total),
            rest=None if workers is None or parent is None else _share(rest, total),
        )
        # The two were rounded apart from one another.
        used = min(1.0, cpu.busy)
        if machine.cpu_quota and workers is not None:
            ours = workers + (parent or 0.0)
            used = max(used, _share(ours, seconds * machine.cpu_quota))
    throttled = []
    for name in before.throttled.keys() & after.throttled.keys():
        was, now = before.throttled[name], after.throttled[name]
        if now[0] > was[0]:
            throttled.append(_share(now[1] - was[1], now[0] - was[0]))
    networks = []
    for name in sorted(before.networks.keys() & after.networks.keys()):
        (received, sent), (received_now, sent_now) = before.networks[name], after.networks[name]
        received, sent = received_now - received, sent_now - sent
        speed = machine.link_speeds.get(name)
        if received or sent:
            networks.append(
                NetworkLoad(
                    name=name,
                    received_bytes_per_second=received / seconds,
                    sent_bytes_per_second=sent / seconds,
                    busy=_share(max(received, sent), speed * seconds) if speed else None,
                )
            )
    return MachineLoad(
        cpu=cpu,
        used=used,
        throttled=max(throttled, default=None),
        processes=processes,
        disks=tuple(_disks(before.disks, after.disks, seconds, machine.output_disks)),
        networks=tuple(networks),
        nodes=_nodes(before.cpus, after.cpus, machine),
        peak_memory_bytes=peak,
    )


def _nodes(
    before: Sequence[CpuTimes], after: Sequence[CpuTimes], machine: Machine
) -> tuple[NodeLoad, ...]:
    """Return how busy each node was; nothing where its CPUs cannot be told."""
    highest = max((cpu for _, cpus in machine.nodes for cpu in cpus), default=-1)
    if not (len(before) == len(after) > highest):
        return ()
    found = []
    for node, cpus in machine.nodes:
        total = sum(after[cpu].total - before[cpu].total for cpu in cpus)
        busy = sum(after[cpu].busy - before[cpu].busy for cpu in cpus)
        if total > 0:
            found.append(NodeLoad(node=node, busy=_share(busy, total)))
    return tuple(found)


def _disks(
    before: Mapping[str, DiskCounters],
    after: Mapping[str, DiskCounters],
    seconds: float,
    of_output: frozenset[str],
) -> list[DiskLoad]:
    found = []
    for name in sorted(before.keys() & after.keys()):
        was, now = before[name], after[name]
        read, written = now.read_bytes - was.read_bytes, now.written_bytes - was.written_bytes
        if not (read or written or name in of_output):
            continue
        busy = _grown(was.busy_seconds, now.busy_seconds)
        found.append(
            DiskLoad(
                name=name,
                read_bytes_per_second=read / seconds,
                write_bytes_per_second=written / seconds,
                busy=None if busy is None else _share(busy, seconds),
                of_output=name in of_output,
            )
        )
    return found


def _grown(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else max(0.0, after - before)


def _share(part: float, whole: float) -> float:
    # Counters of CPUs tick coarsely, and at different times.
    return min(1.0, max(0.0, part / whole))


class Sampler:
    """Watches the machine from `start` to `stop`."""

    def __init__(
        self, machine: Machine, source_kind: str, *, interval_seconds: float = INTERVAL_SECONDS
    ) -> None:
        """Prepare to watch the machine, and the processes of a kind of database."""
        self._machine = machine
        self._kind = source_kind
        self._interval = interval_seconds
        self._readings: list[Reading] = []
        self._roots: tuple[int, ...] | None = None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def start(self) -> None:
        """Begin with a first look."""
        self._readings.append(read_machine(None))
        self._thread.start()

    def stop(self) -> None:
        """End with a last look; may be called again, and without a start."""
        if self._end.is_set() or not self._readings:
            return
        self._end.set()
        self._thread.join()
        self._readings.append(read_machine(self._roots))

    def _run(self) -> None:
        wait, looks = min(_FIRST_SECONDS, self._interval), 0
        while not self._end.wait(wait):
            wait = self._interval
            if self._roots is None and looks < _LOOKS_FOR_DATABASE:
                looks += 1
                self._roots = database_roots(self._kind)
            self._readings.append(read_machine(self._roots))

    def load(self) -> MachineLoad | None:
        """Return the load of the machine; None without two readings."""
        if len(self._readings) < 2:
            return None
        first, last = self._readings[0], self._readings[-1]
        # The database counts from when its processes were first seen, if a later look has it, too.
        seen = [each.database_seconds for each in self._readings[:-1]]
        first = replace(first, database_seconds=next((s for s in seen if s is not None), None))
        memory = [e.memory_bytes for e in self._readings if e.memory_bytes is not None]
        return load_between(first, last, self._machine, peak=max(memory, default=None))

    def moments(self) -> tuple[Moment, ...]:
        """Return the seconds one by one."""
        found = []
        for before, after in zip(self._readings, self._readings[1:], strict=False):
            found.append(
                Moment(
                    at_seconds=after.at - self._readings[0].at,
                    nodes=_nodes(before.cpus, after.cpus, self._machine),
                    memory_bytes=after.memory_bytes,
                )
            )
        return tuple(found)


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
