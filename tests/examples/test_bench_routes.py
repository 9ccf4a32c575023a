"""The benchmark of routes runs, and its answer has what it promises."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.long("benchmarks")

ROOT = Path(__file__).resolve().parents[2]


def test_routes_are_measured_beside_runs_of_their_own() -> None:
    """At a tiny size: every ratio is there, and the files were compared."""
    with tempfile.TemporaryDirectory(prefix="unloader-test-", dir="/tmp") as place:
        os.chmod(place, 0o755)
        done = subprocess.run(
            [sys.executable, str(ROOT / "examples" / "bench_routes.py"), "--json",
             "--source", "duckdb", "--rows", "2000", "--runs", "1"],
            env={**os.environ, "TMPDIR": place}, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert not list(Path(place).glob("unloader-bench-*"))
    assert {"four_routes_cpu_vs_four_runs", "four_routes_cpu_per_row_vs_four_runs"} <= set(
        report["ratios"]
    )
    assert "transform_cpu_s_per_million_rows" in report["figures"]
    assert report["equal_files"] >= 4
