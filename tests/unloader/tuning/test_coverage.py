"""Intervals of 95 % cover the truth about that often, for curves whose parameters are known."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from amounts import amount
from sweeps import replays

PROGRAM = Path(replays.__file__).with_name("coverage_program.py")
SWEEPS = amount("UNLOADER_TEST_SWEEPS", 12, 25)

pytestmark = pytest.mark.long("simulated sweeps")

CASES = [
    {"contention": 0.06, "coherency": 0.0, "noise": 0.01},
    {"contention": 0.06, "coherency": 0.0, "noise": 0.03},
    {"contention": 0.03, "coherency": 0.002, "noise": 0.02},
    {"bend": 8.0, "share": 0.2, "noise": 0.02},
]


def least(share: float, sweeps: int) -> int:
    """Return how many of some sweeps are covered at least, but for one time in some thousands."""
    return int(share * sweeps - 3.5 * (share * (1 - share) * sweeps) ** 0.5)


@pytest.fixture(scope="module")
def counted(scipy: Path) -> list[dict[str, int]]:
    """The counts of all cases."""
    found = replays.environment(scipy)
    support = str(PROGRAM.parents[1])
    done = subprocess.run(
        [sys.executable, str(PROGRAM)],
        input=json.dumps([{**case, "sweeps": SWEEPS} for case in CASES]),
        env={**found, "PYTHONPATH": os.pathsep.join((found["PYTHONPATH"], support))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer: list[dict[str, int]] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize("case", range(len(CASES)))
@pytest.mark.parametrize("what", ["knee", "6", "10", "48"])
def test_an_interval_covers_the_truth_as_often_as_stated(
    counted: list[dict[str, int]], case: int, what: str
) -> None:
    """Of the knee, and of a further measurement at, between and beyond the measured levels."""
    covered = counted[case][what]
    print(f"{CASES[case]}: {what} covered in {covered} of {SWEEPS}")
    assert covered >= least(0.95, SWEEPS)


def test_not_every_interval_covers_the_truth(counted: list[dict[str, int]]) -> None:
    """Intervals that always did would be wider than they say."""
    assert sum(sum(case.values()) for case in counted) < len(CASES) * 4 * SWEEPS
