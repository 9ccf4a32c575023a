"""Counters of the processor and the kernel, attached to running processes from outside.

perf_event_open(2) is made raw through libc: neither `perf` nor a library is needed. Nothing here
raises but `ProcessCounters`: where counters are refused or do not exist, the share is not known and
the reason is one line.

The figures of remote accesses come from the processor's own counters, which virtual machines do
not have as a rule. The way of counting is proved with the kernel's software events; the hardware's
figure has not been held against a machine of several nodes yet.
"""

import contextlib
import ctypes
import errno
import os
import resource
import struct
import sys
from pathlib import Path

from msgspec import Struct

_CALL_NUMBERS = {"x86_64": 298, "aarch64": 241, "riscv64": 241}
"""Machine to the number of perf_event_open in the kernel's system-call tables."""

# linux/perf_event.h: the attributes' first published form, which every kernel takes.
_ATTRIBUTES = struct.Struct("=IIQQQQQIIQ")
_INHERIT, _EXCLUDE_KERNEL, _EXCLUDE_HYPERVISOR = 1 << 1, 1 << 5, 1 << 6
_TIME_ENABLED, _TIME_RUNNING = 1, 2
_COUNT = struct.Struct("=QQQ")
_CLOSE_ON_EXEC = 8

_HARDWARE_CACHE, _SOFTWARE = 3, 1
_NODE, _READ, _ACCESS, _MISS = 6, 0, 0, 1

# Nehalem, Westmere, Sandy Bridge and Ivy Bridge.
_COUNTS_BOTH = {26, 30, 31, 46, 37, 44, 47, 42, 45, 58, 62}

# What is left of the limit must do for the pipes and files of the processes themselves.
_DESCRIPTOR_SHARE = 0.5


class CountedEvent(Struct, frozen=True, kw_only=True):
    """One thing that can be counted, as perf_event_open(2) names it."""

    name: str
    type: int
    config: int


NODE_LOADS = CountedEvent(
    name="node-loads", type=_HARDWARE_CACHE, config=_NODE | _READ << 8 | _ACCESS << 16
)
NODE_LOAD_MISSES = CountedEvent(
    name="node-load-misses", type=_HARDWARE_CACHE, config=_NODE | _READ << 8 | _MISS << 16
)
TASK_CLOCK = CountedEvent(name="task-clock", type=_SOFTWARE, config=1)
"""Nanoseconds on a CPU."""
PAGE_FAULTS = CountedEvent(name="page-faults", type=_SOFTWARE, config=2)


class ProcessCounters:
    """Events of all threads of a process, those it has and those that they start.

    Only what it does outside the kernel is counted, which is what an ordinary user may see.
    """

    def __init__(self, pid: int, events: tuple[CountedEvent, ...]) -> None:
        """Attach to a running process; what it did before is not counted.

        Raises:
            OSError: There are no such counters (`ENOENT`, `EOPNOTSUPP`), we may not use them
                (`EACCES`, `EPERM`), descriptors are short (`EMFILE`), or the process is gone.
        """
        self._descriptors: dict[str, list[int]] = {event.name: [] for event in events}
        try:
            for thread in _threads(pid):
                self._attach(thread, events)
            if not all(self._descriptors.values()):
                raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
        except BaseException:
            self.close()
            raise

    def read(self) -> dict[str, int | None]:
        """Return the count of each event by name, also when the process is gone.

        Where events had to share the processor's counters, counts are raised to the whole time;
        None is an event that never got one.
        """
        return {name: _total(opened) for name, opened in self._descriptors.items()}

    def close(self) -> None:
        """Close the descriptors. May be called again."""
        for opened in self._descriptors.values():
            while opened:
                os.close(opened.pop())

    def _attach(self, thread: int, events: tuple[CountedEvent, ...]) -> None:
        # A thread may end at any time; the process is gone only if all have.
        with contextlib.suppress(ProcessLookupError):
            for event in events:
                self._descriptors[event.name].append(_open(event, thread))


