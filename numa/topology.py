"""Reads the machine's NUMA nodes from sysfs, cut down to what this process may use.

Sources of truth: sysfs-devices-node and cputopology.rst of the kernel for the files, our affinity
mask for the CPUs, `Mems_allowed_list` for the memory. A file that seats depend on must be valid, or
an error names it; other files may be missing.

The folders `node/nodeN` have the CPUs of a node, its memory, and how far it is to the others. The
folder `cpu` has which CPUs are on, which share a core, the speed and package of each. Sources:
sysfs-devices-node, cputopology.rst, sysfs-devices-system-cpu and acpi/cppc_sysfs.rst of the kernel.
A machine may have 4,096 folders `cpuN`, so a file is read only where its answer is not known.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from numa.errors import TopologyError
from numa.kernel_files import cpu_list_text, not_understood, parse_cpu_list, text_of
from numa.model import Node, Topology
from numa.quota import cpu_quota

__all__ = ["cpu_list_text", "detect", "parse_cpu_list", "recorded"]

_MEMS_ALLOWED = re.compile(r"^Mems_allowed_list:(.*)$", re.MULTILINE)


class _Rights(Struct, frozen=True, kw_only=True):
    """What counts of the machine."""

    cpus: frozenset[int]
    """CPUs to keep; all are on."""
    online: frozenset[int] | None
    """CPUs of the machine that are on; None = all that are not off."""
    offline: frozenset[int]
    memory: frozenset[int] | None
    """Nodes whose memory is allowed; None = all."""


def detect(
    sysfs_root: Path = Path("/sys/devices/system"),
    *,
    allowed_cpus: frozenset[int] | None = None,
    cgroup_root: Path = Path("/sys/fs/cgroup"),
    proc_root: Path = Path("/proc"),
) -> Topology:
    """Return the NUMA nodes this process may use, lowest id first.

    CPUs are those in the node's `cpulist` that are on and allowed; one listed by two nodes (as
    with `numa=fake`) counts for the lowest. Nodes with neither CPUs nor memory for us are left
    out. A machine without the `node` folder yields one node with every allowed CPU and a note.

    Args:
        sysfs_root: Folder with `node/` and `cpu/`.
        allowed_cpus: CPUs to keep; None = the calling thread's affinity mask.
        cgroup_root: Where the control groups are mounted; for the CPU quota.
        proc_root: For `self/status` (allowed memory), `self/cgroup` and `self/mountinfo`.
    Raises:
        TopologyError: A file cannot be parsed; the message has the file and its text.
    """
    switches = read_switches(sysfs_root / "cpu")
    notes = list(switches.notes)
    allowed = own_cpus() if allowed_cpus is None else allowed_cpus
    # The mask holds only CPUs that are on, while lxcfs shows a container fewer than it may use.
    off = switches.offline - allowed if allowed_cpus is None else switches.offline
    if allowed <= off:
        off -= allowed
    elif allowed & off:
        notes.append(f"CPUs {cpu_list_text(allowed & off)} are switched off: not used")
    rights = _Rights(
        cpus=allowed - off,
        online=switches.online,
        offline=off,
        memory=_allowed_memory(proc_root),
    )
    quota = cpu_quota(cgroup_root, proc_root)
    return replace(_topology(sysfs_root, rights, notes), cpu_quota=quota)


def recorded(sysfs_root: Path, *, allowed_cpus: frozenset[int] | None = None) -> Topology:
    """Return the nodes of another machine, from a copy of its files.

    A quota and the limits of this process do not apply, and all memory is allowed.

    Args:
        sysfs_root: Folder laid out as /sys/devices/system, with `node/`, `cpu/` or both.
        allowed_cpus: CPUs to keep; None = all that are on.
    Raises:
        TopologyError: The folder is not there or holds neither, it names no CPU or none of those
            allowed, or a file cannot be parsed.
    """
    if not any(os.path.isdir(sysfs_root / name) for name in ("node", "cpu")):
        what = "has no node/ and no cpu/" if os.path.isdir(sysfs_root) else "is not a folder"
        raise TopologyError(
            f"{sysfs_root} {what}.", "give a folder with the layout of /sys/devices/system."
        )
    switches = read_switches(sysfs_root / "cpu")
    online = _online(sysfs_root, switches.online, switches.offline)
    allowed = online if allowed_cpus is None else allowed_cpus & online
    if not allowed:
        asked = "" if allowed_cpus is None else f" of {cpu_list_text(allowed_cpus)!r}"
        rest = f"; the CPUs {cpu_list_text(online)} are on" if online else ""
        instead = "allow some of these, or give" if online else "give"
        raise TopologyError(
            f"{sysfs_root} has no CPU{asked} that is on{rest}.",
            f"{instead} a whole copy of /sys/devices/system.",
        )
    notes = list(switches.notes)
    if allowed_cpus is not None and allowed < allowed_cpus:
        lacking = cpu_list_text(allowed_cpus - allowed)
        notes.append(f"CPUs {lacking} do not exist or are switched off: not used")
    rights = _Rights(cpus=allowed, online=switches.online, offline=switches.offline, memory=None)
    return _topology(sysfs_root, rights, notes)


def _topology(sysfs_root: Path, rights: _Rights, notes: list[str]) -> Topology:
    found, complaints = read_nodes(sysfs_root / "node")
    nodes = _nodes(sysfs_root / "cpu", found, rights)
    notes += complaints
    missing = rights.cpus.difference(*(node.cpus for node in nodes))
    where = sysfs_root / "node"
    if not nodes:
        notes.append(f"no NUMA information at {where}: treating the machine as one node")
    elif missing:
        use = "not used" if missing < rights.cpus else "treating the machine as one node"
        notes.append(f"CPUs {cpu_list_text(missing)} are in no node at {where}: {use}")
    if not missing < rights.cpus:
        nodes = (_one_node(sysfs_root / "cpu", rights.cpus),)
    return Topology(
        nodes=_by_speed(sysfs_root / "cpu", nodes),
        cpu_quota=None,
        note="; ".join(notes) or None,
        offline_cpus=tuple(sorted(rights.offline)),
    )


def _nodes(cpu_root: Path, found: tuple[NodeFiles, ...], rights: _Rights) -> tuple[Node, ...]:
    taken = set(rights.offline)
    nodes: list[Node] = []
    for files in found:
        mine = [cpu for cpu in files.listed_cpus if cpu not in taken]
        taken.update(mine)
        cpus = tuple(cpu for cpu in mine if cpu in rights.cpus)
        others = (cpu for cpu in mine if cpu not in rights.cpus)
        cores = cores_of(cpu_root, cpus)
        node = Node(
            id=files.id,
            cpus=cpus,
            memory_bytes=files.memory_bytes,
            distances=files.distances,
            cores=cores,
            package=package_of(cpu_root, cores),
            cpus_denied=tuple(
                cpu for cpu in others if rights.online is None or cpu in rights.online
            ),
            memory_allowed=rights.memory is None or files.id in rights.memory,
        )
        nodes.append(node)
    shown = [index for index, node in enumerate(nodes) if node.cpus or node.has_memory]
    if len(shown) == len(nodes):
        return tuple(nodes)
    return tuple(_with_distances(nodes[index], shown) for index in shown)


def _with_distances(node: Node, shown: list[int]) -> Node:
    """Cut the row of distances, which has every node, to the nodes shown."""
    if not node.distances:
        return node
    return replace(node, distances=tuple(node.distances[index] for index in shown))


def _one_node(cpu_root: Path, allowed: frozenset[int]) -> Node:
    cpus = tuple(sorted(allowed))
    cores = cores_of(cpu_root, cpus)
    return Node(
        id=0, cpus=cpus, memory_bytes=None, cores=cores, package=package_of(cpu_root, cores)
    )


def _by_speed(cpu_root: Path, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Put the fastest cores of each node first, if the machine has fast and slow ones."""
    speeds = speeds_of(cpu_root, (core for node in nodes for core in node.cores))
    if not speeds:
        return nodes
    sorted_nodes: list[Node] = []
    for node in nodes:
        cores = tuple(sorted(node.cores, key=lambda core: (-speeds[core], core)))
        in_order = tuple(speeds[core] for core in cores)
        sorted_nodes.append(replace(node, cores=cores, speeds=in_order))
    return tuple(sorted_nodes)


