"""The benchmark of a resumption runs, and its answer has what it promises."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long("benchmarks")

ROOT = Path(__file__).resolve().parents[2]


def test_a_run_of_many_units_is_continued(tmp_path: Path) -> None:
    """All units that were staged are kept, and the others unloaded."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "bench_resume.py"), "--json", "--units", "300",
         "--dir", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    report = json.loads(done.stdout)
    assert (report["units"], report["kept"]) == (300, 200)
    assert report["peak_rss_bytes"] > 0
    assert report["ratios"]["resume_cpu_microseconds_per_kept_unit"] > 0
