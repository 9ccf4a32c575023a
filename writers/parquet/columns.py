"""How each column of a Parquet file is encoded: chosen from its first row group, by trial.

Each choice in numbers, for 1 million rows of the reference table (text, whole numbers, decimals and
dates, all with many distinct values), one column at a time, one core, row groups of 122,880
rows; size in MB and CPU in milliseconds of pyarrow 26 alone:

                       text of 5-15    int64 of 13 digits  decimal(12,2)   timestamp[s]
    plain, none        14.0    24      8.0     6           8.0    13       8.0     7
    plain, zstd 1       9.9    39      6.4    15           3.8    40       6.9    17
    plain, lz4         13.2    52      8.0     8           5.5    32       8.0     9
    dictionary, zstd   11.1    83      8.4    68           5.8    97       8.9    74
    delta, none        10.7    43      5.4    15           3.5    19       6.3    18
    delta, zstd 1       8.4    53      5.4    21           3.5    24       6.3    26
    delta, zstd 3       8.4    57      5.4    22           3.5    25       6.3    27
    delta, lz4         10.7    45      5.5    17           3.6    19       6.3    19
    with prefixes       8.4    68
    byte split, none                   8.0     8           8.0    16       8.0     9
    byte split, zstd 1                 5.7    18           3.7    21       6.4    25

So numbers take a delta encoding and no codec after it: the codec finds nothing more there. All ten
columns: 407 ms with zstd on every one, 367 where numbers have none, and the same size. Higher
levels cost CPU and gain nothing.

Text takes prefixes and zstd. Lengths as deltas (DELTA_LENGTH_BYTE_ARRAY, above as "delta") cost a
little less, and are never used: the vectorized reader of Spark, which is its default, returns wrong
text for them from the 4,097th row of a page on, without an error (SPARK-52240; seen with Spark
4.0.0 on files of pyarrow and of ours). It reads prefixes (DELTA_BYTE_ARRAY) right.

On columns whose values repeat a dictionary was 1.2 to 4 times smaller than either, and faster, up
to about 16,000 distinct values in a row group of 122,880. Text that shares its start with the row
before (sorted names, paths) is smaller with prefixes. Integers that follow each other with few
digits may be smaller plain. A trial on some hundred to some thousand rows finds both.
"""

from __future__ import annotations

from array import array
from functools import lru_cache
from typing import Any

import pyarrow as pa
from msgspec import Struct
from pyarrow import types

from writers.model import Compression, ParquetFormat
from writers.parquet.options import compression_options, format_options, supported, write_trial

_FEW_ROWS = 1024
_SAMPLE_ROWS = 10_240
_ALL_DISTINCT = 0.985
"""Distinct values among the few: 0.968 is expected of 16,000 in all, 0.985 of 34,000."""
_DISTINCT_SHARE = 0.7
"""Distinct values in the sample: 0.74 was met at 16,000 in a row group of 122,880 rows."""
_DICTIONARY_BYTES = 512 * 1024
"""Half the size at which a dictionary page is given up, as the sample misses values."""
_TRIAL_LEAST, _TRIAL_MOST = 512, 4096
_TRIAL_SHARE = 128
"""One row in this number is written for trial; the two trials took 2 % of the time."""
_BETTER = 0.95
"""A second encoding must make a column smaller than this part of the usual one's size."""
_PACKED = 0.98
"""A codec that leaves more than this part of the bytes is not worth its time."""

_DELTA = "DELTA_BINARY_PACKED"
_PREFIXES = "DELTA_BYTE_ARRAY"
_SPLIT = "BYTE_STREAM_SPLIT"
_PLAIN = "PLAIN"
_DICTIONARY = "dictionary"


class _Sizes(Struct, frozen=True, kw_only=True):
    packed: int
    unpacked: int
    dictionary: int
    """Of `packed`, the part that is the dictionary."""


