"""However little a user may know of a table's layout, every row comes exactly once."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from long_tests import OTHER_ROUTES, also
from oracle import expected as oracle_expected
from oracle.leg import Account, OracleLeg
from oracle_server import Fault
from oracle_server.model import Column, Type
from processes import command

ID = Column(name="ID", type=Type(name="NUMBER", precision=9, scale=0), nullable=False)
GROUP = Column(name="GROUP_NO", type=Type(name="NUMBER", precision=4, scale=0))
FILLER = Column(name="FILLER", type=Type(name="VARCHAR2", length=200))
COLUMNS = (ID, GROUP, FILLER)
ROWS = 3000
RANGES = ("--split", "range", "--unit-bytes", "128KiB")

HEAP = ""
SKEWED = (
    "PARTITION BY RANGE (ID) (PARTITION P_SMALL VALUES LESS THAN (100), "
    f"PARTITION P_LARGE VALUES LESS THAN ({ROWS}), PARTITION P_EMPTY VALUES LESS THAN (MAXVALUE))"
)
SUBPARTITIONED = (
    "PARTITION BY LIST (GROUP_NO) SUBPARTITION BY HASH (ID) ("
    "PARTITION P_A VALUES (0, 1) (SUBPARTITION P_A_1, SUBPARTITION P_A_2), "
    "PARTITION P_B VALUES (DEFAULT) (SUBPARTITION P_B_1, SUBPARTITION P_B_2, SUBPARTITION P_B_3))"
)
LAYOUTS = {"HEAP_ROWS": HEAP, "SKEWED_ROWS": SKEWED, "SUB_ROWS": SUBPARTITIONED}


def _rows(count: int = ROWS) -> Iterable[tuple[Any, ...]]:
    return ((n, n % 5, f"row {n} {'.' * 150}") for n in range(count))


def _create(oracle: OracleLeg, name: str, tail: str, account: Account | None = None) -> None:
    oracle.create(name, COLUMNS, tail=tail, account=account)
    oracle.load(name, COLUMNS, _rows(), account=account)


def _json(account: Account | OracleLeg, verb: str, table: str, *options: str) -> dict[str, Any]:
    """Return what describe or plan says."""
    text = command.run(
        verb, account.url, "--table", table, *options, "--json", env=account.environment
    )
    found: dict[str, Any] = json.loads(text)
    return found


def _run(account: Account | OracleLeg, table: str, to: Path, *options: str) -> dict[str, Any]:
    """Unload with two workers; return the manifest."""
    command.run(
        "run", account.url, "--table", table, "--to", str(to), "--parallelism", "2",
        "--progress", "none", *options, env=account.environment,
    )  # fmt: skip
    return command.manifest_of(to)


def _ids(to: Path, place: int = 0) -> list[int]:
    """Return a column of numbers of all files of a run, sorted."""
    found = []
    for file in to.glob("*.csv"):
        _, *records = oracle_expected.csv_records(file.read_text())
        found += [int(record[place] or -1) for record in records]
    return sorted(found)


def _grants(description: dict[str, Any]) -> str:
    return "\n".join(description["missing_privileges"])


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.parametrize(
    ("rights", "origin"),
    [((), "SAMPLE BLOCK"), *also(OTHER_ROUTES, (("SELECT ON SYS.DBA_EXTENTS",), "DBA_EXTENTS"))],
    ids=["sample", "extents"],
)
def test_ranges_of_rowids_have_each_row_once(
    oracle: OracleLeg, tmp_path: Path, rights: tuple[str, ...], origin: str
) -> None:
    """A heap, a skewed partition and sub-partitions are cut by either source of addresses."""
    user = oracle.user(*rights)
    for name, tail in LAYOUTS.items():
        _create(oracle, name, tail, user)
    oracle.settle()
    for name in LAYOUTS:
        manifest = _run(user, name, tmp_path / name, *RANGES)
        assert _ids(tmp_path / name) == list(range(ROWS)), name
    plan = _json(user, "plan", name, "--parallelism", "2", *RANGES)
    assert plan["plan"]["table"]["ranges_from"] == origin
    assert sum("ROWID >= CHARTOROWID(" in sql for sql in plan["statements"].values()) >= 2
    assert len(manifest["units"]) == len(plan["statements"])
    parts = {unit["partition"] for unit in manifest["units"]}
    assert {"P_A/P_A_1", "P_B/P_B_3"} <= parts
    description = _json(user, "describe", "SKEWED_ROWS")
    assert description["ranges_from"] == origin
    grant = f"GRANT SELECT ON SYS.DBA_EXTENTS TO {user.name}"
    assert (grant in _grants(description)) == (origin != "DBA_EXTENTS")
    assert f"GRANT SELECT ON SYS.V_$DATABASE TO {user.name}" in _grants(description)


def test_partitions_alone(oracle: OracleLeg, tmp_path: Path) -> None:
    """Where blocks cannot even be sampled, partitions and sub-partitions are units as they are."""
    database = oracle.database
    _create(oracle, "SUB_ROWS", SUBPARTITIONED)
    database.privileges.revoke(oracle.schema, "DBA_EXTENTS")
    assert oracle.server is not None
    refusal = Fault(kind="ora-01031", statement="SAMPLE BLOCK", times=None)
    oracle.server.faults.add(refusal)
    description = _json(oracle, "describe", "SUB_ROWS")
    assert description["ranges_from"] is None
    assert "only whole partitions are read" in _grants(description)
    manifest = _run(oracle, "SUB_ROWS", tmp_path / "out")
    assert _ids(tmp_path / "out") == list(range(ROWS))
    parts = [unit["partition"] for unit in manifest["units"]]
    assert sorted(parts) == ["P_A/P_A_1", "P_A/P_A_2", "P_B/P_B_1", "P_B/P_B_2", "P_B/P_B_3"]


def test_views_and_synonyms(oracle: OracleLeg, tmp_path: Path) -> None:
    """A view is read as a whole; a synonym as its table, with partitions."""
    _create(oracle, "SKEWED_ROWS", SKEWED)
    oracle.view("EVEN_ROWS", "SELECT ID, FILLER FROM SKEWED_ROWS WHERE MOD(ID, 2) = 0")
    oracle.synonym("OTHER_NAME", '"SKEWED_ROWS"')
    manifest = _run(oracle, "EVEN_ROWS", tmp_path / "view")
    assert _ids(tmp_path / "view") == list(range(0, ROWS, 2))
    assert [unit["partition"] for unit in manifest["units"]] == [None]
    manifest = _run(oracle, "OTHER_NAME", tmp_path / "synonym")
    assert manifest["table"] == {"schema": oracle.schema, "name": "SKEWED_ROWS"}
    assert _ids(tmp_path / "synonym") == list(range(ROWS))
    assert {unit["partition"] for unit in manifest["units"]} >= {"P_SMALL", "P_LARGE"}


@pytest.mark.long(OTHER_ROUTES)
def test_a_plan_is_run_as_it_was_made(oracle: OracleLeg, tmp_path: Path) -> None:
    """`run plan.json` reads the planned units; a partition truncated since then is refused."""
    _create(oracle, "SKEWED_ROWS", SKEWED)
    file, to = tmp_path / "plan.json", tmp_path / "out"
    command.run(
        "plan", oracle.url, "--table", "SKEWED_ROWS", "--to", str(to), "--parallelism", "2",
        *RANGES, "--output", str(file), env=oracle.environment,
    )  # fmt: skip
    plan = json.loads(file.read_text())
    assert "tiger" not in file.read_text()
    command.run("run", str(file), "--progress", "none", env=oracle.environment)
    manifest = command.manifest_of(to)
    assert manifest["plan"]["digest"] == plan["plan"]["digest"]
    assert {unit["id"] for unit in manifest["units"]} == set(plan["statements"])
    assert _ids(to) == list(range(ROWS))
    oracle.run('ALTER TABLE "SKEWED_ROWS" TRUNCATE PARTITION P_LARGE')
    error = command.error_of(
        "run", str(file), "--overwrite", "--progress", "none", status=5, env=oracle.environment
    )
    assert "the plan no longer fits the table" in error
    assert _ids(to) == list(range(ROWS))


@pytest.mark.long(OTHER_ROUTES)
def test_index_organized_table_is_cut_by_keys(oracle: OracleLeg, tmp_path: Path) -> None:
    """Ranges of the primary key have each row once, though several rows share the first column."""
    columns = (Column(name="REGION", type=GROUP.type, nullable=False), ID, FILLER)
    oracle.create("BY_KEY", columns, key=("REGION", "ID"), tail="ORGANIZATION INDEX")
    oracle.load("BY_KEY", columns, ((n % 40, n, f"row {n} {'.' * 99}") for n in range(ROWS)))
    oracle.gather("BY_KEY")
    plan = _json(oracle, "plan", "BY_KEY", "--split", "range", "--unit-bytes", "64KiB")
    assert plan["plan"]["table"]["ranges_from"] == "SAMPLE of key REGION"
    assert sum('"REGION" >= ' in sql for sql in plan["statements"].values()) >= 2
    manifest = _run(oracle, "BY_KEY", tmp_path / "out", "--split", "range", "--unit-bytes", "64KiB")
    assert len(manifest["units"]) == len(plan["statements"])
    assert _ids(tmp_path / "out", 1) == list(range(ROWS))
