"""The options of pyarrow for a Parquet format, as far as the installed version has them.

Defaults measured on 1 million rows of the reference table (see `writers.parquet.columns`), zstd
level 1, all at the same CPU: row groups of 122,880 rows in pages of 20,000 (pyarrow's own)
70.94 MB, in pages of 1 MiB 70.35, of 2 MiB 70.15; row groups of 32 MiB in memory in pages of
2 MiB 70.05, of 4 MiB 69.95; four times as large 69.96. The page index added 0.02 %. Pages of
version 2 had the same size and are read by fewer, so 1 is the default.
"""

from __future__ import annotations

from functools import cache
from inspect import signature
from typing import TYPE_CHECKING, Any

from writers.errors import FormatError, ValueNotRepresentable, WriteError
from writers.schema import pc

if TYPE_CHECKING:
    from collections.abc import Collection

    import pyarrow as pa

    from writers.model import Compression, ParquetFormat


_VERSIONS = ("1.0", "2.4", "2.6")
_PAGE_VERSIONS = ("1.0", "2.0")
_ZSTD_LEVEL = 1
"""Smaller and quicker than level 3 on delta-encoded columns; see `writers.parquet.columns`."""
_ZSTD_LEVEL_OF_FLOATS = 2
"""On plain doubles with two decimals a quarter smaller than level 1, in the same time."""
PAGE_BYTES = 2 * 1024 * 1024
_ALL_ROWS = 2**31 - 1
"""For a page: bytes decide where it ends."""
_FALSE_POSITIVES = 0.01
"""Of a Bloom filter; about 10 bits for each distinct value."""


@cache
def supported(option: str) -> bool:
    import pyarrow.parquet as pq

    return option in signature(pq.ParquetWriter.__init__).parameters


def check_options(parquet: ParquetFormat) -> None:
    """Refuse a format that contradicts itself or that the installed pyarrow cannot write."""
    if parquet.version not in _VERSIONS:
        raise FormatError(
            f"Parquet version {parquet.version!r} does not exist.",
            f"use one of {', '.join(_VERSIONS)}.",
        )
    if parquet.version == "1.0" and parquet.byte_stream_split:
        raise FormatError(
            "Parquet version 1.0 does not have the encoding byte stream split.",
            "leave out --byte-stream-split, or --parquet-version 1.0.",
        )
    if parquet.data_page_version not in _PAGE_VERSIONS:
        raise FormatError(
            f"Parquet pages of version {parquet.data_page_version!r} do not exist.",
            f"use one of {', '.join(_PAGE_VERSIONS)}.",
        )
    for number, unit in ((parquet.row_group_rows, "rows"), (parquet.row_group_bytes, "bytes")):
        if number < 1:
            raise FormatError(f"row groups of {number} {unit} are impossible.", "use 1 or more.")
    if parquet.bloom_filters and not supported("bloom_filter_options"):
        import pyarrow as pa

        raise FormatError(
            f"Bloom filters need pyarrow 24, but {pa.__version__} is installed.",
            "install a later pyarrow, or leave --bloom-filter out.",
        )


def check_bloom_filters(schema: pa.Schema, parquet: ParquetFormat) -> None:
    """Refuse a Bloom filter for a column that is not there or cannot have one."""
    from pyarrow import types

    for name in parquet.bloom_filters:
        places = schema.get_all_field_indices(name)
        if len(places) != 1:
            raise FormatError(
                f"{'several columns have' if places else 'no column has'} the name {name!r} in "
                "--bloom-filter.",
                f"use one of {', '.join(schema.names[:50])}.",
            )
        kind = schema.field(places[0]).type
        if types.is_floating(kind):
            raise FormatError(
                f"column {name!r} has the type {kind}, which cannot have a Bloom filter: 0.0 "
                "equals -0.0, but a filter knows only the stored one.",
                "leave it out of --bloom-filter.",
            )
        if types.is_nested(kind) or types.is_boolean(kind) or types.is_null(kind):
            raise FormatError(
                f"column {name!r} has the type {kind}, which cannot have a Bloom filter.",
                "leave it out of --bloom-filter.",
            )


def format_options(parquet: ParquetFormat) -> dict[str, Any]:
    options: dict[str, Any] = {
        "version": parquet.version,
        "data_page_version": parquet.data_page_version,
        "write_statistics": parquet.statistics,
        "write_page_index": parquet.statistics,
        "data_page_size": PAGE_BYTES,
    }
    if supported("store_decimal_as_integer"):
        # Half the size of the fixed-length bytes that are the default, and exact as well.
        options["store_decimal_as_integer"] = True
    if supported("max_rows_per_page"):
        options["max_rows_per_page"] = _ALL_ROWS
    return options


def compression_options(
    compression: Compression,
    paths: list[str],
    *,
    stored: Collection[str] = (),
    floating: Collection[str] = (),
) -> dict[str, Any]:
    """Return options of a codec: `stored` columns do not shrink, `floating` are plain numbers."""
    codec, level = compression.codec, compression.level
    usual = _ZSTD_LEVEL if level is None and codec == "zstd" else level
    if not stored and not floating:
        return {"compression": codec, "compression_level": usual}
    levels = {path: usual for path in paths if path not in stored}
    if level is None and codec == "zstd":
        levels.update(dict.fromkeys(set(floating) - set(stored), _ZSTD_LEVEL_OF_FLOATS))
    return {
        "compression": {path: "none" if path in stored else codec for path in paths},
        "compression_level": None if usual is None else levels,
    }


def bloom_options(table: pa.Table, parquet: ParquetFormat) -> dict[str, Any]:
    """Return the options of Bloom filters, as large as the first row group's values need."""

    if not parquet.bloom_filters:
        return {}
    wanted = {
        name: {
            "ndv": max(1, pc.count_distinct(table.column(name)).as_py()),
            "fpp": _FALSE_POSITIVES,
        }
        for name in parquet.bloom_filters
    }
    return {"bloom_filter_options": wanted}


def check_types(schema: pa.Schema, parquet: ParquetFormat) -> list[str]:
    """Refuse a column that Parquet has no type for; return the path of each, also nested ones."""
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
    floating = {
        column.path
        for column in columns
        if column.physical_type in ("FLOAT", "DOUBLE") or column.logical_type.type == "FLOAT16"
    }
    return {"write_statistics": [column.path for column in columns if column.path not in floating]}


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
