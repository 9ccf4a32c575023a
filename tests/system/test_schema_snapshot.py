"""A whole PostgreSQL schema in one run, while a writer commits, and with tables in the way."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from processes import command

from unloader.model import SourceSpec
from unloader.sources.postgres.session import Session

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
sys.path.append(str(EXAMPLES))

from schema_sources import Schema, check, filled, quoted, samples, writing  # noqa: E402

SIZES = {
    "source": "postgres",
    "tables": 34,
    "big_tables": 1,
    "big_rows": 20_000,
    "small_rows": 60,
}


@pytest.fixture(scope="module")
def schema(postgres: Any) -> Schema:
    """Tables with hostile names and foreign keys, one of them larger."""
    found = Schema(
        url=postgres.database("schema"),
        tables=samples(argparse.Namespace(**SIZES)),
        pattern='"Bench ""Schema""".*',
        schema='Bench "Schema"',
        bin=Path(postgres.psql).parent,
    )
    filled(found)
    return found


def test_every_table_is_as_one_transfer_left_it(schema: Schema, tmp_path: Path) -> None:
    """Row by row, and in the sum of all tables, as a reader finds that knows nothing of ours."""
    arguments = [
        text
        for name, value in SIZES.items()
        for text in (f"--{name.replace('_', '-')}", str(value))
    ]
    with writing(schema, arguments, EXAMPLES / "bench_schema.py"):
        command.run(
            *("run", schema.url, "--table", schema.pattern, "--parallelism", "2"),
            *("--unit-bytes", "256KiB", "--to", f"{tmp_path}/out/{{schema}}.{{table}}", "--quiet"),
        )
    assert check(schema, tmp_path / "out")["tables"] == SIZES["tables"]


def test_a_locked_table_fails_alone(schema: Schema, tmp_path: Path) -> None:
    """The others are whole, the exit status is that of a partial run, and the report names it."""
    locked = next(table for table in schema.tables if table.name == 'quo"te')
    spec = SourceSpec(kind="postgresql", location=schema.url)
    other = Session(replace(spec, session=replace(spec.session, lock_timeout_seconds=0)))
    with closing(other):
        other.execute("SET default_transaction_read_only = off; BEGIN")
        name = f"{quoted(schema.schema)}.{quoted(locked.name)}"
        other.execute(f"LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE")
        done = command.ended(
            *("run", schema.url, "--table", schema.pattern, "--parallelism", "2"),
            *("--lock-timeout", "1s", "--on-table-failure", "continue", "--quiet"),
            *("--to", f"{tmp_path}/out/{{schema}}.{{table}}"),
        )
    assert done.returncode == 7, done.stderr
    assert 'quo"te' in done.stderr
    assert "55P03" in done.stderr
    whole = sorted(
        json.loads(path.read_text())["table"]["name"]
        for path in (tmp_path / "out").glob("Bench*/_manifest.json")
    )
    # The schema has two more, of owners and of the number of the transfer.
    assert len(whole) == SIZES["tables"] + 2 - 1
    assert locked.name not in whole
