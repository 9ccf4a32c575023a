"""Where processes are seen to be: real children, and recorded files of machines of several nodes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from processes.program import Program

from numa.model import Residence
from numa.residence import look

MIB = 1 << 20

needs_affinity = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="this system cannot bind a process to CPUs"
)
needs_proc = pytest.mark.skipif(
    not Path("/proc/self/task").is_dir(), reason="this system has no /proc of Linux"
)
needs_numa_maps = pytest.mark.skipif(
    not Path("/proc/self/numa_maps").exists(), reason="this kernel has no numa_maps"
)

# Two nodes; 2 MiB and 1 GiB pages; a library's text and data, memory of huge pages without a file,
# memory shared with children, and ranges without a page. Lines as kernel 6.1 writes them.
NUMA_MAPS = """\
00400000 prefer:1 file=/usr/bin/python3.11 mapped=703 mapmax=9 active=0 N0=600 N1=103 kernelpagesize_kB=4
00a51000 prefer:1 file=/usr/bin/python3.11 anon=70 dirty=70 active=0 N1=70 kernelpagesize_kB=4
00c00000 prefer:1 heap anon=1024 dirty=1024 active=512 N0=24 N1=1000 kernelpagesize_kB=4
7f0000000000 prefer:1 anon=512 dirty=512 N1=512 kernelpagesize_kB=4
7f1000000000 prefer:1
7f2000000000 prefer:1 file=/anon_hugepage\\040(deleted) huge anon=3 dirty=3 N0=1 N1=2 kernelpagesize_kB=2048
7f3000000000 bind:0 file=/dev/hugepages/N7=9 huge dirty=1 N0=1 kernelpagesize_kB=1048576
7f4000000000 prefer:1 file=/dev/zero\\040(deleted) dirty=10 N1=10 kernelpagesize_kB=4
7f5000000000 prefer:1 file=/usr/lib/locale/kernelpagesize_kB=8 mapped=2 N12=2 kernelpagesize_kB=4
7ffd00000000 prefer:1 stack anon=8 dirty=8 N1=8 kernelpagesize_kB=4
7ffd00001000 prefer:1
"""
OWN = {0: 24 * 4096 + 2 * MIB, 1: (1000 + 512 + 10 + 8) * 4096 + 4 * MIB}
OF_FILES = {0: 600 * 4096 + 1024 * MIB, 1: (103 + 70) * 4096, 12: 2 * 4096}


@contextmanager
def child(code: str) -> Iterator[tuple[int, Callable[[str], str]]]:
    """Run Python code that prints a line when it is ready; give its pid and a way to ask it on."""
    with Program(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None
        assert stdout.readline() == "ready\n"

        def say(text: str) -> str:
            stdin.write(f"{text}\n")
            stdin.flush()
            return stdout.readline().strip()

        try:
            yield process.pid, say
        finally:
            process.kill()


def folder_of(root: Path, pid: int, threads: dict[int, tuple[str, int]]) -> Path:
    """Make a process's folder as proc(5) has it: threads with their names and processors."""
    for thread, (name, cpu) in threads.items():
        place = root / str(pid) / "task" / str(thread)
        place.mkdir(parents=True)
        rest = " ".join(["S", *("0" for _ in range(35)), str(cpu), *("0" for _ in range(13))])
        (place / "stat").write_text(f"{thread} ({name}) {rest}\n")
    return root / str(pid)


@needs_affinity
@needs_proc
def test_a_bound_process_is_seen_on_its_cpu_only() -> None:
    """A child bound to one CPU is seen there, with all its threads, and may use only this CPU."""
    cpu = max(os.sched_getaffinity(0))
    code = (
        f"import os, threading; os.sched_setaffinity(0, [{cpu}])\n"
        "for _ in range(3): threading.Thread(target=input, daemon=True).start()\n"
        "print('ready', flush=True); threading.Event().wait()"
    )
    with child(code) as (pid, _):
        seen: Residence | None = None
        for _ in range(3):
            seen = look(pid, seen)
            assert (seen.cpus, seen.allowed_cpus) == ((cpu,), (cpu,))
    assert seen is not None
    assert seen.memory == ()
    assert seen.note is None


