"""A table's columns as a projection: what the batches hold, and the SELECT list behind them."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from unloader.errors import SourceError
from unloader.model import Extract, Projection, ReadColumn, Target
from unloader.sources.oracle.columns.native import parse_native
from unloader.sources.oracle.columns.types import form_of, read_columns
from unloader.sources.oracle.reading.fetch import fetch_plan

if TYPE_CHECKING:
    import pyarrow as pa

    from partition_planner.model import TableInfo

_TIMESTAMP = re.compile(r"timestamp\[(\w+)(, tz=UTC)?\]")
_MOMENTS = ("TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "TIMESTAMP WITH LOCAL TIME ZONE")


def projection(table: TableInfo, query: str | None, target: Target) -> Projection:
    """Return how the columns of a table or query are read and written.

    Args:
        table: Its columns are the chosen ones.
        query: The query behind the table, if it is one.
        target: What the output needs.

    Raises:
        SourceError: A column cannot be read exactly, or a zone column has the name of another.
    """
    columns = tuple(read for column in table.columns for read in read_columns(column, target))
    for name, count in Counter(column.name for column in columns).items():
        if count > 1:
            raise SourceError(
                f"there is a column {name} already, and --zone-columns would add another",
                f"leave one out with --exclude {name}, or do without --zone-columns",
            )
    schema = arrow_schema(columns, target)
    return Projection(columns=columns, route="arrow", schema=schema.serialize().to_pybytes())


def select_columns(extract: Extract) -> str:
    """Return the SELECT list of a unit's statement, as workers send it first."""
    return ", ".join(item.expression for item in fetch_plan(extract).items)


def arrow_schema(columns: tuple[ReadColumn, ...], target: Target) -> pa.Schema:
    """Return the schema of the batches.

    Numbers and timestamps that are carried as text are marked for the encoder by `text_class`,
    apart from timestamps that the user wants as exact text, which no mask may change.
    """
    import pyarrow as pa

    from unloader.request.names import matches_any

    fields = []
    for column in columns:
        metadata = {"source_type": column.source_type}
        if column.source_type == "DATE" and column.output_type != "string":
            metadata["text_class"] = "date"
        if column.output_type == "string":
            if form_of(column) in ("number", "real"):
                metadata["text_class"] = "number"
            elif parse_native(column.source_type).name in _MOMENTS and not matches_any(
                column.name, target.as_text
            ):
                metadata["text_class"] = "timestamp"
        fields.append(pa.field(column.name, arrow_type(column.output_type), metadata=metadata))
    return pa.schema(fields)


def arrow_type(name: str) -> pa.DataType:
    """Return the Arrow type that a column's `output_type` names."""
    import pyarrow as pa

    if match := _TIMESTAMP.fullmatch(name):
        return pa.timestamp(match[1], "UTC" if match[2] else None)
    if name.startswith("decimal128"):
        precision, scale = re.findall(r"\d+", name.partition("(")[2])
        return pa.decimal128(int(precision), int(scale))
    named: dict[str, pa.DataType] = {
        "bool": pa.bool_(),
        "int32": pa.int32(),
        "int64": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "string": pa.string(),
        "binary": pa.binary(),
    }
    return named[name]
