"""Whether the rows that were read are the rows that are there; part of the contract of a source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any, cast

import pyarrow as pa

from unloader.model import Projection
from writers.schema import read_schema

Rows = Sequence[tuple[object, ...]]


def ensure(kept: bool, sentence: str) -> None:
    """Raise AssertionError with the sentence unless the promise was kept."""
    if not kept:
        raise AssertionError(sentence)


def check_batches(batches: Sequence[pa.RecordBatch], projection: Projection) -> None:
    """Check that every batch is valid and has the very schema of the projection."""

    schema = read_schema(projection.schema)
    names = [column.name for column in projection.columns]
    ensure(schema.names == names, f"the schema has the columns {schema.names}, not {names}")
    for batch in batches:
        ensure(
            batch.schema.equals(schema),
            f"a batch has the schema {batch.schema}, which is not the projection's {schema}",
        )
        try:
            batch.validate(full=True)
        except pa.ArrowInvalid as error:
            raise AssertionError(f"a batch is not valid Arrow data: {error}") from error


def check_rows(batches: Sequence[pa.RecordBatch], expected: Rows, how: str) -> None:
    """Check that the batches hold the expected rows, each as often, in any order.

    Args:
        batches: What was read.
        expected: As Arrow converts values to Python; timestamps in nanoseconds as Arrow's text.
        how: How it was read, for the message.
    """
    found = Counter(row for batch in batches for row in _keys(_tuples(batch)))
    wanted = Counter(_keys(expected))
    ensure(
        found == wanted,
        f"in {how}, rows are missing: {_some(wanted - found)}; "
        f"rows are too many or different: {_some(found - wanted)}",
    )


def columns_of(batches: Sequence[pa.RecordBatch], taken: Sequence[int] | None = None) -> object:
    """Return the rows of some columns, by index, as what can be compared; in no order."""
    chosen = batches if taken is None else [batch.select(list(taken)) for batch in batches]
    return Counter(row for batch in chosen for row in _keys(_tuples(batch)))


def _tuples(batch: pa.RecordBatch) -> Iterator[tuple[object, ...]]:

    columns = [
        column.cast(pa.string())
        if pa.types.is_timestamp(column.type) and column.type.unit == "ns"
        else column
        for column in batch.columns
    ]
    return zip(*(column.to_pylist() for column in columns), strict=True)


def _keys(rows: Iterable[tuple[object, ...]]) -> Iterator[tuple[object, ...]]:
    return (tuple(_key(value) for value in row) for row in rows)


def _key(value: Any) -> object:
    """Return what values share only if they are the same; `1`, `1.0`, `True` and `"1"` differ."""
    if isinstance(value, datetime):
        return ("datetime", value.isoformat())
    if isinstance(value, Decimal):
        return ("Decimal", str(Fraction(value)))  # a decimal's own arithmetic rounds to 28 digits
    return (type(value).__name__, repr(value))


def _some(rows: Counter[tuple[object, ...]]) -> str:
    if not rows:
        return "none"
    shown = [str(tuple(cast(Any, part)[1] for part in row)) for row in list(rows)[:3]]
    return f"{' and '.join(shown)}, {sum(rows.values())} in all"
