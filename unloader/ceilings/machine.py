"""Which machine and which file system this is, so that ceilings are held against their own only."""

from __future__ import annotations

import os
import re
from pathlib import Path

from numa.model import Topology
from unloader.ceilings.model import Machine, Mount
from unloader.storage.machine import host_name
from unloader.storage.opening import storage_at

_MOUNTS = Path("/proc/self/mountinfo")
_CPUS = Path("/proc/cpuinfo")
_MODEL = re.compile(r"^(?:model name|Hardware|cpu model)\s*:\s*(.+)$", re.MULTILINE)
_OCTAL = re.compile(r"\\([0-7]{3})")


def this_machine(topology: Topology) -> Machine:
    """Return what is written down of this machine."""
    # A node that does not tell its cores has one for each of its CPUs.
    cores = sum(len(node.cores or node.cpus) for node in topology.nodes)
    usable = topology.usable_cpus
    return Machine(
        name=host_name(),
        cpus=usable,
        cores=max(1, min(usable, cores)),
        model=_cpu_model(),
    )


def _cpu_model() -> str | None:
    try:
        found = _MODEL.search(_CPUS.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None
    return found[1].strip() if found else None


def existing_directory(place: str) -> str | None:
    """Return a directory, or the nearest one above it that exists; None if it is none."""
    disk = storage_at(place).disk(place)
    return None if disk is None else disk.directory


def mount_of(directory: str) -> Mount | None:
    """Return the file system of a directory (proc(5), mountinfo); None if that is not known.

    The last entry of the longest mount point that holds it counts: mounts may lie on mounts.
    """
    try:
        lines = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        real = os.path.realpath(directory)
    except OSError:
        return None
    best: Mount | None = None
    for line in lines:
        front, _, behind = line.partition(" - ")
        fields, last = front.split(" "), behind.split(" ")
        if len(fields) < 5 or len(last) < 2:
            continue
        point = _unescaped(fields[4])
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and (best is None or len(point) >= len(best.point)):
            best = Mount(point=point, source=_unescaped(last[1]), type=last[0])
    return best


def _unescaped(text: str) -> str:
    plain = _OCTAL.sub(lambda found: chr(int(found[1], 8)), text)
    # What is not UTF-8 could not be written into a file of JSON.
    return plain.encode("utf-8", "replace").decode("utf-8")
