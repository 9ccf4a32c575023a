"""The endurance loop runs, and judges its samples."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from example_scripts import HERE, report

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "examples" / "endurance.py"

JUDGING = """
import argparse, json, sys
sys.path.insert(0, sys.argv[1])
from endurance import ALLOWED, Sample, judged
for growing in sys.argv[2:]:
    samples = []
    for number in range(1, 101):
        values = dict.fromkeys(ALLOWED, 0)
        values["resident_bytes"] = 200 << 20
        if growing == "noise":
            values["resident_bytes"] += (number * 7919 % 31) << 20
            values["descriptors"] = 9 if number == 60 else 6
        elif growing in values:
            values[growing] += number * (500_000 if growing == "resident_bytes" else 1)
        samples.append(Sample(round=number, seconds=number * 36.0, what="whole", **values))
    print(json.dumps(judged(samples, argparse.Namespace(seed=1, rows=1))["grown"]))
"""


def test_growth_is_told_from_noise() -> None:
    """A steady slope is named; memory that goes up and down, or one odd round, is not."""
    growing = ("nothing", "noise", "resident_bytes", "descriptors", "temporary_files")
    done = subprocess.run(
        [sys.executable, "-c", JUDGING, str(SCRIPT.parent), *growing],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert found == [[], [], ["resident_bytes"], ["descriptors"], ["temporary_files"]]


@pytest.mark.long("endurance")
def test_a_dozen_rounds_leave_nothing_behind() -> None:
    """Whole, stopped and failed runs leave no process, descriptor, thread or temporary file."""
    found = report(
        "endurance.py", "--rounds", "12", "--rows", "5000", "--no-postgres", "--dir", HERE
    )
    assert found["grown"] == []
    assert found["rounds"] == 12
    assert found["figures"]["descriptors"]["judged"]
    assert any(kind.startswith("stopped") for kind in found["kinds"])
