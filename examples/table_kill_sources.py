"""The databases that `random_table_kills.py` unloads, with their writers and comparisons."""

from __future__ import annotations

import argparse
import asyncio
import csv
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from schema_sources import COUNTER, SCHEMA, Schema, Transfer, check, quoted, schema_of
from table_outcomes import Tables, manifest_of, same_rows


@dataclass(kw_only=True)
class Database:
    """The tables, and a writer that commits transfers between them."""

    schema: Schema
    pause_seconds: float
    options: tuple[str, ...] = ()
    """Further ones of the run."""
    environment: dict[str, str] = field(default_factory=dict)
    is_filtered: bool = True
    """The second output has every third row. The table of PostgreSQL that counts has no id."""
    transfers: int = 0
    """Committed until now."""
    stop: threading.Event = field(default_factory=threading.Event)
    broken: BaseException | None = None

    def write(self) -> None:
        """Commit one transfer after the other until the end."""

    def keep_writing(self) -> None:
        """Write; remember what went wrong."""
        try:
            self.write()
        except BaseException as error:
            self.broken = error

    def compare(self, tables: Tables) -> int:
        """Compare the tables' text with the database; return how many rows there are.

        Raises:
            SystemExit: They are not one state of it.
        """
        return check(self.schema, tables.home)["rows"]


class WrittenPostgres(Database):
    """PostgreSQL; a table has the number of the last transfer, which determines each row."""

    def write(self) -> None:
        """Commit one transfer after the other until the end."""
        import asyncpg

        async def commit() -> None:
            connection = await asyncpg.connect(self.schema.url)
            counter = f"{quoted(SCHEMA)}.{quoted(COUNTER)}"
            number = await connection.fetchval(f"SELECT number FROM {counter}")
            while not self.stop.wait(self.pause_seconds):
                number += 1
                async with connection.transaction():
                    await connection.execute(Transfer.of(number, self.schema.tables).sql())
                self.transfers += 1
            await connection.close()

        asyncio.run(commit())


class WrittenOracle(Database):
    """The Oracle test server, which is asked again for all rows as of the SCN."""

    def _connect(self) -> Any:
        import oracledb

        dsn = self.schema.url.rpartition("@")[2]
        return oracledb.connect(
            user="scott", password=self.environment["UNLOADER_PASSWORD"], dsn=dsn
        )

    def write(self) -> None:
        """Commit one transfer after the other until the end."""
        with self._connect() as connection, connection.cursor() as cursor:
            while not self.stop.wait(self.pause_seconds):
                each = Transfer.of(self.transfers, self.schema.tables)
                for (table, row), amount in ((each.giver, -each.amount), (each.taker, each.amount)):
                    cursor.execute(
                        f"UPDATE {quoted(table)} SET BALANCE = BALANCE + :1 WHERE ID = :2",
                        [amount, row],
                    )
                connection.commit()
                self.transfers += 1

    def compare(self, tables: Tables) -> int:
        """Compare the tables' text with the server's answer."""
        scn = int(manifest_of(tables.home)["snapshot"]["value"])
        balances = rows = 0
        with self._connect() as connection, connection.cursor() as cursor:
            for table in self.schema.tables:
                cursor.execute(f"SELECT * FROM {quoted(table.name)} AS OF SCN {scn}")
                found = sorted(
                    (int(r[0]), r[1], int(r[2]), Decimal(str(r[3])), r[4]) for r in cursor
                )
                written = sorted(_records(tables.of(table.name)))
                if found != written:
                    raise SystemExit(f"{table.name} differs from its state at SCN {scn}")
                balances += sum(each[2] for each in written)
                rows += len(written)
        if balances != 1000 * sum(table.rows for table in self.schema.tables):
            raise SystemExit(f"the sum of the balances of all tables is {balances}")
        return rows


def _records(directory: Path) -> Iterator[tuple[int, int, int, Decimal, str]]:
    for unit in manifest_of(directory)["units"]:
        for file in unit["files"]:
            with open(directory / file["path"], newline="") as text:
                for row in list(csv.reader(text))[1:]:
                    yield int(row[0]), int(row[1]), int(row[2]), Decimal(row[3]), row[4]


@contextmanager
def database(options: argparse.Namespace, directory: Path) -> Iterator[Database]:
    """Yield the database that was asked for, while its writer commits."""
    kind, more, environment = Database, (), {}
    with schema_of(options, directory) as schema:
        if options.source == "postgres":
            kind, more = WrittenPostgres, ("--keep-snapshot", "12h")
        elif options.source == "oracle-test":
            kind = WrittenOracle
            environment = {"UNLOADER_PASSWORD": os.environ["UNLOADER_PASSWORD"]}
        made = kind(
            schema=schema,
            options=more,
            environment=environment,
            pause_seconds=options.pause,
            is_filtered=options.source != "postgres",
        )
        writer = threading.Thread(target=made.keep_writing)
        writer.start()
        try:
            yield made
        finally:
            made.stop.set()
            writer.join()


def state_is_one(made: Database, tables: Tables) -> int:
    """Compare all tables with one state of the database; return how many rows there are.

    Raises:
        SystemExit: They differ.
    """
    if made.broken is not None:
        raise SystemExit(f"the writer failed: {made.broken!r}")
    rows = made.compare(tables)
    if tables.lake is not None:
        for table in made.schema.tables:
            same_rows(tables.of(table.name), tables.of(table.name, lake=True), made.is_filtered)
    return rows
