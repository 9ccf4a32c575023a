"""Random tables fetched natively and by the driver, cell by cell.

`UNLOADER_TEST_FETCH_ROWS=10000000` tries as many rows; each table has 20,000.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from amounts import amount
from oracle.runs import Natives, Run, create
from oracle_server.database import Database
from oracle_server.model import Moment, Type
from oracle_server.server import OracleServer

from unloader.sources.oracle.native import decoder
from writers import built_library

pytestmark = pytest.mark.skipif(
    built_library.reason(decoder.library) is not None,
    reason=f"the native fetch cannot be used: {built_library.reason(decoder.library)}",
)

ROWS = amount("UNLOADER_TEST_FETCH_ROWS", 40_000, 100_000)
TABLE_ROWS = 20_000
LETTERS = "abcXYZ 0123456789,;\"'\n\täöüß€漢字😀"

Maker = Callable[[random.Random], Any]


def number(precision: int, scale: int) -> tuple[str, Type, Maker]:
    """Return a NUMBER(p,s) and what makes its values, short ones more often."""

    def make(chance: random.Random) -> Decimal:
        digits = chance.choice((1, 2, precision, chance.randint(1, precision)))
        whole = chance.choice((1, -1)) * chance.randrange(10**digits)
        return Decimal(f"{whole}E-{scale}")

    kind = Type(name="NUMBER", precision=precision, scale=scale)
    return f"NUMBER({precision},{scale})", kind, make


def moment(places: int | None) -> tuple[str, Type, Maker]:
    def make(chance: random.Random) -> Moment:
        nanos = 0
        if places:
            nanos = chance.choice((0, chance.randrange(10**places))) * 10 ** (9 - places)
        day = (chance.choice((1, 1999, 9999, chance.randint(1, 9999))), chance.randint(1, 12))
        clock = (chance.randrange(24), chance.randrange(60), chance.randrange(60))
        return Moment(*day, chance.randint(1, 28), *clock, nanos)

    if places is None:
        return "DATE", Type(name="DATE"), make
    return f"TIMESTAMP({places})", Type(name="TIMESTAMP", scale=places), make


def text(most: int) -> Maker:
    return lambda chance: "".join(
        chance.choices(LETTERS, k=chance.choice((1, 3, chance.randint(1, most))))
    )


def binary(most: int) -> Maker:
    """Return what makes bytes."""
    return lambda chance: chance.randbytes(chance.choice((1, most, chance.randint(1, most))))


def real(chance: random.Random) -> float:
    """Return a number that single precision holds, too."""
    return chance.choice((0.0, -1.5, chance.randint(-(2**24), 2**24) / 2 ** chance.randrange(20)))


KINDS: list[tuple[str, Type, Maker]] = [
    *(number(p, s) for p, s in ((9, 0), (18, 0), (12, 2), (20, 5), (38, 0), (38, 9), (5, 5))),
    *(moment(places) for places in (None, 0, 3, 6)),
    ("VARCHAR2(300)", Type(name="VARCHAR2", length=300), text(60)),
    ("VARCHAR2(4000)", Type(name="VARCHAR2", length=4000), text(900)),
    ("NVARCHAR2(90)", Type(name="NVARCHAR2", length=90, in_chars=True), text(40)),
    ("RAW(600)", Type(name="RAW", length=600), binary(600)),
    ("BINARY_DOUBLE", Type(name="BINARY_DOUBLE"), real),
    ("BINARY_FLOAT", Type(name="BINARY_FLOAT"), real),
]


def rows_of(chance: random.Random, makers: list[Maker]) -> list[tuple[Any, ...]]:
    """Return rows in which values, NULLs and whole rows repeat by chance."""
    pools = [[make(chance) for _ in range(chance.choice((1, 3, 200)))] for make in makers]
    for pool in pools:
        if chance.random() < 0.6:
            pool += [None] * chance.randint(1, len(pool))
    some = [tuple(chance.choice(pool) for pool in pools) for _ in range(2_000)]
    rows: list[tuple[Any, ...]] = []
    while len(rows) < TABLE_ROWS:
        rows += [chance.choice(some)] * chance.choice((1, 1, 1, 2, 7))
    return rows[:TABLE_ROWS]


@pytest.mark.parametrize("mode", ["23ai", "19c"])
def test_both_ways_give_the_same(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For any columns, values, repeats and sizes of batches."""
    monkeypatch.setenv("UNLOADER_PASSWORD", "tiger")
    chance = random.Random(f"{mode} {ROWS}")
    database = Database(version=mode)
    database.add_user("SCOTT", "tiger")
    with OracleServer(database, mode=mode) as server:
        for _ in range(ROWS // 2 // TABLE_ROWS):
            chosen = [chance.choice(KINDS) for _ in range(chance.randint(1, 12))]
            columns: Natives = {
                f"C{at}": (native, kind) for at, (native, kind, _) in enumerate(chosen)
            }
            create(server, columns, rows_of(chance, [make for _, _, make in chosen]))
            size = chance.choice((20_000, 300_000, 4_000_000))
            run = Run(server, columns, fetch="native")
            natively = run.table(size)
            assert run.again == 0, columns
            assert natively.num_rows == TABLE_ROWS
            assert natively.equals(Run(server, columns, fetch="arrow").table(size)), columns
