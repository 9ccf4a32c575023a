"""Runs that need a password: none of it is in anything that they leave."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import psutil
import pytest
from long_tests import OTHER_ROUTES
from oracle import runs
from oracle.leg import PASSWORD, database
from oracle_server.faults import Fault
from oracle_server.server import OracleServer
from processes import command, program
from processes.breaking import staged_units
from processes.program import Program

from unloader.model import SecretReference, SessionOptions, SourceSpec
from unloader.sources.postgres import keeping
from unloader.sources.postgres.source import PostgresSource

SECRET = "Hunter2Xyzzy"
ROLE = "unloader_with_password"


@pytest.fixture
def protected(postgres: Any) -> Iterator[str]:
    """The URL of a database that lets our role in by its password only."""
    rules = Path(postgres.run("SHOW hba_file"))
    former = rules.read_text()
    postgres.run(f"CREATE ROLE {ROLE} LOGIN PASSWORD '{SECRET}'")
    url = postgres.database("protected")
    postgres.run(
        "CREATE TABLE t AS SELECT n AS id, 'name ' || n AS name FROM generate_series(1, 20000) n;"
        f"GRANT SELECT ON t TO {ROLE}",
        url=url,
    )
    rules.write_text(f"local all {ROLE} scram-sha-256\n{former}")
    postgres.reload()
    yield url.replace("postgres@", f"{ROLE}:@", 1)
    rules.write_text(former)
    postgres.reload()
    postgres.run("DROP DATABASE protected WITH (FORCE)")
    postgres.run(f"DROP ROLE {ROLE}")


def call(*arguments: str, password: str) -> subprocess.CompletedProcess[str]:
    """Run a command with a password in the variable."""
    return command.ended(*arguments, env={**runs_environment(), "UNLOADER_PASSWORD": password})


def runs_environment() -> dict[str, str]:
    """Return the variables of this process without any of PostgreSQL's or ours."""
    kept = (name for name in os.environ if not name.startswith(("PG", "UNLOADER_")))
    return {name: os.environ[name] for name in kept}


def written_below(directory: Path) -> str:
    """Return the texts of all files in a directory."""
    return "".join(
        path.read_bytes().decode("utf-8", "replace")
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    )


def test_postgres_with_a_password(protected: str, tmp_path: Path) -> None:
    """Plan, run, verify and a refused login: the password is in no output, log, manifest or plan."""
    table = ("--table", "t", "--parallelism", "2")
    log = ("--log-format", "json", "--log-interval", "0.1")
    plan, out = str(tmp_path / "plan.json"), str(tmp_path / "out")
    done = [
        call("plan", protected, *table, "--output", plan, "--json", password=SECRET),
        call("--debug", "run", plan, "--to", out, *log, "--json", password=SECRET),
        call("verify", out, protected, *log, "--json", password=SECRET),
        call("describe", protected, "--json", password=SECRET),
    ]
    assert [each.returncode for each in done] == [0, 0, 0, 0], done
    refused = call("--debug", "run", protected, *table, "--to", f"{out}2", password=f"{SECRET}2")
    assert refused.returncode == 4
    assert "28P01" in refused.stderr
    said = "".join(each.stdout + each.stderr for each in (*done, refused))
    assert SECRET not in said + written_below(tmp_path)


KEYRING = {"PYTHON_KEYRING_BACKEND": "keyrings.alt.file.PlaintextKeyring"}


def placed(place: str, home: Path) -> tuple[list[str], dict[str, str]]:
    """Put the password into a place below a directory; return the options and variables for it."""
    home.mkdir(mode=0o700)
    if place == "variable":
        return [], {"UNLOADER_PASSWORD": SECRET}
    if place == "keyring":
        variables = {**KEYRING, "XDG_DATA_HOME": str(home)}
        subprocess.run(
            [sys.executable, "-m", "keyring", "set", "protected", ROLE],
            input=f"{SECRET}\n",
            env={**os.environ, **variables},
            text=True,
            check=True,
            capture_output=True,
        )
        return ["--password-keyring", "protected"], variables
    (home / "unloader-password").write_text(f"{SECRET}\n")
    return ["--password-file", str(home / "unloader-password")], {}


