"""Fetched batches, made into batches of the projection's schema: exactly, or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa
from msgspec import Struct

from unloader.errors import OutputFailed
from unloader.sources.oracle.columns.native import parse_native
from unloader.sources.oracle.columns.types import fraction_digits
from unloader.sources.oracle.reading.texts import (
    MomentRefused,
    moment_texts,
    number_texts,
    parse_moments,
    utc_texts,
    zone_names,
    zoned_texts,
)
from unloader.sources.oracle.reading.tuples import CheckedText
from unloader.sources.readings import type_named
from writers.arrow_compute import pc
from writers.text.binary_texts import binary_texts
from writers.text.number_texts import float_texts
from writers.text.string_arrays import value_bytes

if TYPE_CHECKING:
    from unloader.model import ReadColumn
    from unloader.sources.oracle.reading.fetch import FetchPlan, Item

_SHOWN_BYTES = 20

_WINDOW_BYTES = 64 * 1024
"""Text is copied to be looked at: in pieces that stay in the cache, in memory that serves again."""


def requested_schema(plan: FetchPlan) -> pa.Schema:
    """Return the schema of what is fetched, one field an item.

    Chosen so that the driver changes nothing: it cuts fractions for int64 and seconds, wraps
    nanoseconds and rounds to double without a word.
    """
    return pa.schema(
        [(f"c{index}", type_named(item.fetched)) for index, item in enumerate(plan.items)]
    )


class BatchMaker(Struct, kw_only=True):
    """Makes batches of one schema from the columns that one plan fetches."""

    plan: FetchPlan
    schema: pa.Schema

    def batch(self, fetched: Sequence[pa.Array]) -> pa.RecordBatch:
        """Return one batch of the schema; LOBs that did not come with their row are null.

        Args:
            fetched: An array for each item of the plan.

        Raises:
            OutputFailed: A value cannot be held exactly; names its column.
        """
        checked = isinstance(fetched, CheckedText)
        arrays = [
            self._array(item, array, checked=checked)
            for item, array in zip(self.plan.items, fetched, strict=True)
            if item.part == "value"
        ]
        lengths = {
            item.column: array
            for item, array in zip(self.plan.items, fetched, strict=True)
            if item.part == "length"
        }
        for index, length in lengths.items():
            arrays[index] = _with_empty(arrays[index], length)
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _array(self, item: Item, array: pa.Array, *, checked: bool) -> pa.Array:
        column, kind = self.plan.columns[item.column], self.schema.field(item.column).type
        if not checked and pa.types.is_string(array.type):
            _check_encoding(column, array)
        digits = _digits(column.source_type)
        if item.form == "number":
            return number_texts(array)
        if item.form == "moment":
            return _moments(column, array, kind, digits)
        if item.form == "utc":
            return utc_texts(array, digits)
        if item.form == "zoned":
            return zoned_texts(array, digits)
        if item.form == "zone":
            return zone_names(array)
        if item.form == "real":
            return float_texts(array)
        if item.form == "boolean":
            return pc.if_else(array, "true", "false")
        if pa.types.is_binary(array.type) and pa.types.is_string(kind):
            return binary_texts(array, "hex")
        return array if array.type == kind else array.cast(kind)


@lru_cache(maxsize=1024)
def _digits(source_type: str) -> int:
    return fraction_digits(parse_native(source_type))


def _moments(column: ReadColumn, array: pa.Array, kind: pa.DataType, digits: int) -> pa.Array:
    if not pa.types.is_timestamp(kind):
        return moment_texts(array, digits)
    try:
        return parse_moments(array, kind)
    except MomentRefused as refused:
        usual = f"write it as exact text with --as-text {column.name}"
        finest = (
            f"write the column as exact text with --nanoseconds string or --as-text {column.name}"
        )
        raise OutputFailed(
            f"column {column.name} holds {refused.text}, which {refused.reason}",
            finest if kind.unit == "ns" else usual,
        ) from refused


def _check_encoding(column: ReadColumn, array: pa.Array) -> None:
    """Make sure that text is UTF-8: the driver hands on whatever bytes the database has."""
    # Twenty times faster than looking value by value, and most columns are ASCII.
    text = value_bytes(array)
    windows = (text[at : at + _WINDOW_BYTES] for at in range(0, len(text), _WINDOW_BYTES))
    if all(bytes(window).isascii() for window in windows):
        return
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        values = array.cast(pa.binary())
        bad = next(value for value in values.to_pylist() if not _is_text(value))
        raise bad_text(column.name, bad) from error


def _is_text(value: bytes | None) -> bool:
    try:
        return value is None or value.decode() is not None
    except UnicodeDecodeError:
        return False


def bad_text(column: str, value: bytes) -> OutputFailed:
    """Return the error for bytes in a text column that are no text."""
    shown = value[:_SHOWN_BYTES].hex() + ("..." if len(value) > _SHOWN_BYTES else "")
    return OutputFailed(
        f"column {column} holds bytes that are not text in the database's character set: {shown}",
        f"leave it out with --exclude {column}, or read its bytes with --query and RAWTOHEX",
    )


def _with_empty(values: pa.Array, lengths: pa.Array) -> pa.Array:
    """Return LOBs with the empty ones among them, which come over like NULLs."""
    empty = pc.fill_null(pc.equal(lengths, 0), False)
    return pc.if_else(
        empty, pa.scalar("" if pa.types.is_string(values.type) else b"", values.type), values
    )
