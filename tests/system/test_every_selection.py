"""No way of running loses a selection: rows are counted by another program.

Each pair of a source, selection, split, file layout, format, kind of destination and form of the
request is tried; each pair on each source with UNLOADER_TEST_SELECTIONS=pairs, and all combinations
with UNLOADER_TEST_SELECTIONS=all.
"""

from __future__ import annotations

import importlib
import json
import os
import sqlite3
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any

import click
import duckdb
import pytest
from oracle import leg as oracle_leg
from oracle_server.model import Column, Type
from processes import command
from routes import selections
from routes.selections import BY_PARTITION, REGIONS, ROWS, SELECTIONS, Selection, Way

TRIED = os.environ.get("UNLOADER_TEST_SELECTIONS", "")
WITH_PARTITIONS = (*SELECTIONS, *BY_PARTITION)
ON_SOURCE = {
    "duckdb": WITH_PARTITIONS,
    "postgresql": WITH_PARTITIONS,
    "sqlite": tuple(SELECTIONS),
    "oracle": ("all", "columns where", "filter", "limit where", *BY_PARTITION),
}
CREATE = "CREATE TABLE t (id INTEGER, name VARCHAR(20), k INTEGER, region VARCHAR(10))"


def _duckdb(path: Path) -> str:
    with duckdb.connect(str(path)) as database:
        database.execute(CREATE)
        database.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", [list(row) for row in ROWS])
        database.execute(
            "CREATE TABLE unloader_partitions AS SELECT 'main' AS table_schema, 't' AS table_name, "
            "region AS partition_name, min(rowid) AS position, min(rowid) AS first_rowid, "
            "max(rowid) AS last_rowid FROM t GROUP BY region"
        )
    return f"duckdb://{path}"


def _sqlite(path: Path) -> str:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(CREATE)
        database.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", ROWS)
    return f"sqlite://{path}"


def _postgresql(postgres: Any) -> str:
    url: str = postgres.database("every_selection")
    parts = "".join(
        f"CREATE TABLE {region} PARTITION OF t FOR VALUES IN ('{region}')"
        f"{' PARTITION BY LIST (k)' if region == 'north' else ''};"
        for region in REGIONS
    )
    rows = ", ".join(f"({n}, '{name}', {k}, '{region}')" for n, name, k, region in ROWS)
    postgres.run(
        f"{CREATE} PARTITION BY LIST (region); {parts}"
        "CREATE TABLE north_seven PARTITION OF north FOR VALUES IN (7);"
        "CREATE TABLE north_other PARTITION OF north DEFAULT;"
        f"INSERT INTO t VALUES {rows}; ANALYZE t",
        url=url,
    )
    return url


def _oracle(leg: oracle_leg.OracleLeg) -> str:
    kinds = (
        Type(name="NUMBER", precision=9, scale=0),
        Type(name="VARCHAR2", length=20),
        Type(name="NUMBER", precision=2, scale=0),
        Type(name="VARCHAR2", length=10),
    )
    columns = tuple(
        Column(name=name.upper(), type=kind)
        for name, kind in zip(selections.COLUMNS, kinds, strict=True)
    )
    parts = ", ".join(
        f"PARTITION {region.upper()} VALUES ('{region}') "
        f"(SUBPARTITION {region.upper()}_1, SUBPARTITION {region.upper()}_2)"
        for region in REGIONS
    )
    leg.create("T", columns, tail=f"PARTITION BY LIST (REGION) SUBPARTITION BY HASH (ID) ({parts})")
    leg.load("T", columns, ROWS)
    leg.settle()
    return leg.url


@pytest.fixture(scope="module")
def sources(
    tmp_path_factory: pytest.TempPathFactory, postgres: Any
) -> Iterator[Mapping[str, tuple[str, dict[str, str]]]]:
    """The same table on each source: its URL, and what a process needs to log in."""
    folder = tmp_path_factory.mktemp("sources")
    with oracle_leg.opened("23ai") as leg:
        yield {
            "duckdb": (_duckdb(folder / "t.duckdb"), {}),
            "sqlite": (_sqlite(folder / "t.sqlite"), {}),
            "postgresql": (_postgresql(postgres), {}),
            "oracle": (_oracle(leg), leg.environment),
        }


def _cases() -> Iterator[Any]:
    every = {
        source: [
            {"source": source, **way}
            for way in selections.ways(names, partitions=source != "sqlite")
        ]
        for source, names in ON_SOURCE.items()
    }
    groups = every.values() if TRIED else [list(chain.from_iterable(every.values()))]
    for group in groups:
        for way in group if TRIED == "all" else selections.covering(group, 2):
            yield pytest.param(way, id="-".join(way.values()))


