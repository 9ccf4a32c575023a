"""The benchmark of the adaptive number of workers runs, and its answer has what it promises."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.long("benchmarks")

ROOT = Path(__file__).resolve().parents[2]


def bench(*arguments: str) -> dict[str, Any]:
    """Run the benchmark, and return its answer."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "bench_adaptive.py"), "--json", *arguments],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_fixed_and_adaptive_runs_are_paired() -> None:
    """Each source has the seconds of all runs, the ratio by turns, and the curve of each turn."""
    report = bench("--only", "duckdb", "--rows", "5k", "--levels", "2", "--turns", "2")
    assert set(report["ratios"]) == set(report["sources"]) == {"duckdb"}
    for name, found in report["sources"].items():
        assert set(found["seconds"]) == {"2", "adaptive"}
        assert {len(each) for each in found["seconds"].values()} == {2}
        assert found["best_fixed"] == 2
        pairs = zip(found["seconds"]["adaptive"], found["seconds"]["2"], strict=True)
        assert found["ratios_of_turns"] == pytest.approx([a / b for a, b in pairs], rel=0.02)
        assert report["ratios"][name] == found["ratio"] > 0
        for curve in found["curves"]:
            assert sum(each["rows_per_second"] for each in curve) == found["rows"] == 5_000
            assert max(each["may_work"] for each in curve) <= 2


def test_a_second_load_comes_and_goes() -> None:
    """Workers are fewer while the load is there; the search decides when they are more again.

    The table takes far longer than all answers may take together.
    """
    load = ("--second-load", "database", "--load-seconds", "1", "--patience", "15")
    found = bench("--only", "postgres", "--rows", "2M", "--cost", "400", *load)
    report = found["sources"]["postgres"]
    assert report["limit"] == "--max-db-load 5"
    assert report["backed_off_seconds"][0] is not None
    assert len(report["backed_off_seconds"]) == len(report["climbed_again_seconds"]) == 2
    assert {each["load"] for each in report["curve"]} == {0, 4}
    assert report["steps"][0]["cause"] == "start"
    assert 1 in {each["workers"] for each in report["steps"] if each["cause"] == "limit"}
