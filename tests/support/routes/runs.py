"""A source and an encoder in this process: what a query's one value becomes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, cast

import pyarrow as pa
from msgspec.structs import replace

from partition_planner.model import PlanLimits
from partition_planner.planner import plan
from routes.one_output import OneOutput
from unloader.errors import OutputFailed, UnloaderError
from unloader.failures import failure_of
from unloader.model import Extract, SourceSpec
from unloader.sources.registry import source_of
from writers.errors import ValueNotRepresentable
from writers.model import EncoderChoice, TextFormat
from writers.schema import read_schema
from writers.text.dialects import dialect as named
from writers.text.encoders import open_encoder


@contextmanager
def batches(url: str, query: str, target: OneOutput) -> Iterator[tuple[pa.Schema, Any]]:
    """Yield the schema of a query's batches, and an iterator over them."""
    spec = SourceSpec(kind=url.partition(":")[0], location=url)
    source = source_of(spec.kind)
    with closing(source.open_catalog(spec)) as catalog:
        table = catalog.describe_query(query)
        extract = Extract(
            source=spec,
            snapshot=None,
            table=table,
            query=query,
            where=None,
            projection=target.project(catalog, table, query),
        )
    (unit,) = plan(table, PlanLimits(parallelism=1)).units
    schema = read_schema(extract.projection.schema)
    # DuckDB opens a file in one way only in one process, so the catalog is closed by now.
    with closing(source.open_reader(spec, None)) as reader:
        yield schema, reader.batches(extract, *unit.pieces, batch_bytes=1 << 20)


def written(
    url: str,
    query: str,
    dialect: str,
    mask: str,
    encoder: str,
    as_text: tuple[str, ...] = (),
) -> str:
    """Return what is written of the one value of a query, its enclosures taken off."""
    masks = {"date_format": mask, "timestamp_format": mask, "timestamp_tz_format": mask}
    text: TextFormat = replace(
        named(dialect), header=False, record_length_digits=0, trailing_delimiter=False, **masks
    )
    target = OneOutput(text=text, as_text=as_text, batches_only=True)
    with batches(url, query, target) as (schema, found):
        encoding = open_encoder(schema, text, cast(EncoderChoice, encoder))
        data = b"".join(bytes(encoding.encode(batch)) for batch in found)
    return data.decode().strip("\r\n").strip(text.enclosure or "\n")


def refusal(url: str, query: str, dialect: str, mask: str, encoder: str) -> str:
    """Return the error that the one value is refused with, as a user reads it."""
    try:
        found = written(url, query, dialect, mask, encoder)
    except (UnloaderError, ValueNotRepresentable) as error:
        failure = failure_of(error)
        assert failure.error == OutputFailed.__name__
        return f"{failure.message}. Next: {failure.hint}"
    raise AssertionError(f"written as {found}")


def parquet(url: str, query: str) -> int | str:
    """Return the ticks of the one value of a query as Parquet holds it, or the refusal."""
    try:
        with batches(url, query, OneOutput(text=None)) as (_, found):
            (batch,) = found
    except UnloaderError as error:
        return f"{error.message}. Next: {error.hint}"
    width = pa.int32() if batch.column(0).type.bit_width == 32 else pa.int64()
    ticks: int = batch.column(0).view(width)[0].as_py()
    return ticks
