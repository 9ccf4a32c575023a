"""`--keep-snapshot`: the remains of killed, failed, and complete runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from long_tests import OTHER_ROUTES
from processes import command
from processes.program import Program

ROWS = 500
GATE = 4711
"""Number of the lock that workers wait for."""


@pytest.fixture
def variables(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Variables with a place for records of this test alone; no keeper is left at the end."""
    found = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    yield found
    command.ended("keepers", "--end-all", env=found)
    assert kept(found) == []


@pytest.fixture
def url(postgres: Any) -> str:
    """A database with a table of two partitions, the smaller one with a row to stumble over."""
    found: str = postgres.database("kept")
    postgres.run(
        "CREATE TABLE t (k int, v text) PARTITION BY RANGE (k);"
        "CREATE TABLE t_0 PARTITION OF t FOR VALUES FROM (0) TO (1);"
        f"CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (1) TO ({ROWS});"
        f"INSERT INTO t SELECT g, repeat('x', 100) FROM generate_series(0, {ROWS - 1}) g",
        url=found,
    )
    return found


def kept(variables: dict[str, str]) -> list[dict[str, Any]]:
    """Return the keepers that there are."""
    done = command.ended("keepers", "--json", env=variables)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["keepers"]
    return found


def test_a_directory_that_others_can_write_is_refused(tmp_path: Path) -> None:
    """A user who writes a record there could end any process of its owner; listing makes none."""
    variables = {"XDG_STATE_HOME": str(tmp_path / "state")}
    assert command.run("keepers", env=variables) == "no snapshot is kept\n"
    assert not (tmp_path / "state").exists()
    (tmp_path / "state").symlink_to("state")
    assert "cannot read the directory" in command.error_of("keepers", status=3, env=variables)
    (tmp_path / "state").unlink()
    (tmp_path / "state" / "unloader" / "keepers").mkdir(parents=True)
    (tmp_path / "state" / "unloader" / "keepers").chmod(0o777)
    error = command.error_of("keepers", status=3, env=variables)
    assert "chmod 700" in error