@needs_affinity
@needs_proc
def test_cpus_add_up_and_names_do_not_matter() -> None:
    """All CPUs it was ever seen on are there; a name with blanks and parentheses hides none."""
    cpus = sorted(os.sched_getaffinity(0))
    code = (
        "import os, pathlib; pathlib.Path('/proc/self/comm').write_text(') 1 2 (x) 3')\n"
        "print('ready', flush=True)\n"
        "while True: os.sched_setaffinity(0, [int(input())]); print('moved', flush=True)"
    )
    with child(code) as (pid, say):
        seen: Residence | None = None
        for number, cpu in enumerate(cpus):
            assert say(str(cpu)) == "moved"
            seen = look(pid, seen)
            assert cpu in seen.cpus
            assert len(set(seen.cpus) - set(cpus[: number + 1])) == 0
            assert seen.allowed_cpus == (cpu,)
    assert seen is not None
    assert seen.cpus == tuple(cpus)


@needs_numa_maps
def test_memory_is_found_where_it_was_touched() -> None:
    """64 MiB that a child touches are its own; 16 MiB of a file it maps are the file's."""
    code = (
        "import mmap, tempfile\n"
        "file = tempfile.TemporaryFile(); file.truncate(16 << 20)\n"
        "print('ready', flush=True); input(); print('nothing', flush=True); input()\n"
        "own = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n"
        "for at in range(0, len(own), 4096): own[at] = 1\n"
        "print('own', flush=True); input()\n"
        "theirs = mmap.mmap(file.fileno(), 16 << 20)\n"
        "for at in range(0, len(theirs), 4096): theirs[at] = 1\n"
        "print('theirs', flush=True); input()\n"
        "shared = mmap.mmap(-1, 8 << 20)\n"
        "for at in range(0, len(shared), 4096): shared[at] = 1\n"
        "print('shared', flush=True); input()\n"
    )
    with child(code) as (pid, say):
        seen, sizes = None, []
        for word in ("nothing", "own", "theirs", "shared"):
            assert say("go") == word
            seen = look(pid, seen, pages=True)
            sizes.append([sum(dict(each).values()) for each in (seen.memory, seen.file_memory)])
    # The kernel may merge the pages around a small one into a huge page at any time.
    huge = 3 * MIB
    (own, files), *_ = sizes
    assert [[one - own, other - files] for one, other in sizes[1:]] == [
        [pytest.approx(64 * MIB, abs=huge), pytest.approx(0, abs=MIB)],
        [pytest.approx(64 * MIB, abs=huge), pytest.approx(16 * MIB, abs=MIB)],
        [pytest.approx(72 * MIB, abs=huge), pytest.approx(16 * MIB, abs=MIB)],
    ]
    assert seen is not None
    assert {node for node, _ in seen.memory} <= set(range(1024))
    assert sum(seen.local_share(node) or 0 for node, _ in seen.memory) == pytest.approx(1)


def test_pages_of_several_nodes_and_sizes(tmp_path: Path) -> None:
    """Pages count with their own size; files are separate from mappings that only name a file."""
    pid = os.getpid()
    folder = folder_of(tmp_path, pid, {pid: ("python", 3), pid + 1: ("a) 7 (b", 11)})
    (folder / "numa_maps").write_text(NUMA_MAPS)
    seen = look(pid, pages=True, proc_root=tmp_path)
    assert seen.cpus == (3, 11)
    assert dict(seen.memory) == OWN
    assert dict(seen.file_memory) == OF_FILES
    assert seen.local_share(1) == OWN[1] / (OWN[0] + OWN[1])
    assert seen.local_share(2) == 0


