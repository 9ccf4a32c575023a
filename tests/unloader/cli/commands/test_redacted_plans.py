"""A plan that is shown is the plan that runs."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def test_a_plan_that_would_lose_text_to_the_filter_is_not_shown(
    unloader: Run, database: str
) -> None:
    """With `***` in its condition a plan would run and read other rows; a file has all of it."""
    condition = ("--where", "name <> 'token=abc'")
    table = ("plan", database, "--table", "orders", *condition)
    result = unloader(*table, "--json")
    assert result.returncode == 2
    assert "--output FILE" in result.stderr
    assert unloader(*table, "--output", "plan.json", "--quiet").returncode == 0
    assert unloader("run", "plan.json", "--to", "out", "--quiet").returncode == 0
