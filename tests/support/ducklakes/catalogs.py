"""A DuckLake catalog, made and read by separate processes."""

from __future__ import annotations

import os
import subprocess
import sys
from ast import literal_eval
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import packages_apart

_PROGRAM = Path(__file__).with_name("program.py")
_SUPPORT = Path(__file__).parents[1]


def with_extension() -> dict[str, str]:
    """Return the variables of a process that finds the DuckDB which has the extension.

    Raises:
        packages_apart.Missing: pip cannot get it.
    """
    found = packages_apart.directory("ducklake", Path(__file__).with_name("requirements.txt"))
    places = (str(found), str(_SUPPORT.parents[1]), str(_SUPPORT))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(places)}


@dataclass(frozen=True)
class DuckLake:
    """A catalog, with the schema `main` and data on a disk."""

    catalog: str
    data: Path
    env: dict[str, str]

    @classmethod
    def made(cls, root: Path, *, kind: str, env: dict[str, str]) -> DuckLake:
        """Make one below a directory; `kind` is empty for a file of DuckDB, or `sqlite:`."""
        lake = cls(catalog=f"{kind}{root / 'catalog.db'}", data=root / "data", env=env)
        lake._do("make", lake.catalog, str(lake.data))
        return lake

    def place(self, table: str) -> str:
        """Return what `--to` has for a table."""
        return f"ducklake:{self.catalog}/{table}"

    def check_contract(self, table: str) -> None:
        """Check all promises of a format of tables."""
        self._do("contract", self.place(table))

    def rows(self, statement: str) -> list[Any]:
        """Return the rows of a statement; of simple values alone."""
        return [literal_eval(line) for line in self.lines(statement)]

    def lines(self, statement: str) -> list[str]:
        """Return the rows of a statement, as Python shows them."""
        return self._do("sql", self.catalog, statement).splitlines()

    def _do(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, str(_PROGRAM), *arguments],
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout
