"""Reads finished files again, by other code than wrote them, to check the bytes on the disk.

A file that is read is a local one, or one without a path on this machine.
"""

from __future__ import annotations

import codecs
import csv
import errno
import io
from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from msgspec import Struct

from writers.encryption.age import Decrypted
from writers.encryption.parquet import reading_options
from writers.errors import WriteError
from writers.files.checksums import DEFAULT, open_digest
from writers.files.regular import open_regular, write_error
from writers.model import PLAIN, Compression, Encryption, ParquetFormat, TextFormat
from writers.text.dialects import OutputEncoding

_CHUNK_BYTES = 4 * 1024 * 1024
_RECORD_BYTES = (1 << 31) - 2
"""The longest text that pyarrow's CSV reader takes."""


class RemoteFile(Struct, frozen=True, kw_only=True):
    """A file that has no path on this machine."""

    name: str
    open: Callable[[], IO[bytes]]

    def __str__(self) -> str:
        return self.name

    def __fspath__(self) -> str:
        """Return the name: messages have it where a local file has its path."""
        return self.name


Readable = Path | RemoteFile


def open_bytes(file: Readable) -> Any:
    """Return a file open for reading its bytes, not buffered if it is a local one."""
    return open(open_regular(file), "rb", buffering=0) if isinstance(file, Path) else file.open()


def arrow_stream(file: Readable) -> Any:
    """Return a file as Arrow reads it: a local file is read without the interpreter."""
    import pyarrow as pa

    if not isinstance(file, Path):
        return pa.PythonFile(file.open(), mode="r")
    with open_bytes(file) as opened:
        # Arrow takes a path only. This path leads to the open file, even if its name was reused.
        return pa.OSFile(f"/proc/self/fd/{opened.fileno()}")


def decrypted(file: Readable, encryption: Encryption) -> Readable:
    """Return text as it was before it was encrypted; Parquet is decrypted by its reader."""
    if not encryption.recipients:
        return file

    def opened() -> IO[bytes]:
        raw = Decrypted(open_bytes(file), encryption.identities)
        return cast("IO[bytes]", io.BufferedReader(raw, 1 << 20))

    return RemoteFile(name=str(file), open=opened)


class Listed(NamedTuple):
    """A line of the index of a folder of large objects, see `writers.lob_files`."""

    name: str
    """Relative to the folder."""
    bytes: int
    digest: str


def listed(index: Readable) -> Iterator[Listed]:
    """Yield the lines of an index in their order; OSError if it cannot be read."""
    with io.BufferedReader(open_bytes(index), _CHUNK_BYTES) as file:
        for line in file:
            try:
                digest, size, name = line.decode("ascii").rstrip("\n").split(" ")
                yield Listed(name, int(size), digest)
            except ValueError as error:
                raise OSError(errno.EINVAL, "a line has another form", str(index)) from error


_NAMES_AT_A_TIME = 4_000_000


def repeated_name(indexes: Sequence[Readable], names: int) -> str | None:
    """Return a name that two lines of indexes have; None if all are different.

    `names` is about the number of lines. Of 4 million names at a time a hash of 8 bytes is kept.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    shares = 1 + names // _NAMES_AT_A_TIME
    for share in range(shares):

        def own(share: int = share) -> Iterator[str]:
            all_names = (each.name for index in indexes for each in listed(index))
            return (name for name in all_names if hash(name) % shares == share)

        counted = pa.array(array("q", map(hash, own())), pa.int64()).value_counts()
        several = counted.filter(pc.greater(counted.field("counts"), 1)).field("values")
        suspects, seen = set(several.to_pylist()), set[str]()
        for name in own() if suspects else ():
            if hash(name) in suspects:
                if name in seen:
                    return name
                seen.add(name)
    return None


class ReadBack(Struct, frozen=True, kw_only=True):
    """The size, checksum and records of a file that was read."""

    bytes: int
    checksum: str
    """In the form of `WrittenFile.checksum`."""
    rows: int | None
    """Records counted by parsing the file; None if the dialect cannot be parsed here."""


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

    Size and checksum are of the bytes in the file, encrypted or not. Without the keys of an
    encrypted file no record is counted. A local file is read without the interpreter if possible.

    `advance` is called with the size of each piece of the file, and with 0 now and then while
    records are counted; its error ends the reading. Raises WriteError if the file is missing,
    unreadable, or not of its format.
    """
    try:
        digest, size = open_digest(checksum), 0
        with open_bytes(path) as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
                size += len(chunk)
                advance(len(chunk))
        counted = None
        if rows and encryption.is_readable:
            readable = decrypted(path, encryption)
            check = partial(advance, 0)
            counted = _count(readable, output_format, compression, encryption, check)
    except OSError as exc:
        raise write_error("read", path, exc) from exc
    return ReadBack(bytes=size, checksum=f"{checksum}:{digest.hexdigest()}", rows=counted)


