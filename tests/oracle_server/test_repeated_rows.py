"""Tables whose rows come again and again: what a client fetches of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import oracledb
import pytest
from oracle_server.data.tables import PartitionSpec, RepeatedRows, Row
from oracle_server.database import Database
from oracle_server.model import Column, Type
from oracle_server.samples.tables import furnished
from oracle_server.server import OracleServer
from oracle_server.wire.row_replies import SMALL_ROWS

TURNS = 5
COLUMNS = (
    Column(name="N", type=Type(name="NUMBER", precision=9, scale=0)),
    Column(name="T", type=Type(name="VARCHAR2", length=10)),
)
PARTS: dict[str, list[Row]] = {
    # The last row of a turn and the first one of the next differ in one column, or in none.
    "P1": [(number // 3, "same" if number % 7 else None) for number in range(SMALL_ROWS)],
    "P2": [(0, None), (0, None)],
    "P3": [(number, str(number)) for number in range(10)],
}


def laid_down(db: Database, name: str, *, again: bool) -> None:
    """Make the table: of a turn that is repeated, or of all its rows."""
    table = db.create_table(
        "SCOTT",
        name,
        columns=COLUMNS,
        partitions=tuple(PartitionSpec(name=part) for part in PARTS),
        partition_key=("N",),
        rows_per_block=4,
        blocks_per_extent=8,
    )
    bases = [RepeatedRows(rows, TURNS) if again else rows * TURNS for rows in PARTS.values()]
    db.lay_down(table, bases)


@pytest.fixture(scope="module")
def connection() -> Iterator[oracledb.Connection]:
    """A connection to a server that has both tables."""
    database = furnished(Database())
    laid_down(database, "TURNS", again=True)
    laid_down(database, "ROWS_OF_TURNS", again=False)
    with (
        OracleServer(database) as server,
        oracledb.connect(user="scott", password="tiger", dsn=server.dsn) as connection,
    ):
        yield connection


def fetched(connection: oracledb.Connection, sql: str, rows: int) -> list[Any]:
    """Return the rows of a query, so many from each reply."""
    with connection.cursor() as cursor:
        cursor.arraysize, cursor.prefetchrows = rows, 0
        return list(cursor.execute(sql))


@pytest.mark.parametrize("rows", [1, 3, 999, 100_000])
@pytest.mark.parametrize("part", ["", " PARTITION (P1)", " PARTITION (P2)", " PARTITION (P3)"])
def test_the_rows_are_those_of_a_table_that_has_them_all(
    connection: oracledb.Connection, part: str, rows: int
) -> None:
    """However many come in a reply, turns end where they will."""
    if rows == 1 and part != " PARTITION (P3)":
        rows = 7
    found = fetched(connection, f"SELECT * FROM turns{part}", rows)
    assert found == fetched(connection, f"SELECT * FROM rows_of_turns{part}", rows)
    asked = fetched(connection, f"SELECT COUNT(*) FROM turns{part}", 1)
    assert asked == [(len(found),)]
