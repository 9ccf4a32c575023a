"""A run seen and ended from another process, by what it keeps where its files go."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from processes import command


@pytest.fixture(scope="module")
def parts(postgres: Any) -> str:
    """A table of PostgreSQL with two quick partitions, and two that take an hour."""
    url: str = postgres.database("watched")
    postgres.run(
        "CREATE TABLE p (k int, v int) PARTITION BY LIST (k);"
        + "".join(f"CREATE TABLE p{k} PARTITION OF p FOR VALUES IN ({k});" for k in range(1, 5))
        + "INSERT INTO p SELECT 1 + g % 4, g FROM generate_series(1, 2000) g; VACUUM ANALYZE p;"
        "CREATE FUNCTION waits(k int) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN "
        "IF k > 2 THEN PERFORM pg_sleep(3600); END IF; RETURN true; END $$",
        url=url,
    )
    return url


def started(url: str, dest: Path, *options: str) -> command.Running:
    """Start a run that gets half of its rows in a moment and waits for the others."""
    return command.Running(
        *("run", url, "--table", "p", "--to", str(dest), "--split", "partition"),
        *("--parallelism", "2", "--where", "waits(k)", "--progress", "log", *options),
    )


def record(dest: Path) -> dict[str, Any]:
    """Return the record of how far a run is; empty where there is none yet."""
    try:
        found: dict[str, Any] = json.loads((dest / "_run" / "status.json").read_bytes())
    except FileNotFoundError:
        return {}
    return found


def half_done(dest: Path) -> bool:
    """Tell whether the quick units are done and the others are at work."""
    units = record(dest).get("units", {})
    return (units.get("done"), units.get("running")) == (2, 2)


def test_a_run_keeps_a_record_of_how_far_it_is(parts: str, tmp_path: Path) -> None:
    """It names units, figures, workers with their seats, and machine and process; it grows."""
    dest = tmp_path / "out"
    running = started(parts, dest)
    running.wait_until(lambda: half_done(dest), "a record of two finished units")
    found = record(dest)
    assert found["format_version"] == 1
    assert found["run_id"] == json.loads((dest / "_run" / "lock").read_text())["run_id"]
    assert (found["pid"], found["host"]) == (running.process.pid, os.uname().nodename)
    assert (found["table"], found["phase"], found["ended"]) == ("public.p", "unloading", "")
    assert found["units"] == {"total": 4, "done": 2, "running": 2, "waiting": 0, "failed": 0}
    assert (found["rows"], found["rows_expected"]) == (1000, 2000)
    assert [worker["worker"] for worker in found["workers"]] == [0, 1]
    assert {worker["partition"] for worker in found["workers"]} == {"p3", "p4"}
    assert all(
        {"node", "cpus", "attempt", "waits_for"} <= worker.keys() for worker in found["workers"]
    )
    number = found["sequence"]
    running.wait_until(lambda: record(dest)["sequence"] > number + 1, "two more records")
    running.signal(signal.SIGKILL)
    running.finish()
    assert half_done(dest)


def test_a_file_in_its_directory_ends_a_run(parts: str, tmp_path: Path) -> None:
    """It ends as by a signal: with status 130, and with its finished units."""
    dest = tmp_path / "out"
    running = started(parts, dest)
    running.wait_until(lambda: half_done(dest), "a record of two finished units")
    (dest / "_run" / "stop").touch()
    status, _, err = running.finish()
    assert status == 130, err
    assert "`unloader stop` asks for the end" in err
    assert "stopped by `unloader stop` before all work units were done" in err
    found = record(dest)
    assert (found["ended"], found["stopping"], found["units"]["done"]) == ("Interrupted", True, 2)
    assert (dest / "_run" / "journal.jsonl").exists()
    again = command.ended("run", parts, "--table", "p1", "--to", str(dest))
    assert (again.returncode, (dest / "_run").exists()) == (0, False), again.stderr
