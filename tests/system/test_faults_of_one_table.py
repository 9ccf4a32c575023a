"""What goes wrong with one table of many, or with a worker: the other tables are whole."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import duckdb
import pytest
from long_tests import OTHER_ROUTES, also
from postgres import gates
from processes import command
from processes.breaking import FaultyCalls

SIZES = {"large": 30_000, "bad": 2_000, "middle": 3_000, "empty": 0, "small": 5}


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A DuckDB file of a few tables."""
    path = tmp_path_factory.mktemp("duck") / "t.duckdb"
    with duckdb.connect(str(path)) as connection:
        for name, rows in SIZES.items():
            connection.execute(f"CREATE TABLE {name} AS SELECT i, i AS v FROM range({rows}) r(i)")
    return f"duckdb://{path}"


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> FaultyCalls:
    """The library that makes calls fail."""
    return FaultyCalls.build(tmp_path_factory.mktemp("faults"))


def rows_of(home: Path, name: str) -> int:
    """Return the rows in the files of a table that is published; -1 if it is not."""
    if not (home / name / "_manifest.json").exists():
        return -1
    command.manifest_of(home / name)
    return sum(path.read_bytes().count(b"\n") - 1 for path in (home / name).glob("*.csv"))


def check_others(home: Path) -> None:
    found = {name: rows_of(home, f"main.{name}") for name in SIZES}
    assert found == {**SIZES, "bad": -1}
    assert not list((home / "main.bad").glob("*.csv"))


@pytest.mark.long("faults of whole runs")
@pytest.mark.parametrize(
    ("call", "where", "more"),
    [
        (("write", 100), "main.bad/_run/journal.jsonl", ()),
        (("write", 0), "main.bad/_run/lock", ()),
        (("rename", 0), "main.bad/", ("--publish", "run")),
        *also(
            OTHER_ROUTES,
            (("write", 0), "main.bad/_run/0", ()),
            (("fsync", 0), "main.bad/_run/0", ("--parallelism", "1")),
            (("rename", 0), "main.bad/", ()),
            (("fsync", 0), "main.bad/_run/lock", ()),
            (("fsync", 0), "main.bad/_run/journal.jsonl", ()),
        ),
    ],
)
def test_a_full_disk_under_one_table_fails_that_alone(
    database: str,
    faults: FaultyCalls,
    tmp_path: Path,
    call: tuple[str, int],
    where: str,
    more: tuple[str, ...],
) -> None:
    """Wherever it is noticed: in a worker, or while the table is published."""
    home = tmp_path / "night"
    done = command.ended(
        *("run", database, "--table", "main.*", "--on-table-failure", "continue", "--quiet"),
        *("--to", f"{home}/{{schema}}.{{table}}", *more),
        env={**os.environ, **faults.environment(call[0], errno.ENOSPC, files=where, after=call[1])},
    )
    assert done.returncode == 7, done.stderr
    assert "bad" in done.stderr
    assert "No space left on device" in done.stderr
    check_others(home)


@pytest.mark.parametrize(
    ("what", "where", "status", "left_out"),
    [("killed", "main.t22/_run/0001-a1", 0, []), (errno.ENOSPC, "main.t22/_run/0001-a", 7, [22])],
)
def test_small_tables_that_go_to_a_worker_together_fail_apart(
    faults: FaultyCalls, tmp_path: Path, what: str | int, where: str, status: int, left_out: object
) -> None:
    """A table that ends the worker costs the tables with it one attempt, and the others nothing."""
    with duckdb.connect(str(tmp_path / "t.duckdb")) as connection:
        for number in range(40):
            connection.execute(f"CREATE TABLE t{number} AS SELECT i FROM range({number}) r(i)")
    home = tmp_path / "night"
    done = command.ended(
        *("run", f"duckdb:///{tmp_path}/t.duckdb", "--table", "main.*", "--quiet"),
        *("--to", f"{home}/{{schema}}.{{table}}", "--parallelism", "1"),
        *("--on-table-failure", "continue"),
        env={**os.environ, **faults.environment("write", what, files=where)},
    )
    assert done.returncode == status, done.stderr
    rows = {number: rows_of(home, f"main.t{number}") for number in range(40)}
    assert [number for number, found in rows.items() if found != number] == left_out
    attempts = [
        command.manifest_of(home / f"main.t{number}")["units"][0]["attempts"]
        for number in set(range(40)) - {22}
    ]
    assert 0 < attempts.count(2) < 5
    assert set(attempts) == {1, 2}


def test_the_number_of_workers_is_found_over_several_tables(database: str, tmp_path: Path) -> None:
    """Units of all tables count, and every row is written."""
    home = tmp_path / "night"
    command.run(
        *("run", database, "--table", "main.*", "--quiet", "--unit-bytes", "32KiB"),
        *("--to", f"{home}/{{schema}}.{{table}}", "--parallelism", "adaptive"),
    )
    assert {name: rows_of(home, f"main.{name}") for name in SIZES} == SIZES
    manifest = json.loads((home / "main.large" / "_manifest.json").read_text())
    assert manifest["options"]["adaptive"] is True
    assert manifest["parallelism_steps"]


@pytest.mark.long("faults of whole runs")
def test_a_small_file_whose_sync_has_failed_once_is_written_again(
    database: str, faults: FaultyCalls, tmp_path: Path
) -> None:
    """The next sync of it would succeed, although bytes are missing; resume cannot know that."""
    home = tmp_path / "night"
    fault = faults.environment(
        "fsync", errno.EIO, files="main.bad/_run/0", more={"who": "parent", "times": 1}
    )
    out = command.ended(
        *("run", database, "--table", "*", "--to", f"{home}/{{schema}}.{{table}}"),
        *("--on-table-failure", "continue", "--progress", "log"),
        env={**os.environ, **fault},
    )
    assert out.returncode == 7, out.stderr
    check_others(home)
    assert not list((home / "main.bad" / "_run").glob("0*"))
    command.run("resume", str(home), "--quiet")
    assert {name: rows_of(home, f"main.{name}") for name in SIZES} == SIZES


@pytest.mark.long(OTHER_ROUTES)
def test_a_killed_worker_costs_one_attempt_of_one_table(postgres: Any, tmp_path: Path) -> None:
    """The unit that it was at is read again, and all tables are whole."""
    url = postgres.database("killed_among_many")
    postgres.run(
        f"CREATE SCHEMA s; CREATE VIEW s.slow AS SELECT g AS id, {gates.PASSING} AS z "
        "FROM generate_series(1, 1000) g;"
        + "".join(
            f"CREATE TABLE s.t{number} AS SELECT g AS id FROM generate_series(1, {number}) g;"
            for number in range(12)
        ),
        url=url,
    )
    home = tmp_path / "night"
    with gates.closed(postgres, url) as gate:
        running = command.Forked(
            *("run", url, "--table", "s.slow", "--table", "s.t*"),
            *("--to", f"{home}/{{schema}}.{{table}}"),
            *("--parallelism", "1", "--progress", "log"),
        )
        gates.wait_at(gate, running)
        (worker,) = running.workers()
        worker.kill()
    status, _, err = running.finish()
    assert status == 0, err
    assert "signal 9" in err or "SIGKILL" in err
    (unit,) = command.manifest_of(home / "s.slow")["units"]
    assert (unit["attempts"], unit["rows"]) == (2, 1000)
    assert [rows_of(home, f"s.t{number}") for number in range(12)] == list(range(12))
