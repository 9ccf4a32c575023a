"""The benchmark of the smallest run works, and its answer has what it promises."""

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


def test_the_smallest_run_is_measured_from_each_source() -> None:
    """Every ratio is there and tells of some work; nothing is left behind."""
    with tempfile.TemporaryDirectory(prefix="unloader-test-", dir="/tmp") as place:
        os.chmod(place, 0o755)
        done = subprocess.run(
            [sys.executable, str(ROOT / "examples" / "bench_start.py"), "--json", "--runs", "1",
             "--rows", "10", "--workers", "3", "--dir", place],
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert not list(Path(place).iterdir())
    report = json.loads(done.stdout)
    sources = ("sqlite", "postgres", "duckdb", "oracle")
    for source in sources:
        assert report["ratios"][f"{source}_cpu_vs_import"] > 1
        assert report["medians"][source]["wall_s"] > 0
    assert report["cpu_s_per_worker"] > 0
    assert {"postgres_wall_vs_psql", "duckdb_cpu_vs_copy"} <= set(report["ratios"])
