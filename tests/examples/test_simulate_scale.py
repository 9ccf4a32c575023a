"""The simulation of many workers: every unit is done once when workers are lost."""

from __future__ import annotations

import pytest
from example_scripts import report


def test_processes_and_hosts_are_lost() -> None:
    """Their units are done by others, and the time shows that workers did not wait for them."""
    found = report(
        "simulate_scale.py",
        "--hosts", "20", "--rows", "2e10", "--lost-hosts", "5", "--failing", "0.02",
        "--dying", "0.01", "--progress-seconds", "5",
    )  # fmt: skip
    assert found["run"]["units"] >= 4000
    assert found["run"]["attempts_lost"] >= 50
    assert 1.0 <= found["ratios"]["wall_vs_ideal"] < 1.5


@pytest.mark.parametrize("sessions", [7, 100])
def test_the_database_takes_fewer_sessions(sessions: int) -> None:
    """As many workers go on as have one, and they are kept busy."""
    found = report(
        "simulate_scale.py", "--hosts", "20", "--rows", "1e10", "--sessions", str(sessions)
    )
    assert found["run"]["sessions_refused"] >= 320 - sessions
    assert 0.95 <= found["ratios"]["wall_vs_ideal"] < 1.5
