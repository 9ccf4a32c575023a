"""Reads the machine's NUMA nodes from sysfs, cut down to what this process may use.

The folders `node/nodeN` have the CPUs of a node, its memory, and how far it is to the others. The
folder `cpu` has which CPUs are on, which share a core, the speed and package of each. Sources:
sysfs-devices-node, cputopology.rst, sysfs-devices-system-cpu and acpi/cppc_sysfs.rst of the kernel;
our affinity mask for the CPUs, `Mems_allowed_list` for the memory. A file that seats depend on must
be valid, or a `TopologyError` names it and its text; other files may be missing. A machine may have
4,096 folders `cpuN`, so a file is read only where its answer is not known.

The CPU quota comes from our control group: `cpu.max` (v2) or `cpu.cfs_quota_us` (v1). Neither the
affinity mask nor `os.cpu_count()` shows it. Sources: the kernel's cgroup-v2.rst and sched-bwc.rst;
cgroup_namespaces(7) for what a container sees.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from msgspec.structs import replace

from numa.kernel_files import cpu_list_text, mounts, not_understood, parse_cpu_list, text_of
from numa.model import Node, Topology, TopologyError

Core: TypeAlias = tuple[int, ...]
"""The CPUs of one physical core, ascending."""

_MEMS_ALLOWED = re.compile(r"^Mems_allowed_list:(.*)$", re.MULTILINE)
_ROW = re.compile(r"\s*(?:\d{1,7}(?:\s+|$))*", re.ASCII)
_MEM_TOTAL = re.compile(r"\bMemTotal:\s*(\d{1,18}) kB", re.ASCII)
_NUMBER = re.compile(r"\d{1,9}", re.ASCII)
_COUNT = re.compile(r"\d{1,18}", re.ASCII)

# The names of kernel 5.x first, then the older ones.
_CORE_LISTS = ("core_cpus_list", "thread_siblings_list")
_PACKAGE_LISTS = ("package_cpus_list", "core_siblings_list")

# Arm's and RISC-V's scale first (since kernel 6.12 x86 has it, too), then the firmware's.
_SPEEDS = ("cpu_capacity", "acpi_cppc/highest_perf")

# Cores of one kind are ranked by their luck in manufacture, a boost step or two of 100 MHz apart:
# 2 to 4 %. Kinds of cores differ by a quarter or more. To sort by luck would only scatter the
# seats, so what differs by less than this counts as alike.
_ALIKE = 0.95


def detect(
    sysfs_root: Path = Path("/sys/devices/system"),
    *,
    allowed_cpus: frozenset[int] | None = None,
    cgroup_root: Path = Path("/sys/fs/cgroup"),
    proc_root: Path = Path("/proc"),
) -> Topology:
    """Return the NUMA nodes this process may use, lowest id first.

    CPUs are those in the node's `cpulist` that are on and in `allowed_cpus`, which is the calling
    thread's affinity mask by default. One listed by two nodes (as with `numa=fake`) counts for the
    lowest. Nodes with neither CPUs nor memory for us are left out. A machine without the `node`
    folder is one node with every allowed CPU, and a note. A file that cannot be parsed is a
    `TopologyError`.
    """
    notes: list[str] = []
    online, off = _switches(sysfs_root / "cpu", notes)
    allowed = own_cpus() if allowed_cpus is None else allowed_cpus
    if allowed_cpus is None:
        # The mask holds only CPUs that are on, while lxcfs shows a container fewer than it may use.
        off -= allowed
    if allowed <= off:
        off -= allowed
    elif allowed & off:
        notes.append(f"CPUs {cpu_list_text(allowed & off)} are switched off: not used")
    path = proc_root / "self" / "status"
    match = _MEMS_ALLOWED.search(text_of(path) or "")
    try:
        memory = None if match is None else frozenset(parse_cpu_list(match[1]))
    except TopologyError:
        raise not_understood(path, "Mems_allowed_list", match[0] if match else "") from None
    topology = _topology(sysfs_root, allowed - off, online, off, memory, notes)
    return replace(topology, cpu_quota=cpu_quota(cgroup_root, proc_root))


def recorded(sysfs_root: Path, *, allowed_cpus: frozenset[int] | None = None) -> Topology:
    """Return the nodes of another machine, from a copy of its files.

    A quota and the limits of this process do not apply, and all memory is allowed. Where the folder
    or its CPUs are missing, or a file cannot be parsed, a `TopologyError` is raised.
    """
    if not any(os.path.isdir(sysfs_root / name) for name in ("node", "cpu")):
        what = "has no node/ and no cpu/" if os.path.isdir(sysfs_root) else "is not a folder"
        raise TopologyError(
            f"{sysfs_root} {what}.", "give a folder with the layout of /sys/devices/system."
        )
    notes: list[str] = []
    known, offline = _switches(sysfs_root / "cpu", notes)
    online = known
    if online is None:
        listed = {cpu for node in _whole_nodes(sysfs_root / "node", []) for cpu in node.cpus}
        online = frozenset(listed.union(_folders(sysfs_root / "cpu", "cpu"))) - offline
    allowed = online if allowed_cpus is None else allowed_cpus & online
    if not allowed:
        asked = "" if allowed_cpus is None else f" of {cpu_list_text(allowed_cpus)!r}"
        rest = f"; the CPUs {cpu_list_text(online)} are on" if online else ""
        instead = "allow some of these, or give" if online else "give"
        raise TopologyError(
            f"{sysfs_root} has no CPU{asked} that is on{rest}.",
            f"{instead} a whole copy of /sys/devices/system.",
        )
    if allowed_cpus is not None and allowed < allowed_cpus:
        lacking = cpu_list_text(allowed_cpus - allowed)
        notes.append(f"CPUs {lacking} do not exist or are switched off: not used")
    return _topology(sysfs_root, allowed, known, offline, None, notes)


def own_cpus() -> frozenset[int]:
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def nodes_with_cpus(node_root: Path = Path("/sys/devices/system/node")) -> frozenset[int]:
    """Return the nodes of the machine that have a CPU that is on, ours or not.

    The others have memory only: of graphics cards, CXL devices, High Bandwidth Memory. Empty where
    the kernel does not say.
    """
    try:
        return frozenset(_list_in(node_root / "has_cpu") or ())
    except TopologyError:
        return frozenset()


def _topology(
    sysfs_root: Path,
    cpus: frozenset[int],
    online: frozenset[int] | None,
    offline: frozenset[int],
    memory: frozenset[int] | None,
    notes: list[str],
) -> Topology:
    """Cut the machine down to CPUs that are on, and to nodes whose memory is allowed (None = all).

    Without `online` all CPUs are on that are not off. Lines on wrong facts are added to `notes`.
    """
    cpu_root, where = sysfs_root / "cpu", sysfs_root / "node"
    taken = set(offline)
    nodes: list[Node] = []
    for whole in _whole_nodes(where, notes):
        listed = [cpu for cpu in whole.cpus if cpu not in taken]
        taken.update(listed)
        denied = (cpu for cpu in listed if cpu not in cpus)
        node = replace(
            whole,
            cpus=tuple(cpu for cpu in listed if cpu in cpus),
            cpus_denied=tuple(cpu for cpu in denied if online is None or cpu in online),
            memory_allowed=memory is None or whole.id in memory,
        )
        nodes.append(_with_cores(cpu_root, node))
    shown = [at for at, node in enumerate(nodes) if node.cpus or node.has_memory]
    nodes = [
        replace(nodes[at], distances=tuple(row[other] for other in shown if row))
        for at in shown
        for row in [nodes[at].distances]
    ]
    missing = cpus.difference(*(node.cpus for node in nodes))
    if not nodes:
        notes.append(f"no NUMA information at {where}: treating the machine as one node")
    elif missing:
        use = "not used" if missing < cpus else "treating the machine as one node"
        notes.append(f"CPUs {cpu_list_text(missing)} are in no node at {where}: {use}")
    if not missing < cpus:
        nodes = [_with_cores(cpu_root, Node(id=0, cpus=tuple(sorted(cpus)), memory_bytes=None))]
    speeds = _speeds(cpu_root, [core for node in nodes for core in node.cores])
    if speeds:
        for at, node in enumerate(nodes):
            cores = tuple(sorted(node.cores, key=lambda core: (-speeds[core], core)))
            nodes[at] = replace(node, cores=cores, speeds=tuple(speeds[core] for core in cores))
    return Topology(
        nodes=tuple(nodes),
        cpu_quota=None,
        note="; ".join(notes) or None,
        offline_cpus=tuple(sorted(offline)),
    )


def _whole_nodes(node_root: Path, notes: list[str]) -> list[Node]:
    """Return the nodes with all CPUs of their lists, lowest id first; two may list the same CPU.

    A node counts if it has a folder and is in the list `online`, should there be one.
    """
    folders = _folders(node_root, "node")
    online: Iterable[int] | None = None
    try:
        online = _list_in(node_root / "online") if folders else None
    except TopologyError:
        online = ()
    if online is not None and not set(online).intersection(folders):
        notes.append(f"{node_root / 'online'} names none of the existing nodes: not used")
        online = None
    # The nodes that each row of distances is about, in its order.
    columns = folders if online is None else list(online)
    absent = set(columns).difference(folders)
    if absent:
        shown = ",".join(map(str, sorted(absent)))
        notes.append(f"nodes {shown} are online but have no folder at {node_root}: not used")
    nodes: list[Node] = []
    for node in columns:
        if node in absent:
            continue
        folder = f"{node_root}/node{node}"
        cpus = _list_in(f"{folder}/cpulist")
        if cpus is None:
            notes.append(
                f"node {node} has no readable cpulist, so it counts as a node without CPUs"
            )
        text = text_of(f"{folder}/distance") or ""
        if not _ROW.fullmatch(text):
            raise not_understood(f"{folder}/distance", "row of distances", text)
        row = tuple(map(int, text.split()))
        if row and len(row) != len(columns):
            notes.append(
                f"node {node} gives {len(row)} distances to {len(columns)} nodes: not used"
            )
            row = ()
        memory = text_of(f"{folder}/meminfo")
        match = _MEM_TOTAL.search(memory or "")
        if memory is not None and match is None:
            raise not_understood(f"{folder}/meminfo", "MemTotal in kB", memory)
        nodes.append(
            Node(
                id=node,
                cpus=cpus or (),
                memory_bytes=None if match is None else int(match[1]) * 1024,
                distances=tuple(
                    far for other, far in zip(columns, row, strict=False) if other not in absent
                ),
            )
        )
    return nodes


def _switches(cpu_root: Path, notes: list[str]) -> tuple[frozenset[int] | None, frozenset[int]]:
    """Return which CPUs are on (None if the machine does not say), and which are there but off.

    The kernel's `offline` also has places without a CPU. A list that cannot be parsed is noted.
    """
    lists: dict[str, frozenset[int]] = {}
    for name in ("online", "present", "offline"):
        try:
            lists[name] = frozenset(_list_in(cpu_root / name) or ())
        except TopologyError as error:
            notes.append(f"{error.message.rstrip('.')}: not used")
            lists[name] = frozenset()
    online, present, offline = lists.values()
    if online and present:
        offline = present - online
    elif present:
        offline &= present
    if not online and not offline:
        # Kernels before 2.6.28 have no lists; a CPU that cannot be switched off has no file.
        files = ((cpu, f"{cpu_root}/cpu{cpu}/online") for cpu in _folders(cpu_root, "cpu"))
        offline = frozenset(cpu for cpu, path in files if (text_of(path) or "").strip() == "0")
    return online or None, offline


def _folders(root: Path, family: str) -> list[int]:
    """Return the numbers of the folders `nodeN` or `cpuN`, ascending."""
    try:
        names = os.listdir(root)
    except OSError:
        return []
    numbered = re.compile(rf"{family}(\d{{1,7}})", re.ASCII)
    return sorted(int(match[1]) for match in map(numbered.fullmatch, names) if match)


def _with_cores(cpu_root: Path, node: Node) -> Node:
    """Group a node's CPUs by core, ascending, and find its package.

    Each CPU is in one core, also with wrong files; one without topology files is a separate core.
    """
    left = set(node.cpus)
    cores: list[Core] = []
    for cpu in node.cpus:
        if cpu in left:
            siblings = _list_in(*(f"{cpu_root}/cpu{cpu}/topology/{name}" for name in _CORE_LISTS))
            core = left.intersection(siblings or ()) | {cpu}
            left -= core
            cores.append(tuple(sorted(core)))
    cores.sort()
    package = None
    if cores:
        numbers = (
            _number(f"{cpu_root}/cpu{core[0]}/topology/physical_package_id") for core in cores
        )
        package = next(numbers)
        try:
            members = _list_in(
                *(f"{cpu_root}/cpu{cores[0][0]}/topology/{name}" for name in _PACKAGE_LISTS)
            )
        except TopologyError:
            members = ()
        if package is not None and not (
            set(members).issuperset(node.cpus)
            if members
            else all(other == package for other in numbers)
        ):
            package = None
    return replace(node, cores=tuple(cores), package=package)


def _speeds(cpu_root: Path, cores: list[Core]) -> Mapping[Core, int]:
    """Return the relative speed of each core; empty if all are alike or one is not known.

    Each core has the speed of the fastest that is like it.
    """
    for name in _SPEEDS:
        found: dict[Core, int] = {}
        for core in cores:
            speed = _number(f"{cpu_root}/cpu{core[0]}/{name}")
            if not speed:
                break
            found[core] = speed
        else:
            kinds: dict[int, int] = {}
            fastest = 0
            for speed in sorted(set(found.values()), reverse=True):
                if speed < fastest * _ALIKE or not fastest:
                    fastest = speed
                kinds[speed] = fastest
            several = len(set(kinds.values())) > 1
            return {core: kinds[speed] for core, speed in found.items() if several}
    return {}


def _list_in(*paths: str | Path) -> tuple[int, ...] | None:
    """Return the numbers of the first file with a list, () if it is empty; None without a file."""
    found: tuple[int, ...] | None = None
    for path in paths:
        if not found and (text := text_of(path)) is not None:
            try:
                found = parse_cpu_list(text)
            except TopologyError:
                raise not_understood(path, "CPU list", text) from None
    return found


def _number(path: str) -> int | None:
    """The file's number; None for -1, as some virtual machines have it, and for garbage."""
    text = (text_of(path) or "").strip()
    return int(text) if _NUMBER.fullmatch(text) else None


