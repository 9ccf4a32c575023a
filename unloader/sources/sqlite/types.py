"""How the values of a SQLite column are read without changing any.

SQLite types values, not columns: a column declared INTEGER may hold text. The declared type gives
the reading of a column by SQLite's rules of affinity (https://www.sqlite.org/datatype3.html). The
driver would convert any other value without a word, so the statement lets none reach it: a value
of another storage class stops the unit, unless the column is read as exact text, which holds all.

Exact text leaves the database in two columns, for SQLite has no exact text for a real: the texts,
and the reals, which then become the texts that the encoder gives reals of a typed column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from partition_planner.model import ColumnInfo
from unloader.errors import OutputFailed
from unloader.model import Extract, ReadColumn
from unloader.sources.readings import ColumnReadings, Reading
from unloader.sources.statement import quoted
from writers.schema import pc

if TYPE_CHECKING:
    import pyarrow as pa

Kind = Literal["integer", "real", "text", "blob", "exact"]

READING = "reading"
"""Attribute of a column: its `Kind`, where `--as-text` does not say otherwise."""
CHECKED = "checked"
"""Attribute of a column: SQLite itself keeps values of other storage classes out."""
ROWID = "rowid"
"""Attribute of each column of a table: the name under which its rowid can be asked for."""

OVERFLOW = "integer overflow"
"""What SQLite says where `_STOP` is evaluated."""
_STOP = "abs(-9223372036854775808)"
_EXACT = "/* exact text, reals apart */ "
_ARROW = {"integer": "int64", "real": "double", "text": "string", "blob": "binary"}
_FIRST = {"int64": "0", "double": "0.0", "string": "''", "binary": "x''"}


def reading_of(declared: str) -> Kind:
    name = declared.upper()
    if "INT" in name or name in ("BOOLEAN", "BOOL"):
        return "integer"
    if any(part in name for part in ("CHAR", "CLOB", "TEXT")):
        return "text"
    if "BLOB" in name:
        return "blob"
    if any(part in name for part in ("REAL", "FLOA", "DOUB")):
        return "real"
    return "exact"


def attribute(column: ColumnInfo, key: str) -> str | None:
    return dict(column.attributes).get(key)


def readings_of(column: ColumnInfo, relation: str) -> ColumnReadings:
    """Return how one column can be read: by its declared type, and as exact text."""
    value = value_of(column.name, relation)
    usual = attribute(column, READING) or "exact"
    checked = attribute(column, CHECKED) is not None
    if usual == "exact":
        expression = _exact(value)
        declared = f"the declared type {column.native_type}" if column.native_type else "no type"
        note = (
            f"exact text: {declared} allows values of any type, and the number 1 and the text '1' "
            "are written the same"
        )
    else:
        expression = value if checked else _guarded(value, usual)
        note = ""
    metadata = (("source_type", column.native_type),)
    return ColumnReadings(
        name=column.name,
        source_type=column.native_type,
        nullable=column.nullable,
        readings=(
            Reading(
                expression=expression,
                output_type=_ARROW.get(usual, "string"),
                as_text=False,
                lossless=usual != "exact",
                note=note,
                metadata=metadata,
            ),
            Reading(
                expression=_exact(value),
                output_type="string",
                as_text=True,
                lossless=checked,
                note="exact text: as requested",
                metadata=metadata,
            ),
        ),
    )


def value_of(name: str, relation: str) -> str:
    """Return the qualified name of a column; SQLite takes an unknown bare `"name"` for a string."""
    return f"{quoted(relation)}.{quoted(name)}"


def _guarded(value: str, storage: str) -> str:
    return (
        f"CASE typeof({value}) WHEN '{storage}' THEN {value} WHEN 'null' THEN NULL ELSE {_STOP} END"
    )


def _exact(value: str) -> str:
    blob = rf"'\x' || lower(hex({value}))"
    return (
        f"{_EXACT}CASE typeof({value}) WHEN 'text' THEN {value} "
        f"WHEN 'integer' THEN CAST({value} AS TEXT) WHEN 'blob' THEN {blob} END, "
        f"CASE typeof({value}) WHEN 'real' THEN {value} END"
    )


def first_row(columns: Sequence[ReadColumn]) -> str:
    """Return the select list of a row of constants that fixes the types of the result.

    The driver infers a column's type from the first rows, and would get an empty or all-NULL
    column wrong.
    """
    return ", ".join(
        f"{_FIRST[column.output_type]}{', 0.0' if _is_pair(column) else ''}" for column in columns
    )


def refused_class(column: ReadColumn, value: str) -> str | None:
    """Return the SQL condition under which a value stops the unit; None where none can."""
    if _is_pair(column) or column.expression == value:
        return None
    storage = next(key for key, kind in _ARROW.items() if kind == column.output_type)
    return f"typeof({value}) NOT IN ('{storage}', 'null')"


def foreign_value(extract: Extract, name: str, storage: str, rowid: str | None) -> OutputFailed:
    (column,) = (column for column in extract.projection.columns if column.name == name)
    declared = f" declared {column.source_type}" if column.source_type else ""
    place = f" in the row with rowid {rowid}" if rowid is not None else ""
    return OutputFailed(
        f"column {name} of {extract.table.label},{declared} read as {column.output_type}, "
        f"holds a value of storage class {storage}{place}",
        f"write the column as exact text with --as-text {name}, or leave it out with --exclude "
        f"{name}",
    )


def conform(
    batch: pa.RecordBatch, columns: Sequence[ReadColumn], schema: pa.Schema
) -> pa.RecordBatch:
    """Return a batch of the driver under the run's schema, exact texts put together.

    Raises:
        OutputFailed: A text is not valid UTF-8.
    """
    import pyarrow as pa

    arrays = list(_merged(iter(batch.columns), columns))
    for array, column in zip(arrays, columns, strict=True):
        if column.output_type == "string":
            try:
                array.validate(full=True)
            except pa.ArrowInvalid as error:
                raise _not_utf8(column) from error
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _merged(found: Iterator[pa.Array], columns: Sequence[ReadColumn]) -> Iterator[pa.Array]:
    for column in columns:
        array = next(found)
        if _is_pair(column):
            reals = next(found)
            if reals.null_count < len(reals):
                # Imported on use: they take longer than a small table.
                from writers.text.number_texts import float_texts

                array = pc.coalesce(array, float_texts(reals))
        yield array


def _is_pair(column: ReadColumn) -> bool:
    return column.expression.startswith(_EXACT)


def _not_utf8(column: ReadColumn) -> OutputFailed:
    return OutputFailed(
        f"column {column.name} holds text that is not valid UTF-8",
        f"leave the column out with --exclude {column.name}, or read its bytes: --query with "
        f"CAST({quoted(column.name)} AS BLOB) AS {quoted(column.name)}",
    )
