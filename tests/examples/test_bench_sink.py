"""The benchmark of the sink runs, and its answer has what it promises."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long("benchmarks")

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(shutil.which("dd") is None, reason="there is no dd to compare with")
def test_every_contender_runs(tmp_path: Path) -> None:
    """At a tiny size every contender gives a ratio, and no file or pipe is left."""
    names = ("pipe", "pipe_zstd", "disk", "cpu", "cpu_copied", "checksum_xxh3", "checksum_sha256")
    only = [part for name in names for part in ("--only", name)]
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "bench_sink.py"), "--json", "--size", "8",
         "--runs", "1", "--rate", "400", "--directory", str(tmp_path), *only],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    report = json.loads(done.stdout)
    assert sorted(report["ratios"]) == sorted(names)
    assert all(ratio > 0 for ratio in report["ratios"].values())
    assert not list(tmp_path.iterdir())
