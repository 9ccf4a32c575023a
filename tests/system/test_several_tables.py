"""Which tables a run over several unloads, from the command line and from job files."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest
from long_tests import OTHER_ROUTES
from processes import command

HOSTILE = ("Order", "order", 'a "quoted" one', "a/b", "dots.in.name", "ünïcode ❄", " _x", "*")
"""Names of tables that hold 0, 1, 2 and so on, in the order of this list."""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A DuckDB file with two schemas, a view, and more rows in one table than in the others."""
    path = tmp_path_factory.mktemp("several") / "s.db"
    with duckdb.connect(str(path)) as connection:
        connection.execute("""
            CREATE SCHEMA sales; CREATE SCHEMA hr;
            CREATE TABLE sales.orders AS
                SELECT i AS id, 'note ' || i AS note, 'x' AS pin FROM range(5000) r(i);
            CREATE TABLE sales.lines AS SELECT i AS id, i % 7 AS n FROM range(300) r(i);
            CREATE TABLE sales.empty (id INTEGER);
            CREATE TABLE sales.tmp_old AS SELECT 1 AS id;
            CREATE VIEW sales.large AS SELECT id FROM sales.orders WHERE id >= 4990;
            CREATE TABLE hr.staff AS SELECT i AS id, 'secret' AS pin FROM range(3) r(i);
        """)
    return f"duckdb://{path}"


def unload(source: str, to: Path, *options: str, status: int = 0) -> dict[str, Any]:
    """Unload tables into directories below another; return the run's own manifest."""
    place = f"{to}/{{schema}}.{{table}}"
    done = command.ended("run", source, "--to", place, "--progress", "none", "--json", *options)
    assert done.returncode == status, done.stderr
    if status:
        return {}
    # The answer is the manifest, except for the digest of the file.
    written = manifest_in(to)
    assert written["digest"]
    assert {**json.loads(done.stdout), "digest": None} == {**written, "digest": None}
    return written


def planned(source: str, *options: str) -> list[str]:
    """Return the tables that a run would unload."""
    document = json.loads(
        command.run("plan", source, "--to", "x/{schema}.{table}", "--json", *options)
    )
    return [f"{each['schema']}.{each['name']}" for each in document["tables"]]


def manifest_in(to: Path) -> dict[str, Any]:
    """Return the manifest of a run over several tables."""
    found: dict[str, Any] = json.loads((to / "_manifest.json").read_text("utf-8"))
    return found


def rows_of(manifest: Mapping[str, Any]) -> dict[str, int]:
    return {
        f"{each['table']['schema']}.{each['table']['name']}": each["rows"]
        for each in manifest["tables"]
    }


def read(directory: Path) -> list[tuple[Any, ...]]:
    """Return the rows of a table as another program reads its files."""
    form = "parquet" if list(directory.glob("*.parquet")) else "csv"
    with duckdb.connect() as connection:
        query = f"SELECT * FROM read_{form}('{directory}/*.{form}') ORDER BY 1"
        return connection.execute(query).fetchall()


def test_patterns_schemas_and_exclusions_choose(source: str, tmp_path: Path) -> None:
    """Every table that matches and is not excluded, each with its manifest; no view."""
    found = unload(source, tmp_path, "--table", "sales.*", "--exclude-table", "TMP_*")
    assert rows_of(found) == {"sales.empty": 0, "sales.lines": 300, "sales.orders": 5000}
    assert found["status"] == "complete"
    assert len(read(tmp_path / "sales.orders")) == 5000
    assert command.manifest_of(tmp_path / "sales.lines")["totals"]["rows"] == 300
    again = planned(source, "--schema", "hr", "--schema", "sal*", "--exclude-table", "orders",
                    "--exclude-table", "*.tmp_?ld")  # fmt: skip
    assert again == ["hr.staff", "sales.empty", "sales.lines"]


def test_a_pattern_that_matches_one_table_is_a_run_of_several(source: str, tmp_path: Path) -> None:
    """What a pattern matches may be more tomorrow; a name in full stays a run of one table."""
    assert planned(source, "--table", "hr.s*") == ["hr.staff"]
    error = command.error_of(
        "run", source, "--table", "hr.s*", "--to", str(tmp_path / "b"), status=2
    )
    assert "{table}" in error
    command.run("run", source, "--table", "hr.staff", "--to", str(tmp_path / "c"))
    assert command.manifest_of(tmp_path / "c")["table"] == {"schema": "hr", "name": "staff"}


