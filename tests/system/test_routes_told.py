"""What a run with several outputs reports them: each one, and the whole."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import duckdb
import pytest
from processes import command

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
    assert f'<data value="{size}" data-key="routes.1.bytes"' in page


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
