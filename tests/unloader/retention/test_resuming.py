"""A broken run in a directory with fields is continued, and all that follows a run follows it."""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pytest
from long_tests import OTHER_ROUTES, also
from processes import command
from processes.breaking import kill_after
from schemas.json_schema import checked

ROWS = 20000


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a DuckDB file with a table of many small units."""
    path = tmp_path_factory.mktemp("source") / "s.db"
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"CREATE TABLE t AS SELECT i, 'text ' || i AS v FROM range({ROWS}) r(i)")
    return f"duckdb://{path}"


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.parametrize("way", ["run", *also(OTHER_ROUTES, "resume")])
def test_a_broken_run_of_today(source: str, tmp_path: Path, way: str) -> None:
    """The link leads to it, the metrics have all its rows, the command runs at its end."""
    metrics, today = tmp_path / "x.prom", f"{datetime.now(UTC):%Y%m%d}"
    job = (
        *("run", source, "--table", "t", "--to", f"{tmp_path}/{{table}}/{{date}}"),
        *("--unit-bytes", "128kB", "--parallelism", "1", "--keep", "2", "--latest-link", "latest"),
    )
    directory = tmp_path / "t" / today
    kill_after(3, directory, *job)
    old = tmp_path / "t" / "20200101"
    shutil.copytree(directory, old)
    watched = (
        *("--metrics-file", str(metrics), "--on-success"),
        f'echo "$UNLOADER_RUN_DEST" > {tmp_path}/told',
    )
    again = (*job, "--resume-or-start") if way == "run" else ("resume", str(directory))
    done = command.ended(*again, *watched, "--log-format", "json")
    assert done.returncode == 0, done.stderr
    assert "units_kept" in [line["event"] for line in checked(done.stderr)]
    assert command.manifest_of(directory)["totals"]["rows"] == ROWS
    assert not (directory / "_run").exists()
    assert (old / "_run").is_dir()
    assert os.readlink(tmp_path / "t" / "latest") == today
    assert (tmp_path / "told").read_text() == f"{directory}\n"
    labels = f'{{destination="{tmp_path}/{{table}}/{{date}}",source="duckdb",table="t"}}'
    assert f"unloader_run_rows_total{labels} {float(ROWS)}" in metrics.read_text()