JOB = """
source = "{source}"
to = "{to}/{{schema}}.{{table}}"
publish = "run"
[defaults]
row-group-rows = 100
[[table]]
table = ["sales.*", "hr.*"]
exclude-table = "tmp_*"
exclude = ["pin"]
[[table]]
table = "sales.orders"
format = "parquet"
where = "id < 1000"
[[table]]
query = "SELECT n, count(*) AS c FROM sales.lines GROUP BY n"
to = "{to}/totals"
[[table]]
table = "sales.large"
dialect = "tsv"
"""


def test_entries_of_a_job_file_have_options_of_their_own(source: str, tmp_path: Path) -> None:
    """A table that one entry names is not taken by the pattern of another."""
    job = tmp_path / "job.toml"
    job.write_text(JOB.format(source=source, to=tmp_path))
    shown = json.loads(command.run("plan", str(job), "--json"))
    assert [(each["name"], each["format"]) for each in shown["tables"]] == [
        ("staff", "csv"), ("empty", "csv"), ("lines", "csv"), ("orders", "parquet"),
        ("query", "csv"), ("large", "csv"),
    ]  # fmt: skip
    assert not (tmp_path / "totals").exists()
    done = command.ended("run", str(job), "--progress", "log", "--parallelism", "2")
    assert done.returncode == 0, done.stderr
    selected = [line.partition(" ")[2] for line in done.stderr.splitlines() if "selected" in line]
    assert f'selected by: exclude "pin" (job file {job}, [[table]] 1)' in selected
    assert f'selected by: where "id < 1000" (job file {job}, [[table]] 2)' in selected
    assert len(selected) == len(set(selected))
    found = manifest_in(tmp_path)
    assert [each["rows"] for each in found["tables"]] == [3, 0, 300, 1000, 7, 10]
    assert read(tmp_path / "hr.staff") == [(0,), (1,), (2,)]
    assert len(read(tmp_path / "sales.orders")[999]) == 3
    assert sum(row[1] for row in read(tmp_path / "totals")) == 300
    assert [each.suffix for each in (tmp_path / "sales.large").glob("large*")] == [".tsv"]
    settings = {each["name"]: each["value"] for each in found["settings"]}
    assert settings["publish"] == "run"
    assert "exclude" not in settings
    own = command.manifest_of(tmp_path / "sales.orders")["settings"]
    where = next(each for each in own if each["name"] == "where")
    assert (where["value"], where["from"]) == ("id < 1000", f"job file {job}, [[table]] 2")


def test_a_job_file_is_checked_table_by_table(source: str, tmp_path: Path) -> None:
    """All mistakes are listed with entry and table; valid entries show each table."""
    job = tmp_path / "job.toml"
    job.write_text(
        f'source = "{source}"\nto = "{tmp_path}/{{table}}"\n[[table]]\ntable = "sales.*"\n'
        'where = "n < 3"\n[[table]]\ntable = "hr.nobody"\n[[table]]\ntable = "x*"\n'
    )
    found = json.loads(command.run("check", str(job), "--json", status=4))
    assert {each["table"] for each in found["outputs"]} >= {"sales.lines", "sales.orders"}
    said = [(each["entry"], each["message"]) for each in found["problems"]]
    assert [entry for entry, _ in said] == [
        "[[table]] 1", "[[table]] 1", "[[table]] 1", "[[table]] 2", "[[table]] 3",
    ]  # fmt: skip
    assert said[0][1].startswith("sales.empty: ")
    assert "nobody" in said[3][1]
    assert "x*" in said[4][1]


def test_whatever_is_wrong_is_told_at_once(source: str, tmp_path: Path) -> None:
    """Names, patterns, conditions and directories, before anything is read or made."""
    error = command.error_of(
        "run", source, "--to", f"{tmp_path}/out/{{table}}", "--table", "nothing",
        "--table", "nix*", "--exclude-table", "zz", "--table", "sales.*", status=4,
    )  # fmt: skip
    assert error.startswith("unloader: error: 3 problems found: ")
    for part in ("nothing", "nix*", "zz"):
        assert part in error
    assert not (tmp_path / "out").exists()
    error = command.error_of(
        "run", source, "--to", f"{tmp_path}/out/{{schema}}.{{table}}", "--table", "sales.*",
        "--where", "note IS NOT NULL", status=4,
    )  # fmt: skip
    assert "sales.lines: " in error
    assert "sales.empty: " in error
    assert "sales.orders" not in error


