"""Tables of one run are as of one moment, although rows are committed to all of them meanwhile."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from long_tests import OTHER_ROUTES
from oracle_server.model import Column, Type
from several_tables import requests_of, unload

from unloader.events import Event, PhaseStarted, UnitFinished
from unloader.model import SecretReference, SourceSpec

if TYPE_CHECKING:
    from oracle.leg import OracleLeg

PARENTS, CHILDREN = 300, 2_000
NEW = 100_000
"""From here on are the ids of rows that come while the run continues."""

PARENT_ROWS = [(number, 1_000) for number in range(PARENTS)]
CHILD_ROWS = [(number, number % PARENTS, 1_000) for number in range(CHILDREN)]


def changes(number: int) -> tuple[str, ...]:
    """Return a transaction: a child with its parent, an amount that moves, a row that goes."""
    return (
        f"INSERT INTO parents VALUES ({NEW + number}, 0)",
        f"INSERT INTO children VALUES ({NEW + number}, {NEW + number}, 0)",
        f"UPDATE parents SET amount = amount - 7 WHERE id = {number % PARENTS}",
        f"UPDATE children SET amount = amount + 7 WHERE id = {number % CHILDREN}",
        f"DELETE FROM children WHERE id = {CHILDREN - 1 - number}",
    )


def check(source: SourceSpec, commit: Callable[[tuple[str, ...]], None], out: Path) -> None:
    """Unload both tables, commit changes of both before each unit, and compare every row."""
    committed = 0

    def watch(event: Event) -> None:
        nonlocal committed
        begins = isinstance(event, PhaseStarted) and event.phase == "unloading"
        if begins or isinstance(event, UnitFinished):
            commit(changes(committed))
            committed += 1

    unload(requests_of(source, f"{out}/{{table}}", ["parents", "children"]), observe=watch)
    # Each of them is in both tables by now.
    assert committed > 2
    found = {
        place.name.lower(): sorted(
            tuple(map(int, row))
            for file in place.glob("*.csv")
            for row in list(csv.reader(file.read_text().splitlines()))[1:]
        )
        for place in out.iterdir()
        if place.is_dir()
    }
    assert found == {"parents": PARENT_ROWS, "children": CHILD_ROWS}


def test_tables_of_postgres(postgres: Any, tmp_path: Path) -> None:
    """With a foreign key between them."""
    url = postgres.database("one_moment")
    postgres.run(
        "CREATE TABLE parents (id int PRIMARY KEY, amount int); CREATE TABLE children (id int "
        "PRIMARY KEY, parent int REFERENCES parents (id), amount int); "
        f"INSERT INTO parents SELECT g, 1000 FROM generate_series(0, {PARENTS - 1}) g; "
        f"INSERT INTO children SELECT g, g % {PARENTS}, 1000 FROM "
        f"generate_series(0, {CHILDREN - 1}) g; ANALYZE",
        url=url,
    )
    check(
        SourceSpec(kind="postgresql", location=url),
        lambda statements: postgres.run(f"BEGIN; {'; '.join(statements)}; COMMIT", url=url),
        tmp_path / "out",
    )


@pytest.mark.long(OTHER_ROUTES)
def test_tables_of_oracle(
    oracle: OracleLeg, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By one SCN."""
    number = Type(name="NUMBER", precision=9, scale=0)
    names = {"PARENTS": ("ID", "AMOUNT"), "CHILDREN": ("ID", "PARENT", "AMOUNT")}
    for (name, columns), rows in zip(names.items(), (PARENT_ROWS, CHILD_ROWS), strict=True):
        made = tuple(Column(name=each, type=number, nullable=False) for each in columns)
        oracle.create(name, made, key=("ID",))
        oracle.load(name, made, rows)
    for name, value in oracle.environment.items():
        monkeypatch.setenv(name, value)
    secret = SecretReference(kind="environment", name="UNLOADER_PASSWORD")
    with oracle.writer() as writer:

        def commit(statements: tuple[str, ...]) -> None:
            for each in statements:
                writer.run(each)
            writer.commit()

        source = SourceSpec(kind="oracle", location=oracle.url, secret=secret)
        check(source, commit, tmp_path / "out")
