"""Joins the staged files of the work units into one file for the table.

Text is joined end to end, compressed or not: gzip members and zstd and lz4 frames may follow one
another. Parquet is read and written again, row group by row group. The buffers or one row group
bound the memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec.structs import replace

from writers.codecs.compression import open_compressor
from writers.encryption.parquet import reading_options
from writers.errors import WriteError
from writers.files.publish import PART_SUFFIX, text_extension
from writers.files.read_back import Readable, arrow_stream, open_bytes
from writers.files.regular import write_error
from writers.files.sink import Sink, StagedFiles
from writers.model import Compression, OutputSpec, TextFormat, WrittenFile
from writers.parquet.writer import ParquetWriter


def merge_files(
    files: Sequence[WrittenFile],
    spec: OutputSpec,
    stem: str,
    *,
    header: bytes = b"",
    check: Callable[[], None] = lambda: None,
    read: Callable[[str], Readable] | None = None,
) -> WrittenFile:
    """Join staged files, in the order given, into the staged file `<stem>.<extension>.part`.

    The inputs stay. After an error the joined file does not exist. No input may have the name of
    the result. All are written with this spec, text without preamble and header; its file size is
    ignored.

    `header` is the beginning of a text file, not compressed. `check` is called after each piece of
    text and before each row group; its error ends the work. `read` returns an input by its staged
    name; None reads from the result's directory.

    Raises WriteError if an input is missing or unlike the first, or the destination failed, and
    FormatError if the codec does not go with the format.
    """
    if not files:
        raise WriteError("no files were given to join.", "plan at least one work unit.")
    spec = replace(spec, file_size_bytes=0)
    staging = Path(spec.directory)
    extension = "parquet"
    if isinstance(spec.format, TextFormat):
        if spec.encryption.recipients:
            raise WriteError("encrypted files of text cannot be joined.", "use --file-per unit.")
        extension = text_extension(spec.format, spec.compression)
    result = f"{stem}.{extension}{PART_SUFFIX}"
    if any(file.path == result for file in files):
        raise WriteError(
            f"{staging / result} would be joined into itself.", "choose another file name."
        )
    inputs = [(file, read(file.path) if read else staging / file.path) for file in files]
    if isinstance(spec.format, TextFormat):
        output = StagedFiles(spec, stem, extension, Compression())
        try:
            is_plain = not header or spec.compression.codec == "none"
            output.sink().write(header if is_plain else open_compressor(spec.compression)(header))
            for file, source in inputs:
                _append(output.sink(), source, file.bytes, check)
            check()
            output.finish(sum(file.rows for file in files))
        except BaseException:
            output.abort()
            raise
        return output.files[0]
    with _open_parquet(inputs[0][1], spec) as first:
        schema = first.schema_arrow
    writer = ParquetWriter(spec, schema, stem)
    try:
        for file, source in inputs:
            for table in _row_groups(file, source, schema, spec):
                check()
                for batch in table.to_batches():
                    writer.write(batch)
        check()
        (merged,) = writer.close()
    except BaseException:
        writer.abort()
        raise
    return merged


def _append(sink: Sink, path: Readable, size: int, check: Callable[[], None]) -> None:
    """Read a file with `size` bytes, by its record, into the buffers of a sink."""
    done = 0
    try:
        with open_bytes(path) as file:
            while count := file.readinto(sink.room()):
                sink.advance(count)
                done += count
                check()
    except OSError as exc:
        raise write_error("read", path, exc) from exc
    if done != size:
        raise WriteError(
            f"{path} has {done} bytes, but {size} were written to it.",
            "find out which program changed it, then write it again.",
        )


def _row_groups(
    file: WrittenFile, path: Readable, schema: pa.Schema, spec: OutputSpec
) -> Iterator[pa.Table]:
    rows = 0
    with _open_parquet(path, spec) as source:
        if not source.schema_arrow.equals(schema):
            raise WriteError(
                f"{path} has other columns than the first file to join.",
                "write all files from one schema.",
            )
        for index in range(source.num_row_groups):
            try:
                table = source.read_row_group(index)
            except OSError as exc:
                raise write_error("read", path, exc) from exc
            rows += table.num_rows
            yield table
    if rows != file.rows:
        raise WriteError(
            f"{path} has {rows} rows, but {file.rows} were written to it.",
            "find out which program changed it, then write it again.",
        )


@contextlib.contextmanager
def _open_parquet(path: Readable, spec: OutputSpec) -> Iterator[Any]:

    try:
        source = pq.ParquetFile(arrow_stream(path), **reading_options(spec.encryption))
    except OSError as exc:
        raise write_error("read", path, exc) from exc
    except pa.ArrowInvalid as exc:
        raise WriteError(
            f"{path} is not a complete Parquet file: {exc}.", "write it again."
        ) from exc
    with source:
        yield source
