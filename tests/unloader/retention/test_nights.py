"""Runs that stay or go: nights of several tables, interrupted runs, and routes."""

from __future__ import annotations

import json
import os
import shutil
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
from long_tests import OTHER_ROUTES, also
from processes import breaking, command
from processes.breaking import kill_after
from schemas.json_schema import checked
from several_tables import made, requests_of, unload

from unloader.errors import OutputFailed
from unloader.events import Event, Notice
from unloader.model import SourceSpec

SIZES = {"first": 30, "second": 5}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> SourceSpec:
    """A DuckDB file of two tables."""
    return made(tmp_path_factory.mktemp("source") / "s.db", SIZES)


def night(
    source: SourceSpec, to: Path, names: tuple[str, ...] = tuple(SIZES), **output: Any
) -> str:
    told: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, Notice):
            told.append(event.text)

    found = unload(
        requests_of(source, f"{to}/{{run_id}}/{{schema}}/{{table}}", names, **output), None, listen
    )
    return f"{found.run_id} {' '.join(told)}"


@pytest.mark.long(OTHER_ROUTES)
def test_the_link_and_the_kept_ones_are_whole_nights(source: SourceSpec, tmp_path: Path) -> None:
    """A table that is not unloaded any more goes with the night that it is of."""
    nights = [
        night(source, tmp_path, keep=2, latest_link="latest"),
        night(source, tmp_path, ("first",), keep=2, latest_link="latest"),
        night(source, tmp_path, keep=2, latest_link="latest"),
    ]
    ids = [each.partition(" ")[0] for each in nights]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*ids[1:], "latest"])
    assert os.readlink(tmp_path / "latest") == ids[2]
    assert f"removed run {ids[0]} in {tmp_path / ids[0]}" in nights[2]
    manifest = json.loads((tmp_path / "latest" / "_manifest.json").read_text())
    assert [each["directory"] for each in manifest["tables"]] == ["main/first", "main/second"]


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.parametrize(
    ("path", "why"),
    [("notes.txt", "is not a file of the run"), ("main/first/x.csv", "is not a file of the run")],
)
def test_a_night_with_anything_else_in_it_stays(
    source: SourceSpec, tmp_path: Path, path: str, why: str
) -> None:
    """Someone has put it there, and may need it."""
    first = night(source, tmp_path).partition(" ")[0]
    strange = tmp_path / first / path
    strange.parent.mkdir(exist_ok=True)
    strange.write_text("x")
    assert why in night(source, tmp_path, keep=1)
    assert strange.exists()
    assert (tmp_path / first / "_manifest.json").exists()


def test_what_has_the_name_of_the_link_is_told_before_anything_is_read(
    source: SourceSpec, tmp_path: Path
) -> None:
    """Of the directory of all tables, not of each."""
    (tmp_path / "latest").mkdir()
    with pytest.raises(OutputFailed, match="is not a symbolic link"):
        night(source, tmp_path, latest_link="latest")
    shutil.rmtree(tmp_path / "latest")


@pytest.mark.long(OTHER_ROUTES)
def test_tables_with_dated_directories_have_links_of_their_own(
    source: SourceSpec, tmp_path: Path
) -> None:
    """As if each had been unloaded alone."""
    template = f"{tmp_path}/{{table}}/{{run_id}}"
    for _ in range(2):
        requests = requests_of(
            source, template, tuple(SIZES), keep=1, latest_link="latest", overwrite=True
        )
        (tmp_path / "_manifest.json").unlink(missing_ok=True)
        found = unload(requests)
        for name in SIZES:
            assert os.readlink(tmp_path / name / "latest") == found.run_id
            assert len(list((tmp_path / name).iterdir())) == 2


ROWS = 20000


