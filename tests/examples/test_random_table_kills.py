"""The script that kills and resumes runs over many tables, with a few kills."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "random_table_kills.py"


@pytest.mark.long("faults of whole runs")
def test_all_tables_are_one_state_in_the_end() -> None:
    """Whatever was killed, and whatever was published by then, while a writer goes on."""
    # Sockets have short paths only, and the server has a user of its own.
    with tempfile.TemporaryDirectory(prefix="unloader-test-", dir="/tmp") as place:
        os.chmod(place, 0o755)
        done = subprocess.run(
            [sys.executable, str(SCRIPT), "--source", "postgres", "--tables", "6",
             "--big-tables", "1", "--big-rows", "2000", "--small-rows", "60", "--kills", "3",
             "--json", "--dir", place],
            capture_output=True, text=True, check=False, timeout=3600,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert not list(Path(place).iterdir())
    report = json.loads(done.stdout)
    assert report["broken"] == ""
    assert report["kills"] >= 3
    assert report["runs"] >= 1
    assert report["rows_compared"] > 0
