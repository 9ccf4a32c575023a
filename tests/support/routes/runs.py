"""Runs into one output, and their files read back."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from encoders.sqlldr_rules import Field, FieldList, var_records
from msgspec.structs import replace

from partition_planner.model import PlanLimits, TableInfo
from partition_planner.planner import plan
from unloader.errors import OutputFailed, UnloaderError, failure_of
from unloader.model import Extract, Projection, SourceSpec, ValueOptions
from unloader.sources.base import Catalog
from unloader.sources.oracle.types import readings_of
from unloader.sources.questions import project
from unloader.sources.readings import OutputNeeds, choose
from unloader.sources.registry import source_of
from writers.errors import ValueNotRepresentable
from writers.model import EncoderChoice, TextFormat
from writers.schema import read_schema
from writers.text.dialects import dialect as named
from writers.text.text_writer import open_encoder


@dataclass(frozen=True, kw_only=True)
class OneOutput:
    """An output, and the user's options for columns and values."""

    text: TextFormat | None
    """None is Parquet."""
    as_text: tuple[str, ...] = ()
    batches_only: bool = False
    values: ValueOptions = field(default_factory=ValueOptions)

    @property
    def needs(self) -> OutputNeeds:
        """The needs of the output from the columns."""
        return OutputNeeds(text=self.text, batches_only=self.batches_only)

    def project(self, catalog: Catalog, table: TableInfo, query: str | None) -> Projection:
        """Return the projection that a source's catalog leads to."""
        return project(
            catalog, table, query, (self.needs,), as_text=self.as_text, values=self.values
        )


def oracle_projection(table: TableInfo, output: OneOutput) -> Projection:
    """Return the projection of an Oracle table, without a database."""
    readings = tuple(
        each for column in table.columns for each in readings_of(column, output.values)
    )
    return choose(readings, (output.needs,), as_text=output.as_text)


Rows = dict[int, tuple[str | None, ...]]
"""The other columns by the first, which is an id."""


def csv_rows(files: Sequence[Path], encoding: str = "utf-8", **form: Any) -> Rows:
    """Return the rows after a header by Python's reader, which reads NULL as empty text."""
    found: Rows = {}
    for file in files:
        with file.open(encoding=encoding, newline="") as stream:
            records = list(csv.reader(stream, strict=True, **form))
        found.update((int(record[0]), tuple(record[1:])) for record in records[1:])
    return found


def sqlldr_rows(files: Sequence[Path], columns: int) -> Rows:
    """Return the rows of `"var 10"` by the rules of SQL*Loader."""
    rules = FieldList(
        fields=(Field(),) * (columns + 1), terminated_by=",", optionally_enclosed_by="~~"
    )
    records = [
        rules.values(record.removesuffix(b"\r\n"))
        for file in files
        for record in var_records(file.read_bytes(), 10)
    ]
    return {int(str(record[0])): tuple(record[1:]) for record in records}


def copied_rows(
    postgres: Any, url: str, files: Sequence[Path], names: Sequence[str], options: str
) -> Rows:
    """Return the rows that PostgreSQL's own COPY loads."""
    columns = ", ".join(f"{name} text" for name in names)
    copies = "".join(f"\\copy back from '{file}' with ({options})\n" for file in files)
    postgres.run(
        "SET client_encoding = 'UTF8'; DROP TABLE IF EXISTS back;"
        f"CREATE TABLE back (id integer, {columns});\n{copies}",
        url=url,
    )
    return asked_rows(postgres, url, "SELECT * FROM back", names)


def asked_rows(postgres: Any, url: str, query: str, names: Sequence[str]) -> Rows:
    """Return the rows of a query for an id and texts, which reach us as the server has them."""
    shown = postgres.run(
        "SET TimeZone = 'UTC'; SET DateStyle = 'ISO, YMD'; SET IntervalStyle = 'postgres';"
        "SELECT encode(convert_to(coalesce(json_agg(to_jsonb(asked))::text, '[]'), 'UTF8'), 'hex') "
        f"FROM ({query}) AS asked",
        url=url,
    )
    rows = json.loads(bytes.fromhex("".join(shown.split())))
    return {row["id"]: tuple(row[name] for name in names) for row in rows}


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
    url: str, query: str, dialect: str, mask: str, encoder: str, as_text: tuple[str, ...] = ()
) -> str:
    """Return the text of the one value of a query, without enclosures."""
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