def _count(
    path: Readable,
    output_format: TextFormat | ParquetFormat,
    compression: Compression,
    encryption: Encryption,
    check: Callable[[], None],
) -> int | None:

    import pyarrow as pa

    damage = (pa.ArrowException, ValueError, csv.Error)
    try:
        if isinstance(output_format, ParquetFormat):
            return _count_parquet(path, encryption, check)
        if output_format.fixed:
            return count_fixed(path, output_format, compression, check)
        if output_format.record_length_digits:
            return _count_prefixed(path, output_format, compression, check)
        if is_plain(output_format):
            return _count_plain(path, output_format, compression, check)
    except damage as exc:
        raise WriteError(
            f"{path} differs from the data that was written: {exc}.", "unload the table again."
        ) from exc
    return None


def _count_parquet(path: Readable, encryption: Encryption, check: Callable[[], None]) -> int:
    import pyarrow.parquet as pq

    rows = 0
    with pq.ParquetFile(arrow_stream(path), **reading_options(encryption)) as file:
        for batch in parquet_batches(file):
            check()
            rows += batch.num_rows
        if rows != file.metadata.num_rows:
            raise ValueError(
                f"the footer has {file.metadata.num_rows} rows, but the pages have {rows}"
            )
    return rows


def parquet_batches(file: Any) -> Iterator[Any]:
    """Yield the rows of a file by row groups: a batch would have 65,536 rows of any width."""
    for group in range(file.num_row_groups):
        yield from file.iter_batches(row_groups=[group])


def is_plain(text: TextFormat) -> bool:
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


def _count_plain(
    path: Readable, text: TextFormat, compression: Compression, check: Callable[[], None]
) -> int:
    import pyarrow as pa
    from pyarrow.csv import ConvertOptions

    blocks = plain_records(path, text, compression)
    first = next(blocks, None)
    if first is None:
        return 0
    start = io.TextIOWrapper(io.BytesIO(first), encoding="utf-8", newline="")
    limit = csv.field_size_limit(_RECORD_BYTES)
    try:
        record = next(csv.reader(start, delimiter=text.delimiter, quotechar=text.enclosure))
    finally:
        csv.field_size_limit(limit)
    names = [f"f{position}" for position in range(max(1, len(record)))]
    # Counting records needs no values: one column is converted, as bytes.
    values = ConvertOptions(include_columns=names[:1], column_types={names[0]: pa.binary()})
    rows = -int(text.header)
    for block in chain([first], blocks):
        check()
        rows += int(arrow_table(block, text, names, values).num_rows)
    return rows


def _count_prefixed(
    path: Readable, text: TextFormat, compression: Compression, check: Callable[[], None]
) -> int:
    """Count records by their length prefixes, in SQL*Loader's `var` format."""

    digits, encoding = text.record_length_digits, OutputEncoding(text.encoding)
    end = encoding.encode(text.eol)
    prefix_bytes = len(encoding.encode("0" * digits))
    records = 0
    with io.BufferedReader(decompressed(path, compression), _CHUNK_BYTES) as file:
        file.read(len(encoding.preamble))
        while prefix := file.read(prefix_bytes):
            check()
            length = int(prefix.decode(text.encoding))
            record = file.read(length)
            if len(record) != length or not record.endswith(end):
                raise ValueError(f"record {records + 1} does not have its {length} bytes")
            records += 1
    return records - 1 if text.header else records


