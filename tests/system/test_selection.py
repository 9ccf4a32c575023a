"""Selection: tables, partitions, columns, conditions and queries, the same on each source."""

from __future__ import annotations

import csv
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest
from long_tests import OTHER_ROUTES, also
from processes import command

SOME = ["postgresql", *also("selections", "duckdb", "sqlite")]
"""Sources, where `test_every_selection` tries the same on each of them."""

TWO = ["postgresql", "duckdb", *also("selections", "sqlite")]
"""All sources; a plain run tries one server and one file of them."""

EVERY = ["postgresql", "duckdb", "sqlite"]

ROWS = 5000
FILL = "SELECT {i} AS id, 'v' || {i} AS \"Value\", {i} % 5 AS k FROM {source}"


@pytest.fixture(scope="module", params=["duckdb", "sqlite", "postgresql"])
def url(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, postgres: Any
) -> str:
    """Each source with a table `t` (id, "Value", k) without partitions."""
    place = tmp_path_factory.mktemp("selection")
    if request.param == "duckdb":
        with duckdb.connect(str(place / "t.db")) as database:
            database.execute(
                f"CREATE TABLE t AS {FILL.format(i='i', source=f'range({ROWS}) r(i)')}"
            )
        return f"duckdb://{place}/t.db"
    if request.param == "sqlite":
        with closing(sqlite3.connect(place / "t.db")) as lite, lite:
            lite.execute('CREATE TABLE t (id INTEGER, "Value" TEXT, k INTEGER)')
            lite.executemany(
                "INSERT INTO t VALUES (?, ?, ?)", ((i, f"v{i}", i % 5) for i in range(ROWS))
            )
        return f"sqlite://{place}/t.db"
    found: str = postgres.database("selection")
    source = f"generate_series(0, {ROWS - 1}) g"
    postgres.run(f"CREATE TABLE t AS {FILL.format(i='g', source=source)}; ANALYZE t", url=found)
    return found


def rows_of(destination: Path) -> list[list[str]]:
    """Return all records of the CSV files, in order of the files, without headers."""
    found = []
    for path in sorted(destination.glob("*.csv")):
        with path.open(newline="") as file:
            reader = csv.reader(file)
            next(reader)
            found.extend(reader)
    return found


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.parametrize("url", SOME, indirect=True)
def test_columns_are_chosen_by_pattern(url: str, tmp_path: Path) -> None:
    """Patterns serve --columns and --exclude alike; one that matches nothing is refused."""
    out = tmp_path / "o"
    common = ("run", url, "--table", "t", "--quiet")
    command.run(*common, "--to", str(out), "--columns", "k,v*")
    names = [column["name"] for column in command.manifest_of(out)["columns"]]
    assert names == ["k", "Value"]
    assert sorted(rows_of(out))[0] == ["0", "v0"]
    command.run(*common, "--to", str(tmp_path / "rest"), "--exclude", "?")
    rest = command.manifest_of(tmp_path / "rest")
    assert [column["name"] for column in rest["columns"]] == ["id", "Value"]
    command.run("verify", str(tmp_path / "rest"), url, "--quiet")
    error = command.error_of(*common, "--to", str(tmp_path / "no"), "--exclude", "z*", status=2)
    assert "--exclude z* matches no column. Next: use one of: id, Value, k" in error


@pytest.mark.long(OTHER_ROUTES)
def test_tabs_and_hyphens_show_in_the_names_of_files(tmp_path: Path) -> None:
    """Text with tabs is .tsv, verified like any other; no file is called like an option."""
    with duckdb.connect(str(tmp_path / "t.db")) as database:
        database.execute('CREATE TABLE "-rf" AS SELECT range AS i FROM range(10)')
    common = ("run", f"duckdb://{tmp_path}/t.db", "--table", '"-rf"', "--quiet", "--to")
    for name, options in {
        "%2Drf.tsv.gz": ("--dialect", "tsv", "--compression", "gzip", "--file-per", "table"),
        "%2Drf.0001.tsv": ("--delimiter", r"\t"),
        "%2Drf.0001.csv": ("--dialect", "tsv", "--delimiter", ";", "--null", "NULL"),
    }.items():
        out = tmp_path / name
        command.run(*common, str(out), *options)
        assert [path.name for path in out.iterdir() if path.name[0] != "_"] == [name]
        command.run("verify", str(out), "--quiet")


