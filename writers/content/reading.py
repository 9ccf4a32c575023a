"""The checksums of the columns of a written file, read by other code than wrote it.

Parquet is read by pyarrow's reader, delimited text by pyarrow's CSV reader where that knows the
dialect, and by `records` otherwise.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from writers.arrow_compute import pc
from writers.content.file_values import values_of, why_not
from writers.content.records import Field, Records
from writers.content.sums import ColumnSums
from writers.encryption.parquet import reading_options
from writers.errors import WriteError
from writers.files.os_errors import write_error
from writers.files.read_back import (
    arrow_table,
    count_fixed,
    decompressed,
    is_plain,
    parquet_batches,
    plain_records,
)
from writers.files.readable import Readable, arrow_stream, decrypted
from writers.model import Compression, ContentSums, OutputSpec, ParquetFormat, TextFormat
from writers.schema import read_schema

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = 10_000
_BATCH_CHARACTERS = 1 << 22
_PIECE_BYTES = 1 << 20

Check = Callable[[], None]


def not_compared(message: str, format: TextFormat | ParquetFormat) -> dict[int, str]:
    """Return the columns whose values a file does not show in full, by index, each with why."""
    if isinstance(format, ParquetFormat):
        return {}
    return _left_out(read_schema(message), format)


def _left_out(schema: pa.Schema, format: TextFormat) -> dict[int, str]:
    reasons = ((index, why_not(field, format)) for index, field in enumerate(schema))
    return {index: reason for index, reason in reasons if reason}


def file_sums(
    path: Readable, spec: OutputSpec, message: str, *, header: bool, check: Check
) -> ContentSums:
    """Return the checksums of a file's columns; those of columns `not_compared` are of no values.

    Args:
        path: The file.
        spec: How it was written.
        message: The schema of what was written, as `writers.schema.read_schema` takes it.
        header: Whether it begins with one, where the format has one.
        check: Called now and then; what it raises ends all.

    Raises:
        WriteError: The file cannot be read, or is not what was written.
    """
    import pyarrow as pa

    damage = (pa.ArrowException, ValueError)
    format, schema = spec.format, read_schema(message)
    try:
        if isinstance(format, ParquetFormat):
            return _parquet_sums(path, spec, schema, check)
        text = replace(format, header=format.header and header)
        return _text_sums(decrypted(path, spec.encryption), text, spec.compression, schema, check)
    except OSError as exc:
        raise write_error("read", path, exc) from exc
    except damage as exc:
        raise WriteError(
            f"{path} differs from the data that was written: {exc}.", "unload the table again."
        ) from exc


def _parquet_sums(path: Readable, spec: OutputSpec, schema: pa.Schema, check: Check) -> ContentSums:
    import pyarrow.parquet as pq

    sums = ColumnSums(schema)
    with pq.ParquetFile(arrow_stream(path), **reading_options(spec.encryption)) as file:
        if file.schema_arrow.names != schema.names:
            raise ValueError(f"its columns are {', '.join(file.schema_arrow.names)}")
        for batch in parquet_batches(file):
            check()
            sums.add(batch.columns, batch.num_rows)
    return sums.result()


def _text_sums(
    path: Readable,
    format: TextFormat,
    compression: Compression,
    schema: pa.Schema,
    check: Check,
) -> ContentSums:
    sums, left_out = ColumnSums(schema), _left_out(schema, format)
    if format.fixed:
        # No mark tells its fields apart, maybe none its records, and no column is compared.
        sums.count(count_fixed(path, format, compression, check))
        return sums.result()
    for columns, rows in _text_columns(path, format, compression, len(schema)):
        check()
        sums.count(rows)
        for index, (texts, field) in enumerate(zip(columns, schema, strict=True)):
            if index not in left_out:
                sums.add_column(index, *values_of(texts, field, format))
    return sums.result()


def _text_columns(
    path: Readable, format: TextFormat, compression: Compression, columns: int
) -> Iterator[tuple[Sequence[pa.Array], int]]:
    """Yield texts of each column and the number of rows, some rows at a time."""
    if is_plain(format):
        yield from _plainly(path, format, compression, columns)
    else:
        yield from _slowly(path, format, compression, columns)


def _plainly(
    path: Readable, format: TextFormat, compression: Compression, columns: int
) -> Iterator[tuple[Sequence[pa.Array], int]]:
    import pyarrow as pa
    from pyarrow import csv

    # The reader finds one more field after the delimiter that follows the last value.
    fields = columns + 1 if format.trailing_delimiter else columns
    names = [f"f{position}" for position in range(fields)]
    values = csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        null_values=[format.null],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    header = int(format.header)
    for block in plain_records(path, format, compression):
        table = arrow_table(block, format, names, values)
        for batch in table.slice(header).to_batches():
            _check_nothing_behind(batch.columns[columns:])
            yield batch.columns[:columns], batch.num_rows
        header = 0


def _check_nothing_behind(columns: Sequence[pa.Array]) -> None:
    """Check that the fields after the last delimiter are empty, as the writer leaves them."""
    if any(pc.max(pc.binary_length(column)).as_py() for column in columns):
        raise ValueError("a record has text after its last delimiter")


def _slowly(
    path: Readable, format: TextFormat, compression: Compression, columns: int
) -> Iterator[tuple[Sequence[pa.Array], int]]:
    import pyarrow as pa

    with decompressed(path, compression) as file:
        records = Records(format, columns).read(_pieces(file, format.encoding))
        if format.header:
            next(records, None)
        for rows in _batches(records):
            turned: Iterator[tuple[Field, ...]] = zip(*rows, strict=True)
            yield [pa.array(column, pa.large_string()) for column in turned], len(rows)


def _batches(records: Iterator[list[Field]]) -> Iterator[list[list[Field]]]:
    """Yield some records at a time, fewer of them where they are wide."""
    rows: list[list[Field]] = []
    size = 0
    for record in records:
        rows.append(record)
        size += sum(len(field) for field in record if field)
        if len(rows) == _ROWS or size > _BATCH_CHARACTERS:
            yield rows
            rows, size = [], 0
    if rows:
        yield rows


def _pieces(file: Any, encoding: str) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder(encoding)()
    while data := file.read(_PIECE_BYTES):
        yield decoder.decode(data)
    yield decoder.decode(b"", final=True)
