"""Runs into DuckLake tables, with catalogs in files of DuckDB and of SQLite."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import time
from pathlib import Path
from typing import Any

import packages_apart
import pytest
from amounts import amount
from ducklakes.catalogs import DuckLake, with_extension
from processes import command

ROWS = 1000


@pytest.fixture(scope="module")
def env() -> dict[str, str]:
    """Variables of a process that finds a DuckDB which has the extension."""
    try:
        return with_extension()
    except packages_apart.Missing as missing:
        pytest.skip(f"no DuckDB with the extension ducklake: {missing}")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table of 1,000 rows in SQLite; return its URL."""
    path = tmp_path_factory.mktemp("source") / "t.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (i INTEGER NOT NULL, v TEXT, w BLOB)")
        connection.executemany(
            "INSERT INTO t VALUES (?, ?, ?)",
            ((i, None if i % 7 == 0 else f'"{i}"\n', b"\0\xff" * (i % 3)) for i in range(ROWS)),
        )
    connection.close()
    return f"sqlite://{path}"


def asked(source: str, place: str, mode: str = "append") -> tuple[str, ...]:
    """Return the run of the source's table into one of a lake."""
    where = ("--format", "parquet", "--to", place, "--save-mode", mode)
    return ("run", source, "--table", "t", *where)


@pytest.mark.long("runs into tables of a lakehouse")
def test_the_promises_of_a_format(tmp_path: Path, env: dict[str, str]) -> None:
    """All that `unloader.lakehouse.table_commits` promises, in places that DuckDB takes for patterns."""
    root = tmp_path / "a [l]ake=1"
    root.mkdir()
    DuckLake.made(root, kind="", env=env).check_contract("main.t")


@pytest.mark.long("runs into tables of a lakehouse")
def test_rows_are_part_of_the_table_at_once(
    source: str, tmp_path: Path, env: dict[str, str]
) -> None:
    """A table is made, added to and replaced; each snapshot states which run it is of."""
    lake = DuckLake.made(tmp_path, kind="sqlite:", env=env)
    place = lake.place("main.t")
    command.run(*asked(source, place, "create"), env=env)
    wanted = sqlite3.connect(source.removeprefix("sqlite://")).execute("SELECT * FROM t").fetchall()
    assert lake.rows("FROM lake.main.t ORDER BY i") == wanted
    refused = command.error_of(*asked(source, place, "create"), env=env, status=6)
    assert "already exists" in refused
    command.run(*asked(source, place), "--where", "i < 10", env=env)
    assert lake.rows("SELECT count(*), count(DISTINCT i) FROM lake.main.t") == [(ROWS + 10, ROWS)]
    done = json.loads(command.run(*asked(source, place, "overwrite"), "--json", env=env))
    assert lake.rows("FROM lake.main.t ORDER BY i") == wanted
    said = lake.rows("SELECT commit_extra_info FROM ducklake_snapshots('lake') ORDER BY ALL")
    runs = [json.loads(text)["unloader.run-id"] for (text,) in said if text]
    assert len(runs) == 3
    assert done["run_id"] in runs
    command.run("verify", place, source, env=env)


@pytest.mark.long("runs into tables of a lakehouse")
@pytest.mark.parametrize("kind", ["", "sqlite:"], ids=["duckdb", "sqlite"])
def test_files_that_maintenance_has_replaced(
    source: str, tmp_path: Path, env: dict[str, str], kind: str
) -> None:
    """Files that were merged, rewritten or expired are reported by that name, not as damage."""
    lake = DuckLake.made(tmp_path, kind=kind, env=env)
    for mode in ("create", "append"):
        command.run(*asked(source, lake.place("main.t"), mode), env=env)
    homes = sorted((tmp_path / "data" / "main" / "t").glob("*Z-*"))
    assert _log(homes[0], env)["changes"] == []
    cleanup = "CALL ducklake_cleanup_old_files('lake', cleanup_all => true)"
    lake.lines(f"CALL ducklake_merge_adjacent_files('lake'); {cleanup}")
    command.run(*asked(source, lake.place("main.t")), env=env)
    homes = sorted((tmp_path / "data" / "main" / "t").glob("*Z-*"))
    for home in homes[:2]:
        found = _log(home, env)
        (change,) = found["changes"]
        assert (change["snapshot"], change["operation"]) == ("3", "merge_adjacent")
        assert change["keeps_rows"]
        assert found["missing_files"] == change["files"] == ["t.0001.parquet"]
        assert found["rows"] == ROWS
    assert _log(homes[2], env)["changes"] == []

    lake.lines("DELETE FROM lake.main.t WHERE i >= 0")
    (change,) = _log(homes[2], env)["changes"]
    assert (change["snapshot"], change["operation"]) == ("5", "deleted_from_table")
    assert not change["keeps_rows"]
    lake.lines(f"CALL ducklake_expire_snapshots('lake', older_than => now()); {cleanup}")
    for home in homes[1:]:
        assert not list(home.glob("*.parquet"))
        found = _log(home, env)
        assert [each["snapshot"] for each in found["changes"]] == [None]


def _log(home: Path, env: dict[str, str]) -> dict[str, Any]:
    """Verify a run; return the entries of its table's log."""
    found: dict[str, Any] = json.loads(command.run("verify", str(home), "--json", env=env))
    assert found["result"] == "ok"
    return dict(found["table_log"])


@pytest.mark.long("runs into tables of a lakehouse")
@pytest.mark.parametrize("kind", ["", "sqlite:"], ids=["duckdb", "sqlite"])
def test_killed_at_random_moments(
    source: str, tmp_path: Path, env: dict[str, str], kind: str
) -> None:
    """After any kill each run has committed all its rows once, or none of them."""
    lake = DuckLake.made(tmp_path, kind=kind, env=env)
    place = lake.place("main.t")
    command.run(*asked(source, place, "create"), env=env)
    began = time.monotonic()
    command.run(*asked(source, place), env=env)
    seconds = time.monotonic() - began
    moments, commits = random.Random(1), 2
    for _ in range(amount("UNLOADER_TEST_TABLE_KILLS", 2, 3)):
        running = command.Forked(*asked(source, place), env=env)
        time.sleep(moments.uniform(0.3, 1.1) * seconds)
        if running.process.poll() is None:
            os.killpg(running.process.pid, signal.SIGKILL)
        running.process.communicate()
        done = command.ended("resume", place, env=env)
        assert done.returncode == 0, done.stderr
        ((rows, values),) = lake.rows("SELECT count(*), count(DISTINCT i) FROM lake.main.t")
        assert values == ROWS
        assert rows in (ROWS * commits, ROWS * (commits + 1))
        commits = rows // ROWS


def test_what_cannot_be_written_to(source: str, tmp_path: Path) -> None:
    """A name without a table, or with a password, is refused; so is a DuckDB without DuckLake."""
    refused = command.error_of(*asked(source, "ducklake:catalog"), status=2)
    assert "does not name a table" in refused
    secret = "ducklake:postgres:host=db password=hush/main.t"
    refused = command.error_of(*asked(source, secret), status=2)
    assert "contains a password" in refused
    assert "hush" not in refused
    env = {"HOME": str(tmp_path)}  # The directory of the installed extensions of DuckDB.
    place = f"ducklake:{tmp_path / 'catalog.db'}/main.t"
    refused = command.error_of(*asked(source, place), status=3, env=env)
    assert "has no extension 'ducklake'" in refused
    assert "INSTALL ducklake" in refused
    assert not (tmp_path / "catalog.db").exists()
