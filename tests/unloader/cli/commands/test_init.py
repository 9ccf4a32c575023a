"""`init`: it writes a job file that check accepts, and run, too, if it is for one table."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from tomllib import loads

import pytest

from unloader.cli.commands.jobs import toml
from unloader.request.job_files import expanded

Run = Callable[..., "subprocess.CompletedProcess[str]"]

HOSTILE = (
    'Odd "Name", too',
    "${HOME}",
    "a/b",
    "a%2Fb",
    "back\\slash",
    "line\nbreak",
    "x" * 300,
    "# comment",
    "'''",
    '"""',
    "]]",
    "SELECT",
    "*",
    "password=tiger",
    "tab\tand\x7fdel",
    "größe",
)


@pytest.fixture
def hostile(tmp_path: Path) -> str:
    """The URL of a database whose tables have hostile names, and a view."""
    import duckdb

    with duckdb.connect(str(tmp_path / "hostile.db")) as connection:
        for name in HOSTILE:
            plain = name.replace('"', '""')
            connection.execute(f'CREATE TABLE "{plain}" AS SELECT 1 AS a')
        connection.execute("CREATE VIEW seen AS SELECT 1 AS a")
    return f"duckdb://{tmp_path}/hostile.db"


def test_what_it_writes_for_hostile_names_passes_check(
    unloader: Run, hostile: str, tmp_path: Path
) -> None:
    """Every table under the name that means it, and no two in one directory; views by choice."""
    shown = unloader("init", hostile, "--output", "job.toml")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout == (
        "job.toml names 17 tables and views; check it with: unloader check job.toml\n"
    )
    checked = unloader("check", "job.toml", "--json")
    assert checked.returncode == 0, checked.stdout
    tables = [each["table"] for each in json.loads(checked.stdout)["outputs"]]
    assert len(tables) == len(HOSTILE)
    text = (tmp_path / "job.toml").read_text("utf-8")
    assert "# view" in text
    active = text.replace("# [[table]]", "[[table]]").replace("# table = ", "table = ")
    assert len(loads(active)["table"]) == len(HOSTILE) + 1
    refused = unloader("init", hostile)
    assert refused.returncode == 2
    assert "tiger" not in refused.stdout + refused.stderr


def test_one_table_is_a_job_that_runs(unloader: Run, tmp_path: Path) -> None:
    """Without an edit; a file that is there is not written over."""
    import duckdb

    with duckdb.connect(str(tmp_path / "one.db")) as connection:
        connection.execute('CREATE TABLE "the ${one}" AS SELECT 7 AS a')
    url = f"duckdb://{tmp_path}/one.db"
    (tmp_path / "job.toml").write_text(unloader("init", url).stdout)
    assert unloader("init", url, "--output", "-").stdout == (tmp_path / "job.toml").read_text()
    plan = unloader("plan", url, "--table", "the ${one}", "--output", "-")
    assert (plan.returncode, "write ./-" in plan.stderr) == (2, True)
    assert not (tmp_path / "-").exists()
    assert unloader("check", "job.toml", "--quiet").returncode == 0
    assert unloader("run", "job.toml", "--quiet").returncode == 0
    (written,) = (tmp_path / "extract").rglob("*.csv")
    assert written.read_text() == "a\n7\n"
    again = unloader("init", url, "--output", "job.toml")
    assert (again.returncode, "exists already" in again.stderr) == (6, True)


def test_a_schema_can_be_unloaded_each_night(unloader: Run, tmp_path: Path) -> None:
    """The draft puts the tables of a night below its day; each run has its own night here."""
    import duckdb

    with duckdb.connect(str(tmp_path / "two.db")) as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS a; CREATE TABLE u AS SELECT 2 AS a")
    draft = unloader("init", f"duckdb://{tmp_path}/two.db").stdout
    (tmp_path / "job.toml").write_text(draft.replace("{date}", "{run_id}"))
    for nights in (1, 2):
        done = unloader("run", "job.toml", "--quiet")
        assert done.returncode == 0, done.stderr
        assert len(list((tmp_path / "extract").rglob("*.csv"))) == 2 * nights


def test_a_schema_is_chosen_where_there_are_several(unloader: Run, tmp_path: Path) -> None:
    """By its name as the database takes it; the error lists them."""
    import duckdb

    with duckdb.connect(str(tmp_path / "two.db")) as connection:
        connection.execute('CREATE SCHEMA "Odd One"; CREATE TABLE "Odd One".t AS SELECT 1 AS a')
        connection.execute("CREATE TABLE u AS SELECT 1 AS a")
    url = f"duckdb://{tmp_path}/two.db"
    several = unloader("init", url)
    assert several.returncode == 2
    assert 'main, "Odd One"' in several.stderr or '"Odd One", main' in several.stderr
    chosen = unloader("init", url, "--schema", '"Odd One"', "--json")
    document = json.loads(chosen.stdout)
    assert [each["table"] for each in document["tables"]] == ['"Odd One".t']
    assert loads(document["job"])["table"] == '"Odd One".t'
    assert unloader("init", url, "--schema", "nowhere").returncode == 4


def test_no_password_is_written(unloader: Run, tmp_path: Path) -> None:
    """A URL with one is refused; where one is found is written down."""
    import duckdb

    with duckdb.connect(str(tmp_path / "one.db")) as connection:
        connection.execute("CREATE TABLE t AS SELECT 7 AS a")
    assert unloader("init", "postgresql://u:t1ger@h/d").returncode == 2
    secret = tmp_path / "secret"
    secret.write_text("t1ger&lily")
    secret.chmod(0o600)
    done = unloader("init", f"duckdb://{tmp_path}/one.db", "--password-file", "secret")
    assert 'password-file = "secret"' in done.stdout
    assert "t1ger" not in done.stdout + done.stderr


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_comes_back_as_it_was(name: str) -> None:
    """Through TOML and through the variables of a job file."""
    assert expanded(loads(f"name = {toml(name)}")["name"], {"HOME": "wrong"}) == name
