"""Jobs from the command line to the files, and where their options come from."""

from __future__ import annotations

import csv
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from long_tests import OTHER_ROUTES
from processes import command

from unloader.cli import main

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def records(directory: Path) -> list[list[str]]:
    """Return the records of all CSV files in a directory, without their headers, in file order."""
    return [
        record
        for path in sorted(directory.glob("*.csv"))
        for record in list(csv.reader(path.read_text("utf-8").splitlines()))[1:]
    ]


def planned(unloader: Run, *arguments: str, **extra: Any) -> dict[str, Any]:
    """Return the options that a plan keeps of its call."""
    result = unloader("plan", *arguments, "--json", **extra)
    assert result.returncode == 0, result.stderr
    job: dict[str, Any] = json.loads(result.stdout)["job"]
    return job


def test_a_run_writes_every_row_and_tells_what_it_did(
    unloader: Run, database: str, tmp_path: Path
) -> None:
    """The result on stdout has rows, files, speed, the manifest and the verification."""
    result = unloader("run", database, "--table", "orders", "--to", "out", "--parallelism", "2")
    assert result.returncode == 0, result.stderr
    assert [row[0] for row in records(tmp_path / "out")] == [str(i) for i in range(3000)]
    told = dict(line.split("  ", 1) for line in result.stdout.splitlines())
    assert told["rows"].strip() == "3,000"
    assert told["verified"].strip() == "ok (count, 3,000 rows in the source)"
    assert (tmp_path / told["manifest"].strip()).is_file()
    assert "MB/s" in told["speed"]
    assert "unloading main.orders" in result.stderr
    assert " done: " in result.stderr


def test_json_and_quiet_leave_one_object_and_nothing_else(
    unloader: Run, database: str, tmp_path: Path
) -> None:
    """With --json --quiet stdout is the manifest and stderr is empty."""
    result = unloader(
        *("run", database, "--query", "SELECT id FROM orders WHERE id < 5", "--to", "out"),
        *("--json", "--quiet"),
    )
    assert result.stderr == ""
    assert json.loads(result.stdout) == json.loads((tmp_path / "out/_manifest.json").read_text())


def test_a_dialect_is_a_base_that_single_options_override(
    unloader: Run, database: str, tmp_path: Path
) -> None:
    """The record format of a dialect stays, except the options that are set."""
    result = unloader(
        *("run", database, "--table", "orders", "--columns", "name,id", "--where", "id < 2"),
        *("--dialect", "sqlldr-var", "--record-length", "5", "--eol", "lf"),
        *("--delimiter", r"\x7c", "--file-per", "table", "--to", "out"),
    )
    assert result.returncode == 0, result.stderr
    text = (tmp_path / "out" / "orders.csv").read_bytes()
    assert text == b"00014~~name 0~~|0|\n00014~~name 1~~|1|\n"


def test_a_plan_file_carries_its_job(unloader: Run, database: str, tmp_path: Path) -> None:
    """`run PLAN.json` needs nothing else: source, table, columns and format come with it."""
    made = unloader(
        *("plan", database, "--table", '"Odd, Name"', "--columns", '"a,b"', "--no-header"),
        *("--delimiter", ";", "--output", "plan.json"),
    )
    assert made.returncode == 0, made.stderr
    assert '"a,b"' in made.stdout
    result = unloader("run", "plan.json", "--to", "out", "--quiet")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert [path.read_text() for path in (tmp_path / "out").glob("*.csv")] == ["1\n"]


def test_a_finished_plan_cannot_be_changed(unloader: Run, database: str, tmp_path: Path) -> None:
    """Options that decide the plan are refused beside a plan file; variables do not touch it."""
    unloader("plan", database, "--table", "orders", "--output", "plan.json", "--quiet")
    refused = unloader("run", "plan.json", "--to", "out", "--where", "id < 10")
    assert refused.returncode == 2
    assert "--where" in refused.stderr
    (tmp_path / "plan.json").write_text("{}")
    empty = unloader("run", "plan.json", "--to", "out")
    assert empty.returncode == 5
    assert "plan.json" in empty.stderr


