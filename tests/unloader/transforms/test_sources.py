"""Tokens of values as the sources themselves deliver them."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest
from oracle.runs import Natives, Run, create
from oracle_server.database import Database
from oracle_server.model import Type
from oracle_server.server import OracleServer
from routes.runs import OneOutput, batches

from unloader.transforms.model import TokenizeColumn, Transform
from unloader.transforms.transformer import Transformer
from writers.model import TextFormat

if TYPE_CHECKING:
    from conftest import PostgresServer

KEYS = {"k": bytes(range(32))}
OUTPUTS = [OneOutput(text=None), OneOutput(text=TextFormat(), batches_only=True)]
NUMBERS: Natives = {
    "A": ("NUMBER(9)", Type(name="NUMBER", precision=9, scale=0)),
    "B": ("NUMBER(10,2)", Type(name="NUMBER", precision=10, scale=2)),
    "C": ("NUMBER", Type(name="NUMBER")),
    "D": ("VARCHAR2(10)", Type(name="VARCHAR2", length=10)),
}


@pytest.fixture
def oracle(monkeypatch: pytest.MonkeyPatch) -> Iterator[OracleServer]:
    """A server with one row of 42 in four types."""
    monkeypatch.setenv("UNLOADER_PASSWORD", "tiger")
    database = Database()
    database.add_user("SCOTT", "tiger")
    with OracleServer(database) as running:
        create(running, NUMBERS, [(42, Decimal("42.00"), 42, "42")])
        yield running


def tokens(schema: pa.Schema, found: list[pa.RecordBatch]) -> set[Any]:
    """Return the tokens of all values of all columns."""
    steps = tuple(
        TokenizeColumn(tokenize=name, key="k", domain="customer") for name in schema.names
    )
    transformer = Transformer(Transform(steps=steps), schema, KEYS)
    masked = [transformer.apply(batch) for batch in found]
    return {value for batch in masked for column in batch.columns for value in column.to_pylist()}


@pytest.mark.parametrize("output", OUTPUTS, ids=["parquet", "text"])
def test_42_has_one_token_in_every_database(
    tmp_path: Path, postgres: PostgresServer, oracle: OracleServer, output: OneOutput
) -> None:
    """In all types that numbers have there, for Parquet as for text."""
    with duckdb.connect(str(tmp_path / "d.db")) as file:
        file.execute("CREATE TABLE t (x INTEGER)")
    queries = {
        postgres.url: "SELECT 42::int2 a, 42::int8 b, 42::numeric c, 42.00::numeric(60,2) d,"
        " 42.0::numeric(9,1) e, '42'::text f",
        f"duckdb://{tmp_path}/d.db": "SELECT 42::UTINYINT a, 42::HUGEINT b, 42.00::DECIMAL(9,2) c,"
        " '42' d, 42::BIGINT e",
    }
    seen: set[Any] = set()
    for url, query in queries.items():
        with batches(url, query, output) as (schema, found):
            seen |= tokens(schema, list(found))
    run = Run(oracle, NUMBERS, target=output)
    seen |= tokens(run.schema, run.table().to_batches())
    assert len(seen) == 1
    assert None not in seen
