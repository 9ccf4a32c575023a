"""Several outputs: their reports, their places, and a job that is given again."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import duckdb
import pytest
from long_tests import OTHER_ROUTES, also
from processes import command
from processes.breaking import kill_after

ROWS = 6000


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of two tables."""
    path = tmp_path_factory.mktemp("duck") / "t.duckdb"
    with duckdb.connect(str(path)) as connection:
        for name in ("orders", "items"):
            connection.execute(f"CREATE TABLE {name} AS SELECT i AS id FROM range({ROWS}) t(i)")
    return f"duckdb://{path}"


def routes(to: Path, fields: str = "") -> tuple[str, ...]:
    return (
        *("--route", f"lake:to={to}/lake{fields},format=parquet,filter=id % 3 = 0"),
        *("--route", f"text:to={to}/text{fields}"),
        *("--route", "gone:to=null:"),
    )


def in_files(directory: Path) -> int:
    """Return the bytes of the data files of a directory."""
    return sum(path.stat().st_size for path in directory.iterdir() if path.name[0] != "_")


@pytest.fixture(scope="module")
def told(source: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, list[Any], str]:
    """A run of one table: its directory, its answer in JSON, its log, and the page of its report."""
    to = tmp_path_factory.mktemp("told")
    done = command.ended(
        *("run", source, "--table", "orders", *routes(to), "--json", "--log-format", "json"),
        *("--report", f"{to}/page.html", "--metrics-file", f"{to}/unloader.prom"),
        *("--on-success", f'printf "%s" "$UNLOADER_RUN_ROUTES" > {to}/hook'),
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    return to, json.loads(done.stdout), lines, (to / "page.html").read_text("utf-8")


Told = tuple[Path, Any, list[Any], str]


def test_the_answer_has_every_route_and_the_whole(told: Told) -> None:
    """Rows are the ones that were read, once; bytes and files are sums over all routes."""
    to, answer, _, _ = told
    totals = [each["totals"] for each in answer["routes"]]
    assert [each["rows"] for each in totals] == [ROWS // 3, ROWS, ROWS]
    assert answer["totals"]["rows"] == ROWS
    assert answer["totals"]["bytes"] == sum(each["bytes"] for each in totals)
    assert answer["totals"]["files"] == sum(each["files"] for each in totals)
    assert [each["bytes"] for each in totals[:2]] == [in_files(to / n) for n in ("lake", "text")]


def test_hooks_and_metrics_have_each_route(told: Told) -> None:
    """A shell reads the lines of the variable; the metrics have a label for the route."""
    to, answer, _, _ = told
    lines = (to / "hook").read_text().splitlines()
    lake, text, gone = (each["totals"] for each in answer["routes"])
    assert lines == [
        f"lake {lake['rows']} {lake['bytes']} {lake['files']} {to}/lake",
        f"text {text['rows']} {text['bytes']} {text['files']} {to}/text",
        f"gone {gone['rows']} {gone['bytes']} {gone['files']} null:",
    ]
    metrics = (to / "unloader.prom").read_text()
    (line,) = (
        m
        for m in metrics.splitlines()
        if m.startswith("unloader_run_route_bytes_total{") and 'route="text"' in m
    )
    assert float(line.rpartition(" ")[2]) == text["bytes"]


def test_the_page_has_each_route(told: Told) -> None:
    """Also the one that is made later, from the directory of any."""
    to, answer, _, page = told
    later = command.run("report", str(to / "text"), "--json")
    assert [each["name"] for each in json.loads(later)["routes"]] == ["text", "lake"]
    for name in ("lake", "text", "gone"):
        assert f">{name}</data>" in page
    size = answer["routes"][1]["totals"]["bytes"]
    assert f'<data value="{size}" data-key="routes.1.totals.bytes"' in page


def test_tables_with_routes_count_every_route(source: str, tmp_path: Path) -> None:
    """Rows of a table count once, bytes and files for each route: in the log and in every answer."""
    asked = routes(tmp_path, "/{table}")[:4]
    ended = command.ended("run", source, "--table", "*", *asked, "--log-format", "json", "--json")
    assert ended.returncode == 0, ended.stderr
    lines = [json.loads(line) for line in ended.stderr.splitlines()]
    done = {line["table"]: line for line in lines if line["event"] == "table_finished"}
    assert set(done) == {"main.orders", "main.items"}
    for name in ("orders", "items"):
        line = done[f"main.{name}"]
        assert line["rows"] == ROWS
        assert line["bytes"] == sum(in_files(tmp_path / route / name) for route in ("lake", "text"))
    (end,) = (line for line in lines if line["event"] == "run_finished")
    assert end["rows"] == 2 * ROWS
    assert end["bytes"] == sum(line["bytes"] for line in done.values())
    totals = json.loads(ended.stdout)["totals"]
    assert (totals["tables"], totals["rows"], totals["bytes"]) == (2, 2 * ROWS, end["bytes"])
    home = str(tmp_path / "lake")
    status = json.loads(command.run("status", home, "--json"))["finished"]
    assert (status["rows"], status["bytes"]) == (2 * ROWS, end["bytes"])
    verified = json.loads(command.run("verify", home, source, "--json"))
    assert [verified[name] for name in ("table_count", "rows", "source_rows", "bytes")] == [
        *(2, 2 * ROWS, 2 * ROWS, end["bytes"])
    ]


def test_written_and_filtered_rows_add_up(source: str, tmp_path: Path) -> None:
    """The result of a run and of `verify` has both, beside the rows of the source."""
    kept, left_out = f"{ROWS // 3:,}", f"{ROWS - ROWS // 3:,} rows, by the filter"
    line = ("run", source, "--table", "orders", "--filter", "id % 3 = 0", "--to", str(tmp_path))
    shown = facts(command.run(*line))
    assert (shown["rows"], shown["left out"]) == (kept, left_out)
    assert shown["verified"] == (
        f"ok (count, {ROWS:,} rows in the source, with the rows that the filter left out)"
    )
    verified = facts(command.run("verify", str(tmp_path), source))
    assert [verified[name] for name in ("rows", "left out", "rows in the source")] == [
        *(kept, left_out, f"{ROWS:,}")
    ]


def facts(shown: str) -> dict[str, str]:
    """Return the lines of a result by their names."""
    pairs = (re.split(r"  +", line, maxsplit=1) for line in shown.splitlines())
    return {name: value.strip() for name, value in pairs}


Routes = dict[str, str]


@pytest.fixture(scope="module")
def two_tables(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of two tables."""
    path = tmp_path_factory.mktemp("duck") / "t.duckdb"
    with duckdb.connect(str(path)) as connection:
        for name in ("orders", "items"):
            connection.execute(f"CREATE TABLE {name} AS SELECT i AS id FROM range(10) t(i)")
    return f"duckdb://{path}"


def job(to: Path, two_tables: str, orders: Routes, items: Routes, above: str = "") -> str:
    lines = [f'source = "{two_tables}"', *([f'to = "{to}/{above}"'] if above else [])]
    for table, routes in (("orders", orders), ("items", items)):
        lines += ["[[table]]", f'table = "{table}"']
        for name, place in routes.items():
            lines += ["[[table.route]]", f'name = "{name}"', f'to = "{to}/{place}"']
    path = to / "job.toml"
    path.write_text("\n".join(lines), encoding="utf-8")
    return str(path)


CASES: dict[str, tuple[Routes, Routes, str, str]] = {
    "one directory, through a link": (
        {"a": "x/oa", "b": "x/ob"},
        {"a": "x/ia", "b": "link/ob"},
        "",
        "main.items: it would be written to the directory of main.orders",
    ),
    "one in another, through a link": (
        {"a": "x/oa", "b": "x/ob"},
        {"a": "x/ia", "b": "link/ob/in"},
        "",
        "main.items: it would be written to the directory of main.orders",
    ),
    "around that of another table": (
        {"a": "x/oa", "b": "x/ob"},
        {"a": "y/ia", "b": "x"},
        "",
        "main.orders: it would be written to the directory of main.items",
    ),
    "of one table, one in the other": (
        {"a": "x/oa", "b": "link/oa/in"},
        {"a": "x/ia", "b": "x/ib"},
        "",
        "main.orders: routes a and b would write to",
    ),
    "that of the run as a whole": (
        {"a": "x/oa", "b": "x/ob"},
        {"a": "x/ia", "b": "home"},
        "home/{table}",
        "main.items, route b, would be written to",
    ),
    "in what a run removes": (
        {"a": "x/oa", "b": "x/ob"},
        {"a": "x/ia", "b": "x/_run/ib"},
        "",
        "main.items: route b writes to",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_directories_that_overlap_are_refused(two_tables: str, tmp_path: Path, case: str) -> None:
    """With one error, before anything is written."""
    orders, items, above, message = CASES[case]
    (tmp_path / "x").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "x")
    said = command.error_of("run", job(tmp_path, two_tables, orders, items, above), status=2)
    assert message in said
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["job.toml", "link", "x"]


def test_routes_of_tables_side_by_side_are_written(two_tables: str, tmp_path: Path) -> None:
    """This holds for every spelling of their paths."""
    (tmp_path / "x").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "x")
    path = job(tmp_path, two_tables, {"a": "x/oa", "b": "x/ob"}, {"a": "link/ia", "b": "x/ib"})
    command.run("run", path)
    assert all((tmp_path / "x" / name / "_manifest.json").exists() for name in ("oa", "ob", "ia"))


NAMED_ROWS = 20_000
A, B = "a:to={to}/a", "b:to={to}/b,filter=id % 2 = 0"


@pytest.fixture(scope="module")
def named_rows(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a table of some units."""
    path = tmp_path_factory.mktemp("duck") / "t.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            f"CREATE TABLE orders AS SELECT i AS id, 'name ' || i AS name FROM range({NAMED_ROWS}) t(i)"
        )
    return f"duckdb://{path}"


def job_again(named_rows: str, to: Path, *routes: str) -> tuple[str, ...]:
    """Return a run of some units with routes."""
    asked = (part for each in routes for part in ("--route", each.format(to=to)))
    return (
        *("run", named_rows, "--table", "orders", "--unit-bytes", "100kB", "--parallelism", "1"),
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
    named_rows: str, tmp_path: Path, place: str, route: str
) -> None:
    """It begins again, and each output is where it is asked for now, with the rows of now."""
    assert kill_after(2, tmp_path / "a", *job_again(named_rows, tmp_path, A, B), files=2)
    again = command.ended(*job_again(named_rows, tmp_path, A, route), "--resume-or-start")
    assert again.returncode == 0, again.stderr
    assert f"interrupted in {tmp_path}/a, was a different job" in again.stderr
    assert run_id_at(tmp_path / "a") == run_id_at(tmp_path / place)
    assert command.manifest_of(tmp_path / place)["totals"]["rows"] == NAMED_ROWS // 2
    if place == "other":
        assert not command.final_names(tmp_path / "b")


@pytest.mark.long(OTHER_ROUTES)
def test_the_same_routes_are_the_same_job(named_rows: str, tmp_path: Path) -> None:
    """Also with a directory that is written in another way."""
    # A unit is on record there last.
    staged = kill_after(2, tmp_path / "b", *job_again(named_rows, tmp_path, A, B), files=2)
    (tmp_path / "link").symlink_to(tmp_path / "b")
    again = command.ended(
        *job_again(named_rows, tmp_path, A, "b:to={to}/link,filter=id % 2 = 0"), "--resume-or-start"
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
            connection.execute(
                f"CREATE TABLE {name} AS SELECT i AS id FROM range({NAMED_ROWS}) t(i)"
            )
    line = ("run", f"duckdb://{path}", "--table", "*", "--unit-bytes", "100kB")
    line = (*line, "--parallelism", "1", "--route", f"a:to={tmp_path}/a/{{table}}", "--route")
    assert kill_after(2, tmp_path / "a" / "first", *line, f"b:to={tmp_path}/b/{{table}}", files=2)
    again = command.ended(*line, f"b:to={tmp_path}/c/{{table}}", "--resume-or-start")
    assert again.returncode == 0, again.stderr
    assert "was a different job" in again.stderr
    assert run_id_at(tmp_path / "a" / "first") == run_id_at(tmp_path / "c" / "second")