class RemoteAccess:
    """The share of memory accesses that went to another node, by worker."""

    def __init__(self, cpu_info: Path = Path("/proc/cpuinfo")) -> None:
        """Take the file that names the processor's model."""
        self._cpu_info = cpu_info
        self._counters: dict[int, ProcessCounters] = {}
        self.refused: str | None = None
        """One line on why nothing is counted; None as long as all is."""

    def attach(self, worker: int, pid: int) -> None:
        """Count for a worker's process from now on, and forget the process it had before."""
        previous = self._counters.pop(worker, None)
        if previous is not None:
            previous.close()
        if self.refused is not None:
            return
        try:
            self._counters[worker] = ProcessCounters(pid, (NODE_LOADS, NODE_LOAD_MISSES))
        except (ProcessLookupError, FileNotFoundError) as error:
            # ENOENT is also the answer of a processor that has no such counter.
            if Path(f"/proc/{pid}").exists():
                self.refused = _refusal(error)
        except OSError as error:
            self.refused = _refusal(error)

    def share(self, worker: int) -> float | None:
        """Return which part of the loads from memory went to another node's, None if not known."""
        counters = self._counters.get(worker)
        if counters is None:
            return None
        counts = counters.read()
        loads, misses = counts[NODE_LOADS.name], counts[NODE_LOAD_MISSES.name]
        if loads is None or misses is None:
            return None
        return remote_share(loads, misses, loads_are_local=loads_are_local(self._cpu_info))

    def close(self) -> None:
        """Let go of all counters. May be called again."""
        for counters in self._counters.values():
            counters.close()
        self._counters.clear()


def remote_share(loads: int, misses: int, *, loads_are_local: bool) -> float | None:
    """Return misses as a part of all loads from memory, None if there were none.

    Args:
        loads: Of `node-loads`.
        misses: Of `node-load-misses`: loads from another node's memory.
        loads_are_local: Whether `loads` leaves the misses out, as on Intel since Haswell (the
            kernel's arch/x86/events/intel/core.c: "L3_MISS_LOCAL_DRAM"); before, and on other
            processors, it counts both.
    """
    total = loads + misses if loads_are_local else loads
    return min(1.0, misses / total) if total else None


def loads_are_local(cpu_info: Path) -> bool:
    """Return whether this processor's `node-loads` leaves the loads from other nodes out.

    Args:
        cpu_info: Of proc(5); the first processor stands for all.
    """
    try:
        text = cpu_info.read_text(encoding="utf-8", errors="replace").partition("\n\n")[0]
    except OSError:
        return False
    pairs = (line.partition(":") for line in text.splitlines())
    facts = {name.strip(): value.strip() for name, _, value in pairs}
    family, model = facts.get("cpu family", ""), facts.get("model", "")
    if facts.get("vendor_id") != "GenuineIntel" or not (family.isdigit() and model.isdigit()):
        return False
    # Other families than 6 are newer, or have no such counters at all.
    return family != "6" or int(model) not in _COUNTS_BOTH


def _open(event: CountedEvent, thread: int) -> int:
    machine = os.uname().machine
    if sys.platform != "linux" or machine not in _CALL_NUMBERS or sys.maxsize < 2**32:
        raise OSError(errno.ENOSYS, f"the system call's number on {machine} is unknown")
    flags = _INHERIT | _EXCLUDE_KERNEL | _EXCLUDE_HYPERVISOR
    attributes = ctypes.create_string_buffer(
        _ATTRIBUTES.pack(
            *(event.type, _ATTRIBUTES.size, event.config, 0, 0),
            *(_TIME_ENABLED | _TIME_RUNNING, flags, 0, 0, 0),
        )
    )
    libc = ctypes.CDLL(None, use_errno=True)
    long = ctypes.c_long
    descriptor: int = libc.syscall(
        *(long(_CALL_NUMBERS[machine]), attributes, long(thread)),
        *(long(-1), long(-1), long(_CLOSE_ON_EXEC)),
    )
    if descriptor < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit != resource.RLIM_INFINITY and descriptor > limit * _DESCRIPTOR_SHARE:
        os.close(descriptor)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    return descriptor


def _threads(pid: int) -> list[int]:
    return sorted(int(name) for name in os.listdir(f"/proc/{pid}/task"))


def _total(descriptors: list[int]) -> int | None:
    total = 0
    for descriptor in descriptors:
        count, enabled, running = _COUNT.unpack(os.read(descriptor, _COUNT.size))
        if enabled and not running:
            return None
        total += count * enabled // running if running else 0
    return total


def _refusal(error: OSError) -> str:
    reason = f"{errno.errorcode.get(error.errno or 0, '?')}, {error.strerror}"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"the processor's counters may not be used ({reason}; kernel.perf_event_paranoid)"
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return f"too few open files are allowed for the processor's counters ({reason})"
    return f"this machine has no counters of memory accesses ({reason})"
