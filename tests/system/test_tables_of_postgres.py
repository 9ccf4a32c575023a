"""Several tables of PostgreSQL in one run: which, at what moment, and what keeps one from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest
from long_tests import OTHER_ROUTES
from processes import command

HOSTILE = ("Order", "order", 'a "quoted" one', "a/b", "a%2Fb", "dots.in.name", "ünïcode ❄", " _x")
"""Names of tables in one schema; the directory of each has to be another one."""

SETUP = """
CREATE SCHEMA sales; CREATE SCHEMA "Odd *"; CREATE SCHEMA shut;
CREATE TABLE sales.orders (id int PRIMARY KEY, note text, secret text);
INSERT INTO sales.orders SELECT g, 'note ' || g, 'hidden' FROM generate_series(1, 5000) g;
CREATE TABLE sales.lines (order_id int REFERENCES sales.orders, n int);
INSERT INTO sales.lines SELECT g % 5000 + 1, g FROM generate_series(1, 12000) g;
CREATE TABLE sales.empty (id int);
CREATE VIEW sales.large AS SELECT id FROM sales.orders WHERE id > 4990;
CREATE TABLE sales.unread (id int, place point, span int4range);
CREATE TABLE sales.no_right (id int);
CREATE TABLE sales.half (id int, pay int);
CREATE TABLE shut.inside (id int);
DROP ROLE IF EXISTS tables_guest; CREATE ROLE tables_guest LOGIN;
GRANT USAGE ON SCHEMA sales, "Odd *" TO tables_guest;
GRANT SELECT ON sales.orders, sales.lines, sales.empty, sales.large, sales.unread TO tables_guest;
GRANT SELECT (id) ON sales.half TO tables_guest;
"""


@pytest.fixture(scope="module")
def url(postgres: Any) -> str:
    """A database with a schema of some tables, and one of hostile names, as its owner sees it."""
    found: str = postgres.database("several")
    postgres.run(SETUP, url=found)
    for number, name in enumerate(HOSTILE):
        quoted = name.replace('"', '""')
        postgres.run(
            f'CREATE TABLE "Odd *"."{quoted}" AS SELECT {number} AS n;'
            f'GRANT SELECT ON "Odd *"."{quoted}" TO tables_guest',
            url=found,
        )
    postgres.run("ANALYZE", url=found)
    return found


@pytest.fixture(scope="module")
def guest(url: str) -> str:
    return url.replace("postgres@", "tables_guest@", 1)


def unload(url: str, to: Path, *options: str, status: int = 0) -> str:
    done = command.ended(
        "run", url, "--to", f"{to}/{{schema}}.{{table}}", "--progress", "none", *options
    )
    assert done.returncode == status, done.stderr
    return done.stderr


def entries(to: Path) -> dict[str, dict[str, Any]]:
    document = json.loads((to / "_manifest.json").read_text("utf-8"))
    return {each["table"]["name"]: each for each in document["tables"]}


def test_a_schema_is_unloaded_as_psql_sees_it(postgres: Any, url: str, tmp_path: Path) -> None:
    """All its tables and no view; the rows are the ones that the database's own client copies."""
    unload(url, tmp_path, "--table", "sales.*", "--table", "shut.inside", "--unit-bytes", "64KiB")
    found = entries(tmp_path)
    assert {name: each["rows"] for name, each in found.items()} == {
        "empty": 0, "half": 0, "inside": 0, "lines": 12000, "no_right": 0, "orders": 5000,
        "unread": 0,
    }  # fmt: skip
    for table in ("orders", "lines"):
        copied = postgres.run(f"COPY sales.{table} TO STDOUT (FORMAT csv)", url=url)
        written = [
            line
            for path in (tmp_path / f"sales.{table}").glob("*.csv")
            for line in path.read_text("utf-8").splitlines()[1:]
        ]
        assert sorted(written) == sorted(copied.splitlines())


@pytest.mark.long(OTHER_ROUTES)
def test_hostile_names_are_matched_and_kept_apart(url: str, tmp_path: Path) -> None:
    """Each has its own directory, or is reported; patterns read letters as the database does."""
    error = unload(url, tmp_path / "a", "--table", '"Odd *".*', status=2)
    assert "Odd *.a/b" in error
    assert "Odd *.a%2Fb" in error
    assert not (tmp_path / "a").exists()
    unload(url, tmp_path / "b", "--table", '"Odd *".*', "--exclude-table", '"a%2Fb"')
    found = entries(tmp_path / "b")
    assert sorted(found) == sorted(set(HOSTILE) - {"a%2Fb"})
    with duckdb.connect() as connection:
        for name, each in found.items():
            files = str(tmp_path / "b" / each["directory"] / "*.csv").replace("'", "''")
            (row,) = connection.execute(f"SELECT n FROM read_csv('{files}')").fetchall()
            assert row == (HOSTILE.index(name),)
    log = unload(url, tmp_path / "c", "--table", '"Odd *".o*')
    assert list(entries(tmp_path / "c")) == ["order"]
    assert "Odd *.Order, because of upper and lower case" in log


