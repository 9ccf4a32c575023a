"""The benchmark of wide values, and its answer has what it promises."""

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


def test_each_size_is_measured_beside_values_of_1_mb() -> None:
    """At a small size: a ratio for each contest, step and size, from each source."""
    contests = ("mysql", "sqlite-tsv", "postgres-parquet")
    with tempfile.TemporaryDirectory(prefix="unloader-test-", dir="/tmp") as place:
        os.chmod(place, 0o755)
        only = [word for each in contests for word in ("--only", each)]
        done = subprocess.run(
            [sys.executable, str(ROOT / "examples" / "bench_wide_values.py"), "--json",
             "--total", "16", *only],
            env={**os.environ, "TMPDIR": place}, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert not list(Path(place).glob("unloader-bench-*"))
    assert set(report["ratios"]) == {
        f"{contest}_{step}_{size}_over_1"
        for contest in contests
        for step in ("write", "full", "check")
        for size in (4, 16)
    }
    assert all(ratio > 0 for ratio in report["ratios"].values())
