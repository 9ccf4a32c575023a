"""The statements over a selector's rows, the same in parent and workers, and the rows of a sample.

SQLite has no hash. A worker reads the keys of a sample beside the columns asked for, and leaves
rows out as they come; the parent counts by a function of its connection. See
`unloader.sources.statement`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from partition_planner.model import ColumnInfo, RowRange, Selector, TableInfo, WholeTable
from unloader.model import Extract, ReadColumn, SampledKeys
from unloader.sources.sqlite.types import (
    READING,
    ROWID,
    attribute,
    first_row,
    refused_class,
    value_of,
)
from unloader.sources.statement import is_sampled, quoted, relation_of, row_conditions, select

if TYPE_CHECKING:
    import pyarrow as pa

RESERVATION = "write-reservation"

_LOWEST, _HIGHEST = -(2**63), 2**63 - 1
_COLUMNS_PER_SEARCH = 200
"""SQLite nests a chain of OR, or of sums, and its expressions may be 1000 deep."""

TOO_WIDE = "string or blob too big"
"""What SQLite says where `_STOP` is evaluated, and of a value beyond its own limit."""
_STOP = f"zeroblob({2**31 - 1})"


def relation_name(table: TableInfo, query: str | None) -> str:
    """Return the name under which a statement refers to columns of `relation_of`."""
    return table.name if query is None else "query"


def conditions(extract: Extract, selector: Selector | None) -> list[str]:
    """Return the conditions for the rows of a selector, or of the extract if that is absent."""
    found = [] if selector is None else list(_range(extract.table, selector))
    return found + row_conditions(extract)


def in_rowid_order(extract: Extract) -> bool:
    """Return whether `selector_statement` gives rows in the order of their rowid, each time.

    For a view, a query or a condition SQLite may use the index that it considers the fastest.
    Without a reservation, other programs may change the rows between two statements.
    """
    reserved = extract.snapshot is not None and extract.snapshot.kind == RESERVATION
    return reserved and _is_plain(extract)


def _is_plain(extract: Extract) -> bool:
    """Return whether a table is read from end to end; with no index it comes by its rowid."""
    return extract.query is None and extract.where is None and extract.table.row_ranges


def selector_statement(
    extract: Extract,
    selector: Selector,
    *,
    skip: int = 0,
    rows: int | None = None,
    widest_bytes: int | None = None,
) -> str:
    """Return the statement that reads the rows of a selector, or a stretch of them.

    Its first row is not from the table: it fixes the types of the result.

    Args:
        extract: The table or query.
        selector: The rows of a unit.
        skip: Leave out as many rows, in the order in which SQLite gives them.
        rows: How many rows follow; None for all that are left.
        widest_bytes: A row with more in its texts and blobs stops the statement, before it reaches
            the driver.
    """
    columns = extract.projection.columns
    items = ", ".join(column.expression for column in columns)
    where = conditions(extract, selector)
    if widest_bytes is not None:
        where += _guards(extract, widest_bytes)
    # An index that holds all columns would be read in its own order.
    relation = relation_of(extract) + (" NOT INDEXED" if _is_plain(extract) else "")
    found = select(items, relation, where)
    most = rows
    # The worker counts the rows of a sample.
    if extract.limit_rows is not None and extract.keys is None:
        left = max(0, extract.limit_rows - skip)
        most = left if most is None else min(left, most)
    if skip or most is not None:
        limit = -1 if most is None else most
        found = f"SELECT * FROM ({found} LIMIT {limit} OFFSET {skip})"
    return f"SELECT {first_row(columns)} UNION ALL {found}"


def _guards(extract: Extract, widest_bytes: int) -> Iterator[str]:
    """Yield conditions that stop the statement at a wide row; no value is read for its length."""
    relation = relation_name(extract.table, extract.query)
    values = [
        value_of(column.name, relation)
        for column in extract.projection.columns
        if column.output_type in ("string", "binary")
    ]
    for start in range(0, len(values), _COLUMNS_PER_SEARCH):
        part = values[start : start + _COLUMNS_PER_SEARCH]
        width = " + ".join(f"ifnull(octet_length({value}), 0)" for value in part)
        yield f"({width} <= {widest_bytes} OR {_STOP})"


def sample_statement(extract: Extract, selector: Selector, rows: int) -> str:
    """Return the statement for the first rows of a selector's range, without the user's condition.

    A row that fixes the types comes first, as in `selector_statement`.
    """
    columns = extract.projection.columns
    items = ", ".join(column.expression for column in columns)
    found = select(items, relation_of(extract), list(_range(extract.table, selector)))
    return f"SELECT {first_row(columns)} UNION ALL {found} LIMIT {rows + 1}"


def searches(extract: Extract, selector: Selector) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield column names, and the statement that finds a row whose values stop the reading.

    Each statement gives one row at most: the rowid as text, or NULL without a rowid, and for each
    of the columns the storage class of a refused value, or NULL.
    """
    relation = relation_name(extract.table, extract.query)
    refused = []
    for column in extract.projection.columns:
        value = value_of(column.name, relation)
        bad = refused_class(column, value)
        if bad is not None:
            refused.append((column.name, value, bad))
    rowid = _rowid(extract.table)
    for start in range(0, len(refused), _COLUMNS_PER_SEARCH):
        part = refused[start : start + _COLUMNS_PER_SEARCH]
        items = [f"CAST({rowid} AS TEXT)" if rowid else "NULL"]
        items += [f"CASE WHEN {bad} THEN typeof({value}) END" for _, value, bad in part]
        any_bad = f"({' OR '.join(bad for _, _, bad in part)})"
        rows = select(
            ", ".join(items), relation_of(extract), [*conditions(extract, selector), any_bad]
        )
        yield tuple(name for name, _, _ in part), f"{rows} LIMIT 1"


