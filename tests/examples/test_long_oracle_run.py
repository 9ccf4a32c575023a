"""The long run of Oracle is measured over its time, and judged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "examples" / "long_oracle_run.py"

JUDGING = """
import json, sys
sys.path.insert(0, sys.argv[1])
from long_oracle_run import Look, figures, judged, ratios
for what in sys.argv[2:]:
    looks, rows = [], 0
    for number in range(100):
        rows += 400_000 if what == "slower" and number >= 75 else 500_000
        # What a run takes at its start is no growth.
        memory = (100 if number < 20 else 180) << 20
        memory += number * 200_000 if what == "growing" else (number * 7919 % 31) << 10
        looks.append(Look(seconds=float(number), rows=rows, memory=memory))
    report = {**figures(looks), "ratios": ratios(looks), "rows": rows}
    print(json.dumps(judged(report, rows + 1 if what == "lost" else rows)))
"""


def test_what_is_wrong_is_named() -> None:
    """A rate that falls, memory that grows, a row that is missing; everything else passes."""
    done = subprocess.run(
        [sys.executable, "-c", JUDGING, str(SCRIPT.parent), "fine", "slower", "growing", "lost"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    fine, slower, growing, lost = map(json.loads, done.stdout.splitlines())
    assert fine == []
    assert [text.partition(" to ")[0] for text in slower] == ["the rate fell"]
    assert [text.partition(" by ")[0] for text in growing] == ["memory grew"]
    assert lost == ["50,000,000 rows were written instead of 50,000,001"]


@pytest.mark.long("long run")
def test_the_rows_of_a_long_run_are_counted_and_its_time_is_cut_in_parts() -> None:
    """What its rates are is left to anyone who measures on a quiet machine."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--rows", "1M", "--distinct", "40k", "--interval", "0.02",
         "--json"],
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    report = json.loads(done.stdout)
    assert report["rows"] == 1_000_000
    assert len(report["rows_per_second"]) == 10
    assert report["most_memory_bytes"] > 10_000_000
    assert report["stages"]["longest"] in report["stages"]
    assert not [text for text in report["problems"] if "rows were written instead of" in text]