_PLACES = (
    ("", ""),
    ("unified", ""),
    ("cpu", "cpu"),
    ("cpu,cpuacct", "cpu"),
    ("cpuacct,cpu", "cpu"),
)
"""Where distributions and container engines mount the groups, and the controller there."""


def cpu_quota(cgroup_root: Path, proc_root: Path) -> float | None:
    """Return the CPUs' worth of time granted by the tightest group above us, None if unlimited.

    Mounts of control groups elsewhere than below `cgroup_root` do not count. A `TopologyError` has
    the file, and its text that is not a quota.
    """
    granted: list[float] = []
    for folder in _group_folders(cgroup_root, proc_root):
        # The root group has no such file, nor has a group whose parent does not share the
        # controller.
        path = folder / "cpu.max"
        text = text_of(path)
        if text is None:
            path = folder / "cpu.cfs_quota_us"
            quota, period = text_of(path), text_of(folder / "cpu.cfs_period_us")
            if quota is None or period is None:
                continue
            text = f"{quota.strip()} {period.strip()}"
        words = text.split()
        if len(words) == 2 and words[0] in ("max", "-1"):
            continue
        if len(words) != 2 or not all(_COUNT.fullmatch(each) and int(each) for each in words):
            raise not_understood(path, "CPU quota", text)
        granted.append(int(words[0]) / int(words[1]))
    return min(granted, default=None)


