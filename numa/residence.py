"""Where processes really are: the CPUs they ran on and the nodes their memory is on.

The process that started them reads all of it from the kernel; they themselves do nothing for it.
Nothing here raises because a process has gone, a CPU was taken away or a file is refused: what
could not be seen is a note.

A look at the CPUs costs some 40 microseconds a process. One at the pages walks all of its page
tables while it cannot map memory: measured 0.8 ms with 60 MB in use, 1.5 ms with 200 MB, 13 ms with
2 GB (0.6 ms where those are huge pages), 21 ms with 4 GB. On a machine with more to run than CPUs
the process waits for as long as the reader is kept from its CPU: 0.1 to 0.3 s were seen at
4 GB. So `Pace` goes by what a look really took.

The kernel also counts the memory handed out by node, as numastat(8) shows it. Those figures are of
all processes together, so other work on the machine changes them.
"""

import errno
import os
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from numa.model import Residence

PROC = Path("/proc")
NODES = Path("/sys/devices/system/node")

MachinePages: TypeAlias = dict[int, dict[str, int]]
"""Node to counter to pages, of the whole machine.

Counters by the kernel's names (Documentation/admin-guide/numastat.rst): `numa_hit` was wanted of
the node and had, `numa_miss` wanted of another and had here, `numa_foreign` wanted here and had
elsewhere, `local_node` for a process on the node, `other_node` for one on another,
`interleave_hit` interleaved as wanted.
"""

COST_SHARE = 0.005
"""Of the time that passes, what looking may take at most."""

# Of the line's fields after the name, which may hold blanks and parentheses. Source: proc(5),
# where "processor" is field 39 and the name field 2.
_PROCESSOR = 39 - 3

_ON_NODE = re.compile(rb" N(\d+)=(\d+)")
_PAGE_KIB = re.compile(rb" kernelpagesize_kB=(\d+)")

# The kernel gives memory shared with children, or of huge pages, a file that no process opened.
_UNNAMED = (b" file=/dev/zero\\040(deleted)", b" file=/anon_hugepage")


class Pages(NamedTuple):
    """The content of a process's `numa_maps`, in bytes by node."""

    own: dict[int, int]
    """Memory without a file."""
    of_files: dict[int, int]


def pages_of(numa_maps: bytes) -> Pages:
    """Return how much memory is on which node, by the text of a `numa_maps`.

    Pages are counted with the size in their line, which no line has before Linux 4.0. Source:
    numa(7), and `show_numa_map` in the kernel's fs/proc/task_mmu.c: transparent huge pages are
    counted as small pages, pages of hugetlbfs as huge ones.
    """
    own: dict[int, int] = {}
    of_files: dict[int, int] = {}
    for line in numa_maps.splitlines():
        stated = _PAGE_KIB.search(line)
        if stated is None:
            continue
        page_bytes = int(stated[1]) * 1024
        of_file = b" file=" in line and not any(name in line for name in _UNNAMED)
        into = of_files if of_file else own
        for node, count in _ON_NODE.findall(line):
            into[int(node)] = into.get(int(node), 0) + int(count) * page_bytes
    return Pages(own=own, of_files=of_files)


class Pace:
    """Says when something that costs time may be done again, so that it stays a small share."""

    def __init__(self, seconds: float = 0.0) -> None:
        self._seconds = seconds
        """From one time to the next where nothing calls for it."""
        self.due_at = self.affordable_at = -float("inf")
        """When it is time again, and when it may be done for a reason, by `time.monotonic`."""

    def due(self) -> bool:
        return time.monotonic() >= self.due_at

    def affordable(self) -> bool:
        return time.monotonic() >= self.affordable_at

    def done(self, took_seconds: float) -> None:
        """Note that it was just done, and how long that took."""
        now = time.monotonic()
        self.affordable_at = now + took_seconds / COST_SHARE
        self.due_at = max(self.affordable_at, now + self._seconds)


