"""Finds the NUMA node that a network interface or a disk is attached to.

Sources: the kernel's sysfs-rules.rst for the tree of devices, sysfs-bus-pci for `numa_node`,
sysfs-class-net and sysfs-block for what a device is made of.
"""

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from numa.kernel_files import mounts, text_of
from numa.model import DeviceNode, TopologyError

_NUMBER = re.compile(r"\d{1,7}", re.ASCII)
_CONTROLLER = re.compile(r"nvme\d+", re.ASCII)

# More names than that in a message do not help.
_MOST_SHOWN = 20


def node_of_device(
    name: str,
    *,
    sys_root: Path = Path("/sys"),
    dev_root: Path = Path("/dev"),
    proc_root: Path = Path("/proc"),
) -> DeviceNode:
    """Return the node whose CPUs are nearest to a network interface or a disk.

    The name is an interface (`eth0`), a block device (`nvme0n1`, `/dev/dm-0`), or the path of a
    file or folder, which means the block device of its file system. A partition has the node of its
    disk. A device that is made of others (bond, bridge, VLAN, device mapper, RAID) has their node,
    if they have the same. Any other device has the node of the nearest device above it: a disk has
    the node of its controller. One that does not exist is a `TopologyError` with the existing ones.
    """
    for kind, folder in (("network", "net"), ("block", "block")):
        entry = sys_root / "class" / folder / name
        if name not in ("", ".", "..") and "/" not in name and os.path.isdir(entry):
            return _located(_real(entry), kind, _real(sys_root))
    if not name:
        raise _absent(name, sys_root)
    path = dev_root / name[5:] if name.startswith("/dev/") else Path(name)
    found = _entry_of_path(name, path, sys_root, proc_root)
    if found is not None:
        return _located(_real(found), "block", _real(sys_root))
    note = f"{name} is on no disk of this machine (memory, network or layered file system)"
    return DeviceNode(name=name, kind="block", node=None, note=note)


def _located(device: Path, kind: str, sys_root: Path) -> DeviceNode:
    parts = list(_physical(device, kind, set()))
    found: dict[str, int | None] = {}
    for part in parts:
        found[part.name] = None
        # The nearest device above it whose node the kernel knows.
        for folder in (part, *part.parents):
            text = "" if folder == sys_root else (text_of(folder / "numa_node") or "").strip()
            if folder == sys_root or _NUMBER.fullmatch(text):
                found[part.name] = int(text) if text else None
                break
    nodes = set(found.values())
    name = device.name
    if len(nodes) == 1 and (node := nodes.pop()) is not None:
        return DeviceNode(name=name, kind=kind, node=node, note=None)
    shown = ", ".join(
        f"{part} ({'node unknown' if node is None else f'node {node}'})"
        for part, node in sorted(found.items())[:_MOST_SHOWN]
    )
    if len(found) > 1:
        note = f"{name} does not have exactly one node: it is made of {shown}"
    elif any("virtual" in part.parts for part in parts):
        note = f"{name} has no node: it is a virtual device"
    else:
        note = f"the kernel names no node for {name}"
    return DeviceNode(name=name, kind=kind, node=None, note=note)


def _physical(device: Path, kind: str, seen: set[Path]) -> Iterator[Path]:
    """Yield the folders of the devices that the device is made of in the end; itself if none."""
    if device in seen:
        return
    seen.add(device)
    if kind == "network":
        lower = [path for path in _entries(device) if path.name.startswith("lower_")]
    else:
        disk = device.parent if os.path.exists(device / "partition") else device
        lower = _entries(disk / "slaves")
        if not lower and disk.parent.parent.name == "nvme-subsystem":
            # With several ways to it a disk is below its subsystem, whose ways are its controllers.
            lower = [path for path in _entries(disk.parent) if _CONTROLLER.fullmatch(path.name)]
    if not lower:
        yield device
    for path in lower:
        yield from _physical(_real(path), kind, seen)


def _entry_of_path(name: str, path: Path, sys_root: Path, proc_root: Path) -> Path | None:
    """Return the sysfs folder of the block device of a path; None without a block device."""
    disks = sys_root / "class" / "block"
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        # A container may see the disks of its host in sysfs and not have their device files.
        entry = disks / name[5:].replace("/", "!")
        if name.startswith("/dev/") and os.path.isdir(entry):
            return entry
        raise _absent(name, sys_root) from None
    if stat.S_ISCHR(found.st_mode):
        raise _absent(name, sys_root)
    number = found.st_rdev if stat.S_ISBLK(found.st_mode) else found.st_dev
    entry = sys_root / "dev" / "block" / f"{os.major(number)}:{os.minor(number)}"
    if os.path.isdir(entry):
        return entry
    source = str(path)
    if not name.startswith("/dev/"):
        # Of mounts on one place the last is the one that is seen.
        above = [each for each in mounts(proc_root) if _real(path).is_relative_to(each[1])]
        source = max(reversed(above), key=lambda each: len(Path(each[1]).parts))[3] if above else ""
    entry = disks / _real(Path(source)).name
    return entry if source.startswith("/") and os.path.isdir(entry) else None


def _real(path: Path) -> Path:
    # Unlike Path.resolve this does not raise on links that go in a circle.
    return Path(os.path.realpath(path))


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _absent(name: str, sys_root: Path) -> TopologyError:
    there = []
    for what, folder in (("network interfaces", "net"), ("disks", "block")):
        names = [path.name for path in _entries(sys_root / "class" / folder)]
        more = ", ..." if len(names) > _MOST_SHOWN else ""
        there.append(f"{what}: {', '.join(names[:_MOST_SHOWN]) or 'none'}{more}")
    return TopologyError(
        f"{name!r} is not a network interface, block device, file or folder here. "
        f"{'; '.join(there)}.",
        "name one of these, or an existing path on the disk.",
    )
