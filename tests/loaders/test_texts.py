"""Programs load hostile texts by the commands of docs/dialects.md, and have every value and null."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import packages_apart
import pytest
from loading.programs import Row, blocks, in_python
from processes import command

BLOCKS = blocks()
LIBRARIES = {"ClickHouse": "chdb", "DuckDB": "duckdb", "pandas": "pandas"}
UNTRIED = {"Programs that no test runs", "Traps"}
NULL_IS_EMPTY = "sqlite3"
"""The program that has no null to read."""


def _loader(name: str, request: pytest.FixtureRequest) -> Callable[[list[str]], list[Row]]:
    program = name.split()[0]
    fixture = {"PostgreSQL": "psql", "MariaDB": "mariadb", "sqlite3": "sqlite3"}.get(program)
    if fixture is not None:
        loaded: Callable[[list[str]], list[Row]] = request.getfixturevalue(fixture).loaded
        return loaded
    try:
        return in_python(LIBRARIES.get(program, program))
    except packages_apart.Missing as missing:
        pytest.skip(f"no {program}: {missing}")


def test_the_page_has_commands():
    """Each program of the section is one that the test below knows."""
    assert len(BLOCKS) > 12
    assert all(BLOCKS[name] for name in BLOCKS.keys() - {"Traps"})


@pytest.mark.parametrize("name", sorted(BLOCKS.keys() - UNTRIED))
def test_every_text_comes_back(
    name: str,
    request: pytest.FixtureRequest,
    source: str,
    rows: list[Row],
    place: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Cell by cell, with null and the empty text apart where the program knows a null."""
    monkeypatch.chdir(tmp_path)
    loaded = _loader(name, request)
    destination = place / name.replace(" ", "-")
    unload, *load = [
        text.replace("SOURCE", source).replace("DEST", str(destination)) for text in BLOCKS[name]
    ]
    command.run(*shlex.split(unload)[1:], "--verify", "full", "--quiet")
    # A line with more indentation continues the one before.
    found = loaded([text.replace("\n  ", " ") for text in load])
    expected: list[Any] = list(rows)
    if name.startswith(NULL_IS_EMPTY):
        expected = [(number, first or "", second or "") for number, first, second in rows]
    assert sorted(map(_key, found)) == sorted(map(_key, expected))


def _key(row: Row) -> tuple[Any, ...]:
    return tuple((value is not None, value) if value is not None else (False, "") for value in row)
