"""A run seen and ended from another process, by the records in its destination."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from long_tests import OTHER_ROUTES, also
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


def started(url: str, dest: Path | str, *options: str) -> command.Running:
    """Start a run that gets half of its rows in a moment and waits for the others."""
    return command.Forked(
        *("run", url, "--table", "p", "--to", str(dest), "--split", "partition"),
        *("--parallelism", "2", "--where", "waits(k)", "--progress", "log", *options),
    )


def record(dest: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((dest / "_run" / "status.json").read_bytes())
    except FileNotFoundError:
        return {}
    return found


def half_done(dest: Path) -> bool:
    units = record(dest).get("units", {})
    return (units.get("done"), units.get("running")) == (2, 2)


@pytest.fixture
def running(
    parts: str, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[command.Running]:
    """A run with half of its rows, and the other half to come in an hour."""
    run = started(parts, tmp_path / "out", *getattr(request, "param", ()))
    run.wait_until(lambda: half_done(tmp_path / "out"), "a record of two finished units")
    yield run
    run.signal(signal.SIGKILL)
    run.finish()


def seen(dest: Path, status: int = 0) -> dict[str, Any]:
    done = command.ended("status", str(dest), "--json")
    assert done.returncode == status, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("running", [("--consistency", "none")], indirect=True)
def test_a_run_is_seen_and_stopped_from_elsewhere(running: command.Running, tmp_path: Path) -> None:
    """Its figures, its workers, its seats; then it ends as by Ctrl-C, and its units are kept."""
    dest = tmp_path / "out"
    found = seen(dest)
    assert (found["state"], found["pid"], found["host"]) == (
        *("running", running.process.pid),
        os.uname().nodename,
    )
    assert found["run_id"] == json.loads((dest / "_run" / "lock").read_text())["run_id"]
    live = found["live"]
    assert (live["table"], live["phase"], live["ended"]) == ("public.p", "unloading", "")
    assert live["units"] == {"total": 4, "done": 2, "running": 2, "waiting": 0, "failed": 0}
    assert (live["rows"], live["rows_expected"]) == (1000, 2000)
    assert [worker["worker"] for worker in live["workers"]] == [0, 1]
    assert {worker["partition"] for worker in live["workers"]} == {"p3", "p4"}
    assert all({"node", "cpus"} <= worker.keys() for worker in live["workers"])
    running.wait_until(
        lambda: all(each["waits_for"] == "source" for each in record(dest)["workers"]),
        "both workers said to wait for the source",
    )
    running.wait_until(lambda: record(dest)["sequence"] > live["sequence"] + 1, "two more records")
    page = command.run("status", str(dest))
    assert len(re.findall(r"^ +[01] .* the source +p[34]$", page, re.MULTILINE)) == 2
    assert re.search(r"^units +2 of 4 done, 2 running, 0 waiting, 0 failed$", page, re.MULTILINE)
    assert re.search(r"^rows +1,000 of about 2,000 \(50 %\)$", page, re.MULTILINE)
    listed = command.run("runs", str(tmp_path))
    assert re.search(rf"^{dest} +running +public\.p +\S+ +1,000 ", listed, re.MULTILINE)

    told = command.run("stop", str(dest))
    status, _, err = running.finish()
    assert status == 130, err
    assert "`unloader stop` was called" in err
    assert "stopped by `unloader stop` before all work units were done" in err
    assert f"run {found['run_id']} has ended" in told
    assert "with 2 of 4 work units finished" in told
    assert f"unloader resume {dest}  # keeps 2 finished work units, unloads the other 2" in told
    assert seen(dest, status=7)["live"]["ended"] == "Interrupted"
    assert "no run is writing to" in command.error_of("stop", str(dest), status=6)


def check_elsewhere(dest: Path, parts: str) -> None:
    """Check the status of a run on a machine that the lock does not reach.

    It is seen to continue by its record, and a second run is refused with its name.
    """
    lock, kept = dest / "_run" / "lock", dest.parent / "lock"
    holder = json.loads(lock.read_text()) | {"host": "db77", "boot_id": "another"}
    # A file that no one has locked, as this machine would see it.
    lock.rename(kept)
    lock.write_text(json.dumps(holder))
    assert (seen(dest)["state"], seen(dest)["host"]) == ("running", "db77")
    refused = command.error_of("run", parts, "--table", "p1", "--to", str(dest), status=6)
    assert "another run is writing to" in refused
    assert f"run {holder['run_id']}, on db77" in refused
    assert "is writing to" in command.error_of("resume", str(dest), status=6)
    kept.replace(lock)


@pytest.mark.long(OTHER_ROUTES)
def test_a_killed_run_is_said_to_be_interrupted(
    running: command.Running, parts: str, tmp_path: Path
) -> None:
    """It shows its units; a request to stop it that came too late stops no later run."""
    dest = tmp_path / "out"
    check_elsewhere(dest, parts)
    running.signal(signal.SIGKILL)
    running.finish()
    command.run("stop", str(dest), status=6)
    (dest / "_run" / "requests.json").touch()
    page = command.ended("status", str(dest))
    assert page.returncode == 7
    assert "killed" in page.stdout
    assert "because the snapshot ended with the run" in page.stdout
    assert (seen(dest, status=7)["units"], seen(dest, status=7)["left"]["units"]) == (4, 2)
    assert " interrupted " in command.run("runs", str(tmp_path))
    again = started(parts, dest)
    mine = again.process.pid
    again.wait_until(lambda: record(dest).get("pid") == mine, "the record of the next run")
    again.wait_until(lambda: half_done(dest), "its finished units, as nobody has stopped it")
    again.wait_until(lambda: record(dest)["sequence"] > 2, "a look for the request")
    again.signal(signal.SIGKILL)
    again.finish()


@pytest.mark.parametrize("number", [signal.SIGTERM, *also(OTHER_ROUTES, signal.SIGKILL)])
def test_an_interrupted_run_has_the_rows_of_its_finished_units(
    postgres: Any, parts: str, tmp_path: Path, number: signal.Signals
) -> None:
    """`status` and `runs` count no rows of a unit that was ended in the middle."""
    dest, table = tmp_path / "out", f"ended_by_{number.name.lower()}"
    postgres.run(
        f"CREATE TABLE {table} (k int, v int) PARTITION BY LIST (k);"
        f"CREATE TABLE {table}_1 PARTITION OF {table} FOR VALUES IN (1);"
        f"CREATE TABLE {table}_2 PARTITION OF {table} FOR VALUES IN (2);"
        f"INSERT INTO {table} SELECT 1, g FROM generate_series(1, 500) g;"
        f"INSERT INTO {table} SELECT 2, g FROM generate_series(1, 300000) g;"
        f"VACUUM ANALYZE {table};",
        url=parts,
    )
    run = command.Forked(
        *("run", parts, "--table", table, "--to", str(dest), "--split", "partition"),
        *("--parallelism", "2", "--progress", "none"),
        *("--where", "waits(CASE WHEN v = 300000 THEN 3 ELSE 1 END)"),
    )

    def is_between() -> bool:
        now = record(dest)
        advanced = any(each["rows"] for each in now.get("workers", ()))
        return advanced and now["units"]["done"] == 1

    run.wait_until(is_between, "one finished unit and rows of the other one")
    run.signal(number)
    run.finish()
    assert record(dest)["rows"] > 500
    shown = command.run("status", str(dest), status=7)
    assert re.search(r"^units +1 of 2 done$", shown, re.MULTILINE)
    assert re.search(r"^rows +500 of about 300,500 \(0 %\)$", shown, re.MULTILINE)
    assert seen(dest, status=7)["live"]["rows"] == 500
    listed = command.run("runs", str(tmp_path))
    assert re.search(rf"^{dest} +interrupted +public\.{table} +\S+ +500 ", listed, re.MULTILINE)


@pytest.mark.long(OTHER_ROUTES)
def test_a_run_that_leaves_nothing(parts: str, tmp_path: Path) -> None:
    """Without a finished unit and a repeatable snapshot nothing is kept; this is reported."""
    dest = tmp_path / "out"
    run = started(parts, dest, "--partition", "p3")
    run.wait_until(lambda: record(dest).get("units", {}).get("running") == 1, "a unit at work")
    watching = command.Forked("status", str(dest), "--watch", "--interval", "0.2", "--json")
    assert watching.process.stdout is not None
    assert json.loads(watching.process.stdout.readline())["state"] == "running"
    told = json.loads(command.run("stop", str(dest), "--json"))
    assert (told["state"], told["units_done"]) == ("none", 0)
    assert run.finish()[0] == 130
    status, _, err = watching.finish()
    assert status == 6
    assert f"run {told['run_id']} has ended without files" in err


def test_a_finished_run_is_told_by_its_manifest(parts: str, tmp_path: Path) -> None:
    """Rows, bytes and the verification, below any directory, without links."""
    dest = tmp_path / "a" / "b" / "out"
    command.run("run", parts, "--table", "p1", "--to", str(dest))
    found = seen(dest)
    assert (found["state"], found["finished"]["rows"], found["finished"]["verified"]) == (
        *("finished", 500),
        "ok",
    )
    (tmp_path / "a" / "latest").symlink_to(dest)
    listed = json.loads(command.run("runs", str(tmp_path), "--json"))["runs"]
    assert [each["destination"] for each in listed] == [str(dest)]
    assert command.run("runs", str(tmp_path), "--depth", "2").startswith("no runs in")
    (dest / "_manifest.json").write_text("{")
    assert re.search(rf"^{dest} +unreadable ", command.run("runs", str(tmp_path)), re.MULTILINE)
    assert "_manifest.json is damaged" in command.error_of("status", str(dest), status=6)
