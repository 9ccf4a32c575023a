"""The script that measures the memory of wide rows, and its answer has what it promises."""

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


def test_worker_and_parent_are_measured_for_each_table() -> None:
    """At a small size: the peaks of three tables, and the ratios of many rows over one."""
    with tempfile.TemporaryDirectory(prefix="unloader-test-", dir="/tmp") as place:
        os.chmod(place, 0o755)
        done = subprocess.run(
            [sys.executable, str(ROOT / "examples" / "wide_memory.py"), "--json", "--rows", "3",
             "--megabytes", "1", "--only", "sqlite", "--only", "tsv full", "--only", "parquet"],
            env={**os.environ, "TMPDIR": place}, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert not list(Path(place).glob("unloader-bench-*"))
    forms = ("sqlite tsv full", "sqlite parquet")
    assert set(report["ratios"]) == {
        f"{form}_{at}_many_over_one" for form in forms for at in ("worker", "parent")
    }
    assert all(set(report["peaks"][form]) == {"one", "many", "mixed"} for form in forms)
