"""`--guard-formulas` from end to end: the same texts from every source, and said in the manifest."""

from __future__ import annotations

import csv
import json
import sqlite3
from pathlib import Path
from typing import Any

import duckdb
import pytest
from long_tests import OTHER_ROUTES
from processes import command

VALUES = ("=HYPERLINK(1)", "-1", "plain", "it's =")
ROWS = [[str(-n), text] for n, text in enumerate(("'=HYPERLINK(1)", "'-1", "plain", "it's ="))]


@pytest.fixture(params=["duckdb", "sqlite", "postgresql"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    path = tmp_path / "t.db"
    rows = ", ".join(
        f"({-n}, '{text.replace(chr(39), chr(39) * 2)}')" for n, text in enumerate(VALUES)
    )
    table = f"CREATE TABLE t (n integer, v varchar(20)); INSERT INTO t VALUES {rows}"
    if request.param == "postgresql":
        postgres: Any = request.getfixturevalue("postgres")
        url: str = postgres.database("formulas")
        postgres.run(table, url=url)
        return url
    if request.param == "duckdb":
        with duckdb.connect(str(path)) as connection:
            connection.execute(table)
    else:
        database = sqlite3.connect(path)
        database.executescript(table)
        database.close()
    return f"{request.param}://{path}"


@pytest.mark.long(OTHER_ROUTES)
def test_every_source_writes_the_same(source: str, tmp_path: Path) -> None:
    """Texts are guarded, numbers not; the manifest states which columns were, and verify agrees."""
    out = tmp_path / "out"
    run = ("run", source, "--table", "t", "--guard-formulas", "--verify", "full", "--to", str(out))
    command.run(*run, "--file-per", "table")
    with open(out / "t.csv", newline="", encoding="utf-8") as file:
        assert sorted(csv.reader(file)) == sorted([["n", "v"], *ROWS])
    columns = command.manifest_of(out)["columns"]
    assert [column["lossless"] for column in columns] == [True, False]
    assert "--guard-formulas" in columns[1]["note"]
    assert "ok (count)" in command.run("verify", str(out), source)


@pytest.mark.long(OTHER_ROUTES)
def test_a_later_verify_compares_the_same_columns(tmp_path: Path) -> None:
    """Lists, structs and maps have no quote before them, so their values are compared by both."""
    path, out = tmp_path / "t.db", tmp_path / "out"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT '=' || i AS v, [i, -i] AS l, {'a': '=' || i} AS s, "
            "MAP {'k': i} AS m, i::VARCHAR::ENUM('0', '1', '2') AS e FROM range(3) r(i)"
        )
    job = ("run", f"duckdb://{path}", "--table", "t", "--guard-formulas", "--verify", "full")
    command.run(*job, "--to", str(out))
    compared = command.manifest_of(out)["verified"]["not_compared"]
    later = json.loads(command.run("verify", str(out), "--level", "full", "--json"))
    assert later["not_compared"] == compared
    assert [text.partition(":")[0] for text in compared] == ["v", "e"]


def test_it_is_for_text_files(tmp_path: Path) -> None:
    """Parquet has types, and no program takes its texts for formulas."""
    options = ("--format", "parquet", "--guard-formulas", "--to", str(tmp_path / "out"))
    error = command.error_of("run", "duckdb:///nowhere.db", "--table", "t", *options, status=2)
    assert "--guard-formulas does not apply to --format parquet" in error
