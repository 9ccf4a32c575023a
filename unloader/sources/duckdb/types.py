"""DuckDB types: how each is read so that no value changes.

Source of truth: DuckDB's own Arrow export, tried type by type. What it cannot carry exactly
(HUGEINT, INTERVAL, TIMETZ, BIT, unions, ...) is cast to DuckDB's own exact text. A date or
timestamp may be infinite: DuckDB exports it as the end of the type's range, a finite value to
Arrow. Columns that are written as text without a mask are marked for the encoder, which knows the
ends; for Parquet, and under a mask, such a value stops the unit by name.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from partition_planner.model import ColumnInfo
from unloader.model import ReadColumn, Target
from unloader.request.names import matches_any
from unloader.sources.statement import literal, quoted
from writers.schema import INFINITE

if TYPE_CHECKING:
    import pyarrow as pa

    from writers.model import TextFormat

REFUSED = "unloader refuses "

_PLAIN = {
    "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT",
    "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT",
    "FLOAT", "DOUBLE", "VARCHAR", "BLOB", "TIME",
}  # fmt: skip
_INSTANTS = {
    "DATE": "",
    "TIMESTAMP": "",
    "TIMESTAMP WITH TIME ZONE": "",
    "TIMESTAMP_NS": "",
    "TIMESTAMP_S": "::TIMESTAMP",
    "TIMESTAMP_MS": "::TIMESTAMP",
}
"""Types that may be infinite, and the exact cast to microseconds where one is needed."""
_TEXT_NOTES = {
    "HUGEINT": "wider than decimal(38): exact text",
    "UHUGEINT": "wider than decimal(38): exact text",
    "INTERVAL": "months, days and microseconds: exact text",
    "TIME WITH TIME ZONE": "keeps its offset: exact text",
    "UUID": "canonical text",
    "JSON": "text as stored",
}
_DECIMAL = re.compile(r"DECIMAL\((\d+),\s*(\d+)\)")
_INEXACT_INSIDE = re.compile(
    r"HUGEINT|INTERVAL|TIME WITH TIME ZONE|\bBIT\b|UNION|DATE|TIMESTAMP|BIGNUM|VARINT|VARIANT"
    r"|GEOMETRY|ENUM|UUID|JSON|\[\d+\]"
)


def read_column(column: ColumnInfo, target: Target) -> ReadColumn:
    """Return how a column is read; `output_type` is filled in by `with_types`."""
    expression, note = _expression(column, target)
    return ReadColumn(
        name=column.name,
        source_type=column.native_type,
        expression=expression,
        output_type="",
        nullable=column.nullable,
        lossless=True,
        note=note,
    )


def _expression(column: ColumnInfo, target: Target) -> tuple[str, str]:
    name, kind = quoted(column.name), column.native_type
    if matches_any(column.name, target.as_text):
        return f"CAST({name} AS VARCHAR)", "exact text, as asked for"
    if kind in _PLAIN or _DECIMAL.fullmatch(kind):
        return name, ""
    if kind in _INSTANTS:
        value = name + _INSTANTS[kind]
        if _takes_infinity(kind, target.text):
            return value, ""
        message = literal(REFUSED + column.name)
        return (
            f"CASE WHEN isfinite({name}) THEN {value} "
            f"WHEN {name} IS NOT NULL THEN error({message}) END",
            "",
        )
    nested = kind.endswith("]") or kind.startswith(("STRUCT(", "MAP("))
    if nested and not _INEXACT_INSIDE.search(kind):
        return name, ""
    note = _TEXT_NOTES.get(kind, "exact text")
    return f"CAST({name} AS VARCHAR)", note


def _takes_infinity(kind: str, text: TextFormat | None) -> bool:
    """Return whether infinite values of a type are written: as text that follows no mask."""
    if text is None or kind not in _INSTANTS:
        return False
    if kind == "DATE":
        return text.date_format is None
    mask = text.timestamp_tz_format if kind.endswith("TIME ZONE") else text.timestamp_format
    return mask is None


def with_types(
    columns: tuple[ReadColumn, ...], schema: pa.Schema, target: Target
) -> tuple[tuple[ReadColumn, ...], pa.Schema]:
    """Return the columns with their output types, and the schema every batch will have."""
    import pyarrow as pa

    def metadata(column: ReadColumn, kind: pa.DataType) -> dict[str, str]:
        infinite = pa.types.is_temporal(kind) and _takes_infinity(column.source_type, target.text)
        return {"source_type": column.source_type, **(INFINITE if infinite else {})}

    fields = [
        pa.field(
            field.name,
            pa.timestamp(field.type.unit, "UTC")
            if pa.types.is_timestamp(field.type) and field.type.tz
            else field.type,
            metadata=metadata(column, field.type),
        )
        for column, field in zip(columns, schema, strict=True)
    ]
    typed = tuple(
        replace(column, output_type=str(field.type))
        for column, field in zip(columns, fields, strict=True)
    )
    return typed, pa.schema(fields)


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch under the run's schema; only names of zones and metadata may differ."""
    import pyarrow as pa

    arrays = [
        array if array.type == field.type else array.cast(field.type)
        for array, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def refusal(text: str) -> tuple[str, str]:
    """Return message and hint for an error text that a guard of ours raised in the database."""
    column = text.partition(REFUSED)[2].strip()
    return (
        f"column {column} holds an infinite date or timestamp, which neither Parquet nor a date "
        "mask can show",
        f"write the column as exact text with --as-text {column}, or leave it out with --exclude",
    )