def throttling(cgroup_root: Path, proc_root: Path) -> dict[str, tuple[int, int]]:
    """Return how often the quotas of our group and of the groups above it were used up.

    By folder of a group with a quota: the periods in which its processes wanted to run, and the
    periods in which they had used it up before the end. Both only grow.
    """
    found = {}
    for folder in _group_folders(cgroup_root, proc_root):
        try:
            lines = (text_of(folder / "cpu.stat") or "").splitlines()
        except TopologyError:
            continue
        counts = dict(line.split(maxsplit=1) for line in lines if " " in line)
        periods, throttled = (counts.get(name, "") for name in ("nr_periods", "nr_throttled"))
        if _COUNT.fullmatch(periods) and _COUNT.fullmatch(throttled) and int(periods):
            found[str(folder)] = (int(periods), int(throttled))
    return found


def _group_folders(cgroup_root: Path, proc_root: Path) -> Iterator[Path]:
    """Our group's folders and their ancestors. A limit set on any of them binds us."""
    groups: dict[str, str] = {}
    """By controller: `cpu` in v1, empty in v2."""
    for line in (text_of(proc_root / "self" / "cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if not controllers:
            groups[""] = group
        elif "cpu" in controllers.split(","):
            groups["cpu"] = group
    found: list[tuple[Path, str, str | None]] = []
    """The folder of a mount, its controller, and the group that it shows; None = not known."""
    for shown, place, kind, _, options in mounts(proc_root):
        if not Path(place).is_relative_to(cgroup_root):
            continue
        if kind == "cgroup2":
            found.append((Path(place), "", shown))
        elif kind == "cgroup" and "cpu" in options.split(","):
            found.append((Path(place), "cpu", shown))
    # Without a table the usual places will do.
    usual = [(cgroup_root / place, controller, None) for place, controller in _PLACES]
    for folder, controller, top in found or usual:
        mine, above = (
            tuple(step for step in PurePosixPath(group).parts if step.strip("/"))
            for group in (groups.get(controller, "/"), top or "")
        )
        if top is None:
            # A container without its own cgroup namespace reads the host's path, which is not
            # there; the mount then shows our own group, so the top is always looked at.
            mine = tuple(step for step in mine if step != "..")
        elif mine[: len(above)] == above:
            mine = mine[len(above) :]
            if ".." in mine:
                # Above the root of our cgroup namespace, and down again elsewhere.
                continue
        elif ".." in mine or (".." in above and set(above) != {".."}):
            continue
        else:
            # Either a mount from outside our namespace, which shows an ancestor as `/..` and not
            # the way down from it, or the two files disagree: the mounted group counts as ours.
            mine = ()
        yield from (folder.joinpath(*mine[:depth]) for depth in range(len(mine) + 1))
