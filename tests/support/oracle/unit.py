"""One table of the test server, read as a worker reads it."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from json import loads
from typing import Any

import pyarrow as pa
from oracle_server.model import Column, Type
from oracle_server.server import OracleServer
from routes.one_output import OneOutput, oracle_projection

from oracle.expected import as_number, expected, json_of, native_of, number, plain
from partition_planner.model import ColumnInfo, Piece, TableInfo, WholeTable
from unloader.model import (
    Extract,
    Fetch,
    SecretReference,
    SessionOptions,
    Snapshot,
    SourceSpec,
)
from unloader.sources.base import ReadAgain
from unloader.sources.oracle.columns.native import ROWID
from unloader.sources.oracle.reading.reader import OracleReader
from writers.large_rows import LargeRow
from writers.model import TextFormat
from writers.schema import read_schema, text_class

CSV = OneOutput(text=TextFormat())
PARQUET = OneOutput(text=None)
BOTH: tuple[Fetch, ...] = ("arrow", "tuples", "native")

Rows = Sequence[tuple[Any, ...]]
Natives = dict[str, tuple[str, Type]]
"""Column name to its type as the dictionary prints it and as the server has it."""


class Run:
    """Reads one table of the server as a worker does."""

    def __init__(
        self,
        server: OracleServer,
        columns: Natives,
        *,
        name: str = "T",
        fetch: Fetch = "auto",
        target: OneOutput = CSV,
        query: str | None = None,
        where: str | None = None,
        rowids: bool = True,
    ) -> None:
        attributes = () if rowids and query is None else ((ROWID, "no"),)
        table = TableInfo(
            schema="SCOTT",
            name=name,
            columns=tuple(
                ColumnInfo(name=name, native_type=native, attributes=attributes)
                for name, (native, _) in columns.items()
            ),
            named_partitions=True,
            row_ranges=True,
        )
        self.spec = SourceSpec(
            kind="oracle",
            location=server.url("scott"),
            secret=SecretReference(kind="environment", name="UNLOADER_PASSWORD"),
            session=SessionOptions(fetch=fetch),
        )
        made = oracle_projection(table, target)
        snapshot = Snapshot(kind="scn", value=str(server.database.scn), taken_at="")
        self.extract = Extract(
            source=self.spec,
            snapshot=snapshot,
            table=table,
            query=query,
            where=where,
            projection=made,
        )
        self.schema = read_schema(made.schema)
        self.again = 0

    def items(self, reader: OracleReader, batch_bytes: int) -> list[pa.RecordBatch | LargeRow]:
        """Return what the reader gives, read again if it asks for that."""
        piece = Piece(unit="u1", selector=WholeTable())
        try:
            return list(reader.batches(self.extract, piece, batch_bytes=batch_bytes))
        except ReadAgain:
            self.again += 1
            return list(reader.batches(self.extract, piece, batch_bytes=batch_bytes))

    def table(self, batch_bytes: int = 1024 * 1024) -> pa.Table:
        """Return all rows, which are none large."""
        reader = OracleReader(self.spec, self.extract.snapshot)
        try:
            batches = self.items(reader, batch_bytes)
        finally:
            reader.close()
        assert all(isinstance(batch, pa.RecordBatch) for batch in batches)
        return pa.Table.from_batches(batches, schema=self.schema)

    def values(self, batch_bytes: int = 1024 * 1024) -> dict[str, list[Any]]:
        """Return the values of all rows by column, as `plain` makes them, large ones whole."""
        reader = OracleReader(self.spec, self.extract.snapshot)
        found: dict[str, list[Any]] = {name: [] for name in self.schema.names}
        try:
            for item in self.items(reader, batch_bytes):
                batch = item.row if isinstance(item, LargeRow) else item
                for name, array in zip(batch.schema.names, batch.columns, strict=True):
                    found[name] += plain(array)
                for index, value in item.values if isinstance(item, LargeRow) else ():
                    joint: Any = b"" if value.binary else ""
                    found[self.schema.names[index]][-1] = joint.join(value.pieces())
        finally:
            reader.close()
        return found


def natives(columns: Sequence[Column]) -> Natives:
    """Return columns of the server with their types as the dictionary prints them."""
    return {column.name: (native_of(column.type), column.type) for column in columns}


def create(server: OracleServer, columns: Natives, rows: Rows) -> None:
    """Make SCOTT.T anew."""
    made = tuple(Column(name=name, type=kind) for name, (_, kind) in columns.items())
    if ("SCOTT", "T") in server.database.catalog.tables:
        server.database.drop_table("SCOTT", "T")
    server.database.create_table("SCOTT", "T", columns=made, rows=rows)


def check(run: Run, columns: Natives, rows: Rows) -> None:
    """Make sure that every value of a run is the one the server has."""
    found = run.values()
    for index, (name, (_, kind)) in enumerate(columns.items()):
        field = run.schema.field(name)
        column = Column(name=name, type=kind)
        if text_class(field) == "number":
            values = [as_number(column, text) for text in found[name]]
            wanted = [number(column, row[index]) for row in rows]
        elif kind.name in ("JSON", "VECTOR"):
            values = [
                None if text is None else loads(text, parse_float=Decimal) for text in found[name]
            ]
            wanted = [json_of(kind, row[index]) for row in rows]
        else:
            values = found[name]
            wanted = [expected(column, field.type, row[index]) for row in rows]
        assert values == wanted, name
