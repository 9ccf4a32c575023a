"""Machines as folders of sysfs files: made up to a specification, or recorded from real ones."""

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from numa.kernel_files import cpu_list_text
from numa.model import Topology
from numa.recording import lay_out
from numa.topology import recorded

DATA = Path(__file__).parents[2] / "numa" / "data"
"""One text a real machine; its first line states which."""

# 15,000 little files cost a disk's file system 6 CPU seconds, memory's 0.1.
SCRATCH = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Where to put folders for a moment; None = the usual place."""


@dataclass(frozen=True, kw_only=True)
class NodeSpec:
    """What one node's folder says."""

    id: int
    cpus: tuple[int, ...] = ()
    """CPUs of the node, those switched off included."""
    memory_kb: int | None = 1 << 20
    """None leaves out meminfo."""
    distances: tuple[int, ...] | None = None
    """None leaves out the file."""


@dataclass(frozen=True, kw_only=True)
class TreeSpec:
    """What a whole machine's folder says."""

    nodes: tuple[NodeSpec, ...]
    cores: tuple[tuple[int, ...], ...] = ()
    """CPUs that are threads of one core; a CPU in none has no topology folder."""
    offline: frozenset[int] = frozenset()
    strays: tuple[int, ...] = ()
    """CPUs of the machine that no node lists."""
    packages: Mapping[int, int] = field(default_factory=dict)
    """CPU to package; -1 as some virtual machines say."""
    capacities: Mapping[int, int] = field(default_factory=dict)
    perfs: Mapping[int, int] = field(default_factory=dict)
    """CPU to `acpi_cppc/highest_perf`."""

    @property
    def cpus(self) -> frozenset[int]:
        """Every CPU of the machine."""
        return frozenset(self.strays).union(self.offline, *(node.cpus for node in self.nodes))


def files_of(spec: TreeSpec) -> dict[str, str]:
    """Return relative path to content, as Linux would write them."""
    online = spec.cpus - spec.offline
    files = {
        "node/online": cpu_list_text(node.id for node in spec.nodes),
        "cpu/present": cpu_list_text(spec.cpus),
        "cpu/online": cpu_list_text(online),
        "cpu/offline": cpu_list_text(spec.offline),
    }
    for node in spec.nodes:
        folder = f"node/node{node.id}"
        files[f"{folder}/cpulist"] = cpu_list_text(online.intersection(node.cpus))
        if node.memory_kb is not None:
            files[f"{folder}/meminfo"] = f"Node {node.id} MemTotal: {node.memory_kb:>15} kB"
        if node.distances is not None:
            files[f"{folder}/distance"] = " ".join(map(str, node.distances))
    for core in spec.cores:
        threads = online.intersection(core)
        for cpu in threads:
            files[f"cpu/cpu{cpu}/topology/core_cpus_list"] = cpu_list_text(threads)
    for package in set(spec.packages.values()):
        members = online.intersection(c for c, mine in spec.packages.items() if mine == package)
        for cpu in members:
            files[f"cpu/cpu{cpu}/topology/physical_package_id"] = str(package)
            files[f"cpu/cpu{cpu}/topology/package_cpus_list"] = cpu_list_text(members)
    for name, speeds in (("cpu_capacity", spec.capacities), ("acpi_cppc/highest_perf", spec.perfs)):
        for cpu in online.intersection(speeds):
            files[f"cpu/cpu{cpu}/{name}"] = str(speeds[cpu])
    return files


def write_tree(spec: TreeSpec, folder: Path) -> Path:
    """Write the machine's files below the folder, and return it."""
    made: set[Path] = set()
    for name, content in files_of(spec).items():
        path = folder / name
        if path.parent not in made:
            path.parent.mkdir(parents=True, exist_ok=True)
            made.add(path.parent)
        path.write_text(content + "\n")
    return folder


