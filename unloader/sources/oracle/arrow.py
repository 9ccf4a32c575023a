"""Fetched batches, converted to batches of the projection's schema: exactly, or with an error.

Most rows are Arrow batches of the driver. Rows of Python values are slower. They are used for LOBs
of rows without ROWID, and for versions of the driver without exact Arrow batches, and check the
other way.

Texts are converted as whole arrays: numbers with TM9, dates and timestamps with `SYYYY-MM-DD
HH24:MI:SS[.FFn]`, zones with ` TZH:TZM TZR` after them. The output has the form that `text_class`
promises: numbers with a digit before the point; timestamps with a minus or nothing before the year
(-0001 is 1 BC) and without zeros at the end of the fraction. Oracle uses the Julian calendar before
1582-10-15, with days (1500-02-29) that timestamps do not have.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from decimal import Context, Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from zoneinfo import available_timezones

import pyarrow as pa

from unloader.errors import OutputFailed, SourceError
from unloader.model import ReadColumn
from unloader.sources.moments import MomentRefused, parse_moments
from unloader.sources.oracle.statement import FetchPlan, Item
from unloader.sources.oracle.types import fraction_digits, parse_native
from unloader.sources.readings import type_named
from writers.schema import pc
from writers.text.number_texts import float_texts
from writers.text.string_arrays import binary_texts, value_bytes

if TYPE_CHECKING:
    import oracledb


_SHOWN_BYTES = 20

_WINDOW_BYTES = 64 * 1024
"""Text is copied to be looked at: in pieces that stay in the cache, in memory that serves again."""


def requested_schema(plan: FetchPlan) -> pa.Schema:
    """Return types that keep values: for others the driver truncates, wraps or rounds silently."""
    return pa.schema(
        [(f"c{index}", type_named(item.fetched)) for index, item in enumerate(plan.items)]
    )


def batch_of(plan: FetchPlan, schema: pa.Schema, fetched: Sequence[pa.Array]) -> pa.RecordBatch:
    """Return a batch, LOBs fetched later null; `OutputFailed` where a value does not fit."""
    is_checked = isinstance(fetched, CheckedText)
    arrays: list[pa.Array] = []
    for item, array in zip(plan.items, fetched, strict=True):
        if item.part == "length":
            # An empty LOB comes over like NULL.
            empty, kind = pc.fill_null(pc.equal(array, 0), False), arrays[item.column].type
            nothing = pa.scalar("" if pa.types.is_string(kind) else b"", kind)
            arrays[item.column] = pc.if_else(empty, nothing, arrays[item.column])
        elif item.part == "value":
            column, kind = plan.columns[item.column], schema.field(item.column).type
            if not is_checked and pa.types.is_string(array.type):
                _check_encoding(column, array)
            arrays.append(_converted(item, column, array, kind))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _converted(item: Item, column: ReadColumn, array: pa.Array, kind: pa.DataType) -> pa.Array:
    digits = _digits(column.source_type)
    if item.form == "number":
        return number_texts(array)
    if item.form == "moment" and not pa.types.is_timestamp(kind):
        return moment_texts(array, digits)
    if item.form == "moment":
        try:
            return parse_moments(array, kind)
        except MomentRefused as refused:
            text, reason = refused.args
            way = f"--as-text {column.name}"
            raise OutputFailed(
                f"column {column.name} holds {text}, which {reason}",
                f"write the column as exact text with --nanoseconds string or {way}"
                if kind.unit == "ns"
                else f"write it as exact text with {way}",
            ) from refused
    if item.form == "utc":
        return _joined(moment_texts(array, digits), pa.scalar("+00:00"), " ")
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


def _check_encoding(column: ReadColumn, array: pa.Array) -> None:
    """Check that text is UTF-8, as the driver passes the bytes of the database on unchecked."""
    # Twenty times faster than looking value by value, and most columns are ASCII.
    text = value_bytes(array)
    windows = (text[at : at + _WINDOW_BYTES] for at in range(0, len(text), _WINDOW_BYTES))
    if all(bytes(window).isascii() for window in windows):
        return
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        found = array.cast(pa.binary()).to_pylist()
        bad = next(each for each in found if each and each.decode(errors="ignore").encode() != each)
        raise bad_text(column.name, bad) from error


@lru_cache(maxsize=1024)
def _digits(source_type: str) -> int:
    return fraction_digits(parse_native(source_type))


def bad_text(column: str, value: bytes) -> OutputFailed:
    shown = value[:_SHOWN_BYTES].hex() + ("..." if len(value) > _SHOWN_BYTES else "")
    return OutputFailed(
        f"column {column} holds bytes that are not text in the database's character set: {shown}",
        f"leave it out with --exclude {column}, or read its bytes with --query and RAWTOHEX",
    )


MOMENT_LENGTH = len("-YYYY-MM-DD HH:MI:SS")
"""Characters of a date and time with its sign."""
_OFFSET_LENGTH = len("+HH:MM")


def number_texts(texts: pa.Array) -> pa.Array:
    """Return numbers with a digit before the point: `.5` becomes `0.5`, `-.5` becomes `-0.5`."""
    for start, whole in ((".", "0."), ("-.", "-0.")):
        bare = pc.starts_with(texts, start)
        if pc.any(bare).as_py():
            completed = pc.replace_substring(texts, start, whole, max_replacements=1)
            texts = pc.if_else(bare, completed, texts)
    return texts


def moment_texts(texts: pa.Array, digits: int) -> pa.Array:
    """Return texts of `TO_CHAR` without a leading blank and without zeros at the fraction's end."""
    trimmed = pc.ascii_ltrim(texts, " ")
    if not digits:
        return trimmed
    return pc.ascii_rtrim(pc.ascii_rtrim(trimmed, "0"), ".")


