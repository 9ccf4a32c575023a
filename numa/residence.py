"""Where processes really are: the CPUs they ran on and the nodes their memory is on.

The process that started them reads all of it from the kernel; they themselves do nothing for it.
Nothing here raises because a process has gone, a CPU was taken away or a file is refused: what
could not be seen is a note.

A look at the CPUs costs some 40 microseconds a process. One at the pages walks all of its page
tables while it cannot map memory: measured 0.8 ms with 60 MB in use, 1.5 ms with 200 MB, 13 ms with
2 GB (0.6 ms where those are huge pages), 21 ms with 4 GB. On a machine with more to run than CPUs
the process waits for as long as the reader is kept from its CPU: 0.1 to 0.3 s were seen at
4 GB. So the caller goes by what a look really took, and `COST_SHARE`.

The kernel also counts the memory handed out by node, as numastat(8) shows it. Those figures are of
all processes together, so other work on the machine changes them.
"""

import errno
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from msgspec.structs import replace

from numa.model import Residence

PROC = Path("/proc")
NODES = Path("/sys/devices/system/node")
_MAPS = "numa_maps"

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


def look(
    pid: int, seen: Residence | None = None, *, pages: bool = False, proc_root: Path = PROC
) -> Residence:
    """Look at the CPUs of a process, and at its pages if asked; add to the observations so far.

    Observations of another process are dropped. The process must not be reaped yet, or its number
    may belong to another one by now. Where the kernel did not show the pages once, it is not asked
    again.
    """
    if seen is None or seen.pid != pid:
        seen = Residence(pid=pid)
    refused = seen.note if seen.page_looks and (seen.note or "").startswith(_MAPS) else None
    folder = proc_root / str(pid)
    note, found, threads = refused, set[int](), list[str]()
    try:
        threads = os.listdir(folder / "task")
    except OSError as error:
        with suppress(ProcessLookupError):
            with suppress(PermissionError):  # It is another user's, and lives.
                os.kill(pid, 0)
            # Without the number, or each worker would have a separate line.
            why = f"{proc_root}/PID/task cannot be read ({_why(error)})"
            note = f"{why}: is /proc mounted hidepid?"
    for thread in threads:
        # One that has ended has no file, or half of it.
        with suppress(OSError, IndexError, ValueError):
            line = (folder / "task" / thread / "stat").read_bytes()
            found.add(int(line.rpartition(b")")[2].split()[_PROCESSOR]))
    allowed: tuple[int, ...] = ()
    if hasattr(os, "sched_getaffinity"):
        with suppress(OSError):
            allowed = tuple(sorted(os.sched_getaffinity(pid))) if threads else ()
    memory, file_memory = seen.memory, seen.file_memory
    if pages and note is None:
        try:
            own, of_files = dict[int, int](), dict[int, int]()
            # Pages are counted with the size in their line, which no line has before Linux 4.0.
            # Source: numa(7), and `show_numa_map` in the kernel's fs/proc/task_mmu.c: transparent
            # huge pages are counted as small pages, pages of hugetlbfs as huge ones.
            for line in (folder / _MAPS).read_bytes().splitlines():
                if (stated := _PAGE_KIB.search(line)) is None:
                    continue
                of_file = b" file=" in line and not any(name in line for name in _UNNAMED)
                into = of_files if of_file else own
                for node, count in _ON_NODE.findall(line):
                    size = int(count) * int(stated[1]) * 1024
                    into[int(node)] = into.get(int(node), 0) + size
            # A process that is about to end has no pages left; earlier observations count.
            if own or of_files:
                memory, file_memory = tuple(sorted(own.items())), tuple(sorted(of_files.items()))
        except ProcessLookupError:
            pass
        except OSError as error:
            # An ended process has no file, and that is not a refusal.
            if folder.exists():
                note = f"{_MAPS} cannot be read ({_why(error)})"
    return replace(
        seen,
        cpus=tuple(sorted(found.union(seen.cpus))),
        allowed_cpus=allowed or seen.allowed_cpus,
        memory=memory,
        file_memory=file_memory,
        note=note if note or threads else seen.note,
        page_looks=seen.page_looks + pages,
    )


def _why(error: OSError) -> str:
    return f"{errno.errorcode.get(error.errno or 0, '?')}, {error.strerror}"


def machine_pages(nodes_root: Path = NODES, before: MachinePages | None = None) -> MachinePages:
    """Return the counters since the machine started, or since `before`; empty without counters."""
    found: MachinePages = {}
    for path in nodes_root.glob("node[0-9]*/numastat"):
        try:
            lines = [line.split() for line in path.read_text(encoding="ascii").splitlines()]
            found[int(path.parent.name[4:])] = {name: int(count) for name, count in lines}
        except (OSError, ValueError):
            continue  # a node that was taken away, or a line of another form
    if before is None:
        return found
    # A counter starts again at nothing when the kernel's counting is switched off and on.
    return {
        node: {name: max(0, n - before[node].get(name, 0)) for name, n in found[node].items()}
        for node in sorted(before.keys() & found.keys())
    }
