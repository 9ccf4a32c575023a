"""What the kernel counts of memory handed out by node, for the whole machine.

These are the figures of numastat(8). They are of all processes together: on a machine with other
work to do, they say how the machine did, not how we did.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

NODES = Path("/sys/devices/system/node")

MachinePages: TypeAlias = dict[int, dict[str, int]]
"""Node to counter to pages, of the whole machine.

Counters by the kernel's names (Documentation/admin-guide/numastat.rst): `numa_hit` was wanted of
the node and had, `numa_miss` wanted of another and had here, `numa_foreign` wanted here and had
elsewhere, `local_node` for a process on the node, `other_node` for one on another,
`interleave_hit` interleaved as wanted.
"""


def machine_pages(nodes_root: Path = NODES) -> MachinePages:
    """Return the counters since the machine started; empty where there are none.

    Args:
        nodes_root: Folder with `nodeN/numastat` (kernel doc: sysfs-devices-node).
    """
    found: MachinePages = {}
    for path in nodes_root.glob("node[0-9]*/numastat"):
        try:
            lines = [line.split() for line in path.read_text(encoding="ascii").splitlines()]
            found[int(path.parent.name[4:])] = {name: int(count) for name, count in lines}
        except (OSError, ValueError):
            continue  # a node that was taken away, or a line of another form
    return found


def machine_pages_since(before: MachinePages, now: MachinePages) -> MachinePages:
    """Return what was counted between two readings, for the nodes that are in both."""
    return {node: _grown(before[node], now[node]) for node in sorted(before.keys() & now.keys())}


def _grown(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    # A counter starts again at nothing when the kernel's counting is switched off and on.
    return {name: max(0, count - before.get(name, 0)) for name, count in now.items()}
