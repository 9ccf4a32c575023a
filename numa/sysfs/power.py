"""Reads which CPUs are switched on: `cpu/online`, `cpu/present`, `cpu/offline`, `cpuN/online`.

Source: cputopology.rst of the kernel.
"""

import os
import re
from pathlib import Path

from msgspec import Struct

from numa.errors import TopologyError
from numa.sysfs.cpu_list import parse_cpu_list
from numa.sysfs.reading import text_of

_FOLDER = re.compile(r"cpu(\d{1,7})", re.ASCII)


class Power(Struct, frozen=True, kw_only=True):
    """What the machine says of its CPUs as a whole."""

    online: frozenset[int] | None
    """None = it does not say."""
    offline: frozenset[int]
    """CPUs that are there but off."""
    notes: tuple[str, ...]
    """A line for each list that cannot be parsed."""


def read_power(cpu_root: Path) -> Power:
    """Return which CPUs are on and off. `offline` also has places where no CPU is: not so here."""
    notes: list[str] = []
    online, present, offline = (
        _list(cpu_root / name, notes) for name in ("online", "present", "offline")
    )
    if online and present:
        offline = present - online
    elif offline and present:
        offline &= present
    if not online and not offline:
        # Kernels before 2.6.28 have no lists; a CPU that cannot be switched off has no file.
        folders = cpu_folders(cpu_root)
        offline = frozenset(c for c in folders if _is_off(f"{cpu_root}/cpu{c}/online"))
    return Power(online=online or None, offline=offline or frozenset(), notes=tuple(notes))


def cpu_folders(cpu_root: Path) -> frozenset[int]:
    """Return the numbers of the folders `cpuN`, for a machine that names its CPUs nowhere else."""
    try:
        names = os.listdir(cpu_root)
    except OSError:
        return frozenset()
    return frozenset(int(match[1]) for match in map(_FOLDER.fullmatch, names) if match)


def _is_off(path: str) -> bool:
    return (text_of(path) or "").strip() == "0"


def _list(path: Path, notes: list[str]) -> frozenset[int] | None:
    text = text_of(path)
    if text is None:
        return None
    try:
        return frozenset(parse_cpu_list(text))
    except TopologyError:
        notes.append(f"{path} does not contain a CPU list: {text.strip()[:40]!r}: not used")
        return None
