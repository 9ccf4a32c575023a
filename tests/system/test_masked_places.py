"""Where a clear value, or a key, could stand that no rows are written to: plans, errors, processes."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import psutil
import pytest
from long_tests import OTHER_ROUTES
from masking import (
    BORN,
    CLEAR,
    KEY,
    MASKS,
    ROWS,
    UNITS,
    Place,
    card,
    persons_of_duckdb,
    processes_of,
    rows,
)
from processes import command
from processes.breaking import held_behind, kill_after, staged_units
from processes.program import command_line

if TYPE_CHECKING:
    from oracle.leg import OracleLeg


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """An empty directory."""
    tmp_path.chmod(0o700)
    return Place(tmp_path)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a table of persons in DuckDB."""
    return persons_of_duckdb(tmp_path_factory.mktemp("duck") / "t.duckdb")


@pytest.mark.long("masked runs")
def test_nothing_clear_is_in_what_a_run_tells_of_itself(source: str, place: Place) -> None:
    """Statistics and filters of Parquet, report, metrics, hooks, and later commands."""
    out = str(place.path / "out")
    dump = f"cd {place.path}; env > facts; cat $UNLOADER_RUN_MANIFEST > seen-manifest"
    telling = (
        *("--report", f"{place.path}/page.html", "--metrics-file", f"{place.path}/run.prom"),
        *("--on-success", dump, "--log-format", "json", "--progress", "log", "--verify", "full"),
    )
    form = ("--format", "parquet", "--compression", "none", "--bloom-filter", "email,card,born")
    place.run(*place.job(source, *MASKS, *form, *telling))
    assert "UNLOADER_RUN_ROWS" in (place.path / "facts").read_text()
    place.run("verify", out, "--level", "full", "--strict", "--json")
    place.run("verify", out, source)
    place.run("report", out, "--output", f"{place.path}/again.html")
    for shown in (
        ("status", out),
        ("runs", str(place.path)),
        ("plan", source, "--table", "persons"),
    ):
        place.run(*shown, *(MASKS if shown[0] == "plan" else ()), "--json")
    sampled = ("--sample", "40%", "--sample-by", "email", "--limit-rows", "100")
    place.run(*place.job(source, *MASKS, *sampled, "--overwrite"))
    place.check()


@pytest.mark.long(OTHER_ROUTES)
def test_a_key_in_a_file_is_in_no_process(source: str, place: Place) -> None:
    """Neither in the arguments nor in the environment of the command and its workers."""
    file = place.path.parent / "mask.key"
    file.touch(0o600)
    file.write_text(KEY)
    env = {name: value for name, value in place.env.items() if KEY not in value}
    job = place.job(source, *MASKS, "--mask-key", f"file:{file}", "--unit-bytes", "2kB")
    running = command.Running(*job, "--parallelism", "1", env={**held_behind(1), **env})
    try:
        out = place.path / "out"
        running.wait_until(lambda: len(staged_units(out)) >= 1, "a finished unit")
        workers = running.workers()
        assert workers
        for _, arguments, variables in processes_of(
            (running.process.pid, *(each.pid for each in workers))
        ):
            assert KEY.encode() not in arguments + variables
    finally:
        os.killpg(running.process.pid, signal.SIGKILL)
        running.process.communicate()
    psutil.wait_procs(workers, timeout=command.PATIENCE_SECONDS)
    place.check()


def sqlite_persons(place: Place) -> str:
    """Return the URL of persons whose key, the rowid, is the number of the card."""
    path = place.path.parent / f"{place.path.name}.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            "CREATE TABLE persons (card INTEGER PRIMARY KEY, id INT, email TEXT, name TEXT, "
            "born TEXT, note TEXT)"
        )
        connection.executemany(
            "INSERT INTO persons VALUES (?, ?, ?, ?, ?, ?)",
            ((card(row[0]), row[0], *row[1:3], BORN, row[5]) for row in rows()),
        )
        connection.commit()
    return f"sqlite://{path}"


SQLITE = ("--mask", "email=hmac", "--mask", "name=tokenize", "--mask", "born=redact",
          "--mask", "note=redact")  # fmt: skip


@pytest.mark.long("masked runs")
def test_ends_of_ranges_are_no_values_that_are_masked(place: Place) -> None:
    """SQLite cuts a table by its key. Where that is masked, or not written, the table is one unit,
    and neither plan nor record nor log has any of it."""
    url, split = sqlite_persons(place), ("--split", "range")
    shown = json.loads(
        command.run("plan", url, "--table", "persons", *SQLITE, *UNITS, "--json", env=place.env)
    )
    # Only this is why the rest says something: a key that is written is cut by.
    assert len(shown["plan"]["units"]) > 3
    for hidden in (("--mask", "card=ff1,digits=17"), ("--exclude", "card")):
        options = (*SQLITE, *hidden)
        place.run("plan", url, "--table", "persons", *options, *UNITS, "--json")
        place.run("plan", url, "--table", "persons", *options, "--output", f"{place.path}/p.json")
        assert "column card" in place.run(*place.job(url, *options, *split), status=5)
        (place.path / "p.json").unlink()
    masks = (*SQLITE, "--mask", "card=ff1,digits=17")
    assert kill_after(0, place.path / "out", *place.job(url, *masks), env=place.env) == {}
    place.check()
    place.run("resume", str(place.path / "out"))
    assert command.manifest_of(place.path / "out")["totals"]["rows"] == ROWS
    place.check()