def _online(
    sysfs_root: Path, online: frozenset[int] | None, offline: frozenset[int]
) -> frozenset[int]:
    """The CPUs of a copied tree that are on, as well as it tells."""
    if online is not None:
        return online
    nodes, _ = read_nodes(sysfs_root / "node")
    listed = frozenset(cpu for node in nodes for cpu in node.listed_cpus)
    return (listed | cpu_folders(sysfs_root / "cpu")) - offline


def _allowed_memory(proc_root: Path) -> frozenset[int] | None:
    """Nodes whose memory our cpuset allows; None if the kernel does not say."""
    path = proc_root / "self" / "status"
    match = _MEMS_ALLOWED.search(text_of(path) or "")
    if match is None:
        return None
    try:
        return frozenset(parse_cpu_list(match[1]))
    except TopologyError:
        raise not_understood(path, "Mems_allowed_list", match[0]) from None


def own_cpus() -> frozenset[int]:
    """Return the CPUs that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


_NODE_FOLDER = re.compile(r"node(\d{1,7})", re.ASCII)
_ROW = re.compile(r"\s*(?:\d{1,7}(?:\s+|$))*", re.ASCII)
_MEM_TOTAL = re.compile(r"\bMemTotal:\s*(\d{1,18}) kB", re.ASCII)


class NodeFiles(Struct, frozen=True, kw_only=True):
    """One whole node of the machine, with CPUs that this process may not use."""

    id: int
    listed_cpus: tuple[int, ...]
    """The CPUs of `cpulist`; another node may list the same."""
    memory_bytes: int | None
    """None = there is no `meminfo`, or none that we may read."""
    distances: tuple[int, ...]
    """To each node that is returned, in that order; empty if not known."""


def read_nodes(node_root: Path) -> tuple[tuple[NodeFiles, ...], tuple[str, ...]]:
    """Return the nodes, lowest id first, and a line for each thing that is not as it should be.

    A node counts if it has a folder and is in the list `online`, should there be one.

    Raises:
        TopologyError: A file cannot be parsed; the message has the file and its text.
    """
    folders = _folder_ids(node_root)
    notes: list[str] = []
    online = _online_nodes(node_root, folders, notes)
    there = set(folders)
    ids = [node for node in online if node in there]
    nodes: list[NodeFiles] = []
    for node in ids:
        files = _node(f"{node_root}/node{node}", node, len(online), notes)
        if len(ids) < len(online):
            kept = tuple(
                d for other, d in zip(online, files.distances, strict=False) if other in there
            )
            files = replace(files, distances=kept)
        nodes.append(files)
    return tuple(nodes), tuple(notes)


def nodes_with_cpus(node_root: Path = Path("/sys/devices/system/node")) -> frozenset[int]:
    """Return the nodes of the machine that have a CPU that is on, ours or not.

    The others have memory only: of graphics cards, CXL devices, High Bandwidth Memory. Empty where
    the kernel does not say.

    Args:
        node_root: Folder with `has_cpu`, of kernel 2.6.24 and later.
    """
    try:
        return frozenset(parse_cpu_list(text_of(node_root / "has_cpu") or ""))
    except TopologyError:
        return frozenset()


def _node(folder: str, node: int, online: int, notes: list[str]) -> NodeFiles:
    listed = text_of(f"{folder}/cpulist")
    if listed is None:
        notes.append(f"node {node} has no readable cpulist, so it counts as a node without CPUs")
    row = _row(f"{folder}/distance")
    if row and len(row) != online:
        notes.append(f"node {node} gives {len(row)} distances to {online} nodes: not used")
        row = ()
    return NodeFiles(
        id=node,
        listed_cpus=_listed(f"{folder}/cpulist", listed or ""),
        memory_bytes=_memory_bytes(f"{folder}/meminfo"),
        distances=row,
    )


def _folder_ids(node_root: Path) -> tuple[int, ...]:
    try:
        names = os.listdir(node_root)
    except OSError:
        return ()
    return tuple(sorted(int(match[1]) for match in map(_NODE_FOLDER.fullmatch, names) if match))


def _online_nodes(node_root: Path, folders: tuple[int, ...], notes: list[str]) -> tuple[int, ...]:
    """The nodes that each row of distances is about, in its order."""
    text = text_of(node_root / "online")
    if text is None or not folders:
        return folders
    try:
        online = parse_cpu_list(text)
    except TopologyError:
        online = ()
    if not set(online).intersection(folders):
        notes.append(f"{node_root / 'online'} names none of the existing nodes: not used")
        return folders
    absent = set(online).difference(folders)
    if absent:
        shown = ",".join(map(str, sorted(absent)))
        notes.append(f"nodes {shown} are online but have no folder at {node_root}: not used")
    return online


def _listed(path: str, text: str) -> tuple[int, ...]:
    try:
        return parse_cpu_list(text)
    except TopologyError:
        raise not_understood(path, "CPU list", text) from None


def _memory_bytes(path: str) -> int | None:
    text = text_of(path)
    if text is None:
        return None
    match = _MEM_TOTAL.search(text)
    if match is None:
        raise not_understood(path, "MemTotal in kB", text)
    return int(match[1]) * 1024


def _row(path: str) -> tuple[int, ...]:
    text = text_of(path) or ""
    if not _ROW.fullmatch(text):
        raise not_understood(path, "row of distances", text)
    return tuple(map(int, text.split()))


_CPU_FOLDER = re.compile(r"cpu(\d{1,7})", re.ASCII)

Core = tuple[int, ...]
"""The CPUs of one physical core, ascending."""

_NUMBER = re.compile(r"\d{1,9}", re.ASCII)

# The names of kernel 5.x first, then the older ones.
_CORE_LISTS = ("core_cpus_list", "thread_siblings_list")
_PACKAGE_LISTS = ("package_cpus_list", "core_siblings_list")

# Arm's and RISC-V's scale first (since kernel 6.12 x86 has it, too), then the firmware's.
_SPEEDS = ("cpu_capacity", "acpi_cppc/highest_perf")

# Cores of one kind are ranked by their luck in manufacture, a boost step or two of 100 MHz apart:
# 2 to 4 %. Kinds of cores differ by a quarter or more. To sort by luck would only scatter the
# seats, so what differs by less than this counts as alike.
_ALIKE = 0.95


class Switches(Struct, frozen=True, kw_only=True):
    """Which CPUs of the machine are on and off."""

    online: frozenset[int] | None
    """None = the machine does not say."""
    offline: frozenset[int]
    """CPUs that are there but off."""
    notes: tuple[str, ...]
    """A line for each list that cannot be parsed."""


def read_switches(cpu_root: Path) -> Switches:
    """Return which CPUs are on and off. The kernel's `offline` also has places without a CPU."""
    notes: list[str] = []
    online, present, offline = (
        _listed_in(cpu_root / name, notes) for name in ("online", "present", "offline")
    )
    if online and present:
        offline = present - online
    elif offline and present:
        offline &= present
    if not online and not offline:
        # Kernels before 2.6.28 have no lists; a CPU that cannot be switched off has no file.
        folders = cpu_folders(cpu_root)
        offline = frozenset(c for c in folders if _is_off(f"{cpu_root}/cpu{c}/online"))
    return Switches(online=online or None, offline=offline or frozenset(), notes=tuple(notes))


