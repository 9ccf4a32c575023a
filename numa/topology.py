"""Reads the machine's NUMA nodes from sysfs, cut down to what this process may use.

Sources of truth: sysfs-devices-node and cputopology.rst of the kernel for the files, our affinity
mask for the CPUs, `Mems_allowed_list` for the memory.
"""

import os
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from numa.errors import TopologyError
from numa.model import Node, Topology
from numa.sysfs.quota import cpu_quota

_RANGE = re.compile(r"(\d+)(?:-(\d+))?", re.ASCII)
_MEM_TOTAL = re.compile(r"MemTotal:\s*(\d+) kB", re.ASCII)
_NODE_FOLDER = re.compile(r"node(\d+)", re.ASCII)
_MEMS_ALLOWED = re.compile(r"^Mems_allowed_list:(.*)$", re.MULTILINE)

# Guess: far above any kernel's NR_CPUS (8192), so that garbage cannot eat the memory.
_HIGHEST_NUMBER = 1_000_000


def detect(
    sysfs_root: Path = Path("/sys/devices/system"),
    *,
    allowed_cpus: frozenset[int] | None = None,
    cgroup_root: Path = Path("/sys/fs/cgroup"),
    proc_root: Path = Path("/proc"),
) -> Topology:
    """Return the NUMA nodes this process may use, lowest id first.

    CPUs are those in both the node's `cpulist` and the allowed set; one listed by two nodes (as
    with `numa=fake`) counts for the lowest. Nodes with neither CPUs nor memory for us are left
    out. A machine without the `node` folder yields one node with every allowed CPU and a note.

    Args:
        sysfs_root: Folder with `node/` and `cpu/`.
        allowed_cpus: CPUs to keep; None = the calling thread's affinity mask.
        cgroup_root: Where the control groups are mounted; for the CPU quota.
        proc_root: For `self/status` (allowed memory) and `self/cgroup`.
    Raises:
        TopologyError: A file cannot be parsed; the message has the file and its text.
    """
    allowed = _affinity() if allowed_cpus is None else allowed_cpus
    quota = cpu_quota(cgroup_root, proc_root)
    nodes = _read_nodes(sysfs_root, allowed, _allowed_memory(proc_root))
    missing = allowed.difference(*(node.cpus for node in nodes))
    note = None
    if not nodes:
        note = f"no NUMA information at {sysfs_root / 'node'}: treating the machine as one node"
    elif missing:
        note = f"CPUs {_shown(missing)} are in no node at {sysfs_root / 'node'}: "
        note += "not used" if missing < allowed else "treating the machine as one node"
    if not missing < allowed:
        nodes = (_one_node(sysfs_root, allowed),)
    return Topology(nodes=nodes, cpu_quota=quota, note=note)


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """Return the numbers of a kernel list such as `0-3,8`, ascending, each once; `()` if blank.

    Raises:
        TopologyError: The text is no such list; the message has the text.
    """
    numbers: set[int] = set()
    for part in text.strip().split(",") if text.strip() else ():
        match = _RANGE.fullmatch(part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last <= _HIGHEST_NUMBER:
            raise TopologyError(
                f"not a list of numbers: {text.strip()[:80]!r}. "
                "Next: write it as numbers and ranges with commas, such as 0-3,8."
            )
        numbers.update(range(first, last + 1))
    return tuple(sorted(numbers))


def _read_nodes(
    sysfs_root: Path, allowed: frozenset[int], allowed_memory: frozenset[int] | None
) -> tuple[Node, ...]:
    ids = _node_ids(sysfs_root / "node")
    taken: set[int] = set()
    nodes: list[Node] = []
    for node_id in ids:
        folder = sysfs_root / "node" / f"node{node_id}"
        cpus = tuple(c for c in _read_list(folder / "cpulist") if c in allowed and c not in taken)
        taken.update(cpus)
        nodes.append(
            Node(
                id=node_id,
                cpus=cpus,
                memory_bytes=_memory_bytes(folder / "meminfo"),
                distances=_distances(folder / "distance"),
                cores=_cores(sysfs_root / "cpu", cpus),
                memory_allowed=allowed_memory is None or node_id in allowed_memory,
            )
        )
    shown = [index for index, node in enumerate(nodes) if node.cpus or node.has_memory]
    return tuple(_with_distances(nodes[index], len(ids), shown) for index in shown)


def _with_distances(node: Node, online: int, shown: list[int]) -> Node:
    """Cut the row of distances, which has every online node, to the nodes shown."""
    row = node.distances
    kept = tuple(row[index] for index in shown) if len(row) == online else ()
    return replace(node, distances=kept)


def _one_node(sysfs_root: Path, allowed: frozenset[int]) -> Node:
    cpus = tuple(sorted(allowed))
    return Node(id=0, cpus=cpus, memory_bytes=None, cores=_cores(sysfs_root / "cpu", cpus))


def _cores(cpu_root: Path, cpus: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Group the CPUs by core; one without topology files is a core of its own."""
    cores: set[tuple[int, ...]] = set()
    for cpu in cpus:
        folder = cpu_root / f"cpu{cpu}" / "topology"
        # core_cpus_list is the newer name (kernel 5.x) of thread_siblings_list.
        siblings = {
            cpu,
            *(_read_list(folder / "core_cpus_list") or _read_list(folder / "thread_siblings_list")),
        }
        cores.add(tuple(sorted(siblings.intersection(cpus))))
    return tuple(sorted(cores))


def _node_ids(node_root: Path) -> tuple[int, ...]:
    try:
        names = os.listdir(node_root)
    except OSError:
        return ()
    matches = (_NODE_FOLDER.fullmatch(name) for name in names)
    return tuple(sorted(int(match[1]) for match in matches if match))


def _read_list(path: Path) -> tuple[int, ...]:
    text = _text(path)
    try:
        return parse_cpu_list(text or "")
    except TopologyError:
        raise _unreadable(path, "CPU list", text) from None


def _memory_bytes(path: Path) -> int | None:
    text = _text(path)
    if text is None:
        return None
    match = _MEM_TOTAL.search(text)
    if match is None:
        raise _unreadable(path, "MemTotal in kB", text)
    return int(match[1]) * 1024


def _distances(path: Path) -> tuple[int, ...]:
    text = _text(path) or ""
    try:
        return tuple(int(word) for word in text.split())
    except ValueError:
        raise _unreadable(path, "row of distances", text) from None


def _allowed_memory(proc_root: Path) -> frozenset[int] | None:
    """Nodes whose memory our cpuset allows; None if the kernel does not say."""
    path = proc_root / "self" / "status"
    match = _MEMS_ALLOWED.search(_text(path) or "")
    if match is None:
        return None
    try:
        return frozenset(parse_cpu_list(match[1]))
    except TopologyError:
        raise _unreadable(path, "Mems_allowed_list", match[0]) from None


def _affinity() -> frozenset[int]:
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def _unreadable(path: Path, wanted: str, text: str | None) -> TopologyError:
    return TopologyError(
        f"{path} holds no {wanted}: {(text or '').strip()[:80]!r}. "
        "Next: run with --numa off, or report the file's text."
    )


def _shown(cpus: Iterable[int]) -> str:
    return ",".join(str(cpu) for cpu in sorted(cpus))


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
