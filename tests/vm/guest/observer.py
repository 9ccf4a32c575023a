"""Sees where the workers of a run are, by /proc alone, without their own reports.

Runs in a guest.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_NAME = re.compile(r"worker-(\d+)")
_PAGES = re.compile(r"\bN(\d+)=(\d+)")
_PAGE_KB = re.compile(r"\bkernelpagesize_kB=(\d+)")
_ALLOWED = re.compile(r"^Cpus_allowed_list:\s*(\S+)", re.MULTILINE)
# proc(5), counted after the parenthesis of the program's name.
_FLAGS, _PROCESSOR = 6, 36
_EXITING = 0x4
"""Of linux/sched.h."""


@dataclass(slots=True)
class _Process:
    """Observations of one process of a worker."""

    worker: int
    looks: int = 0
    allowed: dict[str, None] = field(default_factory=dict)
    ran_on: set[int] = field(default_factory=set)
    policies: set[str] = field(default_factory=set)
    own_bytes: dict[int, int] = field(default_factory=dict)


class Observer:
    """Of one run."""

    def __init__(self, run: int) -> None:
        """Take the process id of the run."""
        self._run = run
        self._processes: dict[int, _Process] = {}

    def look(self) -> None:
        """Look at each worker of the run; a dead one keeps its observations."""
        self._look_below(str(self._run))

    def at_work(self) -> set[int]:
        """Return the workers that have been looked at three times."""
        return {each.worker for each in self._processes.values() if each.looks >= 3}

    def seen(self) -> list[dict[str, Any]]:
        """Return the observations, by worker and then in order of the process's start."""
        return [
            {
                "worker": each.worker,
                "allowed": list(each.allowed),
                "ran_on": sorted(each.ran_on),
                "policies": sorted(each.policies),
                "own_bytes": each.own_bytes,
            }
            for _, each in sorted(self._processes.items(), key=lambda item: item[1].worker)
        ]

    def _look_below(self, process: str) -> None:
        # Each thread tells its own. To look through all of /proc is slow on an emulated CPU.
        with suppress(OSError):
            for thread in Path(f"/proc/{process}/task").iterdir():
                for child in (thread / "children").read_text().split():
                    # It may go while we look at it.
                    with suppress(OSError, IndexError):
                        self._look_at(Path("/proc") / child)
                    self._look_below(child)

    def _look_at(self, folder: Path) -> None:
        words = (folder / "cmdline").read_bytes().split(b"\0")
        names = [match for match in map(_NAME.fullmatch, map(bytes.decode, words)) if match]
        if not names:
            return  # forked, and not a worker yet
        maps = (folder / "numa_maps").read_text()
        if int(_stat(folder)[_FLAGS]) & _EXITING:
            return  # its policy and memory go before itself
        process = self._processes.setdefault(int(folder.name), _Process(worker=int(names[0][1])))
        for thread in (folder / "task").iterdir():
            with suppress(OSError):
                process.ran_on.add(int(_stat(thread)[_PROCESSOR]))
                for allowed in _ALLOWED.findall((thread / "status").read_text()):
                    process.allowed[allowed] = None
        own: dict[int, int] = {}
        policies = set()
        for line in maps.splitlines():
            pages = _PAGES.findall(line)
            size = _PAGE_KB.search(line)
            if " file=" in line or not pages or size is None:
                continue
            policies.add(line.split(" ", 2)[1])
            for node, count in pages:
                own[int(node)] = own.get(int(node), 0) + int(count) * int(size[1]) * 1024
        process.own_bytes, process.policies = own, process.policies | policies
        process.looks += 1


def _stat(folder: Path) -> list[str]:
    return (folder / "stat").read_text().rpartition(")")[2].split()