def test_missing_rights_are_told_with_the_grants(guest: str, tmp_path: Path) -> None:
    """All in one error; the SQL is whole in the JSON answer, and mends it."""
    place = f"{tmp_path}/{{schema}}.{{table}}"
    options = ("--table", "sales.*", "--table", "shut.inside", "--table", "nowhere")
    done = command.ended("run", guest, *options, "--to", place, "--json")
    assert done.returncode == 4
    error = json.loads(done.stdout)["error"]
    assert "4 of 8 tables cannot be unloaded" in error["message"]
    assert "sales.half: column pay may not be read" in error["message"]
    assert "nowhere" in error["message"]
    assert sorted(error["script"].splitlines()) == [
        'GRANT SELECT ON TABLE "sales"."half" TO "tables_guest";',
        'GRANT SELECT ON TABLE "sales"."no_right" TO "tables_guest";',
        'GRANT SELECT ON TABLE "shut"."inside" TO "tables_guest";',
        'GRANT USAGE ON SCHEMA "shut" TO "tables_guest";',
    ]
    assert not list(tmp_path.iterdir())


def test_the_others_are_unloaded_where_that_is_asked(guest: str, tmp_path: Path) -> None:
    """The exit status means a partial run, and the record of the run names the missing tables."""
    options = ("--table", "sales.*", "--exclude", "secret", "--on-table-failure", "continue")
    error = unload(guest, tmp_path, *options, status=7)
    assert "sales.no_right" in error
    assert command.manifest_of(tmp_path / "sales.lines")["totals"]["rows"] == 12000
    with duckdb.connect() as connection:
        query = f"SELECT * FROM read_csv('{tmp_path}/sales.orders/*.csv') LIMIT 1"
        assert len(connection.execute(query).description or ()) == 2
    assert not (tmp_path / "sales.no_right").exists()
    # Without the column that may not be read, the table is whole.
    options = ("--table", "sales.half", "--table", "sales.e*", "--exclude", "pay", "--json")
    shown = json.loads(command.run("plan", guest, *options))
    assert [each["name"] for each in shown["tables"]] == ["empty", "half"]


@pytest.fixture(scope="module")
def failing(postgres: Any) -> str:
    """A database with tables that no Parquet file can show, and one that it can."""
    found: str = postgres.database("failing")
    postgres.run(
        "CREATE TABLE far (id int, ts timestamp, d date); "
        "INSERT INTO far VALUES (1, 'infinity', 'infinity');"
        "CREATE TABLE farther (id int, at date); INSERT INTO farther VALUES (1, '-infinity');"
        "CREATE TABLE near AS SELECT 1 AS id;"
        "CREATE MATERIALIZED VIEW unfilled AS SELECT 1 AS id WITH NO DATA",
        url=found,
    )
    return found


def test_the_way_out_of_a_failed_table_is_named(failing: str, tmp_path: Path) -> None:
    """The error is the same as for one table; its facts on the others and its advice are right."""
    go_on = ("--format", "parquet", "--on-table-failure", "continue", "--progress", "none")
    place = f"{tmp_path}/some/{{table}}"
    asked = ("--table", "far", "--table", "near")
    error = command.error_of("run", failing, *asked, "--to", place, *go_on, status=7)
    advice = error.partition("Next: ")[2]
    assert advice.startswith("write them as exact text with --as-text ts,d, or leave them out")
    assert "the other tables are complete" in advice
    assert "start a new run with --overwrite" in advice
    more = ("--as-text", "ts,d", "--overwrite")
    command.run("run", failing, *asked, "--to", place, *go_on, *more)

    place = f"{tmp_path}/none/{{table}}"
    asked = ("--table", "far", "--table", "farther")
    error = command.error_of("run", failing, *asked, "--to", place, *go_on, status=7)
    advice = error.partition("Next: ")[2]
    assert "public.far: write them as exact text with --as-text ts,d" in advice
    assert "public.farther: write them as exact text with --as-text at" in advice
    assert "complete" not in advice


@pytest.mark.parametrize(
    "asked", [("--table", "unfilled"), ("--query", "SELECT * FROM unfilled")], ids=lambda it: it[0]
)
def test_a_view_that_was_never_filled_is_to_be_filled(
    failing: str, tmp_path: Path, asked: tuple[str, str]
) -> None:
    """Alone as well as among other tables."""
    error = command.error_of(
        "run", failing, *asked, "--to", str(tmp_path / "o"), "--progress", "none", status=4
    )
    assert "REFRESH MATERIALIZED VIEW" in error.partition("Next: ")[2]
