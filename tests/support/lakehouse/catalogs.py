"""A catalog of Iceberg tables in SQLite, and two readers of the tables."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb
import pytest


@dataclass(frozen=True)
class Lake:
    """A catalog named `lake` with a namespace `ns`."""

    root: Path
    warehouse: str = ""

    @property
    def env(self) -> dict[str, str]:
        """Variables that tell pyiceberg of the catalog."""
        # Anyone who finds it locked waits for minutes, not for five seconds.
        return {
            "PYICEBERG_CATALOG__LAKE__TYPE": "sql",
            "PYICEBERG_CATALOG__LAKE__URI": f"sqlite:///{self.root / 'catalog.db'}?timeout=180",
            "PYICEBERG_CATALOG__LAKE__WAREHOUSE": self.warehouse or f"file://{self.root / 'wh'}",
        }

    def open(self, **more: str) -> Any:
        """Return the catalog; this process has read its variables once, maybe long ago."""
        from pyiceberg.catalog.sql import SqlCatalog

        values = {name.rpartition("__")[2].lower(): value for name, value in self.env.items()}
        return SqlCatalog("lake", **values, **more)

    def table(self, name: str) -> Any:
        """Return a table as it is now."""
        return self.open().load_table(f"ns.{name}")

    def home(self, name: str) -> Path:
        """Return where the newest run for a table lies."""
        return self.homes(name)[-1]

    def homes(self, name: str) -> list[Path]:
        """Return where the runs for a table lie, the oldest first."""
        data = self.root / "wh" / "ns" / name / "data"
        return sorted(path for path in data.glob("*") if path.name[0] != ".")

    def runs(self, name: str, branch: str = "main") -> list[str]:
        """Return the ids of the runs that a branch has committed, the oldest first."""
        table = self.table(name)
        found: list[str] = []
        at = table.metadata.refs.get(branch)
        snapshot = None if at is None else table.snapshot_by_id(at.snapshot_id)
        while snapshot is not None:
            run = snapshot.summary.additional_properties.get("unloader.run-id")
            found.insert(0, run or "")
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else table.snapshot_by_id(parent)
        return found

    @contextmanager
    def held(self, how: str) -> Iterator[None]:
        """Hold the catalog up: no one may read it (EXCLUSIVE), or write it (IMMEDIATE)."""
        connection = sqlite3.connect(self.root / "catalog.db", isolation_level=None)
        try:
            connection.execute(f"BEGIN {how}")
            yield
        finally:
            connection.close()


def lake(root: Path) -> Lake:
    """Make a catalog."""
    made = Lake(root)
    made.open().create_namespace("ns")
    return made


def rows_of_files(table: Any, columns: str = "*", branch: str = "main") -> list[tuple[Any, ...]]:
    """Return the rows that DuckDB reads from the files that the metadata names, in order."""
    refs = table.metadata.refs
    if branch not in refs:
        return []
    tasks = table.scan().use_ref(branch).plan_files()
    files = [task.file.file_path.removeprefix("file://") for task in tasks]
    if not files:
        return []
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        query = f"SELECT {columns} FROM read_parquet($files) ORDER BY ALL"
        return connection.execute(query, {"files": files}).fetchall()


def rows_of_table(table: Any, branch: str = "main") -> list[tuple[Any, ...]]:
    """Return the rows that pyiceberg reads, in order of the first column."""
    refs = table.metadata.refs
    if branch not in refs:
        return []
    found = table.scan().use_ref(branch).to_arrow().to_pylist()
    return sorted(tuple(row.values()) for row in found)


def receipt_of(home: Path) -> dict[str, Any]:
    """Return the commit in the record of a run."""
    found: dict[str, Any] = json.loads((home / "_committed.json").read_text())
    return found


def rows_of_log(root: Path, columns: str = "*") -> list[tuple[Any, ...]]:
    """Return the rows of a Delta table: its log read here, the files by DuckDB."""
    files: dict[str, None] = {}
    for path in sorted((root / "_delta_log").glob("*.json")):
        for line in path.read_text().splitlines():
            action = json.loads(line)
            if "add" in action:
                files[action["add"]["path"]] = None
            if "remove" in action:
                del files[action["remove"]["path"]]
    if not files:
        return []
    paths = [str(root / unquote(each)) for each in files]
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        query = f"SELECT {columns} FROM read_parquet($files) ORDER BY ALL"
        return connection.execute(query, {"files": paths}).fetchall()


@pytest.fixture
def the_lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A catalog and its warehouse."""
    for name, value in Lake(tmp_path).env.items():
        monkeypatch.setenv(name, value)
    return lake(tmp_path)