class Residences:
    """The observations of workers, by worker: of each its last process."""

    def __init__(self, proc_root: Path = PROC) -> None:
        self._root = proc_root
        self._seen: dict[int, Residence] = {}
        self._refused: set[int] = set()
        """Processes whose pages the kernel does not show; it is not asked again."""

    def glance(self, worker: int, pid: int) -> Residence:
        """Look at the CPUs of a worker's process; return the observations so far.

        A new process of a worker starts without observations. The process must not be reaped yet,
        or its number may belong to another one by now.
        """
        seen = self._seen.get(worker)
        if seen is None or seen.pid != pid:
            seen = self._seen[worker] = Residence(pid=pid)
        folder = self._root / str(pid) / "task"
        try:
            threads = os.listdir(folder)
        except OSError as error:
            if _lives(pid):
                # Without the number, or each worker would have a separate line.
                why = f"{self._root}/PID/task cannot be read ({_why(error)})"
                seen = replace(seen, note=f"{why}: is /proc mounted hidepid?")
                self._seen[worker] = seen
            return seen
        found: set[int] = set()
        for thread in threads:
            # One that has ended has no file, or half of it.
            with suppress(OSError, IndexError, ValueError):
                line = (folder / thread / "stat").read_bytes()
                found.add(int(line.rpartition(b")")[2].split()[_PROCESSOR]))
        allowed: tuple[int, ...] = ()
        if hasattr(os, "sched_getaffinity"):
            with suppress(OSError):
                allowed = tuple(sorted(os.sched_getaffinity(pid)))
        seen = self._seen[worker] = replace(
            seen,
            cpus=tuple(sorted(found.union(seen.cpus))),
            looks=seen.looks + bool(found),
            allowed_cpus=allowed or seen.allowed_cpus,
            note=seen.note if pid in self._refused else None,
        )
        return seen

    def look(self, worker: int, pid: int) -> Residence:
        """Look at the CPUs and at the pages of a worker's process; arguments as for `glance`."""
        seen = self.glance(worker, pid)
        seen = replace(seen, page_looks=seen.page_looks + 1)
        path = self._root / str(pid) / "numa_maps"
        if seen.note is None:
            try:
                pages = pages_of(path.read_bytes())
                # A process that is about to end has no pages left; earlier observations count.
                if pages.own or pages.of_files:
                    seen = replace(
                        seen,
                        memory=tuple(sorted(pages.own.items())),
                        file_memory=tuple(sorted(pages.of_files.items())),
                    )
            except ProcessLookupError:
                pass
            except OSError as error:
                # An ended process has no file, and that is not a refusal.
                if path.parent.exists():
                    self._refused.add(pid)
                    seen = replace(seen, note=f"{path.name} cannot be read ({_why(error)})")
        self._seen[worker] = seen
        return seen

    def seen(self, worker: int) -> Residence | None:
        """Return the observations of a worker's last process, None before the first look."""
        return self._seen.get(worker)

    def page_looks(self, worker: int, pid: int) -> int:
        """Return how often the pages of this very process were read, successfully or not."""
        seen = self._seen.get(worker)
        return seen.page_looks if seen is not None and seen.pid == pid else 0


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # it is another user's
    return True


def _why(error: OSError) -> str:
    return f"{errno.errorcode.get(error.errno or 0, '?')}, {error.strerror}"


def machine_pages(nodes_root: Path = NODES) -> MachinePages:
    """Return the counters since the machine started; empty without counters."""
    found: MachinePages = {}
    for path in nodes_root.glob("node[0-9]*/numastat"):
        try:
            lines = [line.split() for line in path.read_text(encoding="ascii").splitlines()]
            found[int(path.parent.name[4:])] = {name: int(count) for name, count in lines}
        except (OSError, ValueError):
            continue  # a node that was taken away, or a line of another form
    return found


def machine_pages_since(before: MachinePages, now: MachinePages) -> MachinePages:
    # A counter starts again at nothing when the kernel's counting is switched off and on.
    return {
        node: {name: max(0, count - before[node].get(name, 0)) for name, count in now[node].items()}
        for node in sorted(before.keys() & now.keys())
    }