def cpu_folders(cpu_root: Path) -> frozenset[int]:
    """Return the numbers of the folders `cpuN`, for a machine that names its CPUs nowhere else."""
    try:
        names = os.listdir(cpu_root)
    except OSError:
        return frozenset()
    return frozenset(int(match[1]) for match in map(_CPU_FOLDER.fullmatch, names) if match)


def _is_off(path: str) -> bool:
    return (text_of(path) or "").strip() == "0"


def _listed_in(path: Path, notes: list[str]) -> frozenset[int] | None:
    text = text_of(path)
    if text is None:
        return None
    try:
        return frozenset(parse_cpu_list(text))
    except TopologyError:
        notes.append(f"{path} does not contain a CPU list: {text.strip()[:40]!r}: not used")
        return None


def cores_of(cpu_root: Path, cpus: tuple[int, ...]) -> tuple[Core, ...]:
    """Group the CPUs by core, ascending; each CPU is in one core, also with wrong files.

    A CPU without topology files is a separate core. Other CPUs are left out.

    Raises:
        TopologyError: A list of siblings cannot be parsed; the message has the file and its text.
    """
    left = set(cpus)
    cores: list[Core] = []
    for cpu in cpus:
        if cpu in left:
            core = left.intersection(_list(f"{cpu_root}/cpu{cpu}/topology", _CORE_LISTS)) | {cpu}
            left -= core
            cores.append(tuple(sorted(core)))
    return tuple(sorted(cores))


