"""Earlier runs and links of a run with several outputs: each output has its own."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import duckdb
import pytest
from long_tests import OTHER_ROUTES
from processes import breaking, command


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of two tables."""
    path = tmp_path_factory.mktemp("duck") / "t.duckdb"
    with duckdb.connect(str(path)) as connection:
        for name in ("orders", "items"):
            connection.execute(f"CREATE TABLE {name} AS SELECT i AS id FROM range(50) t(i)")
    return f"duckdb://{path}"


def night(source: str, to: Path, *more: str, table: str = "orders") -> tuple[str, ...]:
    """Return the command of a night: the lake keeps two runs, the text one."""
    lake = "lake:to={}/lake/{{table}}/{{run_id}},keep=2,latest-link=latest,filter=id > 9"
    text = "text:to={}/text-{{table}}-{{run_id}},keep=1"
    return (
        *("run", source, "--table", table),
        *("--route", lake.format(to), "--route", text.format(to), *more),
    )


def run_ids(directory: Path, glob: str = "*") -> list[str]:
    """Return the ids of the finished runs in a directory, the oldest first."""
    found = [
        each
        for each in directory.glob(glob)
        if each.is_dir() and not each.is_symlink() and each.name[0] != "."
    ]
    return sorted(command.manifest_of(each)["run_id"] for each in found)


def test_each_route_keeps_its_own_runs(source: str, tmp_path: Path) -> None:
    """And each has its own link, or none."""
    foreign = tmp_path / "text-orders-note"
    foreign.mkdir()
    for _ in range(3):
        command.run(*night(source, tmp_path))
    lake = run_ids(tmp_path / "lake" / "orders")
    assert len(lake) == 2
    assert run_ids(tmp_path, "text-orders-2*") == lake[1:]
    assert os.readlink(tmp_path / "lake" / "orders" / "latest") == lake[1]
    assert foreign.exists()


@pytest.mark.long(OTHER_ROUTES)
def test_each_route_of_each_table_keeps_its_own(source: str, tmp_path: Path) -> None:
    """Nights of all tables as a whole are refused: routes are not in them."""
    for _ in range(2):
        command.run(*night(source, tmp_path, "--table", "items", "--overwrite"))
    for table in ("orders", "items"):
        lake = run_ids(tmp_path / "lake" / table)
        assert len(lake) == 2
        assert run_ids(tmp_path, f"text-{table}-*") == lake[1:]
        assert os.readlink(tmp_path / "lake" / table / "latest") == lake[1]
    said = command.error_of(
        *("run", source, "--table", "*", "--keep", "1"),
        *("--route", f"a:to={tmp_path}/a/{{date}}/{{table}}"),
        *("--route", f"b:to={tmp_path}/b/{{date}}/{{table}}"),
        status=2,
    )
    assert "apply here to the directory of all tables" in said
    assert not (tmp_path / "a").exists()


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.parametrize("by_cron", [True, False])
def test_what_follows_a_killed_publication_is_done_by_resume(
    source: str, tmp_path: Path, by_cron: bool
) -> None:
    """The lake is published, and killed before its link is switched."""
    library = breaking.killing_library(tmp_path)
    to = tmp_path / "out"
    for _ in range(2):
        command.run(*night(source, to))
    env = {"LD_PRELOAD": str(library), "KILL_CALL": "rename", "KILL_PATH": "/latest"}
    died = command.Running(*night(source, to), "--progress", "none", env=env)
    assert died.finish()[0] == -signal.SIGKILL
    newest = run_ids(to / "lake" / "orders")[-1]
    assert os.readlink(to / "lake" / "orders" / "latest") != newest
    again = night(source, to, "--resume-or-start")
    command.run(*(again if by_cron else ("resume", str(to / "lake" / "orders" / newest))))
    assert os.readlink(to / "lake" / "orders" / "latest") == newest
    assert len(run_ids(to / "lake" / "orders")) == 2
    assert run_ids(to, "text-orders-2*") == [newest]
