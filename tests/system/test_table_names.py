"""A typed name means the same as in the database, and the log has the schema."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest
from long_tests import OTHER_ROUTES
from processes import command

SETUP = """
CREATE SCHEMA x; CREATE SCHEMA other; CREATE SCHEMA "Odd";
CREATE TABLE x."A" (n int); CREATE TABLE x.a (n int, "N" int); CREATE TABLE x."Only" (n int);
CREATE TABLE other.far (n int); CREATE TABLE "Odd".t (n int);
CREATE TABLE public."Both" (n int); CREATE TABLE other.both (n int);
INSERT INTO x."A" VALUES (1); INSERT INTO x.a VALUES (2, 20); INSERT INTO x."Only" VALUES (3);
INSERT INTO other.far VALUES (4); INSERT INTO "Odd".t VALUES (5);
INSERT INTO public."Both" VALUES (6); INSERT INTO other.both VALUES (7);
"""

DEEP = """
CREATE TABLE deep (id int, d int) PARTITION BY RANGE (id);
CREATE TABLE deep_0 PARTITION OF deep FOR VALUES FROM (0) TO (1500) PARTITION BY LIST (d);
CREATE TABLE deep_1 PARTITION OF deep FOR VALUES FROM (1500) TO (3000);
CREATE TABLE deep_0_0 PARTITION OF deep_0 FOR VALUES IN (0);
CREATE TABLE deep_0_1 PARTITION OF deep_0 FOR VALUES IN (1);
INSERT INTO deep SELECT g, g % 2 FROM generate_series(0, 2999) g;
ANALYZE deep;
"""


@pytest.fixture(scope="module")
def url(postgres: Any) -> str:
    """A PostgreSQL database with names that differ in case or schema alone."""
    found: str = postgres.database("names")
    postgres.run(SETUP, url=found)
    return found


def unloaded(url: str, table: str, to: Path, *options: str) -> tuple[str, str]:
    done = command.ended(
        "run", url, "--table", table, "--to", str(to), "--no-header", "--progress", "log",
        *options,
    )  # fmt: skip
    log = done.stderr
    assert done.returncode == 0, log
    (line,) = (line for line in log.splitlines() if " unloading " in line)
    rows = "".join(path.read_text() for path in sorted(to.glob("*.csv")))
    return line.partition(" unloading ")[2].partition(":")[0], rows


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.parametrize(
    ("typed", "named", "rows"),
    [
        ("x.A", "x.a", "2,20\n"),
        ('x."A"', "x.A", "1\n"),
        ("x.only", "x.Only", "3\n"),
        ("X.Only", "x.Only", "3\n"),
        ("Odd.T", "Odd.t", "5\n"),
        ("both", "public.Both", "6\n"),
    ],
)
def test_postgres_reads_plain_names_in_lower_case(
    url: str, tmp_path: Path, typed: str, named: str, rows: str
) -> None:
    """An exact spelling does not win over the folded one; alone it may be typed in any case."""
    assert unloaded(url, typed, tmp_path / "out") == (named, rows)


def test_postgres_searches_the_path_of_its_user(postgres: Any, url: str, tmp_path: Path) -> None:
    """Without a schema the session's search_path decides, and nothing beyond it is found."""
    error = command.error_of("run", url, "--table", "far", "--to", str(tmp_path / "no"), status=4)
    assert "the table far is not in names" in error
    assert "name it in full, other.far" in error
    assert not (tmp_path / "no").exists()
    postgres.run("CREATE ROLE searcher LOGIN SUPERUSER", url=url)
    postgres.run("ALTER ROLE searcher SET search_path = public, other", url=url)
    theirs = url.replace("postgres@", "searcher@", 1)
    assert unloaded(theirs, "far", tmp_path / "far") == ("other.far", "4\n")
    assert unloaded(theirs, "both", tmp_path / "both") == ("other.both", "7\n")


def test_columns_are_read_as_the_database_reads_them(url: str, tmp_path: Path) -> None:
    """Of two columns that differ in case a plain name means the folded one."""
    assert unloaded(url, "x.a", tmp_path / "plain", "--columns", "N")[1] == "2\n"
    assert unloaded(url, "x.a", tmp_path / "quoted", "--columns", '"N"')[1] == "20\n"
    assert unloaded(url, "x.a", tmp_path / "others", "--exclude", "N")[1] == "20\n"


@pytest.mark.long(OTHER_ROUTES)
def test_duckdb_and_sqlite_compare_names_without_case(tmp_path: Path) -> None:
    """Quotes or not, any case means the table; another schema must be named."""
    with duckdb.connect(str(tmp_path / "t.duckdb")) as duck:
        duck.execute('CREATE TABLE "Mixed" AS SELECT 1 AS n; CREATE SCHEMA s')
        duck.execute("CREATE TABLE s.far AS SELECT 2 AS n")
    with closing(sqlite3.connect(tmp_path / "t.sqlite")) as lite, lite:
        lite.execute('CREATE TABLE "Mixed" AS SELECT 1 AS n')
    duck_url, lite_url = f"duckdb://{tmp_path}/t.duckdb", f"sqlite://{tmp_path}/t.sqlite"
    for number, (url, typed) in enumerate(
        (url, typed) for url in (duck_url, lite_url) for typed in ("mixed", '"MIXED"', "Main.Mixed")
    ):
        assert unloaded(url, typed, tmp_path / str(number)) == ("main.Mixed", "1\n")
    assert unloaded(duck_url, "S.FAR", tmp_path / "far") == ("s.far", "2\n")
    error = command.error_of(
        "run", duck_url, "--table", "far", "--to", str(tmp_path / "no"), status=4
    )
    assert "name it in full, s.far" in error


def test_rows_of_partitions_of_partitions_are_counted_once(postgres: Any) -> None:
    """The list of tables and the description of one agree with the table."""
    url = postgres.database("deep")
    postgres.run(DEEP, url=url)
    (listed,) = json.loads(command.run("describe", url, "--json"))["tables"]
    assert (listed["rows"], listed["partitions"]) == (3000, 3)
    described = json.loads(command.run("describe", url, "--table", "deep", "--json"))
    assert described["rows"] == 3000
