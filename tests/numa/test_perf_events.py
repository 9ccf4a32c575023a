"""Counters attached to real processes: the kernel's own events, and the hardware's if there are any."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes.program import Program

from numa.perf_events import (
    PAGE_FAULTS,
    TASK_CLOCK,
    CountedEvent,
    ProcessCounters,
    RemoteAccess,
    loads_are_local,
    remote_share,
)

# On each line of input so many fresh pages are touched, in the main thread or in one of its own.
TOUCHING = """
import mmap, threading
def touch(pages):
    memory = mmap.mmap(-1, pages * 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(getattr(mmap, "MADV_NOHUGEPAGE", 15))
    for page in range(pages):
        memory[page * 4096] = 1
print("ready", flush=True)
while line := input().split():
    if line[0] == "thread":
        thread = threading.Thread(target=touch, args=(int(line[1]),))
        thread.start()
        thread.join()
    else:
        touch(int(line[1]))
    print("done", flush=True)
"""


class Toucher:
    """A child that touches pages when told to."""

    def __init__(self) -> None:
        """Start it and wait until it is up."""
        self.process = Program(
            [sys.executable, "-c", TOUCHING],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._expect("ready")

    def touch(self, pages: int, where: str = "main") -> None:
        """Have so many pages touched."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{where} {pages}\n")
        self.process.stdin.flush()
        self._expect("done")

    def end(self) -> None:
        """Kill and reap it."""
        self.process.kill()
        self.process.communicate()

    def _expect(self, word: str) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == f"{word}\n"


@pytest.fixture
def toucher() -> Iterator[Toucher]:
    """A child that touches pages when told to."""
    child = Toucher()
    yield child
    child.end()


def refusal() -> str | None:
    """Return why the kernel's own events cannot be counted here, None if they can."""
    try:
        ProcessCounters(os.getpid(), (PAGE_FAULTS,)).close()
    except OSError as error:
        return f"perf_event_open is refused: {error.strerror}"
    return None


needs_events = pytest.mark.skipif(refusal() is not None, reason=str(refusal()))


@needs_events
def test_what_a_child_does_from_now_on_is_counted(toucher: Toucher) -> None:
    """Its page faults are those of the pages that it touches after the counters are attached."""
    toucher.touch(3000)
    counters = ProcessCounters(toucher.process.pid, (PAGE_FAULTS, TASK_CLOCK))
    toucher.touch(2000)
    first = counters.read()
    toucher.touch(1000)
    second = counters.read()
    counters.close()
    assert set(first) == {"page-faults", "task-clock"}
    assert 2000 <= (first["page-faults"] or 0) < 2500
    assert 3000 <= (second["page-faults"] or 0) < 3500
    assert 0 < (first["task-clock"] or 0) < (second["task-clock"] or 0)


@needs_events
def test_threads_are_counted_whether_there_before_or_not(toucher: Toucher) -> None:
    """A thread that the child starts later counts with it, and so does one that has ended."""
    counters = ProcessCounters(toucher.process.pid, (PAGE_FAULTS,))
    for _ in range(3):
        toucher.touch(1000, "thread")
    assert 3000 <= (counters.read()["page-faults"] or 0) < 4000
    toucher.end()
    assert 3000 <= (counters.read()["page-faults"] or 0) < 4000
    counters.close()


@needs_events
def test_descriptors_are_given_back(toucher: Toucher) -> None:
    """Closing leaves no descriptor open, also when one of several events does not exist."""
    before = os.listdir("/proc/self/fd")
    counters = ProcessCounters(toucher.process.pid, (PAGE_FAULTS, TASK_CLOCK))
    assert len(os.listdir("/proc/self/fd")) == len(before) + 2
    counters.close()
    counters.close()
    with pytest.raises(OSError, match=r"."):
        ProcessCounters(
            toucher.process.pid, (PAGE_FAULTS, CountedEvent(name="none", type=1, config=10_000))
        )
    assert len(os.listdir("/proc/self/fd")) == len(before)


