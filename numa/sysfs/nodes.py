"""Reads the folders `node/nodeN`: which CPUs, how much memory, how far to the others.

Source: sysfs-devices-node of the kernel.
"""

import os
import re
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from numa.errors import TopologyError
from numa.sysfs.kernel_files import not_understood, parse_cpu_list, text_of

_FOLDER = re.compile(r"node(\d{1,7})", re.ASCII)
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
    online = _online(node_root, folders, notes)
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
        listed_cpus=_cpus(f"{folder}/cpulist", listed or ""),
        memory_bytes=_memory_bytes(f"{folder}/meminfo"),
        distances=row,
    )


def _folder_ids(node_root: Path) -> tuple[int, ...]:
    try:
        names = os.listdir(node_root)
    except OSError:
        return ()
    return tuple(sorted(int(match[1]) for match in map(_FOLDER.fullmatch, names) if match))


def _online(node_root: Path, folders: tuple[int, ...], notes: list[str]) -> tuple[int, ...]:
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


def _cpus(path: str, text: str) -> tuple[int, ...]:
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
