"""Versions of the driver, and the check that tells exact ones from others."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from long_tests import OTHER_ROUTES, also
from oracle.expected import expected, plain
from oracle.runs import CSV, PARQUET, Natives, Run, create
from oracle_server.database import Database
from oracle_server.model import Column, Moment, Type
from oracle_server.server import OracleServer

from unloader.sources.oracle.arrow import arrow_batches, batch_of, tuple_batches
from unloader.sources.oracle.session import Session
from unloader.sources.oracle.statement import arrow_is_exact, driver_warning, fetch_plan

POOLS: dict[str, tuple[str, Type, tuple[Any, ...]]] = {
    "I": ("NUMBER(9)", Type(name="NUMBER", precision=9, scale=0), (7, 7, None, -1, 0)),
    "L": ("NUMBER(18)", Type(name="NUMBER", precision=18, scale=0), (10**17, None, -(10**17))),
    "M": (
        "NUMBER(20,5)",
        Type(name="NUMBER", precision=20, scale=5),
        (Decimal("0.00001"), Decimal("-999999999999999.99999"), None, Decimal("12.5")),
    ),
    "F": ("BINARY_DOUBLE", Type(name="BINARY_DOUBLE"), (0.1, None, float("inf"))),
    "V": (
        "VARCHAR2(20 CHAR)",
        Type(name="VARCHAR2", length=20, in_chars=True),
        ("", "same", "same", None, "ü🦆"),
    ),
    "N": ("NVARCHAR2(20)", Type(name="NVARCHAR2", length=20, in_chars=True), ("same", None, "ü🦆")),
    "C": ("CHAR(4 BYTE)", Type(name="CHAR", length=4), ("a   ", None, "bbbb")),
    "R": ("RAW(4)", Type(name="RAW", length=4), (b"\x00", None, b"\xff\xff\xff\xff")),
    "D": (
        "DATE",
        Type(name="DATE"),
        (Moment(2024, 2, 29), None, Moment(1, 1, 1), Moment(9999, 12, 31, 23, 59, 59)),
    ),
    "T": (
        "TIMESTAMP(6)",
        Type(name="TIMESTAMP", scale=6),
        (Moment(2024, 2, 29), None, Moment(1969, 12, 31, 23, 59, 59, 999_999_000)),
    ),
    "Z": (
        "TIMESTAMP(6) WITH TIME ZONE",
        Type(name="TIMESTAMP WITH TIME ZONE", scale=6),
        (Moment(2024, 2, 29, 1, 0, 0, 0, "+01:00"), None),
    ),
}
"""Column name to its type and a few values, some of them NULL, which rows repeat."""
RUNS = (1, 2, 3, 4, 7, 8, 500, 1001)
"""How often a value is repeated before the next one comes."""


@pytest.fixture(scope="module")
def server() -> Iterator[OracleServer]:
    """A server with the user SCOTT and no tables."""
    database = Database()
    database.add_user("SCOTT", "tiger")
    with OracleServer(database) as running:
        yield running


def repeating(run: int, count: int) -> list[tuple[Any, ...]]:
    columns = [
        [pool[(row + at) // run % len(pool)] or None for row in range(count)]
        if name == "V"
        else [pool[(row + at) // run % len(pool)] for row in range(count)]
        for at, (name, (_, _, pool)) in enumerate(POOLS.items())
    ]
    return list(zip(*columns, strict=True))


@pytest.mark.parametrize("size", [1, 3, *also(OTHER_ROUTES, 2, 7, 1000)])
def test_both_ways_of_fetching_give_what_the_server_has(
    server: OracleServer, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values, NULLs and rows that repeat on both sides of every batch's end are all there.

    Servers send a repeated value once. Versions of the driver have lost rows over that, or made
    other values of them; this is the check that `VERIFIED` names the result of.
    """
    monkeypatch.setenv("UNLOADER_PASSWORD", "tiger")
    natives: Natives = {name: (native, kind) for name, (native, kind, _) in POOLS.items()}
    count = 2 * size + 51 if size > 7 else 40
    for run in RUNS if size > 7 else RUNS[:6]:
        rows = repeating(run, count)
        create(server, natives, rows)
        for target in (CSV, PARQUET):
            reading = Run(server, natives, target=target)
            plan = fetch_plan(reading.extract)
            items = ", ".join(item.expression for item in plan.items)
            for fetch in (arrow_batches, tuple_batches):
                session = Session(reading.spec, action="check")
                sql = f"SELECT {items} FROM SCOTT.T"
                batches = [
                    batch_of(plan, reading.schema, b)
                    for b in fetch(session.connection, sql, plan, size)
                ]
                session.close()
                table = pa.Table.from_batches(batches, schema=reading.schema).combine_chunks()
                for index, (name, (_, kind)) in enumerate(natives.items()):
                    array = table.column(name).chunk(0)
                    column = Column(name=name, type=kind)
                    wanted = [expected(column, array.type, row[index]) for row in rows]
                    assert plain(array) == wanted, (fetch.__name__, name, run)


@pytest.mark.parametrize("version", ["26.1.0", "26.1.3", "26.1"])
def test_exact_drivers_are_used_in_silence(version: str) -> None:
    """A version that passed the cross-check gives its Arrow batches, without a word."""
    assert arrow_is_exact(version)
    assert driver_warning(version) is None


@pytest.mark.parametrize("version", ["4.0.1", "26.0.0", "26.2.0", "27.0.0b1"])
def test_other_drivers_are_named(version: str) -> None:
    """Versions that lost rows, and the ones that no one checked, are named with a way out."""
    assert not arrow_is_exact(version)
    warning = driver_warning(version)
    assert warning is not None
    assert version in warning
    assert "pip install" in warning
