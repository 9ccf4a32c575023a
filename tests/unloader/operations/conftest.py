"""A small database to run on, and a run that fails."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a DuckDB file with the table `t` of 500 rows."""
    import duckdb

    path = tmp_path_factory.mktemp("operations") / "s.db"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE t AS SELECT i AS id FROM range(500) r(i)")
    return f"duckdb://{path}"


@pytest.fixture
def to(tmp_path: Path) -> tuple[str, ...]:
    """The end of a command line that unloads `t` into `out`."""
    return ("--table", "t", "--to", str(tmp_path / "out"), "--parallelism", "1")
