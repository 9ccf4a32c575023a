"""Tables to try an unloader on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from oracle_server.data.tables import PartitionSpec, Table
from oracle_server.database import Database
from oracle_server.model import Column, Moment, Type
from oracle_server.samples.reference import numbers_table, reference_table
from oracle_server.samples.types import long_tables, types_table

__all__ = [
    "MadeLob", "accounts_tables", "furnished", "iot_table", "lob_table", "long_tables", "names_table",
    "numbers_table", "reference_table", "sub_partitioned_table", "types_table",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class MadeLob:
    """The content of a large LOB, made when it is read.

    Every 16 characters or bytes are their own offset in sixteen decimal digits.
    """

    length: int
    binary: bool = False

    def read(self, offset: int, amount: int) -> str | bytes:
        """Return `amount` characters or bytes from `offset` on."""
        stop = min(offset + amount, self.length)
        first, last = offset // 16, (stop + 15) // 16
        text = "".join(f"{number * 16:016d}" for number in range(first, last))
        part = text[offset - first * 16 : stop - first * 16]
        return part.encode() if self.binary else part


def lob_table(
    db: Database, sizes: Sequence[int], *, owner: str = "SCOTT", name: str = "LOB_TABLE"
) -> Table:
    """Create (ID, NAME, C CLOB, B BLOB) with a row for each size; nothing of it is held."""
    columns = (
        Column(name="ID", type=Type(name="NUMBER", precision=10, scale=0), nullable=False),
        Column(name="NAME", type=Type(name="VARCHAR2", length=30)),
        Column(name="C", type=Type(name="CLOB")),
        Column(name="B", type=Type(name="BLOB")),
    )
    rows = [
        (number, f"size {size}", MadeLob(size), MadeLob(size, True))
        for number, size in enumerate(sizes, 1)
    ]
    return db.create_table(owner, name, columns=columns, rows=rows, rows_per_block=3)


def accounts_tables(db: Database, sizes: Sequence[int], *, owner: str = "SCOTT") -> list[Table]:
    """Create ACCOUNTS_00000 and so on, (ID, OWNER, BALANCE, PRICE, NAME) with these numbers of rows."""
    columns = (
        Column(name="ID", type=Type(name="NUMBER", precision=10, scale=0), nullable=False),
        Column(name="OWNER", type=Type(name="NUMBER", precision=5, scale=0)),
        Column(name="BALANCE", type=Type(name="NUMBER", precision=18, scale=0)),
        Column(name="PRICE", type=Type(name="NUMBER", precision=12, scale=2)),
        Column(name="NAME", type=Type(name="VARCHAR2", length=30)),
    )
    return [
        db.create_table(
            owner,
            f"ACCOUNTS_{number:05d}",
            columns=columns,
            rows=[
                (each, each % 100, 1000, Decimal(each) / 4, f"name {each}")
                for each in range(1, size + 1)
            ],
        )
        for number, size in enumerate(sizes)
    ]


def sub_partitioned_table(
    db: Database, rows: int = 600, *, owner: str = "SCOTT", name: str = "ORDERS"
) -> Table:
    """Create a table of three range partitions by date, each of four hash sub-partitions.

    Partition P_EMPTY has no rows.
    """
    columns = (
        Column(name="ID", type=Type(name="NUMBER", precision=10, scale=0), nullable=False),
        Column(name="ORDERED", type=Type(name="DATE"), nullable=False),
        Column(name="AMOUNT", type=Type(name="NUMBER", precision=12, scale=2)),
        Column(name="NOTE", type=Type(name="VARCHAR2", length=40)),
    )
    highs = {"P_2023": 2024, "P_2024": 2025, "P_EMPTY": 2026}
    partitions = tuple(
        PartitionSpec(
            name=part,
            subpartitions=tuple(f"{part}_S{n}" for n in range(1, 5)),
            high_value=f"TO_DATE(' {high}-01-01 00:00:00', 'SYYYY-MM-DD HH24:MI:SS', "
            "'NLS_CALENDAR=GREGORIAN')",
        )
        for part, high in highs.items()
    )
    made = [
        (
            n,
            Moment(2023 + n % 2, n % 12 + 1, n % 28 + 1, n % 24),
            Decimal(n * 7919 % 100_000) / 100,
            None if n % 9 == 0 else f"note {n}",
        )
        for n in range(1, rows + 1)
    ]
    return db.create_table(
        owner,
        name,
        columns=columns,
        partitions=partitions,
        rows=made,
        partition_of=lambda row: f"P_{row[1].year}_S{row[0] % 4 + 1}",
        partition_key=("ORDERED",),
        partitioning="RANGE",
        rows_per_block=20,
        blocks_per_extent=4,
    )


def iot_table(
    db: Database, rows: int = 500, *, owner: str = "SCOTT", name: str = "COUNTRIES"
) -> Table:
    """Create an index-organized table with the key (REGION, CODE)."""
    columns = (
        Column(name="REGION", type=Type(name="NUMBER", precision=4, scale=0), nullable=False),
        Column(name="CODE", type=Type(name="VARCHAR2", length=12), nullable=False),
        Column(name="TITLE", type=Type(name="VARCHAR2", length=60)),
    )
    made = [(n * 37 % 50, f"C{n * 7919 % 10_000:05d}", f"title {n}") for n in range(rows)]
    key = ("REGION", "CODE")
    return db.create_table(owner, name, columns=columns, rows=made, organization="index", key=key)


def names_table(db: Database, *, owner: str = "SCOTT", name: str = "Mixed Case.Table") -> Table:
    """Create a table whose own and whose columns' names must be quoted."""
    columns = (
        Column(name="Id", type=Type(name="NUMBER", precision=10, scale=0)),
        Column(name="select", type=Type(name="VARCHAR2", length=30)),
        Column(name="Größe, in cm", type=Type(name="NUMBER")),
    )
    rows = [(n, f"value {n}", Decimal(n) / 8) for n in range(1, 41)]
    return db.create_table(owner, name, columns=columns, rows=rows)


def furnished(db: Database | None = None, *, version: str = "23ai") -> Database:
    """Return a database, a new one or the given, with users and one table of every kind.

    SCOTT (tiger) is a plain user, DBADMIN (secret) a DBA. HR (hr) owns EMPLOYEES, which SCOTT may
    read, also as it was, and SECRETS, which SCOTT may not see. SCOTT has a view and synonyms.
    """
    db = db or Database(version=version)
    db.add_user("SCOTT", "tiger")
    db.add_user("DBADMIN", "secret", dba=True)
    db.add_user("HR", "hr")
    numbers_table(db, 1000)
    sub_partitioned_table(db)
    iot_table(db)
    names_table(db)
    numbers_table(db, 100, owner="HR", name="EMPLOYEES")
    numbers_table(db, 10, owner="HR", name="SECRETS")
    for right in ("SELECT", "FLASHBACK"):
        db.privileges.grant("SCOTT", right, on=("HR", "EMPLOYEES"))
    db.create_view("SCOTT", "SMALL_NUMBERS", "SELECT ID, NAME FROM NUMBERS WHERE ID <= 10")
    db.create_synonym("SCOTT", "STAFF", ("HR", "EMPLOYEES"))
    db.create_synonym("PUBLIC", "EVERYBODY", ("HR", "EMPLOYEES"))
    return db