def even(
    nodes: int,
    cores_each: int,
    *,
    threads: int = 1,
    ids: tuple[int, ...] = (),
    nodes_per_package: int = 1,
) -> TreeSpec:
    """Return a machine of equal nodes; second threads are numbered after all first ones."""
    names = ids or tuple(range(nodes))
    total = nodes * cores_each
    specs: list[NodeSpec] = []
    cores: list[tuple[int, ...]] = []
    packages: dict[int, int] = {}
    for place in range(nodes):
        own = [
            tuple(first + thread * total for thread in range(threads))
            for first in range(place * cores_each, (place + 1) * cores_each)
        ]
        cpus = tuple(sorted(cpu for core in own for cpu in core))
        mine = place // nodes_per_package
        first, end = mine * nodes_per_package, min((mine + 1) * nodes_per_package, nodes)
        row = [21] * first + [12] * (end - first) + [21] * (nodes - end)
        row[place] = 10
        specs.append(NodeSpec(id=names[place], cpus=cpus, distances=tuple(row)))
        cores += own
        packages.update(dict.fromkeys(cpus, mine))
    return TreeSpec(nodes=tuple(specs), cores=tuple(cores), packages=packages)


def sized(*sizes: int, memory_kb: tuple[int, ...] = ()) -> TreeSpec:
    """Return a machine of nodes with that many CPUs each, 0 for a memory-only one."""
    specs: list[NodeSpec] = []
    first = 0
    for place, size in enumerate(sizes):
        row = tuple(
            10 if other == place else 20 + abs(other - place) for other in range(len(sizes))
        )
        cpus = tuple(range(first, first + size))
        memory = memory_kb[place] if memory_kb else 1 << 20
        specs.append(NodeSpec(id=place, cpus=cpus, memory_kb=memory, distances=row))
        first += size
    return TreeSpec(nodes=tuple(specs), cores=tuple((cpu,) for cpu in range(first)))


@cache
def shapes() -> Mapping[str, TreeSpec]:
    """Return the fixed list of made-up machines, by name."""
    hybrid = even(1, 4, threads=2)
    hybrid_cpus = (*hybrid.nodes[0].cpus, *range(8, 16))
    return {
        "single CPU": even(1, 1),
        "1 node": even(1, 4),
        "2 nodes": even(2, 4),
        "2 nodes SMT": even(2, 4, threads=2),
        "4 nodes": even(4, 2),
        "8 nodes SNC4 SMT": even(8, 3, threads=2, nodes_per_package=4),
        "asymmetric": sized(8, 1, 2, 5),
        "memory-only": sized(4, 4, 0, 0),
        "memory-less": sized(4, 4, 4, memory_kb=(1 << 20, 0, 1 << 20)),
        "sparse ids": even(3, 2, ids=(0, 8, 17)),
        "offline CPUs": TreeSpec(
            nodes=even(2, 4, threads=2).nodes,
            cores=even(2, 4, threads=2).cores,
            offline=frozenset({1, 9, 14}),
        ),
        "node off": TreeSpec(nodes=even(2, 4).nodes, offline=frozenset({4, 5, 6, 7})),
        "overlapping": TreeSpec(
            nodes=(NodeSpec(id=0, cpus=(0, 1, 2, 3)), NodeSpec(id=1, cpus=(0, 1, 2, 3)))
        ),
        "hybrid": TreeSpec(
            nodes=(NodeSpec(id=0, cpus=hybrid_cpus),),
            cores=(*hybrid.cores, *((cpu,) for cpu in range(8, 16))),
            perfs={cpu: 66 if cpu < 8 else 41 for cpu in hybrid_cpus},
        ),
        "strays": TreeSpec(nodes=even(2, 2).nodes, strays=(4, 5)),
        "1,024 nodes of 4": even(1024, 4),
    }


def recordings() -> dict[str, Path]:
    """Return the texts of real machines, by name."""
    return {path.stem: path for path in sorted(DATA.glob("*.txt"))}


@cache
def all_trees() -> Mapping[str, Topology]:
    """Return every machine of the test data: the made-up ones, then the recorded ones."""
    trees: dict[str, Topology] = {}
    with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
        for name, spec in shapes().items():
            trees[name] = recorded(write_tree(spec, Path(folder) / name))
        for name, path in recordings().items():
            lay_out(path.read_text(encoding="utf-8"), Path(folder) / name)
            trees[name] = recorded(Path(folder) / name)
    return trees
