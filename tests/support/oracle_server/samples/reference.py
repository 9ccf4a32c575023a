"""The reference table: the published HASH_PART_0160, from the generator that users have, too.

`unloader demo` with the same number of rows has the same rows, in the same partitions, so the
output of an unload can be compared with one of the DuckDB file.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import duckdb
import pyarrow as pa

from oracle_server.data.tables import PartitionSpec, RepeatedRows, Row, Table
from oracle_server.database import Database
from oracle_server.model import Column, Moment, Type
from unloader.sources.duckdb.catalog import PARTITION_MAP
from unloader.sources.duckdb.reference import COLUMNS, build_reference_table

_TYPES = (
    Type(name="VARCHAR2", length=15),
    Type(name="DATE"),
    Type(name="NUMBER", precision=13, scale=0),
    Type(name="VARCHAR2", length=15),
    Type(name="NUMBER", precision=12, scale=2),
    Type(name="DATE"),
    Type(name="CHAR", length=8),
    Type(name="VARCHAR2", length=10),
    Type(name="NUMBER", precision=15, scale=0),
    Type(name="VARCHAR2", length=20),
)
_PARTS = ("year", "month", "day", "hour", "minute", "second")


class ArrowRows(Sequence[Row]):
    """Rows kept as Arrow columns, made into Python values a stretch at a time.

    A DATE is six columns, one for each field.
    """

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __len__(self) -> int:
        return int(self._table.num_rows)

    @overload
    def __getitem__(self, index: int) -> Row: ...

    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...

    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        """Return a row, or the rows of a slice without a step."""
        if isinstance(index, int):
            return self[index : index + 1][0]
        start, stop, _ = index.indices(len(self))
        part = self._table.slice(start, max(stop - start, 0))
        arrays = iter(part.columns)
        columns = [
            _moments([next(arrays).to_pylist() for _ in _PARTS], part.num_rows)
            if kind.name == "DATE"
            else next(arrays).to_pylist()
            for kind in _TYPES
        ]
        return list(zip(*columns, strict=True))


def _moments(parts: list[list[int]], count: int) -> Iterator[Moment]:
    return map(Moment._make, zip(*parts, [0] * count, [None] * count, strict=True))


def reference_table(
    db: Database,
    rows: int,
    partitions: int = 32,
    *,
    owner: str = "SCOTT",
    name: str = "HASH_PART_0160",
    rows_per_block: int = 60,
    blocks_per_extent: int = 128,
    turns: int = 1,
) -> Table:
    """Create the reference table; about 10 microseconds a row.

    Args:
        rows: Rows of the table, 1 or more.
        partitions: 1 to 256 hash partitions, named `<name>_P01` and on.
        rows_per_block: Rows of a block; 8 KiB hold about 60 of them.
        blocks_per_extent: Blocks of every extent.
        turns: How often each partition's rows come; the table has that many times `rows`, in the
            memory of one.
    """
    content, ranges = _generated(rows, partitions, name)
    columns = tuple(
        Column(name=column.name, type=kind) for column, kind in zip(COLUMNS, _TYPES, strict=True)
    )
    table = db.create_table(
        owner,
        name,
        columns=columns,
        partitions=tuple(PartitionSpec(name=partition) for partition, _, _ in ranges),
        partition_key=(COLUMNS[0].name,),
        rows_per_block=rows_per_block,
        blocks_per_extent=blocks_per_extent,
    )
    bases: list[Sequence[Row]] = [
        ArrowRows(content.slice(first, count)) for _, first, count in ranges
    ]
    db.lay_down(table, bases if turns == 1 else [RepeatedRows(base, turns) for base in bases])
    return table


def _generated(rows: int, partitions: int, name: str) -> tuple[pa.Table, list[tuple[Any, ...]]]:
    with tempfile.TemporaryDirectory(prefix="oracle-server-") as directory:
        path = Path(directory) / "reference.duckdb"
        build_reference_table(path, rows, partitions=partitions, table=name, stop=lambda: False)
        with duckdb.connect(str(path), read_only=True) as connection:
            found = connection.sql(f'SELECT {_selected()} FROM "{name}" ORDER BY rowid')
            content = found.to_arrow_table()
            ranges = connection.execute(
                "SELECT partition_name, first_rowid, last_rowid + 1 - first_rowid "
                f"FROM {PARTITION_MAP} ORDER BY position"
            ).fetchall()
    return content, ranges


def _selected() -> str:
    """Return the select list that makes a DATE six columns and whole numbers integers."""
    items: list[str] = []
    for column, kind in zip(COLUMNS, _TYPES, strict=True):
        if kind.name == "DATE":
            items += [f"{part}({column.name})::SMALLINT" for part in _PARTS]
        elif kind.name == "NUMBER" and not kind.scale:
            items.append(f"{column.name}::BIGINT")
        else:
            items.append(column.name)
    return ", ".join(items)


def numbers_table(db: Database, rows: int, *, owner: str = "SCOTT", name: str = "NUMBERS") -> Table:
    """Create a table ID NUMBER(10), NAME VARCHAR2(30) with rows 1 to `rows`, in one segment."""
    columns = (
        Column(name="ID", type=Type(name="NUMBER", precision=10, scale=0), nullable=False),
        Column(name="NAME", type=Type(name="VARCHAR2", length=30)),
    )
    made: Iterator[tuple[Any, ...]] = ((n, f"name {n}") for n in range(1, rows + 1))
    return db.create_table(owner, name, columns=columns, rows=made, key=("ID",))