def package_of(cpu_root: Path, cores: tuple[Core, ...]) -> int | None:
    """Return the package all the cores are in; None if not known, or several."""
    if not cores:
        return None
    folder = f"{cpu_root}/cpu{cores[0][0]}/topology"
    package = _number(f"{folder}/physical_package_id")
    if package is None:
        return None
    try:
        members = set(_list(folder, _PACKAGE_LISTS))
    except TopologyError:
        members = set()
    if members:
        return package if members.issuperset(chain.from_iterable(cores)) else None
    ids = (_number(f"{cpu_root}/cpu{core[0]}/topology/physical_package_id") for core in cores[1:])
    return package if all(other == package for other in ids) else None


def speeds_of(cpu_root: Path, cores: Iterable[Core]) -> Mapping[Core, int]:
    """Return the relative speed of each core; empty if all are alike or one is not known.

    Speeds that differ by less than 5 % are made equal.
    """
    wanted = tuple(cores)
    for name in _SPEEDS:
        found: dict[Core, int] = {}
        for core in wanted:
            speed = _number(f"{cpu_root}/cpu{core[0]}/{name}")
            if not speed:
                break
            found[core] = speed
        else:
            return _kinds(found)
    return {}


def _kinds(found: Mapping[Core, int]) -> Mapping[Core, int]:
    """Give each core the speed of the fastest that is like it."""
    kinds: dict[int, int] = {}
    fastest = 0
    for speed in sorted(set(found.values()), reverse=True):
        if speed < fastest * _ALIKE or not fastest:
            fastest = speed
        kinds[speed] = fastest
    if len(set(kinds.values())) < 2:
        return {}
    return {core: kinds[speed] for core, speed in found.items()}


def _list(folder: str, names: tuple[str, ...]) -> tuple[int, ...]:
    for name in names:
        text = text_of(f"{folder}/{name}")
        if text is not None and text.strip():
            try:
                return parse_cpu_list(text)
            except TopologyError:
                raise not_understood(f"{folder}/{name}", "CPU list", text) from None
    return ()


def _number(path: str) -> int | None:
    """The file's number; None for -1, as some virtual machines have it, and for garbage."""
    text = (text_of(path) or "").strip()
    return int(text) if _NUMBER.fullmatch(text) else None