def zoned_texts(texts: pa.Array, digits: int) -> pa.Array:
    """Return local times with their offset, and their region in brackets if they have one."""
    length = MOMENT_LENGTH + (1 + digits if digits else 0)
    moments = moment_texts(pc.utf8_slice_codeunits(texts, 0, length), digits)
    start = length + 1
    offsets = pc.utf8_slice_codeunits(texts, start, start + _OFFSET_LENGTH)
    zoned = _joined(moments, offsets, " ")
    zones = pc.utf8_slice_codeunits(texts, start + _OFFSET_LENGTH + 1)
    # For a zone that is only an offset, Oracle repeats the offset as its name.
    regions = pc.match_substring_regex(zones, "^[^+-]")
    if not pc.any(regions).as_py():
        return zoned
    zones = zone_names(zones)
    bracketed = _joined(_joined(zoned, zones, "["), pa.scalar(""), "]")
    return pc.if_else(regions, bracketed, zoned)


def zone_names(zones: pa.Array) -> pa.Array:
    """Return offsets as they are, and regions as the time zone database spells them.

    Oracle shows EUROPE/BERLIN, which some readers do not accept. Unknown names are not changed.
    """
    encoded = zones.dictionary_encode()
    regions = {name.upper(): name for name in _zones()}
    names = [regions.get(name.upper(), name) for name in encoded.dictionary.to_pylist()]
    return pa.array(names, pa.string()).take(encoded.indices)


_zones = lru_cache(maxsize=1)(available_timezones)


def _joined(left: pa.Array, right: pa.Array | pa.Scalar, separator: str) -> pa.Array:
    return pc.binary_join_element_wise(left, right, pa.scalar(separator))


_MISFIT = re.compile(r"DPY-4042: (\S+) cannot be converted to .* decimal\((\d+), (\d+)\)")


_OVERFLOW = "DPY-8002"
_NO_CONVERSION = ("DPY-3030", "DPY-3038", "DPY-4036")