def _range(table: TableInfo, selector: Selector) -> Iterator[str]:
    if not isinstance(selector, RowRange):
        assert isinstance(selector, WholeTable), "the source describes only these kinds"
        return
    rowid = _rowid(table)
    first, last = selector.first, selector.last
    # An integer literal beyond 64 bits would be a real.
    if first is not None and first > _LOWEST:
        yield f"{rowid} >= {first}" if first <= _HIGHEST else "0"
    if last is not None and last <= _HIGHEST:
        yield f"{rowid} < {last}" if last > _LOWEST else "0"


def _rowid(table: TableInfo) -> str | None:
    name = attribute(table.columns[0], ROWID) if table.columns else None
    return None if name is None else f"{quoted(table.name)}.{name}"


_FUNCTION = "unloader_is_sampled"


def sampled_keys(column: ColumnInfo, share: float) -> SampledKeys | None:
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
    keys = extract.keys
    if keys is None:
        return []
    return [f"{_FUNCTION}(CAST({keys.text} AS BLOB), {keys.share!r})"]


def add_function(connection: sqlite3.Connection) -> None:
    connection.create_function(_FUNCTION, 2, is_sampled, deterministic=True)


def with_key(extract: Extract) -> Extract:
    """Return an extract with the key as an additional last column."""
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
    """Yield the sampled rows without their key, at most `limit_rows` of the extract.

    Args:
        batches: Batches with the columns of `with_key`.
    """
    import pyarrow as pa

    left = extract.limit_rows
    for batch in batches:
        if extract.keys is not None:
            # As bytes: a text may be no UTF-8.
            keys = batch.column(batch.num_columns - 1).cast(pa.binary()).to_pylist()
            sampled = pa.array([is_sampled(key, extract.keys.share) for key in keys], pa.bool_())
            batch = batch.select(range(batch.num_columns - 1)).filter(sampled)
        if left is not None:
            batch = batch.slice(0, left)
            left -= batch.num_rows
        yield batch
        del batch
        if left == 0:
            return
