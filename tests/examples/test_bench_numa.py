"""The benchmark of the placement runs, and its answer has what it promises."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long("benchmarks")

ROOT = Path(__file__).resolve().parents[2]


def test_both_ways_are_compared(tmp_path: Path) -> None:
    """At a tiny size there are ratios with their spread and the cost of a look; no file is left."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "bench_numa.py"), "--json", "--rows", "2000",
         "--runs", "1", "--parallelism", "1", "--sizes", "8", "--dir", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    report = json.loads(done.stdout)
    assert sorted(report["ratios"]) == [
        "cpu_auto_vs_off",
        "cpu_off_vs_off",
        "wall_auto_vs_off",
        "wall_off_vs_off",
    ]
    for ratio in report["ratios"].values():
        assert 0 < ratio["least"] <= ratio["median"] <= ratio["most"]
    assert [each["pages"] for each in report["look_ms"]] == ["small", "huge"]
    assert all(each["cpus"] >= 0 and each["pages_and_cpus"] > 0 for each in report["look_ms"])
    assert not list(tmp_path.iterdir())
