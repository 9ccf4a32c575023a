"""Tables of one run are as of one moment, in PostgreSQL and Oracle."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from long_tests import OTHER_ROUTES
from oracle import expected as oracle_expected
from oracle.leg import OracleLeg
from oracle_server.model import Column, Type
from processes import command
from several_tables import requests_of, unload

from unloader.events import Event, PhaseStarted, UnitFinished
from unloader.model import SecretReference, SourceSpec

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


ID = Column(name="ID", type=Type(name="NUMBER", precision=9, scale=0), nullable=False)
NOTE = Column(name="NOTE", type=Type(name="VARCHAR2", length=40))
FILE = Column(name="FILE_AT", type=Type(name="BFILE"))


def test_tables_that_match_are_unloaded_at_one_scn(oracle: OracleLeg, tmp_path: Path) -> None:
    """Letters of patterns are read in capitals; each table has its own rows."""
    user = oracle.user()
    for number, name in enumerate(("NIGHT_ONE", "NIGHT_TWO", "NIGHT_OLD", "DAY")):
        oracle.create(name, (ID, NOTE), account=user)
        rows = ((n, f"{name} {n}") for n in range(10 * number + 5))
        oracle.load(name, (ID, NOTE), rows, account=user)
    oracle.create("NIGHT_FILES", (ID, FILE), account=user)
    oracle.settle()
    options = ("--table", "night_*", "--exclude-table", "*_old", "--progress", "none")
    place = f"{tmp_path}/out/{{schema}}/{{table}}"
    error = command.error_of(
        "run", user.url, *options, "--table", "nobody.at_all", "--to", place, status=4,
        env=user.environment,
    )  # fmt: skip
    assert "2 of 4 tables cannot be unloaded" in error
    assert f"{user.name}.NIGHT_FILES: column FILE_AT has the type BFILE" in error
    assert "nobody.at_all" in error
    assert not (tmp_path / "out").exists()
    text = command.run(
        "run", user.url, *options, "--exclude", "FILE_AT", "--to", place, "--json",
        env=user.environment,
    )  # fmt: skip
    found = json.loads(text)
    assert {each["table"]["name"]: each["rows"] for each in found["tables"]} == {
        "NIGHT_FILES": 0, "NIGHT_ONE": 5, "NIGHT_TWO": 15,
    }  # fmt: skip
    assert found["snapshot"]["kind"] == "scn"
    for name, count in (("NIGHT_ONE", 5), ("NIGHT_TWO", 15)):
        directory = tmp_path / "out" / user.name / name
        assert command.manifest_of(directory)["snapshot"] == found["snapshot"]
        (file,) = directory.glob("*.csv")
        _, *records = oracle_expected.csv_records(file.read_text())
        assert sorted(records) == sorted([str(n), f"{name} {n}"] for n in range(count))


def test_rights_on_tables_of_others_are_told_with_the_grants(
    oracle: OracleLeg, tmp_path: Path
) -> None:
    """A table that may be read, but not as of an SCN, is reported before anything is read."""
    owner, reader = oracle.user(), oracle.user()
    oracle.create("SHARED", (ID,), account=owner)
    oracle.run(f'GRANT SELECT ON "SHARED" TO "{reader.name}"', account=owner)
    oracle.settle()
    done = command.ended(
        "run", reader.url, "--table", f"{owner.name}.*", "--to", f"{tmp_path}/{{table}}", "--json",
        env=reader.environment,
    )  # fmt: skip
    assert done.returncode == 4
    error = json.loads(done.stdout)["error"]
    assert error["script"] == (f'GRANT FLASHBACK ON "{owner.name}"."SHARED" TO "{reader.name}";\n')
    assert "may not read it as of an SCN" in error["message"]