@pytest.mark.parametrize("on_failure", ["stop", "continue"])
def test_an_exclusion_without_a_match_is_not_a_table(
    source: str, tmp_path: Path, on_failure: str
) -> None:
    """It ends the run before the first row, even if failed tables do not end the run."""
    place = tmp_path / "out"
    options = ("--table", "sales.*", "--exclude-table", "none_*", "--on-table-failure", on_failure)
    error = command.error_of("run", source, "--to", f"{place}/{{table}}", *options, status=4)
    assert error.startswith("unloader: error: none_*: the exclusion matches no table in ")
    assert "--allow-unmatched" in error
    assert "--on-table-failure" not in error
    assert not place.exists()
    unload(source, place, *options, "--allow-unmatched")


def test_what_is_there_on_some_nights_may_be_missing(source: str, tmp_path: Path) -> None:
    """Told in the log, if asked; other kinds of tables are matched, if asked."""
    place = f"{tmp_path}/{{table}}"
    done = command.ended(
        "plan", source, "--table", "sales.l*", "--table", "nix*", "--exclude-table", "lines",
        "--schema", "none", "--allow-unmatched", "--table-kinds", "view", "--to", place, "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [each["name"] for each in json.loads(done.stdout)["tables"]] == ["large"]
    assert "nix*" in done.stderr
    assert "none" in done.stderr
    error = command.error_of(
        "plan", source, "--table", "nix*", "--allow-unmatched", "--to", place, status=4
    )
    assert "none of the requested tables is left" in error
    assert "names an unknown kind of table" in command.error_of(
        "plan", source, "--table", "x*", "--table-kinds", "tables", status=2
    )


@pytest.mark.long(OTHER_ROUTES)
def test_routes_of_several_tables_go_by_what_each_has(source: str, tmp_path: Path) -> None:
    """Two outputs of each table, one of them without a column that only some have."""
    job = tmp_path / "job.toml"
    job.write_text(
        f'source = "{source}"\n[[table]]\ntable = ["*.*"]\nexclude-table = "tmp_*"\n'
        f'[[table]]\ntable = "sales.large"\n'
        f'[[route]]\nname = "open"\nto = "{tmp_path}/{{schema}}.{{table}}/open"\n'
        f'exclude = ["pin"]\n[[route]]\nname = "all"\nformat = "parquet"\n'
        f'to = "{tmp_path}/{{schema}}.{{table}}/all"\n'
    )
    error = command.error_of("run", str(job), "--progress", "none", status=4)
    assert "--exclude pin: it matches no column of the tables" in error
    job.write_text(job.read_text().replace('table = "sales.large"', 'table = "hr.staff"'))
    command.run("run", str(job), "--progress", "none")
    assert read(tmp_path / "hr.staff/open") == [(0,), (1,), (2,)]
    assert read(tmp_path / "hr.staff/all") == [(n, "secret") for n in range(3)]
    assert (
        len(read(tmp_path / "sales.lines/all")) == len(read(tmp_path / "sales.lines/open")) == 300
    )


def test_what_cannot_be_unloaded_is_left_out_if_asked(source: str, tmp_path: Path) -> None:
    """The others are complete, and the exit status means a partial run."""
    options = ("--table", "nothing", "--table", "hr.*", "--on-table-failure", "continue")
    unload(source, tmp_path, *options, status=7)
    assert read(tmp_path / "hr.staff") == [(0, "secret"), (1, "secret"), (2, "secret")]
    again = command.error_of("resume", str(tmp_path), "--progress", "none", status=7)
    assert "1 of 2 tables is not complete: nothing: " in again
    shown = command.ended("plan", source, *options)
    assert shown.returncode == 0
    assert "nothing  is left out: the table nothing is not in" in shown.stdout


def test_a_table_that_was_left_out_is_read_by_the_next_run(tmp_path: Path) -> None:
    """`resume --new-snapshot` names the true reason, and `--resume-or-start` reads the table."""
    path = tmp_path / "s.duckdb"
    create = "CREATE TABLE {} AS SELECT i AS id, 1 AS one FROM range(9) t(i)"
    with duckdb.connect(str(path)) as connection:
        connection.execute(create.format("here"))
    job = (
        *("run", f"duckdb://{path}", "--table", "here", "--table", "gone", "--quiet"),
        *("--to", f"{tmp_path}/out/{{table}}", "--on-table-failure", "continue"),
    )
    home = str(tmp_path / "out")
    assert "the table gone is not in" in command.error_of(*job, status=7)
    with duckdb.connect(str(path)) as connection:
        connection.execute(create.format("gone"))
    for _ in range(2):
        error = command.error_of("resume", home, "--new-snapshot", "--quiet", status=7)
        assert "gone: it was left out when the run was first started: the table gone is" in error
        assert "start the command of the run with --resume-or-start" in error
    command.run(*job, "--resume-or-start")
    command.run("verify", home, f"duckdb://{path}")
    assert rows_of(manifest_in(tmp_path / "out")) == {"main.here": 9, "main.gone": 9}


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (("--table", "*.*", "--to", "{to}/{{table}}"), "directory of"),
        (("--table", "sales.*", "--to", "{to}/x"), "write {table} into it"),
        (("--table", "sales.*", "--to", "-"), "is a stream"),
        (("--table", "sales.*", "--to", "pipe:{to}/p"), "is a stream"),
        (("--table", "sales.*", "--query", "SELECT 1", "--to", "{to}/x"), "exclude each other"),
        (("--query", "SELECT 1", "--schema", "hr", "--to", "{to}/x"), "exclude each other"),
        (("--exclude-table", "x", "--to", "{to}/{{table}}"), "no table or query is given"),
        (("--table", 'a."b', "--table", "c", "--to", "{to}/{{table}}"), "neither a table name"),
        (("--tables-from", "{to}/none", "--to", "{to}/{{table}}"), "cannot read the list"),
    ],
)
def test_what_makes_no_sense_is_refused(
    tmp_path: Path, options: tuple[str, ...], part: str
) -> None:
    """Each in one sentence, with nothing made."""
    path = tmp_path / "s.db"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE SCHEMA sales; CREATE SCHEMA hr")
        connection.execute("CREATE TABLE sales.t (n INT); CREATE TABLE hr.t (n INT)")
    to = tmp_path / "out"
    filled = [each.format(to=to) for each in options]
    assert part in command.error_of("run", f"duckdb://{path}", *filled, status=2)
    assert not to.exists()


