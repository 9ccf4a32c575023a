"""The same table in each kind of database, and what an unload of it must hold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROWS = 16_000
PARTITIONS = 4
FORMATS = ("csv", "parquet")

ROW = "CASE WHEN i % 97 = 0 THEN NULL ELSE lpad(i::VARCHAR, 200, '0') END"
"""The second column, in the SQL of DuckDB and of PostgreSQL; the first one is the row's number."""

UNIT_BYTES = "400kB"
"""Makes some eight units of the table."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A database with the table."""

    name: str
    url: str
    table: str
    options: tuple[str, ...] = ()
    """Further ones of the run, such as how the table is split."""
    environment: dict[str, str] = field(default_factory=dict)
    rows: int = ROWS
    besides: frozenset[str] = frozenset()
    """Keys of the manifest that differ between two runs of the same rows."""
    server: Any = None
    """A test server with its own faults."""

    def job(self, to: Path, *more: str) -> list[str]:
        """Return the command line of a run with two workers."""
        return [
            *("run", self.url, "--table", self.table, "--to", str(to), "--parallelism", "2"),
            *("--numa", "off", "--retry-delay", "0.1", "--progress", "log"),
            *self.options,
            *more,
        ]


def duckdb_target(directory: Path, *, rows: int = ROWS, unit_bytes: str = UNIT_BYTES) -> Target:
    """Make a DuckDB file with the table."""
    import duckdb

    path = directory / f"table-{rows}.duckdb"
    path.unlink(missing_ok=True)
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            f"CREATE TABLE t AS SELECT i AS id, {ROW} AS pad FROM range({rows}) r(i)"
        )
    return Target(
        name="duckdb",
        url=f"duckdb://{path}",
        table="t",
        options=("--split", "range", "--unit-bytes", unit_bytes),
        rows=rows,
        besides=frozenset({"value"}),
    )


def postgres_target(server: Any, *, rows: int = ROWS) -> Target:
    """Make a PostgreSQL database with the table in partitions."""
    url: str = server.database("faults")
    parts = ";".join(
        f"CREATE TABLE t_{n} PARTITION OF t FOR VALUES WITH (MODULUS {PARTITIONS}, REMAINDER {n})"
        for n in range(PARTITIONS)
    )
    server.run(
        f"CREATE TABLE t (id bigint NOT NULL, pad text) PARTITION BY HASH (id); {parts};"
        f"INSERT INTO t SELECT i, {ROW} FROM generate_series(0, {rows - 1}) i; VACUUM ANALYZE t",
        url=url,
    )
    return Target(
        name="postgresql",
        url=url,
        table="t",
        options=("--split", "partition"),
        rows=rows,
        besides=frozenset({"value"}),
        server=server,
    )


def many_units(directory: Path) -> Target:
    """Make a DuckDB file whose table is cut into thousands of units."""
    return duckdb_target(directory, rows=60_000, unit_bytes="4kB")


@contextmanager
def oracle_target() -> Iterator[Target]:
    """Serve the table from the test server in this process."""
    from oracle import runs
    from oracle.leg import database
    from oracle_server import OracleServer

    made = database()
    runs.padded_table(made)
    with OracleServer(made) as server:
        yield Target(
            name="oracle",
            url=server.url("scott"),
            table="PADDED",
            options=("--split", "partition", "--fetch-memory", runs.SMALL_FETCH),
            environment=dict(runs.ENVIRONMENT),
            besides=frozenset({"value"}),
            server=server,
        )


def wrong_rows(destination: Path, form: str, rows: int = ROWS) -> str:
    """Let DuckDB or pyarrow read the files; return how they differ from the table, or nothing."""
    import duckdb
    import pyarrow.parquet

    files = [str(path) for path in sorted(destination.glob(f"*.{form}*"))]
    if not files:
        return f"there is no *.{form}"
    with duckdb.connect() as connection:
        if form == "parquet":
            got = pyarrow.concat_tables(pyarrow.parquet.read_table(path) for path in files)
            connection.register("read", got)
            connection.execute("CREATE TABLE got AS SELECT #1::BIGINT AS id, #2 AS pad FROM read")
        else:
            connection.execute(
                f"CREATE TABLE got AS SELECT * FROM read_csv({files!r}, header = true, "
                "columns = {'id': 'BIGINT', 'pad': 'VARCHAR'}, delim = ',', auto_detect = false)"
            )
        connection.execute(
            f"CREATE TABLE t AS SELECT i AS id, {ROW} AS pad FROM range({rows}) r(i)"
        )
        counts = connection.execute(
            "SELECT (SELECT count(*) FROM got), "
            "(SELECT count(*) FROM (TABLE got EXCEPT ALL TABLE t)), "
            "(SELECT count(*) FROM (TABLE t EXCEPT ALL TABLE got))"
        ).fetchone()
    assert counts is not None
    return (
        ""
        if counts == (rows, 0, 0)
        else f"{counts[0]} rows, {counts[1]} foreign, {counts[2]} missing"
    )
