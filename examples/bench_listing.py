"""How long it takes to list and describe many tables: CPU of this process, for each table.

    python examples/bench_listing.py [--postgres URL] [--tables 500] [--duckdb 2000] [--json]

An empty database is filled with small tables of 14 columns first. PostgreSQL is measured only where
a URL of a database for tests is given, in a separate schema. Described one at a time, only some
tables are measured, and the rest is estimated.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb

from unloader.model import SourceSpec
from unloader.selection.choice import TableChoice, choose, parse_pattern
from unloader.sources.base import Catalog, quoted_name
from unloader.sources.questions import describe_tables
from unloader.sources.registry import source_of

SCHEMA = "unloader_bench_listing"
COLUMNS = ", ".join(f"c{at} {kind}" for at, kind in enumerate(("integer", "varchar(20)") * 7))
ALONE = 20
"""Tables that are described alone."""


def made_sql(count: int, schema: str) -> str:
    """Return the statements that make tables."""
    return "".join(f"CREATE TABLE {schema}.t{at:05d} ({COLUMNS});" for at in range(count))


def measured(spec: SourceSpec, pattern: str) -> dict[str, float]:
    """Return tables, seconds and milliseconds of CPU for a table, of each step."""
    with closing(source_of(spec.kind).open_catalog(spec)) as catalog:
        catalog.snapshot("snapshot")
        catalog.list_tables()  # imports, and the database's caches
        listing, listed = _timed(lambda: catalog.list_tables())
        wanted = TableChoice(tables=(parse_pattern(pattern),))
        chosen, choosing = _timed(lambda: choose(wanted, listing))
        described, describing = _timed(lambda: describe_tables(catalog, chosen))
        some = [table.key for table in chosen.tables[:ALONE]]
        _, alone = _timed(lambda: _alone(catalog, some))
    count = len(described.tables)
    assert count == len(chosen.tables), described.problems
    together = listed.cpu + choosing.cpu + describing.cpu
    return {
        "tables": count,
        "seconds": round(listed.wall + choosing.wall + describing.wall, 3),
        "list_cpu_ms_per_table": round(listed.cpu / count * 1e3, 3),
        "choose_cpu_ms_per_table": round(choosing.cpu / count * 1e3, 3),
        "describe_cpu_ms_per_table": round(describing.cpu / count * 1e3, 3),
        "cpu_ms_per_table": round(together / count * 1e3, 3),
        "alone_cpu_ms_per_table": round(alone.cpu / len(some) * 1e3, 3),
    }


class _Time:
    """What something took."""

    def __init__(self, wall: float, cpu: float) -> None:
        """Remember it, in seconds."""
        self.wall = wall
        self.cpu = cpu


def _timed(work: Callable[[], Any]) -> tuple[Any, _Time]:
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    return result, _Time(time.perf_counter() - wall, time.process_time() - cpu)


def _alone(catalog: Catalog, keys: list[tuple[str, str]]) -> None:
    for schema, name in keys:
        catalog.describe(quoted_name(schema, name))


def of_duckdb(count: int, directory: Path) -> dict[str, float]:
    """Measure a DuckDB file."""
    path = directory / "many.duckdb"
    with closing(duckdb.connect(str(path))) as connection:
        connection.execute("BEGIN;" + made_sql(count, "main") + "COMMIT")
    return measured(SourceSpec(kind="duckdb", location=f"duckdb://{path}"), "main.*")


def of_sqlite(count: int, directory: Path) -> dict[str, float]:
    """Measure a SQLite file."""
    path = directory / "many.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("BEGIN;" + made_sql(count, "main") + "COMMIT")
    return measured(SourceSpec(kind="sqlite", location=f"sqlite://{path}"), "main.*")


def of_postgres(count: int, url: str) -> dict[str, float]:
    """Measure a PostgreSQL database; the tables lie in a schema that is dropped afterwards."""
    import asyncio

    import asyncpg

    async def run(sql: str) -> None:
        connection = await asyncpg.connect(url)
        await connection.execute(sql)
        await connection.close()

    drop = f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE"
    for start in range(0, count, 100):
        # A transaction holds a lock for each of its tables, and the server has few.
        some = "".join(
            f"CREATE TABLE {SCHEMA}.t{at:05d} ({COLUMNS});"
            for at in range(start, min(count, start + 100))
        )
        asyncio.run(run(f"{drop}; CREATE SCHEMA {SCHEMA};" * (start == 0) + some))
    found = measured(SourceSpec(kind="postgresql", location=url), f"{SCHEMA}.*")
    for start in range(0, count, 100):
        names = ", ".join(f"{SCHEMA}.t{at:05d}" for at in range(start, min(count, start + 100)))
        asyncio.run(run(f"DROP TABLE {names}"))
    asyncio.run(run(drop))
    return found


def main() -> None:
    """Measure the chosen databases, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--postgres", metavar="URL")
    parser.add_argument("--tables", type=int, default=500, help="in PostgreSQL")
    parser.add_argument("--duckdb", type=int, default=2000)
    parser.add_argument("--sqlite", type=int, default=500)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as name:
        if asked.duckdb:
            found["duckdb"] = of_duckdb(asked.duckdb, Path(name))
        if asked.sqlite:
            found["sqlite"] = of_sqlite(asked.sqlite, Path(name))
    if asked.postgres:
        found["postgresql"] = of_postgres(asked.tables, asked.postgres)
    if asked.json:
        print(json.dumps(found, indent=2))
        return
    for source, figures in found.items():
        print(source, ", ".join(f"{key} {value}" for key, value in figures.items()))


if __name__ == "__main__":
    main()
