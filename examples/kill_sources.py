"""The databases that `random_kills.py` unloads: the reference table, and its changes."""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from contenders import TABLE, Postgres, parts, postgres_server
from oracle_test_server import oracle_test_server
from progress import say

CHECKOUT = Path(__file__).resolve().parent.parent
PARTITIONS = 32


@dataclass(kw_only=True)
class Source:
    """A database with the table."""

    url: str
    options: tuple[str, ...] = ()
    """Further ones of the run."""
    environment: dict[str, str] = field(default_factory=dict)
    besides: frozenset[str] = frozenset()
    """Keys of the manifest that differ between two runs of the same rows."""
    changes: bool = False
    """Rows change between kills, so every round needs a separate undisturbed run."""

    def change(self, chance: random.Random) -> None:
        """Let another session change rows, and commit."""


@dataclass(kw_only=True)
class ChangingPostgres(Source):
    """A PostgreSQL in which another session works on between two kills."""

    postgres: Postgres

    def change(self, chance: random.Random) -> None:
        """Update, delete and insert some hundred rows of a partition."""
        part = chance.choice(parts())
        some = (
            f"SELECT ctid FROM {part} TABLESAMPLE SYSTEM (1) REPEATABLE ({chance.randrange(9999)})"
        )
        self.postgres.run(
            f"UPDATE {part} SET AMOUNT = AMOUNT + 1 WHERE ctid = ANY (ARRAY({some} LIMIT 300))",
            f"DELETE FROM {part} WHERE ctid = ANY (ARRAY({some} LIMIT 50))",
            f"INSERT INTO {part} SELECT * FROM {part} LIMIT 100",
        )


@contextmanager
def source(directory: Path, options: argparse.Namespace) -> Iterator[Source]:
    """Yield the database that was asked for."""
    if options.source == "oracle-test":
        yield from _oracle(options)
        return
    sys.path.insert(0, str(CHECKOUT))
    from unloader.sources.duckdb.reference import build_reference_table

    database = options.database or directory / "reference.duckdb"
    say(f"building {options.rows:,} rows in {database}")
    build_reference_table(
        database, options.rows, partitions=PARTITIONS, table=TABLE, stop=lambda: False
    )
    if options.source == "duckdb":
        yield Source(url=f"duckdb://{database}")
        return
    wanted = argparse.Namespace(only=None, rows=options.rows)
    with postgres_server(directory, database, wanted) as postgres:
        if postgres is None:
            raise SystemExit("PostgreSQL is not installed here")
        for part in parts():
            # Autovacuum changes the statistics, and so the plan, between the compared runs.
            postgres.run(f"ALTER TABLE {part} SET (autovacuum_enabled = false)")
        yield ChangingPostgres(
            url=postgres.url,
            options=("--keep-snapshot", "12h"),
            besides=frozenset({"value", "keep_snapshot"}),
            changes=True,
            postgres=postgres,
        )


def _oracle(options: argparse.Namespace) -> Iterator[Source]:
    parts = ("--partitions", str(PARTITIONS))
    with oracle_test_server("--reference", str(options.rows), *parts) as told:
        yield Source(
            url=told["url"],
            environment={"UNLOADER_PASSWORD": told["password"]},
            besides=frozenset({"value"}),
        )
