"""How the rows of a sample of keys are chosen in SQLite, see `unloader.sources.sampling`.

SQLite has no hash. A worker reads the keys beside the columns asked for, and leaves rows out as
they come; the parent counts by a function of its own connection.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from partition_planner.model import ColumnInfo
from unloader.model import Extract, ReadColumn, SampledKeys
from unloader.sources.sampling import is_sampled
from unloader.sources.sqlite.types import READING, attribute
from unloader.sources.statement import quoted

if TYPE_CHECKING:
    import pyarrow as pa

_FUNCTION = "unloader_is_sampled"


def sampled_keys(column: ColumnInfo, share: float) -> SampledKeys | None:
    """Return the sample of a column's values; None if they are reals."""
    if attribute(column, READING) == "real":
        return None
    value = quoted(column.name)
    whole = f"CAST({value} AS INTEGER)"
    real = f"CAST(CASE WHEN {value} = {whole} THEN {whole} ELSE {value} END AS TEXT)"
    text = (
        f"CASE typeof({value}) WHEN 'text' THEN {value} WHEN 'integer' THEN CAST({value} AS TEXT) "
        f"WHEN 'blob' THEN lower(hex({value})) WHEN 'real' THEN {real} END"
    )
    return SampledKeys(column=column.name, share=share, text=text, condition="")


def counted_condition(extract: Extract) -> list[str]:
    """Return what holds for the rows of the sample where the function is known."""
    keys = extract.keys
    if keys is None:
        return []
    return [f"{_FUNCTION}(CAST({keys.text} AS BLOB), {keys.share!r})"]


def add_function(connection: sqlite3.Connection) -> None:
    """Make the function known that `counted_condition` calls."""
    connection.create_function(_FUNCTION, 2, is_sampled, deterministic=True)


def with_key(extract: Extract) -> Extract:
    """Return an extract with the key as one more column behind the others."""
    keys = extract.keys
    if keys is None:
        return extract
    key = ReadColumn(
        name=keys.column,
        source_type="",
        expression=keys.text,
        output_type="string",
        nullable=True,
        lossless=True,
    )
    projection = extract.projection
    return replace(extract, projection=replace(projection, columns=(*projection.columns, key)))


def chosen(batches: Iterator[pa.RecordBatch], extract: Extract) -> Iterator[pa.RecordBatch]:
    """Yield the rows asked for, without their key; as many as that at most.

    Args:
        batches: With the columns of `with_key`.
        extract: What was asked for.
    """
    left = extract.limit_rows
    for batch in batches:
        if extract.keys is not None:
            batch = _sampled(batch, extract.keys.share)
        if left is not None:
            batch = batch.slice(0, left)
            left -= batch.num_rows
        yield batch
        del batch
        if left == 0:
            return


def _sampled(batch: pa.RecordBatch, share: float) -> pa.RecordBatch:
    import pyarrow as pa

    # As bytes: a text may be no UTF-8.
    keys = batch.column(batch.num_columns - 1).cast(pa.binary()).to_pylist()
    rows = batch.select(range(batch.num_columns - 1))
    return rows.filter(pa.array([is_sampled(key, share) for key in keys], pa.bool_()))
