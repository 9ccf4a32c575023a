"""The benchmark of verification runs, and its answer has what it promises."""

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


def test_every_level_is_measured_beside_the_count() -> None:
    """At a tiny size: a ratio for each contest, level and key, and the server's CPU among them."""
    with tempfile.TemporaryDirectory(prefix="unloader-test-", dir="/tmp") as place:
        os.chmod(place, 0o755)
        done = subprocess.run(
            [sys.executable, str(ROOT / "examples" / "bench_verify.py"), "--json",
             "--rows", "2000", "--runs", "1", "--only", "duckdb_csv", "--only", "postgres_parquet"],
            env={**os.environ, "TMPDIR": place}, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert not list(Path(place).glob("unloader-bench-*"))
    names = {
        f"{contest}_verify_{level}_{key}_over_run_{key}"
        for contest in ("duckdb_csv", "postgres_parquet")
        for level in ("full", "source")
        for key in ("wall", "cpu")
    }
    assert set(report["ratios"]) == names
    assert all(ratio > 0 for ratio in report["ratios"].values())
    assert any(run["server"] > 0 for run in report["runs"])
