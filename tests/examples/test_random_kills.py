"""The script that kills and resumes large unloads, with a small one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "random_kills.py"


@pytest.mark.long("faults of whole runs")
@pytest.mark.parametrize("source", ["duckdb", "postgres"])
def test_every_resume_ends_whole_and_equal(tmp_path: Path, source: str) -> None:
    """So many kills, no resume that needs a hand, no finished unit that is run again."""
    # Sockets have short paths only.
    place = ["--dir", str(tmp_path)] if source == "duckdb" else []
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--source", source, "--rows", "60k", "--kills", "4",
         "--unit-bytes", "1MiB", "--format", "parquet", "--json", *place],
        capture_output=True, text=True, check=False, timeout=3600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["broken"], report["kills"]) == ("", 4)
    assert report["resumes_that_needed_a_hand"] == 0
    assert report["finished_units_rerun"] == 0
    assert report["runs"] >= 1
    assert list(tmp_path.iterdir()) == []
