"""`check`: every problem of a job in one answer, and nothing read or written."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from publications.staged_runs import taken

Run = Callable[..., "subprocess.CompletedProcess[str]"]

NIGHTLY = Path(__file__).parents[4] / "examples" / "nightly"


def checked(unloader: Run, text: str, tmp_path: Path, **extra: Any) -> dict[str, Any]:
    """Return the answer of check for a job file, after comparing its exit status."""
    (tmp_path / "job.toml").write_text(text, "utf-8")
    done = unloader("check", "job.toml", "--json", **extra)
    document: dict[str, Any] = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (document["exit_code"], "")
    assert document["ok"] == (not document["problems"])
    return document


def told(document: dict[str, Any]) -> list[tuple[int | None, str | None, str | None, str]]:
    """Return line, entry, key and message of each problem."""
    return [
        (each["line"], each["entry"], each["key"], each["message"]) for each in document["problems"]
    ]


def test_a_job_without_problems_is_shown_with_its_columns(
    unloader: Run, database: str, tmp_path: Path
) -> None:
    """Columns with their types in the output, the directory of today, and no file anywhere."""
    text = f'source = "{database}"\ntable = "ORDERS"\nto = "out/{{table}}/{{date}}"\n'
    document = checked(unloader, text, tmp_path)
    (output,) = document["outputs"]
    assert (output["table"], output["rows"], output["units"]) == ("main.orders", 3000, 1)
    assert output["to"][0].startswith("out/orders/2")
    assert (output["columns"][0]["name"], output["columns"][0]["output_type"]) == ("id", "int64")
    shown = unloader("check", "job.toml").stdout
    assert "DECIMAL(12,2)" in shown
    assert shown.endswith("no problem found in job.toml: 1 output\n")
    assert unloader("check", "job.toml", "--quiet").stdout == ""
    assert [path.name for path in tmp_path.iterdir()] == ["job.toml"]


def test_every_problem_is_told_at_once(unloader: Run, database: str, tmp_path: Path) -> None:
    """Keys, values, rules, tables, columns, conditions, destinations: one list, in that order."""
    (tmp_path / "used").mkdir()
    (tmp_path / "used/mine.txt").touch()
    (tmp_path / "file").touch()
    text = f"""source = "{database}"
