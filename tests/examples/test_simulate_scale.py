"""The simulation of many workers: every unit is done once, whatever is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "simulate_scale.py"


def simulated(*options: str) -> dict[str, Any]:
    """Run the script; it fails if a unit is done twice or never."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--json", *options], check=True, capture_output=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_processes_and_hosts_are_lost() -> None:
    """Their units are done by others, and the time says that nobody waited for them for long."""
    found = simulated(
        "--hosts", "20", "--rows", "2e10", "--lost-hosts", "5", "--failing", "0.02",
        "--dying", "0.01", "--progress-seconds", "5",
    )  # fmt: skip
    assert found["run"]["units"] >= 4000
    assert found["run"]["attempts_lost"] >= 50
    assert 1.0 <= found["ratios"]["wall_vs_ideal"] < 1.5


@pytest.mark.parametrize("sessions", [7, 100])
def test_the_database_takes_fewer_sessions(sessions: int) -> None:
    """As many workers go on as have one, and they are kept busy."""
    found = simulated("--hosts", "20", "--rows", "1e10", "--sessions", str(sessions))
    assert found["run"]["sessions_refused"] >= 320 - sessions
    assert 0.95 <= found["ratios"]["wall_vs_ideal"] < 1.5