@needs_events
def test_a_process_that_has_gone_is_no_reason(toucher: Toucher) -> None:
    """Attaching to it fails with that; for the next worker's process counting is tried again."""
    toucher.end()
    with pytest.raises((ProcessLookupError, FileNotFoundError)):
        ProcessCounters(toucher.process.pid, (PAGE_FAULTS,))
    remote = RemoteAccess()
    remote.attach(0, toucher.process.pid)
    assert remote.refused is None
    assert remote.share(0) is None


def test_the_share_of_a_child_is_known_or_the_reason(toucher: Toucher) -> None:
    """On hardware that counts there is a share from 0 to 1; elsewhere none, and one line says why."""
    before = os.listdir("/proc/self/fd")
    remote = RemoteAccess()
    remote.attach(3, toucher.process.pid)
    toucher.touch(20_000)
    share = remote.share(3)
    remote.close()
    assert remote.share(3) is None
    if remote.refused is None:
        assert share is None or 0 <= share <= 1
    else:
        assert share is None
        assert "\n" not in remote.refused
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_a_system_call_filter_is_a_reason() -> None:
    """Where the call is refused, as in containers, nothing fails: no share, and why in one line."""
    code = (
        "import os, sys, json; sys.path.insert(0, sys.argv[1])\n"
        "from refused_policy import deny; from numa.perf_events import RemoteAccess\n"
        "deny({'x86_64': 298}.get(os.uname().machine, 241))\n"
        "remote = RemoteAccess(); remote.attach(0, os.getpid()); remote.attach(1, os.getpid())\n"
        "print(json.dumps([remote.refused, remote.share(0), remote.share(1)]))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    printed = subprocess.check_output(
        [sys.executable, "-c", code, str(Path(__file__).parent)], text=True, env=environment
    )
    reason, *shares = json.loads(printed)
    assert "EPERM" in reason
    assert shares == [None, None]


@needs_events
def test_the_limit_on_open_files_is_kept() -> None:
    """Counters take at most half of the descriptors there are; the rest is for the run itself."""
    code = (
        "import os, resource\n"
        "from numa.perf_events import PAGE_FAULTS, ProcessCounters\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
        "kept = []\n"
        "try:\n"
        "    while True: kept.append(ProcessCounters(os.getpid(), (PAGE_FAULTS,)))\n"
        "except OSError as error: print(error.strerror, len(kept))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    printed = subprocess.check_output([sys.executable, "-c", code], text=True, env=environment)
    reason, _, count = printed.strip().rpartition(" ")
    assert reason == os.strerror(24)
    assert 20 < int(count) <= 32


def test_what_the_share_is_a_part_of() -> None:
    """Loads from other nodes are a part of all loads, whether the first counter has them or not."""
    assert remote_share(300, 100, loads_are_local=True) == 0.25
    assert remote_share(400, 100, loads_are_local=False) == 0.25
    assert remote_share(0, 0, loads_are_local=True) is None
    # Counted one after the other, the two need not agree to the last.
    assert remote_share(10, 11, loads_are_local=False) == 1.0


@pytest.mark.parametrize(
    ("vendor", "family", "model", "local"),
    [
        ("GenuineIntel", 6, 45, False),
        ("GenuineIntel", 6, 85, True),
        ("GenuineIntel", 6, 143, True),
        ("GenuineIntel", 19, 1, True),
        ("AuthenticAMD", 16, 9, False),
    ],
)
def test_what_the_processor_counts(
    tmp_path: Path, vendor: str, family: int, model: int, local: bool
) -> None:
    """Intel's processors since Haswell count local loads alone, others all."""
    path = tmp_path / "cpuinfo"
    one = f"processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\n"
    path.write_text(one + "model name\t: Some 3000 Model: X\n\nprocessor\t: 1\nmodel\t\t: 1\n")
    assert loads_are_local(path) is local
    assert loads_are_local(tmp_path / "none") is False
