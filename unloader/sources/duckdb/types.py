"""DuckDB types: how each is read so that no value changes.

Source of truth: DuckDB's own Arrow export, tried type by type. A type that it cannot carry exactly
(HUGEINT, INTERVAL, TIMETZ, BIT, unions, ...) is cast to DuckDB's own exact text. A date or
timestamp may be infinite: DuckDB exports it as the end of the type's range, a finite value to
Arrow. Columns that are written as text without a mask are marked for the encoder, which knows the
ends; for Parquet, and under a mask, such a value stops the unit by name.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec.structs import replace

from partition_planner.model import ColumnInfo
from unloader.errors import OutputFailed
from unloader.sources.readings import ColumnReadings, Mask, Reading
from unloader.sources.statement import literal, quoted
from writers.schema import INFINITE

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

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
_MASKS: dict[str, Mask] = {
    kind: "timestamp_tz" if kind.endswith("TIME ZONE") else "timestamp" for kind in _INSTANTS
} | {"DATE": "date"}
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


def readings_of(column: ColumnInfo) -> ColumnReadings:
    """Return how a column can be read; the catalog fills in `output_type`."""
    name, kind = quoted(column.name), column.native_type
    metadata = (("source_type", kind),)
    unquoted = re.sub("'[^']*'|\"[^\"]*\"", "", kind)
    as_text = Reading(
        expression=f"CAST({name} AS VARCHAR)",
        output_type="",
        as_text=True,
        # Two values of a UNION have one text: 1 and '1'.
        lossless=not re.search(r"\b(UNION\(|VARIANT\b)", unquoted),
        note="exact text, as requested",
        metadata=metadata,
    )
    usual = replace(as_text, as_text=False)
    if kind in _INSTANTS:
        value, message = name + _INSTANTS[kind], literal(REFUSED + column.name)
        finite = (
            f"CASE WHEN isfinite({name}) THEN {value} "
            f"WHEN {name} IS NOT NULL THEN error({message}) END"
        )
        # One reading has infinite values, which only text can show; the other one stops there.
        infinite = (*metadata, *INFINITE.items())
        shown = replace(usual, expression=value, lossless=True, note="")
        readings = [
            replace(shown, serves=frozenset(("text",)), metadata=infinite),
            replace(shown, expression=finite, serves=frozenset(("parquet", "masked"))),
        ]
    else:
        nested = kind.endswith("]") or kind.startswith(("STRUCT(", "MAP("))
        if (
            kind in _PLAIN
            or _DECIMAL.fullmatch(kind)
            or (nested and not _INEXACT_INSIDE.search(kind))
        ):
            readings = [replace(usual, expression=name, lossless=True, note="")]
        else:
            note = _TEXT_NOTES.get(kind, "exact text")
            if not as_text.lossless:
                note = (
                    "text without the type of each value: the number 1 and the text '1' are "
                    "written the same"
                )
            readings = [replace(usual, note=note)]
    return ColumnReadings(
        name=column.name,
        source_type=kind,
        nullable=column.nullable,
        readings=(*readings, as_text),
        mask=_MASKS.get(kind),
    )


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch under the run's schema; only names of zones and metadata may differ."""
    import pyarrow as pa

    arrays = [
        array if array.type == field.type else array.cast(field.type)
        for array, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def refusal(names: Sequence[str]) -> OutputFailed:
    columns, them = (f"column {names[0]} holds", "the column")
    if len(names) > 1:
        columns, them = f"columns {', '.join(names)} hold", "the columns"
    listed = ",".join(names)
    return OutputFailed(
        f"{columns} an infinite date or timestamp, which neither Parquet nor a date mask can show",
        f"write {them} as exact text with --as-text {listed}, or leave {them} out with --exclude "
        f"{listed}",
    )


def refused_column(text: str) -> str:
    """Return the column that a guard of ours names in an error text, empty if none does."""
    return text.partition(REFUSED)[2].strip()
