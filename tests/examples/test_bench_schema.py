"""The benchmark of whole schemas runs on each source, and checks what was written."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.long("benchmarks")

ROOT = Path(__file__).resolve().parents[2]
TINY = ["--big-rows", "3000", "--small-rows", "50", "--runs", "1", "--loop-small", "1"]


@pytest.fixture
def short_directory() -> Iterator[Path]:
    """Yield a directory whose path is short enough for a socket and open to the server's user."""
    directory = Path(tempfile.mkdtemp(prefix="unloader-test-", dir="/tmp"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


def _report(*arguments: str) -> dict[str, Any]:
    script = ROOT / "examples" / "bench_schema.py"
    done = subprocess.run(
        [sys.executable, str(script), "--json", *TINY, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        capture_output=True,
        text=True,
    )
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_hostile_names_in_postgres_are_one_state_while_a_writer_commits(
    short_directory: Path,
) -> None:
    """Each table is compared with what one transfer of all has left; all sides have a ratio."""
    report = _report("--tables", "35", "--dir", str(short_directory))
    assert {"wall_vs_pg_dump", "wall_vs_loop", "cpu_vs_loop", "wall_vs_psql"} <= set(
        report["ratios"]
    )
    assert all(each["tables"] == 35 for each in report["checked"])
    assert len(report["checked"]) == 4


def test_another_source_is_compared_with_the_loop(tmp_path: Path) -> None:
    """Every row is in the files once."""
    only = ["--only", "ours_counted", "--only", "loop", "--dir", str(tmp_path)]
    report = _report("--source", "duckdb", "--tables", "6", "--big-tables", "1", *only)
    assert set(report["ratios"]) == {"wall_vs_loop", "cpu_vs_loop"}
    assert [each["tables"] for each in report["checked"]] == [6, 6]
