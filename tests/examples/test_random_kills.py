"""The script that kills and resumes large unloads, with a small one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "random_kills.py"


@pytest.mark.long("faults of whole runs")
def test_every_resume_ends_whole_and_equal() -> None:
    """So many kills, no resume that needs a hand, no finished unit that is run again.

    Another session changes rows behind every kill.
    """
    # Sockets have short paths only, and the server has a user of its own.
    with tempfile.TemporaryDirectory(prefix="unloader-test-", dir="/tmp") as place:
        os.chmod(place, 0o755)
        done = subprocess.run(
            [sys.executable, str(SCRIPT), "--source", "postgres", "--rows", "60k", "--kills", "4",
             "--unit-bytes", "1MiB", "--format", "parquet", "--json", "--dir", place],
            capture_output=True, text=True, check=False, timeout=3600,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert not list(Path(place).iterdir())
    report = json.loads(done.stdout)
    assert (report["broken"], report["kills"]) == ("", 4)
    assert report["resumes_that_needed_a_hand"] == 0
    assert report["finished_units_rerun"] == 0
    assert report["runs"] >= 1