@pytest.fixture(scope="module")
def one_table(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a DuckDB file with a table of many small units."""
    path = tmp_path_factory.mktemp("source") / "s.db"
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"CREATE TABLE t AS SELECT i, 'text ' || i AS v FROM range({ROWS}) r(i)")
    return f"duckdb://{path}"


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.parametrize("way", ["run", *also(OTHER_ROUTES, "resume")])
def test_a_broken_run_of_today(one_table: str, tmp_path: Path, way: str) -> None:
    """The link leads to it, the metrics have all its rows, the command runs at its end."""
    metrics, today = tmp_path / "x.prom", f"{datetime.now(UTC):%Y%m%d}"
    job = (
        *("run", one_table, "--table", "t", "--to", f"{tmp_path}/{{table}}/{{date}}"),
        *("--unit-bytes", "128kB", "--parallelism", "1", "--keep", "2", "--latest-link", "latest"),
    )
    directory = tmp_path / "t" / today
    kill_after(3, directory, *job)
    old = tmp_path / "t" / "20200101"
    shutil.copytree(directory, old)
    watched = (
        *("--metrics-file", str(metrics), "--on-success"),
        f'echo "$UNLOADER_RUN_DEST" > {tmp_path}/told',
    )
    again = (*job, "--resume-or-start") if way == "run" else ("resume", str(directory))
    done = command.ended(*again, *watched, "--log-format", "json")
    assert done.returncode == 0, done.stderr
    assert "units_kept" in [line["event"] for line in checked(done.stderr)]
    assert command.manifest_of(directory)["totals"]["rows"] == ROWS
    assert not (directory / "_run").exists()
    assert (old / "_run").is_dir()
    assert os.readlink(tmp_path / "t" / "latest") == today
    assert (tmp_path / "told").read_text() == f"{directory}\n"
    labels = f'{{destination="{tmp_path}/{{table}}/{{date}}",source="duckdb",table="t"}}'
    assert f"unloader_run_rows_total{labels} {float(ROWS)}" in metrics.read_text()


@pytest.fixture(scope="module")
def two_tables(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of two tables."""
    path = tmp_path_factory.mktemp("duck") / "t.duckdb"
    with duckdb.connect(str(path)) as connection:
        for name in ("orders", "items"):
            connection.execute(f"CREATE TABLE {name} AS SELECT i AS id FROM range(50) t(i)")
    return f"duckdb://{path}"


def night_with_routes(
    two_tables: str, to: Path, *more: str, table: str = "orders"
) -> tuple[str, ...]:
    """Return the command of a night: the lake keeps two runs, the text one."""
    lake = "lake:to={}/lake/{{table}}/{{run_id}},keep=2,latest-link=latest,filter=id > 9"
    text = "text:to={}/text-{{table}}-{{run_id}},keep=1"
    return (
        *("run", two_tables, "--table", table),
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


def test_each_route_keeps_its_own_runs(two_tables: str, tmp_path: Path) -> None:
    """And each has its own link, or none."""
    foreign = tmp_path / "text-orders-note"
    foreign.mkdir()
    for _ in range(3):
        command.run(*night_with_routes(two_tables, tmp_path))
    lake = run_ids(tmp_path / "lake" / "orders")
    assert len(lake) == 2
    assert run_ids(tmp_path, "text-orders-2*") == lake[1:]
    assert os.readlink(tmp_path / "lake" / "orders" / "latest") == lake[1]
    assert foreign.exists()


@pytest.mark.long(OTHER_ROUTES)
def test_each_route_of_each_table_keeps_its_own(two_tables: str, tmp_path: Path) -> None:
    """Nights of all tables as a whole are refused: routes are not in them."""
    for _ in range(2):
        command.run(*night_with_routes(two_tables, tmp_path, "--table", "items", "--overwrite"))
    for table in ("orders", "items"):
        lake = run_ids(tmp_path / "lake" / table)
        assert len(lake) == 2
        assert run_ids(tmp_path, f"text-{table}-*") == lake[1:]
        assert os.readlink(tmp_path / "lake" / table / "latest") == lake[1]
    said = command.error_of(
        *("run", two_tables, "--table", "*", "--keep", "1"),
        *("--route", f"a:to={tmp_path}/a/{{date}}/{{table}}"),
        *("--route", f"b:to={tmp_path}/b/{{date}}/{{table}}"),
        status=2,
    )
    assert "apply here to the directory of all tables" in said
    assert not (tmp_path / "a").exists()


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.parametrize("by_cron", [True, False])
def test_what_follows_a_killed_publication_is_done_by_resume(
    two_tables: str, tmp_path: Path, by_cron: bool
) -> None:
    """The lake is published, and killed before its link is switched."""
    library = breaking.killing_library(tmp_path)
    to = tmp_path / "out"
    for _ in range(2):
        command.run(*night_with_routes(two_tables, to))
    env = {"LD_PRELOAD": str(library), "KILL_CALL": "rename", "KILL_PATH": "/latest"}
    died = command.Forked(*night_with_routes(two_tables, to), "--progress", "none", env=env)
    assert died.finish()[0] == -signal.SIGKILL
    newest = run_ids(to / "lake" / "orders")[-1]
    assert os.readlink(to / "lake" / "orders" / "latest") != newest
    again = night_with_routes(two_tables, to, "--resume-or-start")
    command.run(*(again if by_cron else ("resume", str(to / "lake" / "orders" / newest))))
    assert os.readlink(to / "lake" / "orders" / "latest") == newest
    assert len(run_ids(to / "lake" / "orders")) == 2
    assert run_ids(to, "text-orders-2*") == [newest]