to = "out/{{table}}"
tabel = "x"
retries = "many"
[[table]]
table = "orders"
where = "idd < 3"
[[table]]
table = "Orders"
columns = ["nothing"]
[[table]]
table = "nowhere"
format = "parquet"
delimiter = ";"
[[table]]
query = "SELECT 1 AS a"
[[table.route]]
to = "used"
[[table.route]]
to = "file/x"
[[table.route]]
to = "out/orders/inner"
[[table.route]]
to = "./out/orders"
"""
    document = checked(unloader, text, tmp_path)
    found = told(document)
    assert [(line, entry, key) for line, entry, key, _ in found] == [
        (3, None, "tabel"),
        (4, None, "retries"),
        (14, "[[table]] 3", "delimiter"),
        (7, "[[table]] 1", "where"),
        (9, "[[table]] 2", "table"),
        (12, "[[table]] 3", "table"),
        (18, "[[table]] 4, [[route]] 1", "to"),
        (20, "[[table]] 4, [[route]] 2", "to"),
        (24, "[[table]] 4, [[route]] 4", "to"),
        (22, "[[table]] 4, [[route]] 3", "to"),
    ]
    messages = [message for *_, message in found]
    assert "idd" in messages[3]
    assert "unknown column 'nothing'" in messages[4]
    assert "used is not empty: it holds mine.txt" in messages[6]
    assert "file is not a directory" in messages[7]
    assert "two outputs go to ./out/orders" in messages[8]
    assert "one is inside the other" in messages[9]
    assert document["exit_code"] == 2
    assert document["notices"] == []
    shown = unloader("check", "job.toml").stdout
    assert shown.count("\nproblem: ") == 10
    assert shown.endswith("10 problems found in job.toml\n")


@pytest.mark.parametrize(
    ("text", "status", "what"),
    [
        ('source = "duckdb:///nowhere/x.db"\ntable = "t"\nto = "out"', 4, "nowhere"),
        ('table = "t"\nto = "out"', 2, "names no source"),
        ('source = "duckdb:///x.db"\ntable = "t"', 2, "the output has no destination"),
        ('source = "duckdb:///x.db"\nto = "out"', 2, "no table or query is given"),
        ('source = "postgresql://u:t1ger@h/d"\ntable = "t"\nto = "out"', 2, "password"),
        (
            'source = "duckdb:///${NOWHERE}.db"\ntable = "t"\nto = "out"',
            2,
            "NOWHERE may hold a secret",
        ),
    ],
)
def test_the_exit_status_is_that_of_the_first_problem(
    unloader: Run, tmp_path: Path, text: str, status: int, what: str
) -> None:
    """A source that cannot be opened, and what a job must say; no secret is shown."""
    document = checked(unloader, text, tmp_path)
    assert document["exit_code"] == status
    assert what in document["problems"][0]["message"]
    assert "t1ger" not in json.dumps(document)


def test_the_place_of_the_manifest_of_all_is_no_place_for_a_table(
    unloader: Run, database: str, tmp_path: Path
) -> None:
    """A run would refuse it, too, before it reads a row."""
    text = (
        f'source = "{database}"\nto = "out/{{table}}"\n[[table]]\ntable = "orders"\nto = "out"\n'
        '[[table]]\nquery = "SELECT 1 AS a"\nto = "elsewhere"\n'
    )
    document = checked(unloader, text, tmp_path)
    ((line, entry, key, message),) = told(document)
    assert (line, entry, key) == (5, "[[table]] 1", "to")
    assert "which is for the manifest of the run" in message
    assert document["exit_code"] == 2
    assert "which is for the manifest of the run" in unloader("run", "job.toml").stderr


def test_a_finished_run_of_other_tables_is_a_problem(
    unloader: Run, database: str, tmp_path: Path
) -> None:
    """The directory around the tables has its manifest, and `run` refuses it, too."""
    job = f'source = "{database}"\nto = "out/{{date}}/{{table}}"\n'
    first, second = tmp_path / "first.toml", tmp_path / "job.toml"
    first.write_text(f'{job}table = "ord*"\n', "utf-8")
    assert unloader("run", str(first), "--quiet").returncode == 0
    document = checked(unloader, f'{job}table = "*,*"\n', tmp_path)
    (problem,) = document["problems"]
    assert "is not empty: it holds a finished run" in problem["message"]
    refused = unloader("run", str(second), "--quiet")
    assert refused.returncode == document["exit_code"] == 6
    assert problem["message"] in refused.stderr
    checked(unloader, f'{job}table = "*,*"\noverwrite = true\n', tmp_path)


def test_a_file_that_is_no_job_is_an_error(unloader: Run, tmp_path: Path) -> None:
    """So are a name that no job file has, and a file that is not TOML."""
    assert unloader("check", "duckdb:///x.db").returncode == 2
    (tmp_path / "job.toml").write_text("= 1")
    done = unloader("check", "job.toml")
    assert (done.returncode, "not TOML" in done.stderr) == (3, True)


def test_a_directory_in_which_a_run_goes_on_is_a_problem(
    unloader: Run, database: str, tmp_path: Path
) -> None:
    """As run would find it; the directory stays as it is."""
    run = taken([tmp_path / "out"], overwrite=False)
    try:
        before = sorted(path.name for path in (tmp_path / "out").rglob("*"))
        text = f'source = "{database}"\ntable = "orders"\nto = "out"\noverwrite = true\n'
        document = checked(unloader, text, tmp_path)
        assert "another run is writing to out" in document["problems"][0]["message"]
        assert document["exit_code"] == 6
        assert sorted(path.name for path in (tmp_path / "out").rglob("*")) == before
    finally:
        run.close()


def test_defaults_are_passed_over_where_they_do_not_apply(
    unloader: Run, database: str, tmp_path: Path
) -> None:
    """A delimiter in [defaults] is for the text among the outputs; run takes the job as well."""
    text = (
        f'source = "{database}"\nto = "out"\n[defaults]\ndelimiter = ";"\n'
        '[[table]]\ntable = "orders"\nformat = "parquet"\n'
    )
    assert checked(unloader, text, tmp_path)["problems"] == []
    assert unloader("run", "job.toml", "--quiet").returncode == 0


def test_variables_count_as_they_do_in_a_run(unloader: Run, database: str, tmp_path: Path) -> None:
    """A variable overrides the file, and a wrong one is a problem, told once."""
    text = f'source = "{database}"\nto = "out/{{table}}"\n' + '[[table]]\ntable = "orders"\n' * 2
    variables = {"UNLOADER_RETRIES": "many"}
    document = checked(unloader, text, tmp_path, variables=variables)
    assert [each["message"][:45] for each in document["problems"]] == [
        "invalid value for the variable UNLOADER_RETRI"
    ]
    document = checked(unloader, text, tmp_path, variables={"UNLOADER_TO": "elsewhere/{table}"})
    assert document["outputs"][0]["to"] == ["elsewhere/orders"]
    assert len(document["problems"]) == 1


def test_the_example_of_a_night_has_no_problem(unloader: Run, tmp_path: Path) -> None:
    """Its tables, in another database and below another directory."""
    import duckdb

    with duckdb.connect(str(tmp_path / "night.db")) as connection:
        connection.execute("CREATE SCHEMA SALES")
        connection.execute("CREATE TABLE SALES.ORDERS AS SELECT 1 AS ID, 'X' AS STATUS")
        connection.execute("CREATE TABLE SALES.CUSTOMERS AS SELECT 1 AS ID")
        connection.execute("CREATE TABLE SALES.ITEMS AS SELECT 1 AS ID, 2 AS AMOUNT")
    common = (NIGHTLY / "common.toml").read_text("utf-8")
    url = "oracle://etl@${DB_HOST:-db01}:1521/SALES"
    assert url in common
    (tmp_path / "common.toml").write_text(common.replace(url, f"duckdb://{tmp_path}/night.db"))
    night = (NIGHTLY / "night.toml").read_text("utf-8").replace('= "/', f'= "{tmp_path}/')
    document = checked(unloader, night, tmp_path, variables={"NIGHT": "20260131"})
    assert document["problems"] == []
    assert [each["to"][0].removeprefix(f"{tmp_path}/") for each in document["outputs"]] == [
        "extract/20260131/SALES.ORDERS",
        "extract/20260131/SALES.CUSTOMERS",
        "extract/20260131/totals",
        "lake/20260131/totals",
    ]


def test_a_server_is_asked_once_and_tells_all(unloader: Run, postgres: Any, tmp_path: Path) -> None:
    """Rights, conditions and queries that the server refuses, one entry each; init writes a job."""
    url = postgres.database("checked")
    postgres.run(
        'CREATE TABLE a (x int); CREATE TABLE "B c" (y text); CREATE VIEW v AS SELECT * FROM a;'
        "CREATE ROLE looker LOGIN; GRANT SELECT ON a TO looker",
        url=url,
    )
    assert unloader("init", url, "--output", "draft.toml").returncode == 0
    assert unloader("check", "draft.toml", "--quiet").returncode == 0
    mine = url.replace("postgres@", "looker@")
    document = checked(
        unloader,
        f'source = "{mine}"\nto = "out/{{table}}"\n'
        '[[table]]\ntable = "a"\nwhere = "nothing = 1"\n'
        "[[table]]\ntable = '\"B c\"'\n"
        '[[table]]\nquery = "SELECT 1/"\nto = "out/q"\n'
        '[[table]]\ntable = "a"\nto = "out/again"\n',
        tmp_path,
    )
    assert [(each["line"], each["kind"]) for each in document["problems"]] == [
        (5, "SourceError"),
        (7, "SourceError"),
        (9, "SourceError"),
    ]
    assert document["exit_code"] == 4
    assert [each["table"] for each in document["outputs"]][3] == "public.a"


@pytest.mark.parametrize("of_several", [True, False])
def test_check_has_the_units_of_the_run(unloader: Run, tmp_path: Path, of_several: bool) -> None:
    """The units of several tables have a size in common, which `plan` and `check` both use."""
    with duckdb.connect(tmp_path / "s.duckdb") as connection:
        connection.execute("CREATE TABLE big AS SELECT range AS id FROM range(500000)")
        connection.execute("CREATE TABLE small AS SELECT range AS id FROM range(300000)")
    names = ["big", "small"] if of_several else ["big"]
    entries = "".join(f'[[table]]\ntable = "{name}"\n' for name in names)
    text = f'source = "duckdb://{tmp_path}/s.duckdb"\nto = "out/{{table}}"\nparallelism = 2\n'
    document = checked(unloader, text + entries, tmp_path)
    units = [each["units"] for each in document["outputs"]]
    planned = json.loads(unloader("plan", "job.toml", "--json").stdout)
    tables = planned["tables"] if of_several else [{"units": len(planned["plan"]["units"])}]
    assert units == [each["units"] for each in tables]
    assert sum(units) > len(units)