def test_a_job_file_is_a_whole_job(unloader: Run, database: str, tmp_path: Path) -> None:
    """Source, table and options of a TOML file run without anything on the command line."""
    (tmp_path / "job.toml").write_text(
        f'source = "{database}"\nto = "out"\n[run]\ntable = "orders"\ncolumns = ["id"]\n'
        'where = "id < 3"\nno-header = true\nfile-per = "table"\nparallelism = 1\nquiet = true\n'
    )
    result = unloader("run", "job.toml")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert (tmp_path / "out" / "orders.csv").read_text() == "0\n1\n2\n"


def test_flag_over_variable_over_file_over_default(
    unloader: Run, database: str, tmp_path: Path
) -> None:
    """Each source of an option gives way to the one before it."""
    (tmp_path / "job.toml").write_text(
        f'source = "{database}"\ntable = "orders"\nwhere = "id < 3"\nnull = "file"\n'
        'eol = "crlf"\nparallelism = 3\nheader = true\nfile-size = "2MiB"\n'
    )
    job = planned(
        unloader,
        *("job.toml", "--null", "flag"),
        variables={
            "UNLOADER_NULL": "variable",
            "UNLOADER_EOL": "lf",
            "UNLOADER_NO_HEADER": "1",
            "UNLOADER_COLUMNS": "id, name",
            "UNLOADER_FILE_SIZE": "",
        },
    )
    assert job == {
        "source": database,
        "table": "orders",
        "where": "id < 3",
        "null": "flag",
        "eol": "lf",
        "parallelism": 3,
        "header": False,
        "columns": ["id", "name"],
        "file-size": "2MiB",
    }


def test_a_variable_for_the_other_format_is_let_pass(unloader: Run, database: str) -> None:
    """UNLOADER_DELIMITER may be set for all jobs of a machine, Parquet ones included."""
    job = planned(
        unloader,
        *(database, "--table", "orders", "--format", "parquet"),
        variables={"UNLOADER_DELIMITER": ";"},
    )
    assert "delimiter" not in job


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("tabel = 'orders'", "did you mean 'table'"),
        ("header = 'yes'", "true or false"),
        ("parallelism = 'many'", "key 'parallelism' of job.toml"),
        ("retries = 2.5", "a whole number"),
        ("[output]\nto = 'x'", "output"),
        ("where = 2026-01-01", "the key 'where': expected `str`, got `date`. Next: give it text"),
        ("null = nan", "the key 'null': expected `str`, got `float`"),
        ("retries = true", "the key 'retries': expected `int | str`, got `bool`"),
        ("columns = [1]", "the key 'columns': expected `str`, got `int` - at `$[0]`"),
        ("width = {A = 2.5}", "the key 'width': expected `int | str`, got `float`"),
        ("file-size = 1.5", "a whole number or text"),
        ("retry-delay = nan", "'nan' is not a duration"),
        ("[run.where]\na = 1", "the key 'where': expected `str`, got `object`"),
        ("parquet-version = 2.6", "text in quotes"),
        ('password-file = "a\\u0000b"', "the character NUL"),
        ('password-file = "~bob/x"', "another user's home"),
    ],
)
def test_a_mistake_in_a_job_file_names_key_and_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    line: str,
    what: str,
) -> None:
    """Unknown keys and wrong values are reported with their file and line."""
    (tmp_path / "job.toml").write_text(f"source = 'duckdb:///x.db'\n{line}\n")
    monkeypatch.chdir(tmp_path)
    assert main(("run", "job.toml", "--to", "out", "--table", "t")) == 2
    errors = capsys.readouterr().err
    assert what in errors
    assert "job.toml, line 2" in errors