def column_options(
    table: pa.Table, paths: list[str], parquet: ParquetFormat, compression: Compression
) -> dict[str, Any]:
    """Return the options of `pyarrow.parquet.ParquetWriter` that encode the columns of a table.

    The table is the first row group, `paths` has all columns of the file. The same rows
    always give the same answer. Version 1.0 has no encodings but plain values and dictionaries.
    """
    # Options go by path: two columns of one path keep what suits any type.
    names = [field.name for field in table.schema if paths.count(field.name) == 1]
    first = {
        name: _DICTIONARY
        if parquet.dictionary and repeats(table.column(name))
        else _undictionaried(table.column(name).type, parquet)
        for name in names
    }
    # The second encoding of each column that is worth a trial.
    second = {}
    integers = _SPLIT if parquet.byte_stream_split else _PLAIN
    others = {_PREFIXES: _PLAIN, _DELTA: integers, _SPLIT: _PLAIN}
    for name, chosen in first.items() if parquet.version != "1.0" else ():
        if chosen in others:
            second[name] = others[chosen]
        elif chosen == _DICTIONARY:
            plain = _undictionaried(table.schema.field(name).type, parquet)
            second |= {name: plain} if plain != _PLAIN else {}
    # Deltas come in blocks of 128 after the first value; a block with a gap looks compressible.
    rows = min(_TRIAL_MOST, table.num_rows // _TRIAL_SHARE) // 128 * 128 + 1
    stored: set[str] = set()
    if rows >= _TRIAL_LEAST and names:
        # In one piece, so that the sizes do not depend on the batches.
        sample = table.slice((table.num_rows - rows) // 2, rows).combine_chunks()
        usual = _trial(sample.select(names), first, parquet, compression)
        other = _trial(sample.select([*second]), second, parquet, compression)
        for name in names:
            sizes = usual[name]
            if name in second and _cost(other[name], rows, table.num_rows) < (
                _cost(sizes, rows, table.num_rows) * _BETTER
            ):
                first[name], sizes = second[name], other[name]
            # Less than a byte a row is mostly the page's own.
            dense = first[name] != _DICTIONARY and sizes.unpacked >= rows
            if dense and sizes.packed > sizes.unpacked * _PACKED:
                stored.add(name)
    return {
        **_encodings(first),
        **compression_options(
            compression, paths, stored=stored, floating=_plain_floats(table.schema, first)
        ),
    }


def repeats(column: pa.ChunkedArray) -> bool:
    """Return whether a dictionary pays for this column, from rows spread evenly over it."""
    rows = len(column)
    if rows == 0 or pa.types.is_nested(column.type):
        return False
    try:
        if rows > _SAMPLE_ROWS:
            few = _spread(column, _FEW_ROWS)
            if len(few.unique()) > _ALL_DISTINCT * len(few):
                return False
        sample = _spread(column, _SAMPLE_ROWS)
        distinct = sample.unique()
    except pa.ArrowNotImplementedError:  # half floats, extension types
        return False
    return bool(
        len(distinct) <= _DISTINCT_SHARE * len(sample) and distinct.nbytes <= _DICTIONARY_BYTES
    )


def _spread(column: pa.ChunkedArray, most: int) -> pa.ChunkedArray:
    """Return at most this number of rows, spread evenly; the chunks do not matter."""
    step = -(-len(column) // most)
    taken, start = [], 0
    for chunk in column.chunks:  # `ChunkedArray.take` would join all of them first.
        taken.append(chunk.take(_numbers(-start % step, len(chunk), step)))
        start += len(chunk)
    return pa.chunked_array(taken, column.type)


@lru_cache(maxsize=64)
def _numbers(start: int, stop: int, step: int) -> pa.Array:
    """Return a range; the columns of a table need the same ones."""
    numbers = array("q", range(start, stop, step))
    # Not `pa.array`, which imports pandas where that is installed.
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])


def _undictionaried(kind: pa.DataType, parquet: ParquetFormat) -> str:
    if parquet.byte_stream_split and types.is_floating(kind) and kind.bit_width > 16:
        return _SPLIT
    kind = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    if parquet.version == "1.0":
        return _PLAIN
    if types.is_decimal(kind):
        # Wider ones are stored as bytes of fixed length, not as integers.
        narrow = kind.precision <= 18 and supported("store_decimal_as_integer")
        return _DELTA if narrow else _PLAIN
    if types.is_integer(kind) or types.is_temporal(kind):
        return _DELTA
    texts = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    return _PREFIXES if any(each(kind) for each in texts) else _PLAIN


def _encodings(chosen: dict[str, str]) -> dict[str, Any]:
    return {
        "use_dictionary": [name for name, how in chosen.items() if how == _DICTIONARY],
        "column_encoding": {
            name: how for name, how in chosen.items() if how not in (_DICTIONARY, _PLAIN)
        },
    }


def _plain_floats(schema: pa.Schema, chosen: dict[str, str]) -> set[str]:
    return {
        name
        for name, how in chosen.items()
        if how == _PLAIN and types.is_floating(schema.field(name).type)
    }


def _trial(
    sample: pa.Table, chosen: dict[str, str], parquet: ParquetFormat, compression: Compression
) -> dict[str, _Sizes]:
    if not chosen:
        return {}
    options = {
        **format_options(parquet),
        "write_statistics": False,
        "write_page_index": False,
        "store_schema": False,
        **_encodings(chosen),
        **compression_options(
            compression, sample.column_names, floating=_plain_floats(sample.schema, chosen)
        ),
    }
    group = write_trial(sample, options).row_group(0)
    found = {}
    for index in range(group.num_columns):
        chunk = group.column(index)
        start = chunk.dictionary_page_offset
        found[chunk.path_in_schema] = _Sizes(
            packed=chunk.total_compressed_size,
            unpacked=chunk.total_uncompressed_size,
            dictionary=chunk.data_page_offset - start if start is not None else 0,
        )
    return found


def _cost(sizes: _Sizes, rows: int, all_rows: int) -> float:
    """Return the bytes that a sample's column represents; a dictionary serves all rows."""
    return sizes.packed - sizes.dictionary * (1 - rows / all_rows)
