"""The parts of a plan read one state of the source, although its rows change between them."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from oracle.leg import OracleLeg
from oracle_server.model import Column, Type
from plan_parts import contents, merged, planned, run_part
from postgres import gates
from processes import command


@pytest.fixture
def variables(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Variables with a place for records of this test alone; no keeper is left at the end."""
    found = {"XDG_STATE_HOME": str(tmp_path / "state")}
    yield found
    command.run("keepers", "--end-all", env=found)


@pytest.fixture
def database(postgres: Any) -> str:
    """A PostgreSQL database with a table of four partitions."""
    found: str = postgres.database("parts")
    postgres.run(
        "CREATE TABLE t (k int, v text) PARTITION BY LIST (k);"
        + "".join(f"CREATE TABLE t_{n} PARTITION OF t FOR VALUES IN ({n});" for n in range(4))
        + "INSERT INTO t SELECT g % 4, 'old ' || g FROM generate_series(1, 2000) g",
        url=found,
    )
    return found


@pytest.mark.long("runs in parts")
def test_parts_of_postgres_at_the_snapshot_of_the_plan(
    postgres: Any, database: str, variables: dict[str, str], tmp_path: Path
) -> None:
    """Rows change between the parts, one is killed and resumed; the keeper goes with the file."""
    to = tmp_path / "out"
    plan = tmp_path / "plan.json"
    command.run(
        "plan", database, "--table", "t", "--to", str(to), "--output", str(plan), "--quiet",
        "--split", "partition", "--where", f"{gates.PASSING} = ''", "--keep-snapshot", "2h",
        env=variables,
    )  # fmt: skip
    postgres.run("DELETE FROM t WHERE k = 1; UPDATE t SET v = 'new'", url=database)
    run_part(str(plan), "1/2", env=variables)
    postgres.run("INSERT INTO t SELECT k, 'newer' FROM t", url=database)
    with gates.closed(postgres, database) as gate:
        running = command.Forked("run", str(plan), "--part", "2/2", env=variables)
        command.wait_for(lambda: gate.waiting() > 0, "a worker at the gate")
        os.killpg(running.process.pid, signal.SIGKILL)
        running.process.communicate()
    error = command.error_of("merge", str(to), status=6)
    assert f"unloader resume {to}/part-2-of-2" in error
    command.run("resume", str(to / "part-2-of-2"), "--progress", "none", env=variables)
    manifest = merged(to)
    assert manifest["totals"]["rows"] == manifest["verified"]["source_rows"] == 2000
    text = b"".join(contents(*to.iterdir(), pattern="*.csv").values()).decode()
    assert sorted(text.replace("k,v\n", "").split()) == sorted(
        word for g in range(1, 2001) for word in (f"{g % 4},old", str(g))
    )
    command.run("verify", str(to), database, env=variables)
    (keeper,) = json.loads(command.run("keepers", "--json", env=variables))["keepers"]
    assert keeper["run_id"] == json.loads(plan.read_bytes())["run_id"]


def test_without_a_keeper_the_snapshot_of_a_plan_is_gone(database: str, tmp_path: Path) -> None:
    """The error states how the plan is to be made."""
    to = tmp_path / "out"
    plan = planned(database, to)
    error = command.error_of("run", plan, "--part", "1/2", "--progress", "none", status=4)
    assert "--keep-snapshot" in error
    assert not to.exists()


def test_a_plan_keeps_its_snapshot_with_its_file_alone(database: str, tmp_path: Path) -> None:
    """Without a file no one could use it. In a variable or a job file it is about runs."""
    arguments = ("plan", database, "--table", "t", "--to", str(tmp_path / "out"))
    error = command.error_of(*arguments, "--keep-snapshot", "1h", status=2)
    assert "--output" in error
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    command.run(*arguments, "--quiet", env={**state, "UNLOADER_KEEP_SNAPSHOT": "1h"})
    assert json.loads(command.run("keepers", "--json", env=state))["keepers"] == []


@pytest.mark.long("runs in parts")
def test_parts_of_oracle_at_the_scn_of_the_plan(oracle: OracleLeg, tmp_path: Path) -> None:
    """Rows are deleted and added between the parts; the output has the rows of the plan's SCN."""
    columns = (
        Column(name="ID", type=Type(name="NUMBER", precision=9, scale=0), nullable=False),
        Column(name="V", type=Type(name="VARCHAR2", length=20)),
    )
    partitions = ", ".join(f"PARTITION P{n} VALUES LESS THAN ({n}000)" for n in range(1, 5))
    oracle.create("PARTED", columns, key=("ID",), tail=f"PARTITION BY RANGE (ID) ({partitions})")
    oracle.load("PARTED", columns, ((number, f"old {number}") for number in range(4000)))
    oracle.settle()
    to, plan = tmp_path / "out", tmp_path / "plan.json"
    command.run(
        "plan", oracle.url, "--table", "PARTED", "--to", str(to), "--output", str(plan),
        "--quiet", "--split", "partition", env=oracle.environment,
    )  # fmt: skip
    with oracle.writer() as writer:
        writer.run("DELETE FROM PARTED WHERE ID = 7")
        writer.commit()
        run_part(str(plan), "1/2", env=oracle.environment)
        writer.run("DELETE FROM PARTED WHERE ID = 3007")
        writer.run("UPDATE PARTED SET V = 'new' WHERE ID = 1007")
        writer.commit()
    run_part(str(plan), "2/2", env=oracle.environment)
    manifest = merged(to)
    assert manifest["snapshot"]["kind"] == "scn"
    text = b"".join(contents(*to.iterdir(), pattern="*.csv").values()).decode()
    rows = sorted(line for line in text.splitlines() if line != "ID,V")
    assert rows == sorted(f"{number},old {number}" for number in range(4000))
    command.run("verify", str(to), oracle.url, env=oracle.environment)


@pytest.mark.long("runs in parts")
def test_sqlite_in_parts(tmp_path: Path) -> None:
    """Each part holds the file as it is, and finds it as it was."""
    path, to = tmp_path / "t.sqlite", tmp_path / "out"
    with sqlite3.connect(path) as session:
        session.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)")
        session.executemany("INSERT INTO t VALUES (?, ?)", [(n, f"v{n}") for n in range(30_000)])
    session.close()
    plan = planned(f"sqlite://{path}", to, "--unit-bytes", "64KiB")
    units = len(json.loads(Path(plan).read_bytes())["plan"]["units"])
    for number in range(1, 3):
        run_part(plan, f"{number}/2")
    manifest = merged(to)
    assert len(manifest["units"]) == units
    assert manifest["totals"]["rows"] == 30_000
