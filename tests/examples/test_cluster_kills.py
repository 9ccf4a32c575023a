"""The script that kills machines of a cluster, with few of them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from amounts import amount

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "cluster_kills.py"
RUNS = amount("UNLOADER_TEST_CLUSTER_KILLS", 2, 2)


@pytest.mark.long("runs in clusters")
def test_each_run_is_equal_whatever_is_killed() -> None:
    """Machines are network namespaces: each run is that of one machine, byte for byte."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and the program ip (Debian: iproute2)")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--rows", "200k", "--runs", str(RUNS), "--json",
         "--kinds", "host,worker", "--seed", "2"],
        capture_output=True, text=True, check=False, timeout=3600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["broken"], report["runs"]) == ("", RUNS)
