"""The command as a user has it, and a small database to use it on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import command
from schemas.json_schema import check_at

ROOT = Path(__file__).parents[3]
COMMAND = (sys.executable, "-m", "unloader")

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def program() -> tuple[str, ...]:
    """The start of every command line."""
    return COMMAND


@pytest.fixture
def environment() -> dict[str, str]:
    """The variables of this process without any of ours, and the checkout on the path."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("UNLOADER_")}
    return {**kept, "PYTHONPATH": str(ROOT)}


@pytest.fixture
def unloader(tmp_path: Path, environment: dict[str, str]) -> Run:
    """Run the command in an empty directory and return its output and status."""

    def run(
        *arguments: str, variables: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        done = command.ended(*arguments, env={**environment, **(variables or {})}, cwd=tmp_path)
        if done.returncode == 0:
            check_at(arguments, tmp_path)
        return done

    return run


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a DuckDB file with the tables `orders` (3,000 rows) and `Odd, Name`."""
    import duckdb

    path = tmp_path_factory.mktemp("cli") / "sales.db"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "CREATE TABLE orders AS SELECT i AS id, 'name ' || i AS name, "
            "CAST(i * 1.25 AS DECIMAL(12, 2)) AS amount FROM range(3000) t(i)"
        )
        connection.execute('CREATE TABLE "Odd, Name" AS SELECT 1 AS "a,b", 2 AS c')
    return f"duckdb://{path}"
