"""Directories of several outputs that are one, or lie in one another: refused before all else."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from processes import command

Routes = dict[str, str]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of two tables."""
    path = tmp_path_factory.mktemp("duck") / "t.duckdb"
    with duckdb.connect(str(path)) as connection:
        for name in ("orders", "items"):
            connection.execute(f"CREATE TABLE {name} AS SELECT i AS id FROM range(10) t(i)")
    return f"duckdb://{path}"


def job(to: Path, source: str, orders: Routes, items: Routes, above: str = "") -> str:
    lines = [f'source = "{source}"', *([f'to = "{to}/{above}"'] if above else [])]
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
def test_directories_that_overlap_are_refused(source: str, tmp_path: Path, case: str) -> None:
    """With one error, before anything is written."""
    orders, items, above, message = CASES[case]
    (tmp_path / "x").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "x")
    said = command.error_of("run", job(tmp_path, source, orders, items, above), status=2)
    assert message in said
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["job.toml", "link", "x"]


def test_routes_of_tables_side_by_side_are_written(source: str, tmp_path: Path) -> None:
    """This holds for every spelling of their paths."""
    (tmp_path / "x").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "x")
    path = job(tmp_path, source, {"a": "x/oa", "b": "x/ob"}, {"a": "link/ia", "b": "x/ib"})
    command.run("run", path)
    assert all((tmp_path / "x" / name / "_manifest.json").exists() for name in ("oa", "ob", "ia"))
