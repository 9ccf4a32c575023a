"""Reading finished files again, by other code than wrote them, to check what is on the disk."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from writers.encryption.parquet import reading_options
from writers.errors import WriteError
from writers.files.checksums import DEFAULT, open_digest
from writers.files.decrypting import decrypted
from writers.files.os_errors import write_error
from writers.files.readable import Readable, Stoppable, arrow_stream, open_bytes, parquet_source
from writers.model import PLAIN, Compression, Encryption, ParquetFormat, TextFormat
from writers.records import dataclass

if TYPE_CHECKING:
    from typing import Any

_CHUNK_BYTES = 4 * 1024 * 1024
BLOCK_BYTES = (16 << 20, 128 << 20, 1 << 30)
"""What pyarrow's reader takes at a time; each but the first only where a record was too long for
the one before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBack:
    """What a file turned out to hold."""

    bytes: int
    checksum: str
    """As in `WrittenFile`."""
    rows: int | None
    """Records counted by parsing the file, None where nothing here can parse the dialect."""


def read_back(
    path: Readable,
    output_format: TextFormat | ParquetFormat,
    compression: Compression,
    *,
    rows: bool,
    checksum: str = DEFAULT,
    advance: Callable[[int], None] = lambda size: None,
    encryption: Encryption = PLAIN,
) -> ReadBack:
    """Read a whole file: its size and checksum, and with `rows` its records by parsing it.

    Size and checksum are those of the file as it is, encrypted or not.

    Args:
        path: The file; a local one is read without the interpreter where that is possible.
        output_format: What it was written in.
        compression: What it was compressed with.
        rows: Count records.
        checksum: Which one, of `writers.files.checksums.CHECKSUMS`.
        advance: Called with the size of each piece of the file; what it raises comes through.
        encryption: What it was encrypted with, and the keys; without them no record is counted.

    Raises:
        WriteError: The file is missing, unreadable, or not of its format.
        FormatError: The checksum cannot be computed here.
    """
    try:
        size, found = _digest(path, checksum, advance)
        counted = None
        if rows and encryption.is_readable:
            counted = _count(decrypted(path, encryption), output_format, compression, encryption)
    except OSError as exc:
        raise write_error("read", path, exc) from exc
    return ReadBack(bytes=size, checksum=found, rows=counted)


def _digest(path: Readable, checksum: str, advance: Callable[[int], None]) -> tuple[int, str]:
    digest = open_digest(checksum)
    size = 0
    with open_bytes(path) as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
            advance(len(chunk))
    return size, digest.text()


def _count(
    path: Readable,
    output_format: TextFormat | ParquetFormat,
    compression: Compression,
    encryption: Encryption,
) -> int | None:
    import csv
    import zlib

    import pyarrow as pa
    import zstandard

    damage = (pa.ArrowException, EOFError, ValueError, csv.Error, zlib.error, zstandard.ZstdError)
    try:
        if isinstance(output_format, ParquetFormat):
            return _count_parquet(path, encryption)
        if output_format.fixed:
            return count_fixed(path, output_format, compression)
        if output_format.record_length_digits:
            return _count_prefixed(path, output_format, compression)
        if is_plain(output_format):
            return _count_plain(path, output_format, compression)
    except damage as exc:
        raise WriteError(
            f"{path} is not what was written: {exc}.", "unload the table again."
        ) from exc
    return None


def _count_parquet(path: Readable, encryption: Encryption) -> int:
    import pyarrow.parquet as pq

    rows = 0
    with pq.ParquetFile(parquet_source(path), **reading_options(encryption)) as file:
        for batch in file.iter_batches():
            rows += batch.num_rows
        if rows != file.metadata.num_rows:
            raise ValueError(
                f"the footer says {file.metadata.num_rows} rows, the pages hold {rows}"
            )
    return rows


def is_plain(text: TextFormat) -> bool:
    """Return whether pyarrow's CSV reader knows the dialect."""
    return (
        len(text.delimiter.encode()) == 1
        and len(text.enclosure.encode()) == 1
        and text.enclose != "none"
        and text.escape == "double"
        and text.eol in ("\n", "\r\n")
        and text.encoding.lower() in ("utf-8", "utf8", "utf-8-sig")
        # It would take the length for the beginning of the first value.
        and not text.record_length_digits
    )


def _count_plain(path: Readable, text: TextFormat, compression: Compression) -> int:
    import pyarrow as pa

    columns = _first_width(path, text, compression)
    if columns == 0:
        return 0
    for block_bytes in BLOCK_BYTES:
        try:
            rows = _count_records(path, text, compression, columns, block_bytes)
            break
        except pa.ArrowInvalid as exc:
            if "straddling" not in str(exc) or block_bytes == BLOCK_BYTES[-1]:
                raise
    return rows - 1 if text.header else rows