def arrow_batches(
    connection: oracledb.Connection, sql: str, plan: FetchPlan, rows: int
) -> Generator[Fetched, None, None]:
    """Yield what a statement fetches, `rows` rows at a time.

    `NumberRefused` where a number does not fit; `ValueError` for a date that the driver cannot
    make.
    """
    import oracledb

    frames = connection.fetch_df_batches(sql, size=rows, requested_schema=requested_schema(plan))
    while True:
        try:
            frame = next(frames, None)
        except oracledb.Error as error:
            if match := _MISFIT.search(str(error)):
                raise NumberRefused(match[1], int(match[2]), int(match[3])) from error
            text = str(error).splitlines()[0]
            if text.startswith(_OVERFLOW):
                names = ", ".join(
                    plan.columns[item.column].name
                    for item in plan.items
                    if item.part == "value" and item.fetched in ("string", "binary")
                )
                raise OutputFailed(
                    f"{rows} rows have more than 2 GiB in one of the columns {names}",
                    "lower --fetch-memory, so that a batch has fewer rows",
                ) from error
            if text.startswith(_NO_CONVERSION):
                types = ", ".join(f"{column.name} {column.source_type}" for column in plan.columns)
                raise SourceError(
                    f"the columns have changed since the run began ({types}): {text}",
                    "run again, or use --fetch tuples, which is slower",
                ) from error
            raise
        if frame is None:
            return
        batch = pa.RecordBatchReader.from_stream(frame).read_next_batch()
        if batch.num_rows:
            yield batch.columns


Fetched = Sequence[Any]


class CheckedText(list[Any]):
    """A `Fetched` whose text was already checked to be UTF-8."""


_EXACT = Context(prec=300)
"""More digits than a NUMBER has, written out."""


class NumberRefused(Exception):
    """A number that does not fit the decimal it was to become."""

    def __init__(self, value: str, precision: int, scale: int) -> None:
        super().__init__(value)
        self.value = value
        self.digits = (precision, scale)


def tuple_batches(
    connection: oracledb.Connection, sql: str, plan: FetchPlan, rows: int
) -> Generator[Fetched, None, None]:
    """Yield what a statement fetches, `rows` rows at a time; as `arrow_batches`."""
    kinds = [type_named(item.fetched) for item in plan.items]
    with connection.cursor() as cursor:
        cursor.arraysize = cursor.prefetchrows = rows
        cursor.outputtypehandler = type_handler(plan.items)
        cursor.execute(sql)
        while found := cursor.fetchmany(rows):
            yield [
                list(values) if item.part == "locator" else _array(values, kind)
                for item, kind, values in zip(
                    plan.items, kinds, zip(*found, strict=True), strict=True
                )
            ]


def type_handler(items: Sequence[Item]) -> Callable[..., Any]:
    import oracledb

    whole = {
        oracledb.DB_TYPE_CLOB: oracledb.DB_TYPE_LONG,
        oracledb.DB_TYPE_NCLOB: oracledb.DB_TYPE_LONG_NVARCHAR,
        oracledb.DB_TYPE_BLOB: oracledb.DB_TYPE_LONG_RAW,
    }
    position = -1

    def handler(cursor: oracledb.Cursor, metadata: oracledb.FetchInfo) -> Any:
        nonlocal position
        position = (position + 1) % len(items)
        if metadata.type_code is oracledb.DB_TYPE_NUMBER:
            return cursor.var(oracledb.DB_TYPE_VARCHAR, arraysize=cursor.arraysize)
        if items[position].part == "value" and metadata.type_code in whole:
            return cursor.var(whole[metadata.type_code], arraysize=cursor.arraysize)
        return as_stored(cursor, metadata)

    return handler


def as_stored(cursor: oracledb.Cursor, metadata: oracledb.FetchInfo) -> Any:
    """Make the driver return text and LOBs with an IS JSON check unchanged, not as dictionaries."""
    if not metadata.is_json or metadata.type_code.name == "DB_TYPE_JSON":
        return None
    size = metadata.internal_size or 0
    return cursor.var(metadata.type_code, size=size, arraysize=cursor.arraysize)


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if not any(isinstance(value, str) for value in values) or pa.types.is_string(kind):
        return pa.array(values, kind)
    try:
        return pa.array(values, pa.string()).cast(kind)
    except pa.ArrowInvalid as error:
        if not pa.types.is_decimal(kind):
            raise
        for value in filter(None, values):
            number = Decimal(value).normalize(_EXACT).as_tuple()
            exponent = int(number.exponent)
            whole = len(number.digits) + exponent
            if -exponent > kind.scale or whole > kind.precision - kind.scale:
                raise NumberRefused(value, kind.precision, kind.scale) from error
        raise