@pytest.mark.long(OTHER_ROUTES)
def test_hostile_names_have_directories_of_their_own(tmp_path: Path) -> None:
    """In SQLite, where names that are equal except for their case are one table."""
    names = [name for name in HOSTILE if name != "order"]
    path = tmp_path / "s.sqlite"
    with closing(sqlite3.connect(path)) as connection, connection:
        for number, name in enumerate(names):
            quoted = name.replace('"', '""')
            connection.execute(f'CREATE TABLE "{quoted}" AS SELECT {number} AS n')
    found = unload(f"sqlite://{path}", tmp_path / "out", "--table", "*")
    places = {each["table"]["name"]: each["directory"] for each in found["tables"]}
    assert sorted(places) == sorted(names)
    for number, name in enumerate(names):
        (file,) = (tmp_path / "out" / places[name]).glob("[!_]*")
        assert file.read_text().split() == ["n", str(number)]
    only = unload(f"sqlite://{path}", tmp_path / "only", "--table", '"*"', "--table", '"a/b"')
    assert sorted(each["table"]["name"] for each in only["tables"]) == ["*", "a/b"]


def test_queries_have_names_of_their_own(source: str, tmp_path: Path) -> None:
    """A query has a name as a table has; two queries of one name are refused."""
    job, home = tmp_path / "job.toml", tmp_path / "out"
    head = f'source = "{source}"\nto = "{home}/{{table}}"\n'
    first, second = '[[table]]\nquery = "SELECT 1 AS a"\n', '[[table]]\nquery = "SELECT 2 AS a"\n'
    job.write_text(head + first + second)
    error = command.error_of("run", str(job), status=2)
    assert "it would be written to the directory of query" in error
    assert 'query-name = "NAME"' in error
    problem = command.run("check", str(job), status=6)
    assert "two outputs go to" in problem
    assert "query-name" in problem
    job.write_text(head + first + 'query-name = "one/a"\n' + second + 'query-name = "two"\n')
    command.run("check", str(job))
    command.run("run", str(job), "--quiet")
    assert [read(home / name) for name in ("one%2Fa", "two")] == [[(1,)], [(2,)]]
    assert (home / "two" / "two.0001.csv").exists()
    error = command.error_of(
        "run", source, "--table", "hr.staff", "--query-name", "x", "--to", str(home), status=2
    )
    assert "--query-name" in error
