"""Runs that need a password: none of it is in anything that they leave."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from long_tests import OTHER_ROUTES
from oracle import runs
from oracle.accounts import PASSWORD, database
from oracle_server.faults import Fault
from oracle_server.server import OracleServer
from processes import command

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
    postgres.run("SELECT pg_reload_conf()")
    yield url.replace("postgres@", f"{ROLE}:@", 1)
    rules.write_text(former)
    postgres.run("SELECT pg_reload_conf()")
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


@pytest.mark.long(OTHER_ROUTES)
def test_oracle_with_a_password(tmp_path: Path) -> None:
    """A run that is done and one that breaks off, whose journal stays: no password in either."""
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
        assert "ORA-01017" in refused.error
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
