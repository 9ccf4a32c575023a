"""A job with several outputs that is given again after a kill: the same job, or another one."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from long_tests import OTHER_ROUTES, also
from processes import command
from processes.breaking import kill_after

ROWS = 20_000
A, B = "a:to={to}/a", "b:to={to}/b,filter=id % 2 = 0"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a table of some units."""
    path = tmp_path_factory.mktemp("duck") / "t.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            f"CREATE TABLE orders AS SELECT i AS id, 'name ' || i AS name FROM range({ROWS}) t(i)"
        )
    return f"duckdb://{path}"


def job(source: str, to: Path, *routes: str) -> tuple[str, ...]:
    """Return a run of some units with routes."""
    asked = (part for each in routes for part in ("--route", each.format(to=to)))
    return (
        *("run", source, "--table", "orders", "--unit-bytes", "100kB", "--parallelism", "1"),
        *asked,
    )


def run_id_at(place: Path) -> str:
    """Return the id of the finished run at a place."""
    found: str = command.manifest_of(place)["run_id"]
    return found


ELSEWHERE = ("other", "b:to={to}/other,filter=id % 2 = 0")
OTHER_ROWS = ("b", "b:to={to}/b,filter=id % 2 = 1")
OTHER_NAME = ("b", "c:to={to}/b,filter=id % 2 = 0")


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.parametrize(
    ("place", "route"), [ELSEWHERE, *also(OTHER_ROUTES, OTHER_ROWS, OTHER_NAME)]
)
def test_a_changed_route_is_another_job(
    source: str, tmp_path: Path, place: str, route: str
) -> None:
    """It begins again, and each output is where it is asked for now, with the rows of now."""
    assert kill_after(2, tmp_path / "a", *job(source, tmp_path, A, B), files=2)
    again = command.ended(*job(source, tmp_path, A, route), "--resume-or-start")
    assert again.returncode == 0, again.stderr
    assert f"interrupted in {tmp_path}/a, was a different job" in again.stderr
    assert run_id_at(tmp_path / "a") == run_id_at(tmp_path / place)
    assert command.manifest_of(tmp_path / place)["totals"]["rows"] == ROWS // 2
    if place == "other":
        assert not command.final_names(tmp_path / "b")


@pytest.mark.long(OTHER_ROUTES)
def test_the_same_routes_are_the_same_job(source: str, tmp_path: Path) -> None:
    """Also with a directory that is written in another way."""
    # A unit is on record there last.
    staged = kill_after(2, tmp_path / "b", *job(source, tmp_path, A, B), files=2)
    (tmp_path / "link").symlink_to(tmp_path / "b")
    again = command.ended(
        *job(source, tmp_path, A, "b:to={to}/link,filter=id % 2 = 0"), "--resume-or-start"
    )
    assert again.returncode == 0, again.stderr
    assert "resuming run" in again.stderr
    attempts = {
        each["id"]: each["attempts"] for each in command.manifest_of(tmp_path / "b")["units"]
    }
    assert all(attempts[unit] == 1 for unit in staged)


@pytest.mark.long(OTHER_ROUTES)
def test_tables_with_a_changed_route_are_another_job(tmp_path: Path) -> None:
    """Where the second route goes is a part of the job."""
    path = tmp_path / "two.duckdb"
    with duckdb.connect(str(path)) as connection:
        for name in ("first", "second"):
            connection.execute(f"CREATE TABLE {name} AS SELECT i AS id FROM range({ROWS}) t(i)")
    line = ("run", f"duckdb://{path}", "--table", "*", "--unit-bytes", "100kB")
    line = (*line, "--parallelism", "1", "--route", f"a:to={tmp_path}/a/{{table}}", "--route")
    assert kill_after(2, tmp_path / "a" / "first", *line, f"b:to={tmp_path}/b/{{table}}", files=2)
    again = command.ended(*line, f"b:to={tmp_path}/c/{{table}}", "--resume-or-start")
    assert again.returncode == 0, again.stderr
    assert "was a different job" in again.stderr
    assert run_id_at(tmp_path / "a" / "first") == run_id_at(tmp_path / "c" / "second")