def count_fixed(
    path: Readable, text: TextFormat, compression: Compression, check: Callable[[], None]
) -> int:
    """Count records by their size; each must have the same end. `check` is called now and then."""

    encoding, last = OutputEncoding(text.encoding), text.fixed[-1]
    end = encoding.encode(text.eol)
    size = last.start + last.width + len(end)
    records = 0
    with io.BufferedReader(decompressed(path, compression), _CHUNK_BYTES) as file:
        file.read(len(encoding.preamble))
        while chunk := file.read(max(1, _CHUNK_BYTES // size) * size):
            check()
            if len(chunk) % size:
                raise ValueError(
                    f"after record {records + len(chunk) // size} there is half a record"
                )
            for place, byte in enumerate(end, size - len(end)):
                if chunk[place::size].strip(bytes([byte])):
                    raise ValueError(f"a record after record {records} does not end correctly")
            records += len(chunk) // size
    return records


def plain_records(path: Readable, text: TextFormat, compression: Compression) -> Iterator[bytes]:
    """Yield the records of text for which `is_plain` holds, some MiB of whole records at a time.

    The file is read in the calling thread, so nothing reads it after the caller has stopped. A
    record ends at an end of line with an even number of enclosures before it: one that belongs to a
    value is written twice, and the value is then enclosed.

    Raises OSError if the file cannot be opened or decompressed, and ValueError if the last record
    has no end, or a record is too long.
    """
    mark, end, delimiter = (each.encode() for each in (text.enclosure, text.eol, text.delimiter))
    pieces: list[bytes] = []
    size, enclosed = 0, False
    with decompressed(path, compression) as file:
        if text.encoding.lower() == "utf-8-sig":
            file.read(len(codecs.BOM_UTF8))
        while piece := file.read(_CHUNK_BYTES):
            enclosed ^= bool(piece.count(mark) % 2)
            # Pairs change nothing, and a value may have millions of them.
            cut = _last_end(piece.replace(mark * 2, delimiter * 2), mark, end, enclosed)
            if cut:
                yield b"".join((*pieces, piece[:cut]))
                pieces, size = [], 0
            pieces.append(piece[cut:])
            size += len(piece) - cut
            if size > _RECORD_BYTES:
                raise ValueError(f"a record has no end within {_RECORD_BYTES} bytes")
    if size:
        # An end of line of two bytes may be in two pieces.
        rest = b"".join(pieces)
        if enclosed or not rest.endswith(end):
            raise ValueError("the last record has no end")
        yield rest


def _last_end(piece: bytes, mark: bytes, end: bytes, enclosed: bool) -> int:
    """Return the place after the last record in a piece, or 0; `enclosed` is for its end."""
    at = len(piece)
    while True:
        if enclosed:
            at = piece.rfind(mark, 0, at)
        found = piece.rfind(end, 0, at) if at >= 0 else -1
        if found < 0:
            return 0
        enclosed = bool(piece.count(mark, found, at) % 2)
        if not enclosed:
            return found + len(end)
        at = found


def arrow_table(block: bytes, text: TextFormat, names: Sequence[str], values: Any) -> Any:
    """Return records of `plain_records` as Arrow parses them; it raises ArrowInvalid."""
    import pyarrow as pa
    from pyarrow import csv

    if block.startswith(codecs.BOM_UTF8):
        # Arrow skips a byte order mark, and this one belongs to the first value.
        block = codecs.BOM_UTF8 + block
    reading = csv.ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=names)
    parsing = csv.ParseOptions(
        delimiter=text.delimiter,
        quote_char=text.enclosure,
        newlines_in_values=True,
        ignore_empty_lines=False,
    )
    return csv.read_csv(pa.BufferReader(block), reading, parsing, values)


def decompressed(path: Readable, compression: Compression) -> Any:
    import pyarrow as pa

    file = arrow_stream(path)
    if compression.codec == "none":
        return file
    return pa.CompressedInputStream(file, compression.codec)
