"""Workers that hold too much memory after a work unit, in the whole program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
from long_tests import OTHER_ROUTES
from processes import command

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux tells a process's memory"
)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table of four partitions of a hundred rows."""
    path = tmp_path_factory.mktemp("duck") / "t.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE t AS SELECT range AS k FROM range(400)")
        connection.execute(
            "CREATE TABLE unloader_partitions AS SELECT 'main' AS table_schema, 't' AS table_name,"
            " 'p' || range AS partition_name, range AS position, range * 100 AS first_rowid,"
            " range * 100 + 99 AS last_rowid FROM range(4)"
        )
    return f"duckdb://{path}"


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.parametrize(("limit", "restarts"), [("1MiB", 3), ("100GiB", 0)])
def test_a_worker_above_the_limit_is_replaced_before_the_next_unit(
    database: str, tmp_path: Path, limit: str, restarts: int
) -> None:
    """Each replacement is one line of the log and counted in the manifest; no row is lost."""
    done = subprocess.run(
        [*command.UNLOADER, "run", database, "--table", "t", "--to", str(tmp_path / "out"),
         "--parallelism", "1", "--split", "partition", "--no-header", "--worker-memory", limit,
         "--progress", "log"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    manifest = command.manifest_of(tmp_path / "out")
    assert [unit["attempts"] for unit in manifest["units"]] == [1] * 4
    (worker,) = manifest["workers"]
    assert worker["restarts"] == restarts
    told = [line for line in done.stderr.splitlines() if "--worker-memory" in line]
    assert len(told) == restarts
    assert all(
        f"more than --worker-memory {limit}: the worker is replaced" in line for line in told
    )
    rows = [
        int(line) for path in (tmp_path / "out").glob("*.csv") for line in path.read_text().split()
    ]
    assert sorted(rows) == [*range(400)]