def seen_from_outside(processes: list[psutil.Process]) -> tuple[str, str]:
    """Return the command lines of processes, and their variables as the system shows them."""
    texts = {"cmdline": "", "environ": ""}
    for process in processes:
        for name in texts:
            content = Path(f"/proc/{process.pid}/{name}").read_bytes()
            texts[name] += content.decode("utf-8", "replace")
    return texts["cmdline"], texts["environ"]


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.parametrize("place", ["file", "variable"])
def test_a_run_that_is_looked_at_and_killed(protected: str, tmp_path: Path, place: str) -> None:
    """No process shows the password while the run continues, and no process dumps its memory.

    A worker crashes, then all are killed: their output and files do not have the password. A
    variable is visible only to users who may read the process's variables.
    """
    home, out = tmp_path / "home", tmp_path / "left" / "out"
    options, variables = placed(place, home)
    slow = ("--where", "pg_sleep(0.001) IS NOT NULL", "--parallelism", "2", "--progress", "log")
    running = command.Running(
        *("--debug", "run", protected, "--table", "t", "--to", str(out), *options, *slow),
        *("--unit-bytes", "64kB", "--log-format", "json", "--log-interval", "0.1"),
        env=variables,
    )
    try:
        running.wait_until(lambda: bool(staged_units(out)), "a finished unit")
        workers = running.workers()
        assert len(workers) >= 2
        lines, surroundings = seen_from_outside(
            [psutil.Process(running.process.pid), *program.below(running.process.pid)]
        )
        workers[-1].send_signal(signal.SIGSEGV)
        done = len(staged_units(out))
        running.wait_until(lambda: len(staged_units(out)) > done, "another unit")
    finally:
        os.killpg(running.process.pid, signal.SIGKILL)
        said = "".join(running.process.communicate())
    left = written_below(out.parent)
    assert '"run_id"' in left
    assert SECRET not in lines + said + left
    assert (SECRET in surroundings) == (place == "variable")


@pytest.mark.long(OTHER_ROUTES)
def test_a_run_is_continued_with_a_password_from_elsewhere(protected: str, tmp_path: Path) -> None:
    """resume looks where it is reported: in the keyring, for the user of the run's URL."""
    options, variables = placed("keyring", tmp_path / "home")
    out = tmp_path / "out"
    # A later unit fails for every reader.
    fails = ("--where", "1 / (id - 19999) IS NOT NULL", "--consistency", "none", "--retries", "0")
    units = ("--unit-bytes", "64kB", "--parallelism", "1")
    begun = call(
        "run", protected, "--table", "t", "--to", str(out), *units, *fails, password=SECRET
    )
    assert (begun.returncode, "division by zero" in begun.stderr) == (4, True), begun.stderr
    refused = command.ended("resume", str(out), env=runs_environment())
    assert "division by zero" not in refused.stderr
    assert (refused.returncode, "password" in refused.stderr) == (4, True), refused.stderr
    surroundings = {**runs_environment(), **variables}
    known = command.ended("resume", str(out), *options, env=surroundings)
    assert (known.returncode, "division by zero" in known.stderr) == (4, True), known.stderr
    assert SECRET not in known.stderr + written_below(out)