@pytest.mark.long("selections")
@pytest.mark.parametrize("way", tuple(_cases()))
def test_a_selection_survives(
    sources: Mapping[str, tuple[str, dict[str, str]]], tmp_path: Path, way: Way
) -> None:
    """Just the rows and columns asked for come out, as DuckDB or sqlite3 would choose them."""
    url, login = sources[way["source"]]
    selection = {**SELECTIONS, **BY_PARTITION}[way["selection"]]
    arguments, variables = _call(url, selection, way, tmp_path, login)
    env = {**os.environ, **login, **variables}
    with ThreadPoolExecutor(1) as one:
        run = one.submit(command.ended_bytes, *arguments, env=env)
        received = _receive(run, way, tmp_path)
        done = run.result()
    assert done.returncode == 0, done.stderr.decode()
    if way["to"] == "stdout":
        (tmp_path / "stdout").write_bytes(done.stdout)
        received = [tmp_path / "stdout"]
    elif way["to"] in ("directory", "directories"):
        received = sorted((tmp_path / "out").rglob(f"[!_]*.{way['format']}"))
        counted = command.manifest_of(tmp_path / "out" / "1")["verified"]
        # The source counts the requested rows; a filter leaves rows out later.
        kept = counted["source_rows"] - (counted.get("filtered_rows") or 0)
        assert (counted["result"], kept) == ("ok", selection.count)
        if way["to"] == "directory":
            command.run("verify", str(tmp_path / "out" / "1"), url, "--quiet", env=login)
    names, rows = _read(received, way["format"])
    assert names == set(selection.columns)
    wanted = Counter(tuple(map(str, row)) for row in selection.rows)
    assert len(rows) == selection.count
    assert Counter(rows) <= wanted


def _call(
    url: str, selection: Selection, way: Way, folder: Path, login: dict[str, str]
) -> tuple[list[str], dict[str, str]]:
    """Return the arguments and the variables that ask for a selection."""
    asked = dict(selection.options)
    if "query" not in asked:
        asked["table"] = "t"
    how = ["--to", _to(way, folder), "--format", way["format"], "--parallelism", "1"]
    how += ["--split", way["split"], "--progress", "none"]
    how += ["--unit-bytes", "16kB"] if way["split"] == "range" else []
    how += ["--file-per", "table"] if way["file_per"] == "table" else []
    flags = [text for name, value in asked.items() for text in (f"--{name}", value)]
    if way["given"] == "arguments":
        return ["run", url, *flags, *how], {}
    if way["given"] == "variables":
        return ["run", url, *how], {
            f"UNLOADER_{name.upper().replace('-', '_')}": value for name, value in asked.items()
        }
    if way["given"] == "plan":
        plan = folder / "plan.json"
        command.run("plan", url, *flags, *how, "--output", str(plan), "--quiet", env=login)
        return ["run", str(plan)], {}
    job = folder / "job.toml"
    keys = {"source": url, **asked}
    job.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in keys.items()))
    return ["run", str(job), *how], {}


def _to(way: Way, folder: Path) -> str:
    places: Mapping[str, Callable[[], str]] = {
        "directory": lambda: str(folder / "out" / "1"),
        "directories": lambda: f"{folder / 'out' / '1'},{folder / 'out' / '2'}",
        "stdout": lambda: "-",
        "pipe": lambda: f"pipe:{folder}/pipe",
    }
    return places[way["to"]]()


def _receive(run: Future[Any], way: Way, folder: Path) -> list[Path]:
    """Read every named pipe that the run makes, until it ends; return the files of what came."""
    if way["to"] != "pipe":
        return []
    readers: dict[Path, threading.Thread] = {}

    def copy(pipe: Path) -> None:
        (folder / f"{pipe.name}.received").write_bytes(pipe.read_bytes())

    while not run.done():
        for path in folder.iterdir():
            if path not in readers and stat.S_ISFIFO(path.lstat().st_mode):
                readers[path] = threading.Thread(target=copy, args=(path,), daemon=True)
                readers[path].start()
        time.sleep(0.02)
    for reader in readers.values():
        reader.join(timeout=180)
    return [folder / f"{path.name}.received" for path in readers]


def _read(files: list[Path], form: str) -> tuple[set[str], list[tuple[str, ...]]]:
    """Return the names of the columns, and all rows as texts, as DuckDB reads them."""
    names: set[str] = set()
    rows: list[tuple[str, ...]] = []
    with duckdb.connect() as reader:
        for path in files:
            read = (
                f"read_parquet('{path}')"
                if form == "parquet"
                else f"read_csv('{path}', header = true, all_varchar = true, delim = ',')"
            )
            found = reader.sql(f"SELECT COLUMNS(*)::VARCHAR FROM {read}")
            names |= {name.lower() for name in found.columns}
            rows += found.fetchall()
    return names, rows


def test_every_selecting_option_is_in_the_table_of_selections() -> None:
    """Each new option that selects rows or columns must be added to this test."""
    run: click.Command = importlib.import_module("unloader.cli.commands.run").run
    declared = {
        option.opts[0].lstrip("-")
        for option in run.params
        if getattr(option, "group", "") == "Selection"
    }
    known = selections.SELECTING | selections.NOT_SELECTING | selections.OF_A_PLAN
    assert declared == known
    tried = {
        name for each in (*SELECTIONS.values(), *BY_PARTITION.values()) for name in each.options
    }
    assert tried | {"table"} == selections.SELECTING