@pytest.mark.long(OTHER_ROUTES)
def test_keys_of_an_oracle_table_are_in_no_plan(place: Place, oracle: OracleLeg) -> None:
    """An index-organized table is cut by its key, unless that is masked."""
    from oracle_server.model import Column, Type

    columns = (
        Column(name="EMAIL", type=Type(name="VARCHAR2", length=60), nullable=False),
        Column(name="ID", type=Type(name="NUMBER", precision=9, scale=0), nullable=False),
    )
    oracle.create("PERSONS", columns, key=("EMAIL", "ID"), tail="ORGANIZATION INDEX")
    oracle.load("PERSONS", columns, ((row[1] + "." * 30, row[0]) for row in rows()))
    oracle.gather("PERSONS")
    env = {**place.env, **oracle.environment}
    table = ("--table", "PERSONS", "--unit-bytes", "16KiB")
    clear = command.run("plan", oracle.url, *table, "--split", "range", "--json", env=env)
    assert CLEAR in clear
    masks = ("--mask", "EMAIL=hmac")
    place.run("plan", oracle.url, *table, *masks, "--json", env=env)
    job = ("run", oracle.url, *table, *masks, "--to", str(place.path / "out"))
    kill_after(0, place.path / "out", *job, env=env)
    place.check()
    place.run("resume", str(place.path / "out"), env=env)
    place.check()


@pytest.mark.long(OTHER_ROUTES)
def test_what_the_source_says_when_it_counts_is_not_shown(place: Place, tmp_path: Path) -> None:
    """Its rows are counted by the parent, also long after the run."""
    path = tmp_path.parent / f"{tmp_path.name}.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "CREATE TABLE t (id INT, name VARCHAR, age VARCHAR); INSERT INTO t VALUES (1, "
            f"'{CLEAR}', '44'); CREATE VIEW persons AS SELECT id, name, age FROM t "
            "WHERE CAST(age AS INT) > 10"
        )
    url = f"duckdb://{path}"
    masks = ("--mask", "name=hmac", "--mask", "age=redact")
    place.run(*place.job(url, *masks))
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"INSERT INTO t VALUES (2, 'b', '{CLEAR} is 7')")
    text = place.run("verify", str(place.path / "out"), url, status=4)
    assert "columns are masked" in text
    place.check()


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.parametrize("many", [False, True])
def test_what_postgres_says_when_it_counts_is_not_shown(
    place: Place, postgres: Any, many: bool
) -> None:
    """An error, or notices, of functions that a view calls when it is counted; one table, and two."""
    url = postgres.database(f"counted_persons_{int(many)}")
    postgres.run(
        "CREATE FUNCTION looked_at(name text) RETURNS boolean VOLATILE LANGUAGE plpgsql AS $$ BEGIN "
        "RAISE NOTICE 'there is %', name; RAISE WARNING 'there is %', name; "
        "IF current_query() ~* 'count\\(' THEN RAISE EXCEPTION 'not for %', name "
        "USING DETAIL = name, HINT = name; END IF; RETURN true; END $$; "
        f"CREATE TABLE t AS SELECT i AS id, '{CLEAR} ' || i AS name FROM generate_series(1, 50) i; "
        "CREATE VIEW persons AS SELECT id, name FROM t WHERE looked_at(name); "
        "CREATE VIEW others AS SELECT id, name FROM t",
        url=url,
    )
    masks = ("--mask", "name=hmac")
    if not many:
        text = place.run(*place.job(url, *masks, "--log-format", "json"), status=4)
    else:
        to = ("--table", "persons", "--table", "others", "--to", f"{place.path}/out/{{table}}")
        going = ("--on-table-failure", "continue", "--log-format", "json")
        text = place.run("run", url, *to, *masks, *going, status=7)
    assert "columns are masked" in text
    place.check()


@pytest.mark.long(OTHER_ROUTES)
def test_a_keeper_of_a_snapshot_has_no_key(place: Place, postgres: Any) -> None:
    """It outlives the run, and its environment has the variables for its connection and no more."""
    url = postgres.database("kept_persons")
    postgres.run(
        f"CREATE TABLE persons AS SELECT i AS id, '{CLEAR} ' || i AS name "
        "FROM generate_series(1, 2000) i; ANALYZE persons",
        url=url,
    )
    env = {**place.env, "ELSEWHERE": KEY}
    job = place.job(
        url, "--mask", "name=hmac", "--mask-key", "env:ELSEWHERE", "--keep-snapshot", "1h"
    )
    kill_after(1, place.path / "out", *job, "--unit-bytes", "8kB", "--parallelism", "1", env=env)
    keepers = [
        process
        for process in psutil.process_iter()
        if "postgres.keeper" in command_line(process)
        and str(place.path).encode() in _variables(process)
    ]
    assert len(keepers) == 1
    for _, arguments, variables in processes_of(each.pid for each in keepers):
        assert KEY.encode() not in arguments + variables
        assert b"HOME=" in variables
    place.check()
    place.run("resume", str(place.path / "out"), env=env)
    psutil.wait_procs(keepers, timeout=command.PATIENCE_SECONDS)
    place.check()


def _variables(process: psutil.Process) -> bytes:
    return b"".join(variables for _, _, variables in processes_of((process.pid,)))