def _count_records(
    path: Readable, text: TextFormat, compression: Compression, columns: int, block_bytes: int
) -> int:
    import pyarrow as pa
    from pyarrow import csv

    names = [f"f{position}" for position in range(columns)]
    # Counting records needs no values: one column is converted, as bytes.
    values = csv.ConvertOptions(include_columns=names[:1], column_types={names[0]: pa.binary()})
    reading = csv.ReadOptions(use_threads=False, block_size=block_bytes, column_names=names)
    with arrow_records(path, text, compression, reading, values) as reader:
        return sum(int(batch.num_rows) for batch in reader)


def _first_width(path: Readable, text: TextFormat, compression: Compression) -> int:
    """Return the number of fields of the first record, 0 for an empty file."""
    import csv

    with io.TextIOWrapper(
        decompressed(path, compression), encoding=text.encoding, newline=""
    ) as file:
        reader = csv.reader(file, delimiter=text.delimiter, quotechar=text.enclosure)
        limit = csv.field_size_limit(BLOCK_BYTES[-1])
        try:
            for record in reader:
                return max(1, len(record))
        finally:
            csv.field_size_limit(limit)
    return 0


def _count_prefixed(path: Readable, text: TextFormat, compression: Compression) -> int:
    """Count records by walking their length prefixes, as SQL*Loader's `var` format says."""
    from writers.text.output_encoding import OutputEncoding

    digits, encoding = text.record_length_digits, OutputEncoding(text.encoding)
    end = encoding.encode(text.eol)
    prefix_bytes = len(encoding.encode("0" * digits))
    records = 0
    with io.BufferedReader(_Raw(decompressed(path, compression)), _CHUNK_BYTES) as file:
        file.read(len(encoding.preamble))
        while prefix := file.read(prefix_bytes):
            length = int(prefix.decode(text.encoding))
            record = file.read(length)
            if len(record) != length or not record.endswith(end):
                raise ValueError(f"record {records + 1} does not have its {length} bytes")
            records += 1
    return records - 1 if text.header else records


def count_fixed(path: Readable, text: TextFormat, compression: Compression) -> int:
    """Count records by their size; each has to end as they all do."""
    from writers.text.output_encoding import OutputEncoding

    encoding, last = OutputEncoding(text.encoding), text.fixed[-1]
    end = encoding.encode(text.eol)
    size = last.start + last.width + len(end)
    records = 0
    with io.BufferedReader(_Raw(decompressed(path, compression)), _CHUNK_BYTES) as file:
        file.read(len(encoding.preamble))
        while chunk := file.read(max(1, _CHUNK_BYTES // size) * size):
            if len(chunk) % size:
                raise ValueError(f"behind record {records + len(chunk) // size} is half a record")
            for place, byte in enumerate(end, size - len(end)):
                if chunk[place::size].strip(bytes([byte])):
                    raise ValueError(f"a record from {records + 1} on does not end as it should")
            records += len(chunk) // size
    return records


@contextmanager
def arrow_records(
    path: Readable, text: TextFormat, compression: Compression, reading: Any, values: Any
) -> Iterator[Any]:
    """Return Arrow's reader of the records of delimited text; it may be given up at any time.

    Args:
        path: The file.
        text: For which `is_plain` holds.
        compression: What it was compressed with.
        reading: pyarrow's `ReadOptions`.
        values: pyarrow's `ConvertOptions`.

    Raises:
        OSError: The file cannot be opened.
        pyarrow.ArrowInvalid: It is no such text.
    """
    import pyarrow as pa
    from pyarrow import csv

    stoppable = None if isinstance(path, Path) else Stoppable(path.open())
    file = arrow_stream(path) if stoppable is None else pa.PythonFile(stoppable, mode="r")
    if compression.codec != "none":
        file = pa.CompressedInputStream(file, compression.codec)
    parsing = csv.ParseOptions(
        delimiter=text.delimiter,
        quote_char=text.enclosure,
        newlines_in_values=True,
        ignore_empty_lines=False,
    )
    with file:
        try:
            with csv.open_csv(file, reading, parsing, values) as reader:
                try:
                    yield reader
                finally:
                    if stoppable is not None:
                        stoppable.stop()
        finally:
            if stoppable is not None:
                stoppable.stop()


def decompressed(path: Readable, compression: Compression) -> Any:
    """Return a file's bytes before they were compressed, as a file of Python's."""
    import pyarrow as pa

    if compression.codec == "gzip":
        return gzip.open(path if isinstance(path, Path) else path.open(), "rb")
    if compression.codec == "none":
        return open(path, "rb") if isinstance(path, Path) else path.open()
    if compression.codec == "zstd":
        import zstandard

        source: Any = path if isinstance(path, Path) else path.open()
        return zstandard.open(source, "rb")
    return pa.CompressedInputStream(arrow_stream(path), compression.codec)


class _Raw(io.RawIOBase):
    """Any object with `read` as a raw stream, so that the standard library can buffer it."""

    def __init__(self, inner: IO[bytes]) -> None:
        self._inner = inner

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._inner.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._inner.close()
        super().close()