@pytest.mark.long(OTHER_ROUTES)
def test_what_no_shell_has_seen_may_begin_at_home(
    unloader: Run, database: str, tmp_path: Path
) -> None:
    """A tilde in a job file or a variable is the home directory; on a command line it is a name."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "sales.db").symlink_to(database.removeprefix("duckdb://"))
    (tmp_path / "job.toml").write_text(
        'source = "duckdb:///~/sales.db"\ntable = "orders"\nto = ["~/a", "~/b"]\n'
    )
    variables = {"HOME": str(home)}
    from_file = unloader("run", "job.toml", "--quiet", variables=variables)
    assert from_file.returncode == 0, from_file.stderr
    assert (home / "a/_manifest.json").is_file()
    arguments = ("run", database, "--table", "orders", "--quiet")
    unloader(*arguments, variables={**variables, "UNLOADER_TO": "~/c"})
    assert (home / "c/_manifest.json").is_file()
    unloader(*arguments, "--to", "~/d", variables=variables)
    assert (tmp_path / "~/d/_manifest.json").is_file()


def test_a_file_that_is_neither_job_nor_plan_is_told_how_these_are_named(
    unloader: Run, tmp_path: Path
) -> None:
    """A job file with another suffix is not reported as a missing destination; case is ignored."""
    (tmp_path / "job.conf").write_text("")
    result = unloader("run", "job.conf")
    assert result.returncode == 2
    assert "job.conf is a file" in result.stderr
    assert "*.toml" in result.stderr
    (tmp_path / "JOB.TOML").write_text("")
    assert "JOB.TOML names no source" in unloader("run", "JOB.TOML").stderr


def test_an_empty_list_of_directories_is_no_destination(unloader: Run, tmp_path: Path) -> None:
    """It would be the working directory."""
    (tmp_path / "job.toml").write_text("source = 'duckdb:///x.db'\ntable = 't'\nto = []\n")
    result = unloader("run", "job.toml")
    assert result.returncode == 2
    assert "--to is empty" in result.stderr


def test_a_wrong_variable_is_named(unloader: Run) -> None:
    """A value from the environment is reported by its variable, not by an unused option."""
    variables = {"UNLOADER_RETRIES": "many"}
    result = unloader("run", "duckdb:///x.db", "--to", "out", "--table", "t", variables=variables)
    assert result.returncode == 2
    assert "the variable UNLOADER_RETRIES" in result.stderr


def test_describe_lists_tables_and_shows_one(unloader: Run, database: str) -> None:
    """Tables with rows; a table with what its columns become, as text and as JSON."""
    listed = unloader("describe", database)
    assert "orders" in listed.stdout
    assert "Odd, Name" in listed.stdout
    shown = unloader("describe", database, "--table", "orders")
    assert "DECIMAL(12,2)" in shown.stdout
    document = json.loads(
        unloader("describe", database, "--table", "orders", "--as-text", "am*", "--json").stdout
    )
    amount = document["columns"][2]
    assert amount["name"] == "amount"
    assert amount["csv"]["output_type"] == "string"
    assert amount["parquet"]["lossless"] is True
    assert "ranges from  rowid" in shown.stdout
    assert document["ranges_from"] == "rowid"


def test_plan_shows_units_seats_and_the_sql(unloader: Run, database: str) -> None:
    """A plan names each unit with its worker and the statement that reads it."""
    result = unloader("plan", database, "--table", "orders", "--where", "id > 1")
    assert result.returncode == 0, result.stderr
    assert 'FROM "main"."orders"' in result.stdout
    assert "id > 1" in result.stdout
    assert "worker  node" in result.stdout
    assert "ranges from  rowid" in result.stdout


def test_verify_tells_a_changed_file(unloader: Run, database: str, tmp_path: Path) -> None:
    """A finished run verifies, also against the database; a changed byte is status 8."""
    unloader("run", database, "--table", "orders", "--to", "out", "--file-per", "table")
    good = unloader("verify", "out", database, "--json")
    assert good.returncode == 0, good.stderr
    assert json.loads(good.stdout)["source_rows"] == 3000
    path = tmp_path / "out" / "orders.csv"
    path.write_bytes(path.read_bytes().replace(b"name 7,", b"name 8,", 1))
    bad = unloader("verify", "out", "--json")
    assert bad.returncode == 8
    assert "orders.csv" in bad.stderr
    assert json.loads(bad.stdout)["error"]["kind"] == "VerifyMismatch"


def test_formats_and_sources_tell_what_is_installed(unloader: Run) -> None:
    """What this installation can do, for people and as JSON."""
    formats = json.loads(unloader("formats", "--json").stdout)
    assert {"csv", "parquet"} <= set(formats["formats"])
    assert "sqlldr-var" in formats["dialects"]
    assert "sqlldr-var" in unloader("formats").stdout
    sources = {
        each["scheme"]: each for each in json.loads(unloader("sources", "--json").stdout)["sources"]
    }
    assert sources["duckdb"]["driver_version"]
    assert "duckdb" in unloader("sources").stdout


@pytest.mark.parametrize(
    "options", [(), ("--file-per", "table"), ("--format", "parquet", "--overwrite")]
)
def test_rights_of_the_output_are_as_asked_for(
    unloader: Run, tmp_path: Path, database: str, options: tuple[str, ...]
) -> None:
    """Every file has --mode, and the directory a matching mode, under any umask."""
    mode = ("--mode", "604", "--owner-group", f":{os.getegid()}")
    result = unloader("run", database, "--table", "orders", "--to", "o", *mode, *options)
    assert result.returncode == 0, result.stderr
    found = {path.name: path.stat().st_mode & 0o7777 for path in (tmp_path / "o").iterdir()}
    assert set(found.values()) == {0o604}
    assert "_manifest.json" in found
    assert (tmp_path / "o").stat().st_mode & 0o7777 == 0o705


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--mode", "rw-r-----"), "three octal digits"),
        (("--mode", "1777"), "three octal digits"),
        (("--mode", "077"), "does not let the owner read"),
        (("--owner-group", "a:b:c"), "USER:GROUP"),
        (("--owner-group", ":"), "USER:GROUP"),
        (("--owner-group", ":no-such-group"), "getent group"),
        (("--mode", "640", "--to", "-"), "does not apply"),
    ],
)
def test_rights_that_cannot_be_are_refused(
    unloader: Run, tmp_path: Path, database: str, options: tuple[str, ...], said: str
) -> None:
    """Before anything is made, with the way to write them."""
    to = () if "--to" in options else ("--to", "o")
    result = unloader("run", database, "--table", "orders", *to, *options)
    assert result.returncode in (2, 3)
    assert said in result.stderr
    assert not (tmp_path / "o").exists()


def test_a_mask_that_some_tables_lack_names_each_table(tmp_path: Path) -> None:
    """The columns of each table are known by its name, and a mask for one table has a place."""
    with duckdb.connect(tmp_path / "s.duckdb") as connection:
        connection.execute("CREATE TABLE a AS SELECT 1 AS id, 'x' AS email")
        connection.execute("CREATE TABLE b AS SELECT 1 AS id, 'y' AS name")
    url = f"duckdb://{tmp_path}/s.duckdb"
    job = ("run", url, "--table", "a", "--table", "b", "--to", f"{tmp_path}/out/{{table}}")
    error = command.error_of(*job, "--mask", "email=redact", status=2)
    assert "--mask email=redact names 'email', but this column does not exist" in error
    assert "below its [[table]] in a job file" in error
    error = command.error_of(*job, "--mask", "other=redact", status=2)
    assert "main.a: the columns are id, email; main.b: the columns are id, name" in error


def test_a_plan_of_a_sample_by_keys_says_what_the_database_reads(tmp_path: Path) -> None:
    """The balance counts the rows that are read; the file of the plan is named."""
    with duckdb.connect(tmp_path / "s.duckdb") as connection:
        connection.execute("CREATE TABLE t AS SELECT range AS id FROM range(2000)")
    plan = str(tmp_path / "p.json")
    shown = command.run(
        *("plan", f"duckdb://{tmp_path}/s.duckdb", "--table", "t", "--to", str(tmp_path / "out")),
        *("--sample", "10%", "--sample-by", "id", "--output", plan),
    )
    assert "200 (estimate; the database reads 2,000 rows)" in shown
    assert f"the plan was written to {plan}" in shown


def test_a_plan_of_the_first_rows_does_not_read_the_whole_table(tmp_path: Path) -> None:
    """The database stops after the first rows, so the plan has no number for the whole table."""
    with duckdb.connect(tmp_path / "s.duckdb") as connection:
        connection.execute("CREATE TABLE t AS SELECT range AS id FROM range(2000)")
    url = f"duckdb://{tmp_path}/s.duckdb"
    shown = command.run("plan", url, "--table", "t", "--limit-rows", "100")
    assert "100 (estimate)" in shown
    assert "one worker reads, and the database stops after 100 rows" in shown
    assert "2,000" not in shown
