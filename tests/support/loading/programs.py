"""The programs that load our files: their start, and the reading of their rows.

They run the text of docs/dialects.md: below the heading of a program the command that unloads, and
the command or expression that loads. `SOURCE` and `DEST` in it are replaced, nothing else.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import packages_apart

HERE = Path(__file__).parent
PAGE = HERE.parents[2] / "docs" / "dialects.md"
SECTION = "## Loading the files"
SECONDS = 300

Row = tuple[int, str | None, str | None]


def blocks() -> dict[str, list[str]]:
    """Return the commands of the page below each heading of a program, in their order."""
    text = PAGE.read_text(encoding="utf-8").partition(f"\n{SECTION}\n")[2]
    found: dict[str, list[str]] = {}
    for part in re.split(r"^### ", text.partition("\n## ")[0], flags=re.MULTILINE)[1:]:
        name, _, body = part.partition("\n")
        paragraphs = re.findall(r"(?:^    .*\n|^\n(?=    ))+", body, flags=re.MULTILINE)
        lines = "\n".join(paragraphs).splitlines()
        found[name] = _commands([line.removeprefix("    ") for line in lines])
    return found


def _commands(lines: list[str]) -> list[str]:
    """Return commands; a line that is indented further belongs to the one before it."""
    found: list[str] = []
    for line in lines:
        if line.startswith(" ") and found:
            found[-1] += f"\n{line}"
        elif line:
            found.append(line)
    return found


@dataclass(frozen=True)
class Program:
    """A program that is started by a shell, and asked for its rows in hexadecimal digits."""

    environment: dict[str, str]
    create: tuple[str, ...]
    """Makes the empty table `items`."""
    rows: tuple[str, ...]
    """Prints number and texts of each row, with tabs between; a null is `NULL`."""

    def loaded(self, commands: list[str]) -> list[Row]:
        """Run the commands of the page in a shell, and return the rows."""
        self.run(self.create)
        for each in commands:
            self.run(("bash", "-c", each))
        return [_row(line) for line in self.run(self.rows).splitlines()]

    def variables(self) -> dict[str, str]:
        """Return the environment of its commands."""
        return {**os.environ, **self.environment}

    def run(self, command: tuple[str, ...]) -> str:
        """Run a command, check its exit status, and return the output."""
        done = subprocess.run(
            command,
            env=self.variables(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout


def _row(line: str) -> Row:
    number, *texts = line.split("\t")
    first, second = (None if text == "NULL" else bytes.fromhex(text).decode() for text in texts)
    return int(number), first, second


def in_python(library: str) -> Callable[[list[str]], list[Row]]:
    """Return what evaluates an expression of a library in a process that may import it.

    Raises:
        packages_apart.Missing: The packages cannot be fetched.
    """
    requirements = HERE / f"requirements-{library}.txt"
    apart = requirements.exists()
    path = packages_apart.directory(f"loaders-{library}", requirements) if apart else ""

    def loaded(commands: list[str]) -> list[Row]:
        (expression,) = commands
        done = subprocess.run(
            [sys.executable, str(HERE / "evaluate.py"), library],
            input=expression,
            env={**os.environ, "PYTHONPATH": str(path), "PYTHONSAFEPATH": "1"},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return [tuple(row) for row in json.loads(done.stdout)]

    return loaded
