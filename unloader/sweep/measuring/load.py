"""What the difference of two looks at the machine says: shares of CPUs, rates, queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from unloader.sweep.measuring.readings import CpuTimes, DiskCounters, Reading, Tree


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
    """Its processes on this machine; None where it has none, or they cannot be told."""
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
    """Share of what the link carries, of the direction with more; None where it does not tell."""


class NodeLoad(Struct, frozen=True, kw_only=True):
    """One NUMA node."""

    node: int
    busy: float
    """Share of the time of its CPUs."""


class MachineLoad(Struct, frozen=True, kw_only=True):
    """What the machine did in some seconds. What could not be read is None."""

    cpu: CpuShares | None
    used: float | None
    """Share of the CPUs that were busy; of the quota of our control group, if that is more."""
    throttled: float | None
    """Share of the periods of such a quota in which it was used up; None without a quota."""
    processes: ProcessShares
    disks: tuple[DiskLoad, ...]
    """Those that did something, and those of the output."""
    networks: tuple[NetworkLoad, ...]
    """Those that did something."""
    nodes: tuple[NodeLoad, ...]
    clock_mhz: float | None
    """Mean over the time."""
    peak_memory_bytes: int | None
    """Of workers and parent together; pages that several share count for each."""


class Machine(Struct, frozen=True, kw_only=True):
    """What does not change while points are measured."""

    nodes: tuple[tuple[int, tuple[int, ...]], ...]
    """Of each NUMA node its number, and the places of its CPUs among those that are on."""
    cpu_quota: float | None
    """CPUs that our control group grants; None is all."""
    output_disks: frozenset[str]
    link_speeds: Mapping[str, float] = field(default_factory=dict)
    """Bytes per second that network interfaces can carry, of those that tell."""
    cores: int | None = None
    """That may be used, threads of one core counted once."""


def machine_of(directories: Sequence[str]) -> Machine:
    """Return what is known of this machine.

    Args:
        directories: Where output goes.
    """
    from numa.errors import TopologyError
    from numa.topology import detect
    from unloader.sweep.measuring.readings import disk_of, link_speeds
    from unloader.tuning.efficiency import this_machine

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
        cores=this_machine(topology).cores,
    )


def load_between(
    before: Reading, after: Reading, machine: Machine, *, clock_mhz: float | None, peak: int | None
) -> MachineLoad:
    """Return what the machine did between two looks.

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
    # Counters of CPUs tick coarsely, and not all at once.
    return min(1.0, max(0.0, part / whole))