WRONG_SQL = (
    *("k = $1", "k = ?", "k =", "k = 'x", "k = 1 /* open", '"k = 1', "k = 1; SELECT 1"),
    *("nope = 1", "k = 1) OR (k = 2"),
)
"""A condition after `WHERE`, for every database."""


@pytest.mark.parametrize("option", ["--where", "--query"])
@pytest.mark.parametrize("url", EVERY, indirect=True)
def test_wrong_sql_is_an_error_of_its_option(url: str, tmp_path: Path, option: str) -> None:
    """The error names the option, has the database's own words, and no word of a lost session."""
    for text in WRONG_SQL:
        sql = text if option == "--where" else f"SELECT id FROM t WHERE {text}"
        selected = ("--table", "t") if option == "--where" else ()
        error = command.error_of(
            "run", url, *selected, option, sql, "--to", str(tmp_path / "o"), status=4
        )
        given = f"{option} {text}" if option == "--where" else option
        assert f"error: the database does not accept {given}: " in error, error
        assert "Next: give " in error, error
        assert "lost" not in error
        assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("url", EVERY, indirect=True)
def test_sql_that_fails_on_a_row_points_to_its_option(url: str, tmp_path: Path) -> None:
    """The error of a worker says where to look, not only that the database has a log."""
    if url.startswith("sqlite"):
        pytest.skip("every text has an integer there")
    error = command.error_of(
        "run", url, "--table", "t", "--where", 'CAST("Value" AS int) > 0',
        "--to", str(tmp_path / "o"), "--progress", "none", status=4,
    )  # fmt: skip
    assert "--where" in error.partition("Next: ")[2]


@pytest.mark.parametrize("url", TWO, indirect=True)
@pytest.mark.parametrize(
    ("arguments", "status", "part"),
    [
        (("--table", "nowhere"), 4, "nowhere"),
        (("--table", "t", "--columns", "nope"), 2, "nope"),
        (("--table", "t", "--exclude", "id,Value,k"), 2, "no column"),
        (("--table", "t", "--partition", "p*"), 5, "partition"),
        (("--table", "t", "--split", "partition"), 5, "partition"),
        (("--query", "SELECT 1) AS a, (SELECT 2"), 4, ""),
        (("--table", "a.b.c"), 2, "a.b.c"),
    ],
)
def test_wrong_selection(
    url: str, tmp_path: Path, arguments: tuple[str, ...], status: int, part: str
) -> None:
    """A selection that cannot be is one clear error, and no directory is left."""
    error = command.error_of("run", url, *arguments, "--to", str(tmp_path / "o"), status=status)
    assert part in error
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("form", ["csv", *also("selections", "parquet")])
@pytest.mark.parametrize("url", SOME, indirect=True)
def test_one_file_for_the_table(url: str, tmp_path: Path, form: str) -> None:
    """--file-per table joins the units in order into one file with one header."""
    command.run(
        "run", url, "--table", "t", "--to", str(tmp_path / "o"), "--file-per", "table",
        "--split", "range", "--unit-bytes", "20kB", "--format", form, "--verify", "full",
        "--quiet",
    )  # fmt: skip
    (path,) = (tmp_path / "o").glob(f"*.{form}")
    assert path.name == f"t.{form}"
    with duckdb.connect() as reader:
        found = reader.sql(f"SELECT id::BIGINT, \"Value\" FROM '{path}'").fetchall()
    assert found == [(i, f"v{i}") for i in range(ROWS)]
    command.run("verify", str(tmp_path / "o"), url)


@pytest.mark.parametrize("url", SOME, indirect=True)
def test_plan_file_is_run_unit_for_unit(url: str, tmp_path: Path) -> None:
    """`run PLAN.json` reads exactly the units that `plan` showed."""
    plan = tmp_path / "plan.json"
    command.run(
        "plan", url, "--table", "t", "--split", "range", "--unit-bytes", "30kB",
        "--parallelism", "2", "--output", str(plan),
    )  # fmt: skip
    planned = json.loads(plan.read_text())
    out = command.run("run", str(plan), "--to", str(tmp_path / "o"), "--json")
    manifest = json.loads(out)
    assert manifest["plan"]["digest"] == planned["plan"]["digest"]
    ids = [unit["id"] for unit in planned["plan"]["units"]]
    assert len(ids) > 2
    assert [unit["id"] for unit in manifest["units"]] == sorted(ids)
    assert rows_of(tmp_path / "o") == [[str(i), f"v{i}", str(i % 5)] for i in range(ROWS)]
