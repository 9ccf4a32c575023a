"""Processes of `unloader` that `random_kills.py` and `random_table_kills.py` start and kill."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent

LONGEST_SECONDS = 900
"""A process that runs longer hangs. Guess: a machine full of other work is slow."""


class Broken(Exception):
    """A promise that did not hold."""


@dataclass(kw_only=True)
class Attempt:
    """One process on its way: `unloader run`, or `unloader resume`."""

    process: subprocess.Popen[bytes]
    began: float
    """By the monotonic clock."""

    def workers(self) -> list[int]:
        """Return the process ids of its workers."""
        return [pid for pid in _below(self.process.pid) if _is_worker(pid)]

    def kill(self, who: str, chance: random.Random) -> bool:
        """Kill a worker, the command or the whole group; False if it has already ended."""
        if self.process.poll() is not None:
            return False
        try:
            if who == "worker":
                workers = self.workers()
                if not workers:
                    return False
                os.kill(chance.choice(workers), signal.SIGKILL)
            elif who == "command":
                self.process.kill()
            else:
                os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        if who != "worker":
            self.process.wait(60)
            # It may have ended normally just before.
            return self.process.returncode == -signal.SIGKILL
        return True


def started(arguments: list[str], log: Path, environment: Mapping[str, str]) -> Attempt:
    """Start a command of `unloader` in a new process group; its log goes into a file."""
    with open(log, "wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "unloader", *arguments, "--progress", "log"],
            cwd=CHECKOUT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=file,
            start_new_session=True,
            env=environment,
        )
    return Attempt(process=process, began=time.monotonic())


def _below(pid: int) -> list[int]:
    """Return the children of a process and their children: workers are forks of a server."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, task.read_text().split()):
                found += [child, *_below(child)]
    return found


def _is_worker(pid: int) -> bool:
    try:
        return b"numa.processes.member" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
