"""What Parquet cannot hold: types, refused before any row, and values, with their column."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from writers.errors import FormatError, ValueNotRepresentable, WriteError
from writers.parquet.options import format_options

if TYPE_CHECKING:
    import pyarrow as pa

    from writers.model import ParquetFormat


def check_types(schema: pa.Schema, parquet: ParquetFormat) -> list[str]:
    """Refuse a column that Parquet has no type for.

    Returns:
        The path of every column of the file; a nested one has several, joined by dots.

    Raises:
        FormatError: Names the first such column.
    """
    import pyarrow as pa

    for field in schema:
        if pa.types.is_date64(field.type):
            # Arrow stores it as whole days and drops the time of day without a word.
            raise _unsupported(field, "its time of day would be lost")
    try:
        metadata = write_trial(schema.empty_table(), format_options(parquet))
    except (pa.ArrowException, OSError):
        for field in schema:
            try:
                write_trial(pa.schema([field]).empty_table(), format_options(parquet))
            except (pa.ArrowException, OSError) as exc:
                raise _unsupported(field, str(exc)) from exc
        raise
    return [metadata.schema.column(index).path for index in range(metadata.num_columns)]


def statistics_options(schema: pa.Schema, parquet: ParquetFormat) -> dict[str, Any]:
    """Return the option of pyarrow that leaves floating-point columns without statistics.

    Readers skip row groups by bounds, and would skip NaN with them: NaN is in no bounds of pyarrow.
    Whether a column has NaN is not known when its file is opened.
    """
    if not parquet.statistics:
        return {}
    stored = write_trial(schema.empty_table(), format_options(parquet)).schema
    columns = [stored.column(index) for index in range(len(stored))]
    floating = {column.path for column in columns if _is_floating(column)}
    return {"write_statistics": [column.path for column in columns if column.path not in floating]}


def _is_floating(column: Any) -> bool:
    return column.physical_type in ("FLOAT", "DOUBLE") or column.logical_type.type == "FLOAT16"


def write_trial(table: pa.Table, options: dict[str, Any]) -> Any:
    """Write a table to nowhere and return the metadata of the file it would be."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    found: list[Any] = []
    writer = pq.ParquetWriter(
        pa.MockOutputStream(), table.schema, metadata_collector=found, **options
    )
    try:
        writer.write_table(table)
    except BaseException:
        # Closing it would fail as well, and that error would hide this one.
        writer.is_open = False
        raise
    writer.close()
    return found[0]


def refusal(table: pa.Table, exc: Exception, parquet: ParquetFormat) -> WriteError:
    """Return the error for a row group Arrow refused, with the first column it refuses alone."""
    import pyarrow as pa

    for index, name in enumerate(table.schema.names):
        try:
            write_trial(table.select([index]), format_options(parquet))
        except (pa.ArrowException, ValueError, OverflowError, OSError) as reason:
            return ValueNotRepresentable(
                f"column {name!r} ({table.schema.field(index).type}) holds a value that Parquet "
                f"{parquet.version} cannot hold: {reason}.",
                "cast the column in the query, or write text.",
            )
    return WriteError(
        f"Arrow could not write a row group of {table.num_rows} rows: {exc}.",
        "try smaller row groups, or report this with the types of the columns.",
    )


def _unsupported(field: pa.Field, why: str) -> FormatError:
    return FormatError(
        f"column {field.name!r} has the type {field.type}, which Parquet cannot hold: {why}.",
        "leave the column out, cast it in the query, or write text.",
    )
