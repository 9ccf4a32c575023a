"""Job files on the command line: included files, variables, [defaults], entries."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def test_a_job_is_made_of_files_variables_and_defaults(
    unloader: Run, database: str, tmp_path: Path
) -> None:
    """One table and one route run; each setting is on record with the file that it came from."""
    (tmp_path / "base.toml").write_text(
        f'source = "{database}"\nto = "wrong"\nquiet = true\nverify = "${{CHECK:-full}}"\n'
        '[defaults]\nnull = "-"\nrow-group-rows = 10\n'
    )
    (tmp_path / "job.toml").write_text(
        'include = ["base.toml"]\nshown-variables = ["NIGHT", "CHECK"]\nto = "out/${NIGHT}"\n'
        '[[table]]\ntable = "orders"\nwhere = "id < 3"\ncolumns = ["id"]\n'
        '[[table.route]]\nname = "loader"\nheader = false\nfile-per = "table"\n'
    )
    result = unloader("run", "job.toml", variables={"NIGHT": "2026-01-31"})
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    out = tmp_path / "out/2026-01-31"
    assert (out / "orders.csv").read_text() == "0\n1\n2\n"
    settings = json.loads((out / "_manifest.json").read_text())["settings"]
    origins = {each["name"]: (each["value"], each["from"]) for each in settings}
    assert origins["verify"] == ("full", "job file base.toml")
    assert origins["to"] == ("out/2026-01-31", "job file job.toml")
    assert "row-group-rows" not in origins


def test_a_value_of_an_included_file_is_told_by_its_own_line(unloader: Run, tmp_path: Path) -> None:
    """An unset variable names file, key and line; so do rules that only the whole file breaks."""
    (tmp_path / "base.toml").write_text(
        'shown-variables = ["NOWHERE"]\nsource = "duckdb:///x.db"\nto = "${NOWHERE}"\n'
    )
    (tmp_path / "job.toml").write_text('include = "base.toml"\ntable = "t"\n')
    result = unloader("run", "job.toml")
    assert result.returncode == 2
    assert "base.toml, line 3: the key 'to': the variable NOWHERE is not set" in result.stderr


def test_a_variable_brings_no_password_to_light(unloader: Run, tmp_path: Path) -> None:
    """Neither one in the URL of a source, for any name of its variable, nor one in a text."""
    (tmp_path / "job.toml").write_text('source = "${DSN}"\ntable = "t"\nto = "${PLACE:-out}"\n')
    dsn = {"DSN": "postgresql://etl:t1ger-lily@db01/sales"}
    place = {"DSN": "duckdb:///x.db", "PLACE": "/t1ger-lily", "UNLOADER_PASSWORD": "t1ger-lily"}
    for variables in (dsn, place):
        for name in ("run", "plan", "check"):
            done = unloader(name, "job.toml", variables=variables)
            assert done.returncode == 2
            assert "t1ger" not in done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == [tmp_path / "job.toml"]


def test_a_variable_with_an_innocent_name_brings_no_secret_to_light(
    unloader: Run, database: str, tmp_path: Path
) -> None:
    """Every command that takes a job file refuses it unless the file declares the variable."""
    job = f"source = '{database}'\ntable = 'orders'\nto = 'out'\nwhere = \"'${{TIGER}}' <> ''\"\n"
    (tmp_path / "job.toml").write_text(job)
    variables = {"TIGER": "t1ger-lily"}
    for name in ("run", "plan", "check", "codecs", "preflight"):
        done = unloader(name, "job.toml", variables=variables)
        assert done.returncode == 2, done.stderr
        assert "the variable TIGER may hold a secret" in done.stdout + done.stderr
        assert "t1ger" not in done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == [tmp_path / "job.toml"]
    # The advice of the error.
    (tmp_path / "job.toml").write_text(f'shown-variables = ["TIGER"]\n{job}')
    assert unloader("run", "job.toml", variables=variables).returncode == 0
    assert "t1ger-lily" in (tmp_path / "out/_manifest.json").read_text()


def test_a_file_whose_password_is_in_a_variable_may_be_read_by_others(unloader: Run) -> None:
    """One that has the password itself is refused."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        os.chmod(directory, 0o755)  # Directories of pytest are closed to other users.
        path = Path(directory, "job.toml")
        for password, refused in (("${ROLE_PW}", False), ('"${ROLE_PW}"', False), ("t1ger", True)):
            path.write_text(
                "source = 'oracle://scott@127.0.0.1:1/X'\ntable = 'T'\nto = 'out'\n"
                f"session-sql = 'SET ROLE r IDENTIFIED BY {password}'\n"
            )
            path.chmod(0o644)
            done = unloader("plan", str(path), variables={"ROLE_PW": "t1ger-lily"})
            assert ("other users can read" in done.stderr) == refused, done.stderr
            assert "t1ger" not in done.stdout + done.stderr
            plan = unloader("plan", str(path), "--output", "x", variables={"ROLE_PW": "t1ger-lily"})
            assert plan.returncode == (3 if refused else 2)
            assert refused or "--output would keep the password" in plan.stderr


def test_a_job_of_many_is_refused_in_one_sentence(unloader: Run, tmp_path: Path) -> None:
    """More tables, more routes, and a route that selects a second time."""
    path = tmp_path / "job.toml"
    path.write_text("source = 'duckdb:///x.db'\n" + "[[table]]\ntable = 'A'\n" * 2)
    result = unloader("run", "job.toml", "--to", "out")
    assert result.returncode == 2
    assert "[[table]] 1 and [[table]] 2 go to the same directory, out" in result.stderr
    assert "takes one table, and job.toml has 2" in unloader("codecs", "job.toml").stderr
    path.write_text("table = 'A'\n[[route]]\nto = 'a'\n[[route]]\nto = 'b'\n")
    assert "job.toml has 2 routes" in unloader("codecs", "job.toml").stderr
    path.write_text("table = 'A'\nwhere = 'x'\n[[route]]\nwhere = 'b'\n")
    assert "job.toml, line 4: [[route]] 1: the key 'where'" in unloader("plan", "job.toml").stderr