@pytest.mark.long(OTHER_ROUTES)
def test_a_complete_run_leaves_nothing(url: str, variables: dict[str, str], tmp_path: Path) -> None:
    """The rows are there, the snapshot was announced as kept, and no keeper is left."""
    done = command.ended(
        "run", url, "--table", "t", "--to", str(tmp_path / "out"), "--keep-snapshot", "2h",
        "--progress", "log", env=variables,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "its snapshot is kept until" in done.stderr
    manifest = json.loads((tmp_path / "out" / "_manifest.json").read_bytes())
    assert manifest["verified"] == {"level": "count", "source_rows": ROWS, "result": "ok"}
    assert kept(variables) == []


@pytest.mark.long(OTHER_ROUTES)
def test_a_failed_run_says_until_when_its_snapshot_is_kept(
    url: str, variables: dict[str, str], tmp_path: Path
) -> None:
    """The list has the run, its destination and its end; once ended, it cannot be resumed."""
    to = tmp_path / "out"
    done = command.ended(
        "run", url, "--table", "t", "--to", str(to), "--keep-snapshot", "2h",
        "--where", "1 / k < 2", "--split", "partition", "--parallelism", "1",
        "--progress", "none", env=variables,
    )  # fmt: skip
    assert done.returncode in (4, 7), done.stderr
    (keeper,) = kept(variables)
    assert f"kept until {keeper['kept_until']}" in done.stderr
    assert "unloader resume" in done.stderr
    assert keeper["destinations"] == [str(to)]
    assert keeper["in_use"] is False
    shown = command.ended("keepers", env=variables).stdout
    assert keeper["run_id"] in shown
    assert keeper["kept_until"] in shown
    other = command.ended("keepers", "--end", "another", env=variables)
    assert (other.returncode, "no snapshot is kept for run another" in other.stderr) == (2, True)
    done = command.ended("keepers", "--end", keeper["run_id"], "--json", env=variables)
    assert json.loads(done.stdout) == {"keepers": [], "ended": [keeper["run_id"]]}
    done = command.ended("resume", str(to), "--progress", "none", env=variables)
    assert done.returncode == 4, done.stderr
    assert "cannot be read any more" in done.stderr
    assert "--new-snapshot" in done.stderr
    assert command.final_names(to) == []


@pytest.fixture
def gate(postgres: Any, url: str) -> Iterator[subprocess.Popen[str]]:
    """A session that lets no worker past its condition for as long as it lives."""
    with Program(
        [postgres.psql, "-X", "-q", "-A", "-t", url], stdin=subprocess.PIPE, text=True,
        stdout=subprocess.PIPE,
    ) as session:  # fmt: skip
        assert session.stdin is not None
        assert session.stdout is not None
        session.stdin.write(f"SELECT 'closed' FROM pg_advisory_lock({GATE});\n")
        session.stdin.flush()
        assert session.stdout.readline() == "closed\n"
        yield session
        session.kill()


@pytest.mark.long("faults of whole runs")
def test_a_killed_run_is_resumed_at_its_snapshot(
    postgres: Any, url: str, variables: dict[str, str], tmp_path: Path, gate: subprocess.Popen[str]
) -> None:
    """After a kill of all its processes its output has an end, and the rest is of the old state."""
    to = tmp_path / "out"
    with Program(
        [
            sys.executable, "-m", "unloader", "run", url, "--table", "t", "--to", str(to),
            "--where", f"pg_advisory_xact_lock_shared({GATE})::text = ''",
            "--keep-snapshot", "2h", "--progress", "none",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env=variables,
    ) as run:  # fmt: skip
        until = time.monotonic() + command.PATIENCE_SECONDS
        while not any(each["destinations"] for each in kept(variables)):
            assert time.monotonic() < until
            assert run.poll() is None, run.stdout and run.stdout.read()
            time.sleep(0.1)
        (keeper,) = kept(variables)
        assert keeper["in_use"] is True
        refused = command.ended("keepers", "--end", keeper["run_id"], env=variables)
        assert (refused.returncode, "is in progress" in refused.stderr) == (2, True)
        os.killpg(run.pid, signal.SIGKILL)
        assert run.stdout is not None
        run.stdout.read()
    gate.kill()
    (left,) = kept(variables)
    assert left == {**keeper, "in_use": False}
    name = postgres.run(
        "SELECT application_name, backend_xmin IS NOT NULL FROM pg_stat_activity "
        f"WHERE pid = {left['server_process']}"
    )
    assert name == f"unloader-keeper:{left['run_id']}|t"
    postgres.run("DELETE FROM t WHERE k % 2 = 0; UPDATE t SET v = 'new'", url=url)
    done = command.ended("resume", str(to), "--progress", "none", "--json", env=variables)
    assert done.returncode == 0, done.stderr
    manifest = json.loads(done.stdout)
    assert (manifest["run_id"], manifest["totals"]["rows"]) == (keeper["run_id"], ROWS)
    assert manifest["snapshot"]["value"] == keeper["snapshot"]
    assert manifest["verified"]["source_rows"] == ROWS
    written = "".join(path.read_text() for path in to.glob("*.csv"))
    assert written.count("x" * 100) == ROWS
    assert kept(variables) == []


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--to", "-", "--keep-snapshot", "1h"), "stream"),
        (("--to", "out", "--keep-snapshot", "31d"), "30 days"),
        (("--to", "out", "--keep-snapshot", "soon"), "duration"),
        (("--to", "out", "--keep-snapshot", "1h", "--consistency", "none"), "--consistency none"),
    ],
    ids=["stream", "too long", "no duration", "no snapshot"],
)
def test_what_makes_no_sense_is_refused(
    url: str, tmp_path: Path, arguments: tuple[str, ...], reason: str
) -> None:
    """Before anything is read, with the reason."""
    placed = [str(tmp_path / each) if each == "out" else each for each in arguments]
    error = command.error_of("run", url, "--table", "t", *placed, status=2)
    assert "--keep-snapshot" in error
    assert reason in error
