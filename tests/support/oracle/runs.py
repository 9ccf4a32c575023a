"""Runs over the Oracle test server, and single units read by a worker."""

from __future__ import annotations

import hashlib
import os
import re
import socket
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from json import loads
from pathlib import Path
from typing import Any

import pyarrow as pa
from oracle_server.data.tables import PartitionSpec, Table
from oracle_server.database import Database
from oracle_server.model import Answer, Column, SessionState, Type
from oracle_server.samples.tables import reference_table
from oracle_server.server import OracleServer
from oracle_server.wire.row_replies import EncodedRows, RowSet
from processes import command
from routes.runs import OneOutput, oracle_projection

from oracle.expected import as_number, expected, json_of, native_of, number, plain
from oracle.leg import PASSWORD
from partition_planner.model import ColumnInfo, Piece, TableInfo, WholeTable
from unloader.model import Extract, Fetch, SecretReference, SessionOptions, Snapshot, SourceSpec
from unloader.sources.base import ReadAgain
from unloader.sources.oracle.reader import OracleReader
from unloader.sources.oracle.types import ROWID
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
        witness: int = 64,
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
            session=SessionOptions(fetch=fetch, fetch_witness=witness),
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
        self.witnessed = (0, "")
        """What the last reader says of the rows that it fetched both ways."""

    def items(self, reader: OracleReader, batch_bytes: int) -> list[pa.RecordBatch | LargeRow]:
        """Return the batches of the reader, read again if it asks for that."""
        piece = Piece(unit="u1", selector=WholeTable())
        try:
            return list(reader.batches(self.extract, piece, batch_bytes=batch_bytes))
        except ReadAgain:
            self.again += 1
            return list(reader.batches(self.extract, piece, batch_bytes=batch_bytes))

    def table(self, batch_bytes: int = 1024 * 1024) -> pa.Table:
        """Return all rows; none of them may be large."""
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
            self.witnessed = reader.witnessed()
        finally:
            reader.close()
        return found


def natives(columns: Sequence[Column]) -> Natives:
    """Return columns of the server with their types as the dictionary prints them."""
    return {column.name: (native_of(column.type), column.type) for column in columns}


def create(server: OracleServer, columns: Natives, rows: Rows) -> None:
    """Make SCOTT.T again."""
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


TABLE = "HASH_PART_0160"
_PERIOD = 1_000_003
"""A prime: pieces of the size that a reader asks for begin with different content."""


@cache
def _period_text() -> str:
    return "".join(f"{n:06d} {n * n:x}\n"[: 7 + n % 9] for n in range(200_000))[:_PERIOD]


@cache
def _period_data() -> bytes:
    return bytes((n * n >> 3) & 0xFF for n in range(_PERIOD))


class RepeatedDatabase(Database):
    """A database with the reference table, whose rows come over and over as one query's result."""

    def __init__(self, rows: int) -> None:
        """Make the table.

        Args:
            rows: Rows that are there once.
        """
        super().__init__()
        self.rows = rows
        self.times = 1
        """How often a query finds each of them."""
        self.add_user("SCOTT", "tiger")
        self.privileges.grant("SCOTT", "V$DATABASE")
        reference_table(self, rows, 1)

    def execute(self, session: SessionState, sql: str, binds: Iterable[Any] = ()) -> Answer:
        """Run one statement; the ones that read or count the table find more of it."""
        answer = super().execute(session, sql, binds)
        found = answer.rows
        if TABLE in sql and isinstance(found, EncodedRows):
            answer.rows = found.table.rows([(0, self.rows)] * self.times)
        elif TABLE in sql and "COUNT(*)" in sql and found is not None:
            answer.rows = RowSet(found.columns, [(self.rows * self.times,)])
        return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodicLob:
    """A LOB whose content repeats itself after `_PERIOD` characters or bytes."""

    length: int
    binary: bool

    def read(self, offset: int, amount: int) -> str | bytes:
        """Return `amount` characters or bytes from `offset` on."""
        content: Any = _period_data() if self.binary else _period_text()
        amount = min(amount, self.length - offset)
        start = offset % _PERIOD
        part = content[start : start + amount]
        while len(part) < amount:
            part += content[: amount - len(part)]
        return part  # type: ignore[no-any-return]

    def pieces(self) -> Iterator[bytes]:
        """Yield the whole content as bytes, by periods rather than as a server reads it."""
        content = _period_data() if self.binary else _period_text().encode()
        whole, rest = divmod(self.length, _PERIOD)
        for _ in range(whole):
            yield content
        yield content[:rest]


def large_values(db: Database, name: str, size: int) -> Table:
    """Create (ID, C CLOB, B BLOB): a row with values of `size`, then one with short ones."""
    columns = (
        Column(name="ID", type=Type(name="NUMBER", precision=9, scale=0), nullable=False),
        Column(name="C", type=Type(name="CLOB")),
        Column(name="B", type=Type(name="BLOB")),
    )
    rows = [
        (1, PeriodicLob(length=size, binary=False), PeriodicLob(length=size, binary=True)),
        (2, "short", b"\x00\x01"),
    ]
    return db.create_table("SCOTT", name, columns=columns, rows=rows)


