"""Reads the folder `cpu`: which CPUs are on, which share a core, the speed and package of each.

Sources: cputopology.rst, sysfs-devices-system-cpu and acpi/cppc_sysfs.rst of the kernel. A machine
may have 4,096 folders `cpuN`, so a file is read only where its answer is not known already.
"""

import os
import re
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path

from msgspec import Struct

from numa.errors import TopologyError
from numa.sysfs.kernel_files import not_understood, parse_cpu_list, text_of

_FOLDER = re.compile(r"cpu(\d{1,7})", re.ASCII)

Core = tuple[int, ...]
"""The CPUs of one physical core, ascending."""

_NUMBER = re.compile(r"\d{1,9}", re.ASCII)

# The names of kernel 5.x first, then the older ones.
_CORE_LISTS = ("core_cpus_list", "thread_siblings_list")
_PACKAGE_LISTS = ("package_cpus_list", "core_siblings_list")

# Arm's and RISC-V's scale first (since kernel 6.12 x86 has it, too), then the firmware's.
_SPEEDS = ("cpu_capacity", "acpi_cppc/highest_perf")

# Cores of one kind are ranked by their luck in manufacture, a boost step or two of 100 MHz apart:
# 2 to 4 %. Kinds of cores differ by a quarter or more. To sort by luck would only scatter the
# seats, so what differs by less than this counts as alike.
_ALIKE = 0.95


class Switches(Struct, frozen=True, kw_only=True):
    """Which CPUs of the machine are on and off."""

    online: frozenset[int] | None
    """None = the machine does not say."""
    offline: frozenset[int]
    """CPUs that are there but off."""
    notes: tuple[str, ...]
    """A line for each list that cannot be parsed."""


def read_switches(cpu_root: Path) -> Switches:
    """Return which CPUs are on and off. The kernel's `offline` also has places without a CPU."""
    notes: list[str] = []
    online, present, offline = (
        _listed_in(cpu_root / name, notes) for name in ("online", "present", "offline")
    )
    if online and present:
        offline = present - online
    elif offline and present:
        offline &= present
    if not online and not offline:
        # Kernels before 2.6.28 have no lists; a CPU that cannot be switched off has no file.
        folders = cpu_folders(cpu_root)
        offline = frozenset(c for c in folders if _is_off(f"{cpu_root}/cpu{c}/online"))
    return Switches(online=online or None, offline=offline or frozenset(), notes=tuple(notes))


def cpu_folders(cpu_root: Path) -> frozenset[int]:
    """Return the numbers of the folders `cpuN`, for a machine that names its CPUs nowhere else."""
    try:
        names = os.listdir(cpu_root)
    except OSError:
        return frozenset()
    return frozenset(int(match[1]) for match in map(_FOLDER.fullmatch, names) if match)


def _is_off(path: str) -> bool:
    return (text_of(path) or "").strip() == "0"


def _listed_in(path: Path, notes: list[str]) -> frozenset[int] | None:
    text = text_of(path)
    if text is None:
        return None
    try:
        return frozenset(parse_cpu_list(text))
    except TopologyError:
        notes.append(f"{path} does not contain a CPU list: {text.strip()[:40]!r}: not used")
        return None


def cores_of(cpu_root: Path, cpus: tuple[int, ...]) -> tuple[Core, ...]:
    """Group the CPUs by core, ascending; each CPU is in one core, also with wrong files.

    A CPU without topology files is a separate core. Other CPUs are left out.

    Raises:
        TopologyError: A list of siblings cannot be parsed; the message has the file and its text.
    """
    left = set(cpus)
    cores: list[Core] = []
    for cpu in cpus:
        if cpu in left:
            core = left.intersection(_list(f"{cpu_root}/cpu{cpu}/topology", _CORE_LISTS)) | {cpu}
            left -= core
            cores.append(tuple(sorted(core)))
    return tuple(sorted(cores))


def package_of(cpu_root: Path, cores: tuple[Core, ...]) -> int | None:
    """Return the package all the cores are in; None if not known, or several."""
    if not cores:
        return None
    folder = f"{cpu_root}/cpu{cores[0][0]}/topology"
    package = _number(f"{folder}/physical_package_id")
    if package is None:
        return None
    try:
        members = set(_list(folder, _PACKAGE_LISTS))
    except TopologyError:
        members = set()
    if members:
        return package if members.issuperset(chain.from_iterable(cores)) else None
    ids = (_number(f"{cpu_root}/cpu{core[0]}/topology/physical_package_id") for core in cores[1:])
    return package if all(other == package for other in ids) else None


def speeds_of(cpu_root: Path, cores: Iterable[Core]) -> Mapping[Core, int]:
    """Return the relative speed of each core; empty if all are alike or one is not known.

    Speeds that differ by less than 5 % are made equal.
    """
    wanted = tuple(cores)
    for name in _SPEEDS:
        found: dict[Core, int] = {}
        for core in wanted:
            speed = _number(f"{cpu_root}/cpu{core[0]}/{name}")
            if not speed:
                break
            found[core] = speed
        else:
            return _kinds(found)
    return {}


def _kinds(found: Mapping[Core, int]) -> Mapping[Core, int]:
    """Give each core the speed of the fastest that is like it."""
    kinds: dict[int, int] = {}
    fastest = 0
    for speed in sorted(set(found.values()), reverse=True):
        if speed < fastest * _ALIKE or not fastest:
            fastest = speed
        kinds[speed] = fastest
    if len(set(kinds.values())) < 2:
        return {}
    return {core: kinds[speed] for core, speed in found.items()}


def _list(folder: str, names: tuple[str, ...]) -> tuple[int, ...]:
    for name in names:
        text = text_of(f"{folder}/{name}")
        if text is not None and text.strip():
            try:
                return parse_cpu_list(text)
            except TopologyError:
                raise not_understood(f"{folder}/{name}", "CPU list", text) from None
    return ()


def _number(path: str) -> int | None:
    """The file's number; None for -1, as some virtual machines have it, and for garbage."""
    text = (text_of(path) or "").strip()
    return int(text) if _NUMBER.fullmatch(text) else None