def test_a_thread_that_ends_meanwhile_is_left_out(tmp_path: Path) -> None:
    """A thread without its file, or with half of it, does not change the figures of the others."""
    pid = os.getpid()
    folder_of(tmp_path, pid, {1: ("a", 1), 2: ("b", 2), 3: ("c", 4)})
    (tmp_path / str(pid) / "task" / "2" / "stat").unlink()
    (tmp_path / str(pid) / "task" / "3" / "stat").write_text("3 (c) S 1")
    assert look(pid, proc_root=tmp_path).cpus == (1,)


@needs_numa_maps
def test_a_process_that_has_gone_keeps_what_was_seen() -> None:
    """Looking at an ended process, reaped or not, changes nothing and causes no note."""
    with Program([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        while not (seen := look(process.pid, pages=True)).memory:
            time.sleep(0.01)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        dead = look(process.pid, seen, pages=True)
    gone = look(process.pid, dead, pages=True)
    assert dead.memory == gone.memory == seen.memory
    assert set(gone.cpus) >= set(seen.cpus)
    assert gone.note is None


def test_the_next_process_of_a_worker_begins_anew(tmp_path: Path) -> None:
    """Figures of a worker's earlier process do not count."""
    here, parent = os.getpid(), os.getppid()
    for pid, cpu in ((here, 1), (parent, 2)):
        folder = folder_of(tmp_path, pid, {pid: ("python", cpu)})
        (folder / "numa_maps").write_text(f"0 default anon=1 N{cpu}=1 kernelpagesize_kB=4\n")
    before = look(here, pages=True, proc_root=tmp_path)
    assert (before.cpus, before.page_looks) == ((1,), 1)
    seen = look(parent, before, pages=True, proc_root=tmp_path)
    assert (seen.cpus, seen.memory) == ((2,), ((2, 4096),))
    assert (seen.pid, seen.page_looks) == (parent, 1)


def test_a_kernel_without_numa_maps_is_a_note(tmp_path: Path) -> None:
    """CPUs are seen all the same; the memory is not known, and the note says why."""
    pid = os.getpid()
    folder_of(tmp_path, pid, {pid: ("python", 0)})
    seen = look(pid, look(pid, pages=True, proc_root=tmp_path), pages=True, proc_root=tmp_path)
    assert (seen.cpus, seen.memory, seen.file_memory) == ((0,), (), ())
    assert seen.local_share(0) is None
    assert seen.note is not None
    assert "numa_maps" in seen.note
    assert "ENOENT" in seen.note
    assert seen.page_looks == 2


def test_a_hidden_process_is_a_note(tmp_path: Path) -> None:
    """A process that lives and has no folder is hidden: nothing is known, and a note reports it.

    It may be there the next time, as after a lack of descriptors.
    """
    pid = os.getpid()
    seen = look(pid, pages=True, proc_root=tmp_path)
    assert (seen.cpus, seen.memory) == ((), ())
    assert "hidepid" in (seen.note or "")
    (folder_of(tmp_path, pid, {pid: ("python", 3)}) / "numa_maps").write_text(NUMA_MAPS)
    seen = look(pid, seen, pages=True, proc_root=tmp_path)
    assert (seen.cpus, dict(seen.memory), seen.note) == ((3,), OWN, None)


@needs_numa_maps
def test_refused_pages_are_a_note() -> None:
    """Another user's process: the kernel tells its CPUs and refuses its pages."""
    if os.getuid() != 0:
        pytest.skip("becoming another user takes root")
    code = (
        "import os; from numa.residence import look\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "seen = look(os.getppid(), pages=True)\n"
        "print(len(seen.cpus) > 0, seen.memory, seen.note)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    printed = subprocess.check_output([sys.executable, "-c", code], text=True, env=environment)
    assert printed.startswith("True () numa_maps cannot be read (E")
