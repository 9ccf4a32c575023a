"""The script that kills and resumes runs over many tables, with a few kills."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "random_table_kills.py"


@pytest.mark.long("faults of whole runs")
@pytest.mark.parametrize("source", ["duckdb", "postgres", "oracle-test"])
def test_all_tables_are_one_state_in_the_end(tmp_path: Path, source: str) -> None:
    """Whatever was killed, and whatever was published by then."""
    # Sockets have short paths only.
    place = ["--dir", str(tmp_path)] if source == "duckdb" else []
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--source", source, "--tables", "6", "--big-tables", "1",
         "--big-rows", "2000", "--small-rows", "60", "--kills", "3", "--json", *place],
        capture_output=True, text=True, check=False, timeout=3600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["broken"] == ""
    assert report["kills"] >= 3
    assert report["runs"] >= 1
    assert report["rows_compared"] > 0
    assert list(tmp_path.iterdir()) == []