@contextmanager
def closed_port(host: str) -> Iterator[int]:
    """Yield a port that refuses connections, and that no one else gets meanwhile."""
    with socket.socket() as bound:
        bound.bind((host, 0))
        port: int = bound.getsockname()[1]
        yield port


ENVIRONMENT = {"UNLOADER_PASSWORD": PASSWORD}
PARTITIONS = ("P1", "P2", "P3", "P4")
SMALL_FETCH = "1MiB"
"""With this fetch memory a partition of `padded_table` comes in five batches."""
PARTITION_ROWS = 4000
_SCN = re.compile(r"AS OF SCN (\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a run."""

    status: int
    stdout: str
    log: str
    destination: Path

    @property
    def error(self) -> str:
        """The one line that a failed run gives as its reason, with the next step."""
        errors = [line for line in self.log.splitlines() if line.startswith("unloader: error:")]
        assert len(errors) == 1, self.log
        assert "Traceback" not in self.log
        assert "Next: " in errors[0], errors[0]
        return errors[0]

    @property
    def manifest(self) -> dict[str, Any]:
        """The manifest of a finished run."""
        return command.manifest_of(self.destination)

    @property
    def files(self) -> dict[str, str]:
        """Names and SHA-256 of the data files under final names."""
        names = command.final_names(self.destination)
        return {name: sha256(self.destination / name) for name in names if name[0] != "_"}

    @property
    def attempts(self) -> dict[str, int]:
        """How often each partition was read, by its name."""
        return {unit["partition"]: unit["attempts"] for unit in self.manifest["units"]}

    @property
    def staged(self) -> list[str]:
        """Names of what a broken run has kept, without the lock."""
        run = self.destination / "_run"
        found = (str(path.relative_to(run)) for path in run.rglob("*") if path.is_file())
        return sorted(name for name in found if name != "lock")


def sha256(path: Path) -> str:
    """Return the checksum of a file."""
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while piece := file.read(1 << 20):
            digest.update(piece)
        return digest.hexdigest()


def arguments(
    server: OracleServer, table: str, to: Path, *options: str, url: str = ""
) -> list[str]:
    """Return the command line of a run as SCOTT, with retries that come immediately."""
    return [
        "run", url or server.url("scott"), "--table", table, "--to", str(to),
        "--progress", "log", "--retry-delay", "0.1", *options,
    ]  # fmt: skip


def unload(
    server: OracleServer,
    table: str,
    to: Path,
    *options: str,
    url: str = "",
    env: dict[str, str] | None = None,
) -> Outcome:
    """Run to its end, successful or not."""
    done = command.ended(
        *arguments(server, table, to, *options, url=url),
        env={**os.environ, **ENVIRONMENT, **(env or {})},
    )
    return Outcome(status=done.returncode, stdout=done.stdout, log=done.stderr, destination=to)


def ended(running: command.Running, to: Path) -> Outcome:
    """Wait for the end of a run."""
    try:
        status, stdout, log = running.finish()
    except subprocess.TimeoutExpired:
        running.process.kill()
        _, log = running.process.communicate()
        raise AssertionError(f"the run does not end: {log}") from None
    return Outcome(status=status, stdout=stdout, log=log, destination=to)


def assert_no_connection_left(server: OracleServer) -> None:
    """Check that the server has no one to serve any more."""
    command.wait_for(lambda: server.open_connections == 0, "the end of every connection")


@contextmanager
def undisturbed(server: OracleServer) -> Iterator[OracleServer]:
    """Yield a server that has forgotten every earlier test; at the end no one may be connected."""
    server.faults.clear()
    server.sessions.clear()
    server.connect_data.clear()
    yield server
    assert_no_connection_left(server)


def scns(server: OracleServer) -> set[str]:
    """Return every SCN that a statement of the server's sessions has read at."""
    return {
        scn
        for session in server.sessions
        for statement in session.statements
        for scn in _SCN.findall(statement)
    }


def padded_table(db: Database, *, owner: str = "SCOTT", name: str = "PADDED") -> Table:
    """Create a table of four partitions with rows that make many small batches."""
    columns = (
        Column(name="ID", type=Type(name="NUMBER", precision=9, scale=0), nullable=False),
        Column(name="PAD", type=Type(name="VARCHAR2", length=1000)),
    )
    count = len(PARTITIONS) * PARTITION_ROWS
    return db.create_table(
        owner,
        name,
        columns=columns,
        rows=((n, None if n % 97 == 0 else f"{n:0>200}") for n in range(count)),
        partitions=tuple(PartitionSpec(name=partition) for partition in PARTITIONS),
        partition_of=lambda row: PARTITIONS[row[0] % len(PARTITIONS)],
    )
