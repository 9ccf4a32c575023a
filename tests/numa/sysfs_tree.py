"""Writes the files by which Linux describes a machine, in the shapes seen on real kernels."""

from pathlib import Path

from numa.model import Topology
from numa.topology import detect

# As a kernel prints it, cut to the lines around the one that is read.
_MEMINFO = """\
Node {node} MemTotal:       {kilobytes} kB
Node {node} MemFree:        {kilobytes} kB
Node {node} MemUsed:              0 kB
"""


class Machine:
    """A folder each for sysfs, procfs and the control groups."""

    def __init__(self, root: Path) -> None:
        self.sysfs = root / "sys" / "devices" / "system"
        self.proc = root / "proc"
        self.cgroup = root / "sys" / "fs" / "cgroup"

    def node(
        self, node: int, cpulist: str, *, memory_kb: int | None = 1024, distance: str | None = None
    ) -> None:
        """Write one node's folder; `memory_kb=None` leaves out meminfo."""
        folder = f"node/node{node}"
        self.write(self.sysfs / folder / "cpulist", cpulist + "\n")
        if memory_kb is not None:
            text = _MEMINFO.format(node=node, kilobytes=memory_kb)
            self.write(self.sysfs / folder / "meminfo", text)
        if distance is not None:
            self.write(self.sysfs / folder / "distance", distance + "\n")

    def core(self, *cpus: int, file: str = "thread_siblings_list") -> None:
        """Make the CPUs the threads of one core."""
        for cpu in cpus:
            path = self.sysfs / "cpu" / f"cpu{cpu}" / "topology" / file
            self.write(path, ",".join(str(sibling) for sibling in cpus) + "\n")

    def mems_allowed(self, text: str) -> None:
        """Write the cpuset's allowed nodes."""
        status = f"Name:\tpython\nCpus_allowed_list:\t0-63\nMems_allowed_list:\t{text}\n"
        self.write(self.proc / "self" / "status", status)

    def group(self, text: str) -> None:
        """Write our control groups, as `/proc/self/cgroup` has them."""
        self.write(self.proc / "self" / "cgroup", text)

    def write(self, path: Path, text: str) -> None:
        """Write a file and the folders above it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def detect(self, cpus: int) -> Topology:
        """Read the machine back as a process that may use CPUs 0 to `cpus` - 1."""
        return detect(
            self.sysfs,
            allowed_cpus=frozenset(range(cpus)),
            cgroup_root=self.cgroup,
            proc_root=self.proc,
        )
