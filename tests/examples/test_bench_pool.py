"""The benchmark of the pool runs, and its answer has what it promises."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long("benchmarks")

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(sys.platform != "linux", reason="it reads CPU time from /proc")
def test_every_contender_runs() -> None:
    """With a few tasks every contender gives its figures."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "bench_pool.py"), "--json", "--tasks", "200",
         "--runs", "1", "--start-workers", "2"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    report = json.loads(done.stdout)
    assert set(report["tasks"]) == {
        *("supervisor", "supervisor_limits", "pool", "executor", "multiprocessing")
    }
    assert all(figures["wall_us"] > 0 for figures in report["tasks"].values())
    assert all(figures["ready_s"] > figures["parent_s"] > 0 for figures in report["start"].values())
