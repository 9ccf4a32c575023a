"""Sweeps that are replayed by `unloader sweep --replay`, all by one process that has scipy."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from processes.program import Program

ROOT = Path(__file__).parents[3]
PUBLISHED = ROOT / "examples" / "published_points.csv"

_PROGRAM = Path(__file__).with_name("answering_program.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How a call ended, and what it wrote."""

    status: int
    out: str
    err: str


def environment(packages: Path) -> dict[str, str]:
    """Return the variables of a process that finds the packages of a directory."""
    # One thread: these matrices have ten rows, and other tests run beside.
    path = os.pathsep.join((str(packages), str(ROOT)))
    return {**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"}


class Replays:
    """The process, and the files that it is given."""

    def __init__(self, packages: Path, directory: Path) -> None:
        """Start it."""
        self._directory, self._count = directory, 0
        self._process = Program(
            [sys.executable, str(_PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(packages),
            cwd=directory,
        )

    def close(self) -> None:
        """End it."""
        self._process.communicate()

    def call(self, *arguments: str) -> Answer:
        """Return how a call of the command line ends."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(arguments) + "\n")
        self._process.stdin.flush()
        return Answer(**json.loads(self._process.stdout.readline()))

    def file(self, content: str | bytes) -> Path:
        """Return a new file of points."""
        self._count += 1
        path = self._directory / f"points{self._count}.csv"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def answer(self, points: str | Path, *options: str) -> dict[str, Any]:
        """Return the JSON for a file, or for the text of one, which must be understood."""
        path = points if isinstance(points, Path) else self.file(points)
        done = self.call("sweep", "--replay", str(path), "--json", *options)
        assert done.status == 0, done.err
        found: dict[str, Any] = json.loads(done.out, parse_constant=_no_number)
        return found

    def error(self, points: str | bytes | Path, *options: str, status: int = 3) -> str:
        """Return the one error for a file that must be refused."""
        path = points if isinstance(points, Path) else self.file(points)
        done = self.call("sweep", "--replay", str(path), *options)
        assert done.status == status, (done.out, done.err)
        assert done.out == ""
        (line,) = done.err.splitlines()
        assert line.startswith("unloader: error:")
        assert "Next: " in line
        return line


def _no_number(text: str) -> None:
    raise AssertionError(f"{text} is no JSON")


def rows(pairs: Iterable[tuple[int, float]]) -> str:
    """Return a file of points."""
    lines = (f"{parallelism},{seconds!r}" for parallelism, seconds in pairs)
    return "\n".join(("parallelism,seconds", *lines)) + "\n"


def curve(seconds: Callable[[int], float], levels: Sequence[int]) -> list[tuple[int, float]]:
    """Return the points of a curve."""
    return [(level, seconds(level)) for level in levels]


def scaled(contention: float, coherency: float = 0.0) -> Callable[[int], float]:
    """Return the seconds of 1,000 s of work by the universal scalability law."""

    def seconds(level: int) -> float:
        waits = contention * (level - 1) + coherency * level * (level - 1)
        return 1000 * (1 + waits) / level

    return seconds


def bent(bend: float, share: float) -> Callable[[int], float]:
    """Return the seconds of work that scales up to a bend, and by a share of that beyond it."""
    return lambda level: 1000 / (min(level, bend) + share * max(level - bend, 0))


def knee_of(contention: float) -> float:
    """Return where Amdahl's law lets another worker bring half of what the first one brings."""
    return 1 + (math.sqrt(2 * (1 - contention)) - 1) / contention
