"""Options in the log, the result and the manifest: their values and origins, and unknown variables."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from unloader.cli.commands.run import run as command
from unloader.cli.options.command import settings_of

Run = Callable[..., "subprocess.CompletedProcess[str]"]

NARROWED = {"UNLOADER_WHERE": "id < 10"}
SAID = 'where "id < 10" (environment variable UNLOADER_WHERE)'


def settings_in(directory: Path) -> dict[str, tuple[str, str]]:
    """Return value and origin of each setting in a run's manifest."""
    manifest = json.loads((directory / "_manifest.json").read_text())
    return {each["name"]: (each["value"], each["from"]) for each in manifest["settings"]}


def test_a_variable_that_narrows_is_told_everywhere(
    unloader: Run, database: str, tmp_path: Path
) -> None:
    """The log, the result and the manifest have the condition and its origin."""
    arguments = ("run", database, "--table", "orders", "--to", "out")
    result = unloader(*arguments, variables=NARROWED)
    assert result.returncode == 0, result.stderr
    assert f"selected by: {SAID}" in result.stderr
    told = dict(line.split("  ", 1) for line in result.stdout.splitlines())
    assert told["rows"].strip() == "10 (only the selected rows)"
    assert told["selected by"].strip() == SAID
    assert told["verified"].strip() == "ok (count, 10 rows of the same selection in the source)"
    assert settings_in(tmp_path / "out") == {
        "table": ("orders", "command line"),
        "where": ("id < 10", "environment variable UNLOADER_WHERE"),
        "to": ("out", "command line"),
    }


@pytest.mark.parametrize(
    ("form", "said"),
    [(("--progress", "none"), True), (("--log-format", "json"), True), (("--quiet",), False)],
)
def test_only_quiet_runs_say_nothing(
    unloader: Run, database: str, tmp_path: Path, form: tuple[str, ...], said: bool
) -> None:
    """Without progress the line stays, since the condition was not given to this run."""
    arguments = ("run", database, "--table", "orders", "--to", "out", "--json")
    result = unloader(*arguments, *form, variables=NARROWED)
    assert ("UNLOADER_WHERE" in result.stderr) is said
    assert bool(result.stderr) is said
    assert json.loads(result.stdout)["settings"][1]["from"].endswith("UNLOADER_WHERE")


def test_each_origin_is_told_by_its_name(unloader: Run, database: str, tmp_path: Path) -> None:
    """Job file, variable and command line are distinguished; display options are left out."""
    (tmp_path / "job.toml").write_text(
        f'source = "{database}"\ntable = "orders"\ncolumns = ["id", "name"]\nretries = 2\n'
        "log-interval = 5\n"
    )
    variables = {"UNLOADER_NULL": "none", "UNLOADER_NO_HEADER": "1", "UNLOADER_SESSION_SQL": "x"}
    result = unloader("run", "job.toml", "--to", "out", "--eol", "lf", variables=variables)
    assert result.returncode == 0, result.stderr
    assert 'selected by: columns "id, name" (job file job.toml)' in result.stderr
    assert 'set by a variable: null "none" (environment variable UNLOADER_NULL)' in result.stderr
    assert settings_in(tmp_path / "out") == {
        "table": ("orders", "job file job.toml"),
        "columns": ("id, name", "job file job.toml"),
        "to": ("out", "command line"),
        "null": ("none", "environment variable UNLOADER_NULL"),
        "eol": ("lf", "command line"),
        "header": ("false", "environment variable UNLOADER_NO_HEADER"),
        "retries": ("2", "job file job.toml"),
    }


def test_a_plan_tells_what_it_selects(unloader: Run, database: str, tmp_path: Path) -> None:
    """The plan shows the condition, and the run of it names the plan as its origin."""
    arguments = ("plan", database, "--table", "orders", "--output", "plan.json")
    planned = unloader(*arguments, variables=NARROWED)
    assert f"selected by  {SAID}" in planned.stdout
    result = unloader("run", "plan.json", "--to", "out")
    assert result.returncode == 0, result.stderr
    assert settings_in(tmp_path / "out")["where"] == ("id < 10", "plan file plan.json")


@pytest.mark.parametrize("kind", ["oracle", "duckdb"])
def test_statements_of_a_session_are_counted_and_not_shown(kind: str) -> None:
    """They may hold a password; sources without the option show nothing."""
    arguments = ["oracle://u@h/s", "--table", "T", "--to", "o"]
    arguments += ["--session-sql", "SET ROLE r IDENTIFIED BY secret"]
    context = command.make_context("run", arguments)
    told = {each.name: each.value for each in settings_of(context, kind)}
    assert told.get("session-sql") == ("1 statement" if kind == "oracle" else None)
    assert "secret" not in str(told)


UNKNOWN = "no option has the variable UNLOADER_PARALELISM (did you mean UNLOADER_PARALLELISM?)"


@pytest.mark.parametrize("command", ["formats", "sources"])
def test_a_variable_that_no_option_has_is_reported_once(unloader: Run, command: str) -> None:
    """It is a notice on stderr with the nearest name, and no error."""
    variables = {"UNLOADER_PARALELISM": "4", "UNLOADER_ROWS": "5", "UNLOADER_NO_HEADER": "1"}
    variables |= {"UNLOADER_PASSWORD": "x", "UNLOADER_ORACLE_TOKEN_FILE": "x"}
    result = unloader(command, variables=variables)
    assert result.returncode == 0
    assert result.stderr.splitlines() == [f"unloader: notice: {UNKNOWN}"]


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
    assert [each.get("text") for each in events if each["event"] == "notice"] == [UNKNOWN]
    assert [each["phase"] for each in events if each["event"] == "phase_started"] == [
        "connecting",
        "table",
    ]


def test_the_options_are_recorded_as_the_run_has_them(unloader: Run, database: str) -> None:
    """Defaults and the layout of a dialect are there, too, and not only the given options."""
    arguments = ("run", database, "--table", "orders", "--to", "out", "--json", "--quiet")
    options = ("--where", "id<5", "--dialect", "sqlldr-var", "--retries", "1")
    more = ("--numa-nodes", "0", "--overwrite", "--parallelism", "1")
    result = unloader(*arguments, *options, *more)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)["options"]
    given = {"to": "out", "where": "id<5", "retries": 1, "nodes": [0], "overwrite": True}
    assert found.items() >= given.items()
    defaults = {"verify": "count", "stall_timeout": 300.0, "overlap_buffer": 4194304, "near": None}
    assert found.items() >= defaults.items()
    layout = {"enclosure": "~~", "eol": "\r\n", "header": False, "record_length_digits": 10}
    assert found["dialect"].items() >= layout.items()
