"""The work on the tables of a resumed run, beside unloading the remaining units."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest
from long_tests import OTHER_ROUTES
from processes import breaking, command
from processes.breaking import held_behind
from several_tables import break_off, made, requests_of

from unloader import api
from unloader.sources.duckdb.catalog import DuckDBCatalog

SIZES = {"large": 9000, "middle": 2000, "small": 10, "empty": 0}
STATUS = {"stop": 4, "continue": 7}


def test_the_link_of_a_table_is_set_after_a_kill(tmp_path: Path) -> None:
    """The table is published, and the run was killed before its link led there."""
    source = made(tmp_path / "s.db", {"first": 30, "second": 5})
    library = breaking.killing_library(tmp_path)
    to = tmp_path / "out"
    job = ("run", f"duckdb://{source.location}", "--table", "*", "--latest-link", "latest")
    killed = command.Forked(
        *(*job, "--to", f"{to}/{{table}}/{{run_id}}", "--parallelism", "1", "--quiet"),
        env={"LD_PRELOAD": str(library), "KILL_CALL": "rename", "KILL_PATH": "first/latest"},
    )
    status, _, err = killed.finish()
    assert status == -9, err
    assert list((to / "first").glob("2*/_manifest.json"))
    assert not (to / "first" / "latest").exists()
    command.run("resume", str(to), "--quiet")
    for name in ("first", "second"):
        (directory,) = (path.parent.name for path in (to / name).glob("2*/_manifest.json"))
        assert os.readlink(to / name / "latest") == directory
    command.run("verify", str(to), "--strict", "--quiet")


def test_tables_are_described_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database is asked once for the list of tables and once for their descriptions."""
    source = made(tmp_path / "s.db", SIZES)
    home = tmp_path / "night"
    requests = requests_of(source, f"{home}/{{schema}}.{{table}}", list(SIZES))
    break_off(requests, "main.large", "main.middle")
    asked: list[str] = []
    for name in ("describe", "list_tables", "describe_tables"):
        monkeypatch.setattr(DuckDBCatalog, name, counted(name, asked))
    answer = api.resume(home)
    assert sorted(asked) == ["describe_tables", "list_tables"]
    assert {each["table"]["name"]: each["rows"] for each in answer["tables"]} == SIZES


def counted(name: str, asked: list[str]) -> Any:
    """Return a method of the catalog that records its calls."""
    method = getattr(DuckDBCatalog, name)

    def called(*arguments: Any) -> Any:
        asked.append(name)
        return method(*arguments)

    return called


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.parametrize("policy", ["stop", "continue"])
def test_a_table_that_was_dropped_since_is_named(
    postgres: Any, tmp_path: Path, policy: str
) -> None:
    """The others go on only where a failed table was not to spoil them."""
    url: str = postgres.database(f"dropped_{policy}")
    for name, rows in SIZES.items():
        postgres.run(
            f"CREATE TABLE {name} AS SELECT g AS i, repeat('x', 99) AS v FROM generate_series(1, {rows}) g; "
            f"ANALYZE {name}",
            url=url,
        )
    home = tmp_path / "night"
    running = command.Forked(
        *("run", url, "--table", "*", "--to", f"{home}/{{table}}", "--parallelism", "1"),
        *("--consistency", "none", "--on-table-failure", policy, "--quiet"),
        env=held_behind(0),
    )
    running.wait_until((home / "_run" / "run.json").exists, "the record of the run")
    workers = running.workers()
    os.killpg(running.process.pid, signal.SIGKILL)
    running.process.communicate()
    psutil.wait_procs(workers, timeout=command.PATIENCE_SECONDS)
    postgres.run("DROP TABLE small", url=url)
    error = command.error_of("resume", str(home), status=STATUS[policy])
    assert "1 of 4 tables" in error
    assert "public.small: the table public.small is not in" in error
    complete = {path.parent.name for path in home.glob("[!_]*/_manifest.json")}
    assert "small" not in complete
    assert ({"large", "middle", "empty"} <= complete) == (policy == "continue")


@pytest.mark.long("faults of whole runs")
@pytest.mark.parametrize(
    ("path", "way"),
    [
        ("night/_run/run.json", "resume"),
        pytest.param(".main.middle.unloader-", "new", marks=pytest.mark.long(OTHER_ROUTES)),
    ],
)
def test_a_new_snapshot_that_is_killed_can_be_gone_on_with(
    tmp_path: Path, path: str, way: str
) -> None:
    """Before its record is written the former run is there; and no two runs are mixed."""
    source = made(tmp_path / "s.db", SIZES)
    home = tmp_path / "night"
    requests = requests_of(source, f"{home}/{{schema}}.{{table}}", list(SIZES))
    break_off(requests, "main.large", "main.middle")
    before = run_ids(home)
    library = breaking.killing_library(tmp_path)
    kill = {"LD_PRELOAD": str(library), "KILL_CALL": "rename", "KILL_PATH": path}
    killed = command.Forked("resume", str(home), "--new-snapshot", "--quiet", env=kill)
    status, _, err = killed.finish()
    assert status == -9, err
    found = json.loads(command.run("status", str(home), "--json", status=7))
    assert (found["state"], found["tables"]["total"]) == ("interrupted", 4)
    # Of tables that are published together none may be in place by then.
    assert found["tables"]["done"] > 0 or not path.startswith("night")
    command.run("resume", str(home), *(["--new-snapshot"] if way == "new" else []), "--quiet")
    after = run_ids(home)
    assert len(after) == len(SIZES)
    assert len(set(after.values())) == 1
    # Published tables stay only if the resumed run has published them.
    assert (set(before.values()) <= set(after.values())) == (
        path.startswith("night") and way == "resume"
    )
    command.run("verify", str(home), "--strict", "--quiet")
    assert not list(home.rglob("_run"))


@pytest.mark.long(OTHER_ROUTES)
def test_a_new_snapshot_that_fails_at_once_leaves_the_run_as_it_was(tmp_path: Path) -> None:
    """It has written nothing yet, so that there is nothing else to go on with."""
    source = made(tmp_path / "s.db", SIZES)
    home = tmp_path / "night"
    requests = requests_of(source, f"{home}/{{schema}}.{{table}}", list(SIZES))
    break_off(requests, "main.large", "main.middle")
    stranger = home / "main.small" / "small.0001.csv"
    stranger.write_text("somebody else's\n")
    error = command.error_of("resume", str(home), "--new-snapshot", status=6)
    assert "1 of 4 tables cannot be unloaded: main.small: " in error
    assert "--on-table-failure" not in error
    stranger.unlink()
    command.run("resume", str(home), "--quiet")
    command.run("verify", str(home), "--strict", "--quiet")


def run_ids(home: Path) -> dict[str, str]:
    """Return the run that has published each table."""
    found = home.glob("main.*/_manifest.json")
    return {path.parent.name: json.loads(path.read_text())["run_id"] for path in found}
