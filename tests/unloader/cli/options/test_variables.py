"""Variables that set nothing are reported, for they may be misspelt."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]

SAID = "no option has the variable UNLOADER_PARALELISM (did you mean UNLOADER_PARALLELISM?)"


@pytest.mark.parametrize("command", ["formats", "sources"])
def test_a_variable_that_no_option_has_is_reported_once(unloader: Run, command: str) -> None:
    """It is a notice on stderr with the nearest name, and no error."""
    variables = {"UNLOADER_PARALELISM": "4", "UNLOADER_ROWS": "5", "UNLOADER_NO_HEADER": "1"}
    variables |= {"UNLOADER_PASSWORD": "x", "UNLOADER_ORACLE_TOKEN_FILE": "x"}
    result = unloader(command, variables=variables)
    assert result.returncode == 0
    assert result.stderr.splitlines() == [f"unloader: notice: {SAID}"]


def test_quiet_commands_report_no_variable(unloader: Run) -> None:
    """--quiet asks for errors alone."""
    result = unloader("formats", "--quiet", variables={"UNLOADER_PARALELISM": "4"})
    assert (result.returncode, result.stderr) == (0, "")


def test_a_log_of_json_stays_one(unloader: Run, database: str) -> None:
    """The notice is an object there, as every other line is."""
    variables = {"UNLOADER_PARALELISM": "4", "UNLOADER_LOG_FORMAT": "json"}
    result = unloader("describe", database, variables=variables)
    assert result.returncode == 0, result.stderr
    events = [json.loads(line) for line in result.stderr.splitlines()]
    assert [each.get("text") for each in events if each["event"] == "notice"] == [SAID]
    assert [each["phase"] for each in events if each["event"] == "phase_started"] == [
        "connecting",
        "table",
    ]
