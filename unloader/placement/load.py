"""How busy the CPUs of each NUMA node are, as the kernel counts it for the whole machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from numa.model import Topology

STAT = Path("/proc/stat")

_IDLE = (3, 4)
"""Fields of a CPU's line in which it did nothing: idle, and idle with I/O under way."""
_COUNTED = 8
"""user, nice, system, idle, iowait, irq, softirq, steal. Guests are counted in user already."""


class CpuTime(Struct, frozen=True, kw_only=True):
    """What the kernel has counted for a set of CPUs, in its ticks since the machine started."""

    busy: int
    all: int

    def share_since(self, earlier: CpuTime) -> float | None:
        """Return the busy part of the time since then, 0 to 1; None if too little time passed."""
        passed = self.all - earlier.all
        if passed <= 0:
            return None
        return min(1.0, max(0.0, (self.busy - earlier.busy) / passed))


def node_cpus(topology: Topology) -> dict[int, tuple[int, ...]]:
    """Return the CPUs of each node that has any; those that we may use."""
    return {node.id: node.cpus for node in topology.nodes if node.cpus}


def node_times(cpus: Mapping[int, tuple[int, ...]], stat: Path = STAT) -> dict[int, CpuTime]:
    """Return what the kernel has counted for the CPUs of each node, of all processes.

    Args:
        cpus: Of each node.
        stat: The kernel's file (proc_stat(5)); a node none of whose CPUs is in it is left out, and
            nothing is there where it cannot be read.
    """
    try:
        text = stat.read_text("ascii")
    except (OSError, UnicodeDecodeError):
        return {}
    known = dict(filter(None, map(_counted, text.splitlines())))
    found = {}
    for node, numbers in cpus.items():
        counts = [known[number] for number in numbers if number in known]
        if counts:
            found[node] = CpuTime(
                busy=sum(busy for busy, _ in counts), all=sum(passed for _, passed in counts)
            )
    return found


def _counted(line: str) -> tuple[int, tuple[int, int]] | None:
    """Return number, busy and all ticks of a line `cpuN ...`; None for any other line."""
    name, *fields = line.split()[: 1 + _COUNTED] or [""]
    number = name.removeprefix("cpu")
    if number == name or not number.isdigit() or len(fields) <= max(_IDLE):
        return None
    ticks = list(map(int, fields))
    return int(number), (sum(ticks) - sum(ticks[each] for each in _IDLE), sum(ticks))