def core_limits(*general: str, directory: Path) -> set[str]:
    """Return the limits on core dumps of a run's processes, by a shell without any limit."""
    path = directory / "slow.db"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS t AS SELECT range AS i FROM range(10)")
    reader, pipe = directory / "limits", directory / "pipe"
    os.mkfifo(pipe)
    options = ("--table", "t", "--to", f"pipe:{pipe}", "--quiet")
    with Program(
        [*command.UNLOADER, *general, "run", f"duckdb://{path}", *options],
        preexec_fn=lambda: resource.setrlimit(
            resource.RLIMIT_CORE, (hard := resource.getrlimit(resource.RLIMIT_CORE)[1], hard)
        ),
    ) as process:
        found = psutil.Process(process.pid)
        command.wait_for(lambda: len(found.children(recursive=True)) > 0, "a worker")
        everybody = [found, *found.children(recursive=True)]
        texts = [Path(f"/proc/{each.pid}/limits").read_text() for each in everybody]
        reader.write_bytes(pipe.read_bytes())
    lines = [line for text in texts for line in text.splitlines() if "core file" in line]
    return {line.split()[4] for line in lines}


def test_no_process_leaves_a_core_dump(tmp_path: Path) -> None:
    """Memory holds passwords and rows: only --debug leaves the limit as it is."""
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    if hard == 0:
        pytest.skip("nobody here may leave a core dump")
    for number, (general, limit) in enumerate(
        (((), "1"), (("--debug",), "unlimited" if hard == resource.RLIM_INFINITY else str(hard)))
    ):
        (tmp_path / str(number)).mkdir()
        assert core_limits(*general, directory=tmp_path / str(number)) == {limit}


@pytest.mark.long(OTHER_ROUTES)
def test_oracle_with_a_password(tmp_path: Path) -> None:
    """A complete run and a failed one, whose journal stays: no password in either."""
    found = database()
    runs.padded_table(found)
    options = (
        "--parallelism",
        "2",
        "--split",
        "partition",
        "--log-format",
        "json",
        "--retries",
        "0",
    )
    with OracleServer(found) as server:
        done = runs.unload(server, "PADDED", tmp_path / "done", *options)
        assert done.status == 0, done.log
        reading = r'"PAD".*PARTITION \("P3"\)'
        server.faults.add(Fault(kind="ora-01555", statement=reading, times=None))
        broken = runs.unload(server, "PADDED", tmp_path / "broken", *options)
        assert broken.status == 7, broken.log
        server.faults.clear()
        wrong = {"UNLOADER_PASSWORD": f"{PASSWORD}!"}
        refused = runs.unload(server, "PADDED", tmp_path / "refused", *options, env=wrong)
        assert "ORA-01017" in refused.log
    assert "journal.jsonl" in broken.staged
    said = "".join(each.stdout + each.log for each in (done, broken, refused))
    assert PASSWORD not in said + written_below(tmp_path)


def test_a_plan_file_keeps_no_password_of_a_statement(tmp_path: Path) -> None:
    """A SET ROLE with its password works in a run, and would stay in a plan file: refused there."""
    role = f"SET ROLE READER IDENTIFIED BY {SECRET}"
    source = ("oracle://scott@127.0.0.1:1/X", "--table", "T", "--session-sql", role)
    done = call("plan", *source, "--output", str(tmp_path / "plan.json"), password="")
    assert done.returncode == 2
    assert "--session-sql" in done.stderr
    assert SECRET not in done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_password_is_nowhere_in_what_keeps_a_snapshot(
    protected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A keeper logs in by it, and has it neither in its record nor where others see processes."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("UNLOADER_PASSWORD", raising=False)
    file = tmp_path / "password"
    file.write_text(SECRET)
    file.chmod(0o600)
    spec = SourceSpec(
        kind="postgresql",
        location=protected,
        secret=SecretReference(kind="file", name=str(file)),
        session=SessionOptions(keep_snapshot_seconds=600, run_id="kept"),
    )
    with closing(PostgresSource().open_catalog(spec)) as catalog:
        catalog.snapshot("snapshot")
        (keeper,) = keeping.living()
        try:
            process = Path(f"/proc/{keeper.record.process}")
            for each in (keeper.path, process / "cmdline", process / "environ"):
                assert SECRET.encode() not in each.read_bytes(), each
        finally:
            keeping.end(keeper)
