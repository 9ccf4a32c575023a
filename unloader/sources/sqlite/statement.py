"""The statements over a selector's rows, and how they read values of a column without changing any.

SQLite types values, not columns. The declared type gives the reading of a column by SQLite's rules
of affinity (https://www.sqlite.org/datatype3.html). The driver would convert any other value
without a word, so a value of another storage class stops the unit, unless the column is read as
exact text. Exact text leaves the database in two columns, for SQLite has no exact text for a real:
the texts, and the reals, which then become the texts that the encoder gives reals of a typed
column.

SQLite has no hash. A worker reads the keys of a sample beside the columns asked for, and leaves
rows out as they come; the parent counts by a function of its connection.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from partition_planner.model import ColumnInfo, RowRange, Selector, TableInfo, WholeTable
from unloader.errors import OutputFailed
from unloader.model import Extract, ReadColumn
from unloader.sources.readings import ColumnReadings, Reading
from unloader.sources.statement import is_sampled, quoted, relation_of, row_conditions, select
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
    expression, note = value, ""
    if usual == "exact":
        expression = _exact(value)
        declared = f"the declared type {column.native_type}" if column.native_type else "no type"
        note = (
            f"exact text: {declared} allows values of any type, and the number 1 and the text '1' "
            "are written the same"
        )
    elif not checked:
        kept = f"WHEN '{usual}' THEN {value} WHEN 'null' THEN NULL"
        expression = f"CASE typeof({value}) {kept} ELSE {_STOP} END"
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


def _exact(value: str) -> str:
    blob = rf"'\x' || lower(hex({value}))"
    return (
        f"{_EXACT}CASE typeof({value}) WHEN 'text' THEN {value} "
        f"WHEN 'integer' THEN CAST({value} AS TEXT) WHEN 'blob' THEN {blob} END, "
        f"CASE typeof({value}) WHEN 'real' THEN {value} END"
    )


def first_row(columns: Sequence[ReadColumn]) -> str:
    """Return constants that fix the types, which the driver infers from the first rows."""
    return ", ".join(
        f"{_FIRST[column.output_type]}{', 0.0' if _is_pair(column) else ''}" for column in columns
    )


def conform(
    batch: pa.RecordBatch, columns: Sequence[ReadColumn], schema: pa.Schema
) -> pa.RecordBatch:
    """Return a batch under the run's schema; `OutputFailed` where a text is not valid UTF-8."""
    import pyarrow as pa

    arrays, found = [], iter(batch.columns)
    for column in columns:
        array = next(found)
        if _is_pair(column):
            reals = next(found)
            if reals.null_count < len(reals):
                # Imported on use: they take longer than a small table.
                from writers.text.number_texts import float_texts

                array = pc.coalesce(array, float_texts(reals))
        if column.output_type == "string":
            try:
                array.validate(full=True)
            except pa.ArrowInvalid as error:
                name = quoted(column.name)
                raise OutputFailed(
                    f"column {column.name} holds text that is not valid UTF-8",
                    f"leave the column out with --exclude {column.name}, or read its bytes: "
                    f"--query with CAST({name} AS BLOB) AS {name}",
                ) from error
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _is_pair(column: ReadColumn) -> bool:
    return column.expression.startswith(_EXACT)


RESERVATION = "write-reservation"

_LOWEST, _HIGHEST = -(2**63), 2**63 - 1
_COLUMNS_PER_SEARCH = 200
"""SQLite nests a chain of OR, or of sums, and its expressions may be 1000 deep."""

TOO_WIDE = "string or blob too big"
"""What SQLite says where `_STOP_WIDE` is evaluated, and of a value beyond its own limit."""
_STOP_WIDE = f"zeroblob({2**31 - 1})"


def relation_name(table: TableInfo, query: str | None) -> str:
    """Return the name under which a statement refers to columns of `relation_of`."""
    return table.name if query is None else "query"


def conditions(extract: Extract, selector: Selector | None) -> list[str]:
    """Return the conditions for the rows of a selector, or of the extract if that is absent."""
    found = [] if selector is None else list(_range(extract.table, selector))
    return found + row_conditions(extract)


def is_plain(extract: Extract) -> bool:
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

    Its first row is not from the table: it fixes the types of the result. `skip` rows are left out,
    in the order in which SQLite gives them; `rows` follow, None for all. A row with more than
    `widest_bytes` in its texts and blobs stops the statement, before it reaches the driver.
    """
    columns = extract.projection.columns
    items = ", ".join(column.expression for column in columns)
    where = conditions(extract, selector)
    if widest_bytes is not None:
        # No value is read for its length.
        relation = relation_name(extract.table, extract.query)
        values = [
            value_of(column.name, relation)
            for column in columns
            if column.output_type in ("string", "binary")
        ]
        for start in range(0, len(values), _COLUMNS_PER_SEARCH):
            part = values[start : start + _COLUMNS_PER_SEARCH]
            width = " + ".join(f"ifnull(octet_length({value}), 0)" for value in part)
            where.append(f"({width} <= {widest_bytes} OR {_STOP_WIDE})")
    # An index that holds all columns would be read in its own order.
    source = relation_of(extract) + (" NOT INDEXED" if is_plain(extract) else "")
    found = select(items, source, where)
    most = rows
    # The worker counts the rows of a sample.
    if extract.limit_rows is not None and extract.keys is None:
        left = max(0, extract.limit_rows - skip)
        most = left if most is None else min(left, most)
    if skip or most is not None:
        limit = -1 if most is None else most
        found = f"SELECT * FROM ({found} LIMIT {limit} OFFSET {skip})"
    return f"SELECT {first_row(columns)} UNION ALL {found}"


def sample_statement(extract: Extract, selector: Selector, rows: int) -> str:
    """Return the statement for the first rows of a selector's range, after `first_row`, without
    `--where`.
    """
    columns = extract.projection.columns
    items = ", ".join(column.expression for column in columns)
    found = select(items, relation_of(extract), list(_range(extract.table, selector)))
    return f"SELECT {first_row(columns)} UNION ALL {found} LIMIT {rows + 1}"


def searches(extract: Extract, selector: Selector) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield column names, and the statement that finds a row whose values stop the reading.

    The row has the rowid as text, or NULL without a rowid, and for each of the columns the storage
    class of a refused value, or NULL.
    """
    relation = relation_name(extract.table, extract.query)
    refused = []
    for column in extract.projection.columns:
        value = value_of(column.name, relation)
        if not _is_pair(column) and column.expression != value:
            storage = next(key for key, kind in _ARROW.items() if kind == column.output_type)
            refused.append((column.name, value, f"typeof({value}) NOT IN ('{storage}', 'null')"))
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
    """Yield the sampled rows of `with_key` without their key, at most the extract's limit."""
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
