"""A sweep names the throttled resource as its limit, on either side of its knee."""

from __future__ import annotations

from pathlib import Path

import pytest
from example_scripts import report

pytestmark = pytest.mark.long("throttled machines")

ROOT = Path(__file__).resolve().parents[2]
SMALL = (
    *("--rows", "20k", "--wide-rows", "2k", "--levels", "1,2,3", "--repeats", "1"),
    *("--warm-up", "0", "--disk-rate", "1MiB", "--source-rate", "1MiB", "--cpus", "0.4"),
)
"""Little work for the CPUs: the throttled part takes longer on a busy machine, too."""


@pytest.mark.parametrize("case", ["disk", "source", "cpu"])
def test_what_is_throttled_is_named(case: str) -> None:
    """In the JSON and in words, below the knee and beyond it, and none of the other two is."""
    answer = report("throttled_sweeps.py", "--case", case, *SMALL)[case]
    if "left_out" in answer:
        pytest.skip(f"this machine cannot throttle: {answer['left_out']}")
    words = {"disk": "the disk", "source": "the source", "cpu": "the CPUs"}
    sides = [side for side in answer["limits"].values() if side is not None]
    for side in sides:
        assert case in side["resources"], answer
        assert words[case] in side["text"]
        # Other programs may use the CPUs of the machine.
        assert set(side["resources"]) <= {case, "cpu"}, answer
