"""The benchmark of many tables runs, and its answer has what it promises."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.long("benchmarks")

ROOT = Path(__file__).resolve().parents[2]


def test_all_tables_are_listed_and_described(postgres: Any) -> None:
    """Of each database, with the CPU that a table takes."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "bench_listing.py"), "--json", "--tables", "30",
         "--duckdb", "30", "--sqlite", "30", "--postgres", postgres.database("bench listing")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    report = json.loads(done.stdout)
    assert set(report) == {"duckdb", "sqlite", "postgresql"}
    for figures in report.values():
        assert figures["tables"] == 30
        assert figures["cpu_ms_per_table"] > 0
