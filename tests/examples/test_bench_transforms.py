"""The benchmark of transforms runs, and its answer has what it promises."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long("benchmarks")

ROOT = Path(__file__).resolve().parents[2]


def test_every_transform_is_measured() -> None:
    """At a tiny size each one gives a figure and a ratio to the copy."""
    script = ROOT / "examples" / "bench_transforms.py"
    done = subprocess.run(
        [sys.executable, str(script), "--json", "--rows", "3000", "--runs", "1"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        capture_output=True,
        text=True,
    )
    report = json.loads(done.stdout)
    assert report["ratios"].keys() == report["cpu_s_per_million_rows"].keys()
    assert {"copy", "four_fields", "hash_unique", "sql_upper"} <= report["ratios"].keys()
    assert all(ratio > 0 for ratio in report["ratios"].values())
