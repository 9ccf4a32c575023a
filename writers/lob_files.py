"""Large objects beside their rows: the values of one column of a work unit, in other files.

A *packed* file has them one after another. The row has the place of its value instead, as a LOB
location specifier: `NAME.OFFSET.LENGTH/`. The offset is counted from 1, and offset and length are
in bytes. SQL*Loader and external tables read this form in a field that is declared `LLS`. A length
of -1 is NULL there; Parquet has NULL itself.

A *folder* has a file for each value, and the row has its path. The folder is written under a
staging name and published by one rename. Its index has a line for each file: checksum, length and
name. The manifest has the checksum of the index, so it does not grow with the number of values.

A value goes from the memory of its batch, or piece by piece from its source, into the buffers of
the file's sink. So memory does not depend on the length of values, nor on their number.
"""

from __future__ import annotations

import ctypes
import os
import shutil
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import perf_counter
from urllib.parse import quote
from zlib import crc32

import pyarrow as pa
from msgspec.structs import replace
from pyarrow import types

from writers.codecs.compression import BytesLike
from writers.errors import FormatError, ValueNotRepresentable, WriteError
from writers.files.checksums import open_digest
from writers.files.publish import INDEX, PART_SUFFIX
from writers.files.regular import write_error
from writers.files.sink import Sink, StagedFiles
from writers.large_rows import LargeRow, is_long
from writers.model import (
    PLAIN,
    Compression,
    FinalNames,
    LobColumn,
    OutputSpec,
    StageSeconds,
    TextFormat,
    WrittenFile,
)
from writers.objects.location import Location, is_location
from writers.schema import pc, text_class
from writers.text.dialects import OutputEncoding
from writers.text.string_arrays import value_bytes, without_views

EXTENSION = "lob"


def packed_schema(schema: pa.Schema, names: Collection[str]) -> pa.Schema:
    """Return a schema whose columns with these names hold specifiers; FormatError for other types.

    A value must be text or bytes: another type has no bytes that every program would expect.
    """
    fields = []
    for field in schema:
        if field.name in names:
            kind = field.type
            views = types.is_string_view(kind) or types.is_binary_view(kind)
            if not (is_long(kind) or views) or text_class(field):
                raise FormatError(
                    f"column {field.name} has the type {text_class(field) or kind}, and files of "
                    "large objects hold text or bytes.",
                    "leave the column out of --lob-files.",
                )
            field = pa.field(field.name, pa.string(), field.nullable)
        fields.append(field)
    return pa.schema(fields, metadata=schema.metadata)


def check_keys(schema: pa.Schema, template: Sequence[str], lobs: Collection[str]) -> None:
    """Raise FormatError if a key column of `LobColumn.template` has values that make no name."""
    for name in template[1::2]:
        kind = schema.field(name).type
        texts = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
        others = types.is_integer(kind) or types.is_decimal(kind) or types.is_date(kind)
        if name in lobs or not (texts or others):
            raise FormatError(
                f"column {name} in --lob-name has the type {kind}, and names of files are made "
                "of numbers without an exponent, texts and dates.",
                "name a column of the key that is not in --lob-files.",
            )


class LobFiles:
    """The other files of a work unit, for each column; `close` or `abort` ends them, once."""

    def __init__(
        self, spec: OutputSpec, schema: pa.Schema, stem: str, lobs: Sequence[LobColumn]
    ) -> None:
        self.schema = packed_schema(schema, {lob.name for lob in lobs})
        text = spec.format if isinstance(spec.format, TextFormat) else None
        encoding = OutputEncoding(text.encoding if text else "utf-8")
        self._columns: dict[int, _PackedColumn | _FolderColumn] = {}
        try:
            for number, lob in enumerate(lobs):
                # A name with a replaced character would lead nowhere.
                _encoded(lob.file, lob.name, encoding)
                index = schema.names.index(lob.name)
                if lob.template is not None:
                    staged = f"{stem}.{EXTENSION}{number}{PART_SUFFIX}"
                    keys = [schema.names.index(name) for name in lob.template[1::2]]
                    self._columns[index] = _FolderColumn(spec, staged, lob, keys, encoding)
                    continue
                self._columns[index] = _PackedColumn(
                    # Offsets in compressed bytes would lead nowhere.
                    StagedFiles(
                        replace(
                            spec,
                            file_size_bytes=0,
                            encryption=PLAIN,
                            finals=spec.finals and _final(spec.finals, lob.file),
                        ),
                        stem,
                        f"{EXTENSION}{number}",
                        Compression(),
                    ),
                    lob,
                    encoding,
                    null_length="-1" if text else None,
                )
        except BaseException:
            self.abort()
            raise

    @property
    def bytes_written(self) -> int:
        return sum(each.bytes_written for each in self._columns.values())

    @property
    def stages(self) -> tuple[StageSeconds, ...]:
        return tuple(each.stages for each in self._columns.values())

    def packed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Append the values of a batch to the files; return the batch with specifiers."""
        columns = [
            self._columns[index].packed(column, batch) if index in self._columns else column
            for index, column in enumerate(batch.columns)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def packed_row(self, row: LargeRow) -> LargeRow:
        """Append the values of a row, whose large ones come in pieces; return specifiers."""
        large = dict(row.values)
        columns = [
            self._columns[index].packed(column, row.row)
            if index in self._columns and index not in large
            else column
            for index, column in enumerate(row.row.columns)
        ]
        left = []
        for index, value in row.values:
            if index in self._columns:
                columns[index] = self._columns[index].packed_pieces(value.pieces(), row.row)
            else:
                left.append((index, value))
        batch = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        return LargeRow(row=batch, values=tuple(left), held_bytes=row.held_bytes)

    def close(self) -> tuple[WrittenFile, ...]:
        """Finish and sync the files, which keep their staging names; or leave none."""
        found: list[WrittenFile] = []
        try:
            for each in self._columns.values():
                found += (replace(file, column=each.lob.name) for file in each.close())
        except BaseException:
            self.abort()
            raise
        return tuple(found)

    def abort(self) -> None:
        """Remove every file; never raises."""
        for each in self._columns.values():
            each.abort()


def _final(finals: FinalNames, name: str) -> FinalNames:
    return FinalNames(place=finals.place, name=lambda number: name)


class _PackedColumn:
    def __init__(
        self,
        files: StagedFiles,
        lob: LobColumn,
        encoding: OutputEncoding,
        *,
        null_length: str | None,
    ) -> None:
        self._files, self.lob = files, lob
        self._encoding, self._null_length = encoding, null_length
        self._next = 1
        """The offset of the next value."""

    @property
    def bytes_written(self) -> int:
        return self._files.bytes_written

    @property
    def stages(self) -> StageSeconds:
        return self._files.stages(0.0)

    def packed(self, values: pa.Array, rows: pa.RecordBatch) -> pa.Array:
        """Append the values of an array, which are in order and adjoin; return the specifiers."""
        lengths, data = _lengths_and_bytes(values, self.lob.name, self._encoding)
        if data.nbytes:
            self._files.sink().write(data)
        places = list[str | None]()
        for length in lengths:
            # Arrow's functions are no faster below 1,000 rows. Batches of large values have few.
            size = self._null_length if length is None else length
            places.append(None if size is None else f"{self.lob.file}.{self._next}.{size}/")
            self._next += length or 0
        return pa.array(places, pa.string())

    def packed_pieces(
        self, pieces: Iterator[bytes] | Iterator[str], row: pa.RecordBatch
    ) -> pa.Array:
        """Append one value; return the array of its specifier."""
        size, sink = 0, self._files.sink()
        for data in _encoded_pieces(pieces, self.lob.name, self._encoding):
            sink.write(data)
            size += len(data)
        start, self._next = self._next, self._next + size
        return pa.array([f"{self.lob.file}.{start}.{size}/"], pa.string())

    def close(self) -> tuple[WrittenFile, ...]:
        self._files.finish(0)
        return self._files.files

    def abort(self) -> None:
        self._files.abort()


_FILES_IN_FOLDER = 10_000
"""Numbered files in one folder."""
_LONGEST_NAME, _LONGEST_PATH = 255, 1_000
"""Bytes, of file systems and of the keys of object stores."""
_SMALL_BYTES = 1024 * 1024
_AT_A_TIME = 16
"""Small values that are sent to an object store at the same time: each waits for its answer."""


class _FolderColumn:
    """A file for each value, in a folder with an index."""

    def __init__(
        self,
        spec: OutputSpec,
        staged: str,
        lob: LobColumn,
        keys: Sequence[int],
        encoding: OutputEncoding,
    ) -> None:
        # All files are synced together. A file that is synced alone costs a wait for the disk.
        self._spec = replace(spec, synced_from_bytes=1 << 62, file_size_bytes=0, encryption=PLAIN)
        self._staged, self.lob, self._keys, self._encoding = staged, lob, tuple(keys), encoding
        self._written, self._values = 0, 0
        self._write_s = self._write_cpu_s = self._own_cpu_s = 0.0
        self._waits = spec.direct_io or spec.min_free_bytes > 0 or is_location(spec.directory)
        self._disk: int | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._sending: deque[tuple[str, Future[tuple[int, str]]]] = deque()
        if is_location(spec.directory):
            self._pool = ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="large object")
            self._folder: Path | Location = Location.parse(spec.directory).below(staged)
        else:
            self._folder = Path(spec.directory, staged)
            self._disk = os.open(spec.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            _make(self._folder)
        self._index = Sink.of(self._spec, self._folder / INDEX, Compression())

    @property
    def bytes_written(self) -> int:
        return self._written

    @property
    def stages(self) -> StageSeconds:
        return StageSeconds(
            write_s=self._write_s,
            write_cpu_s=self._write_cpu_s,
            own_cpu_s=self._own_cpu_s,
            uncompressed_bytes=self._written,
        )

    def packed(self, values: pa.Array, rows: pa.RecordBatch) -> pa.Array:
        """Write the values of an array; return their paths."""
        lengths, data = _lengths_and_bytes(values, self.lob.name, self._encoding)
        at, paths = 0, list[str | None]()
        for length, name in zip(lengths, self._names(rows), strict=True):
            if length is None:
                paths.append(None)
                continue
            paths.append(self._add(name, (data[at : at + length],), length))
            at += length
        return pa.array(paths, pa.string())

    def packed_pieces(
        self, pieces: Iterator[bytes] | Iterator[str], row: pa.RecordBatch
    ) -> pa.Array:
        """Write one value; return the array of its path."""
        encoded = _encoded_pieces(pieces, self.lob.name, self._encoding)
        return pa.array([self._add(next(self._names(row)), encoded, None)], pa.string())

    def _names(self, rows: pa.RecordBatch) -> Iterator[Callable[[], str]]:
        """Yield for each row what returns the name of its file; only a value has one."""
        assert self.lob.template is not None
        template = self.lob.template
        if not template:
            for _ in range(rows.num_rows):
                yield lambda: _number_name(self._values)
            return
        keys = []
        for index in self._keys:
            column = rows.column(index)
            if types.is_string_view(column.type):
                column = without_views(column)
            keys.append(pc.cast(column, pa.string()).to_pylist())
        for values in zip(*keys, strict=True):
            yield partial(_key_name, template, values)

    def _add(self, name_of: Callable[[], str], data: Iterable[BytesLike], size: int | None) -> str:
        name = name_of()
        path = f"{self.lob.file}/{name}"
        if len(path) > _LONGEST_PATH:
            raise ValueNotRepresentable(
                f"column {self.lob.name}: the path of a value would have {len(path):,} bytes, and "
                f"at most {_LONGEST_PATH:,} are possible.",
                "name the files by a shorter column in --lob-name.",
            )
        self._values += 1
        if self._pool is not None and size is not None and size <= _SMALL_BYTES:
            # The memory of the batch is reused.
            copied = [bytes(piece) for piece in data]
            self._sending.append((name, self._pool.submit(self._write, name, copied)))
            self._settle(_AT_A_TIME)
        else:
            self._settle(0)
            is_small = not self._waits and size is not None and size <= _SMALL_BYTES
            self._record(name, (self._write_small if is_small else self._write)(name, data))
        return path

    def _settle(self, most: int) -> None:
        """Wait until at most this number of values is being sent; record the others in order."""
        while len(self._sending) > most:
            name, future = self._sending.popleft()
            self._record(name, future.result())

    def _write_small(self, name: str, data: Iterable[BytesLike]) -> tuple[int, str]:
        """Write a file without a sink: measured with values of 1 KB, a fifth of its CPU time."""
        began, path, rest = perf_counter(), f"{self._folder}/{name}", memoryview(b"".join(data))
        size, digest = rest.nbytes, open_digest(self._spec.checksum)
        digest.update(rest)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            try:
                descriptor = os.open(path, flags, 0o666)
            except FileNotFoundError:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                descriptor = os.open(path, flags, 0o666)
            try:
                while rest:
                    rest = rest[os.write(descriptor, rest) :]
            finally:
                os.close(descriptor)
        except FileExistsError:
            raise repeated(self.lob.name, name) from None
        except OSError as error:
            raise write_error("write", path, error) from error
        self._write_s += perf_counter() - began
        return size, f"{self._spec.checksum}:{digest.hexdigest()}"

    def _write(self, name: str, data: Iterable[BytesLike]) -> tuple[int, str]:
        place = self._folder / name
        if isinstance(place, Path):
            if os.path.lexists(place):
                raise repeated(self.lob.name, name)
            _make(place.parent)
        sink = Sink.of(self._spec, place, Compression())
        try:
            for piece in data:
                sink.write(piece)
        except BaseException:
            sink.abort()
            raise
        found = sink.close()
        stages = sink.stages()
        self._write_s += stages.write_s
        self._write_cpu_s += stages.write_cpu_s
        self._own_cpu_s += stages.own_cpu_s
        return found

    def _record(self, name: str, written: tuple[int, str]) -> None:
        size, checksum = written
        self._written += size
        self._index.write(f"{checksum.partition(':')[2]} {size} {name}\n".encode())

    def close(self) -> tuple[WrittenFile, ...]:
        """Finish the index, and sync the folder."""
        self._settle(0)
        size, checksum = self._index.close()
        if self._disk is not None:
            _sync_disk(self._disk, self._folder)
        self._end()
        path = f"{self._staged}/{INDEX}"
        return (
            WrittenFile(
                path=path,
                rows=0,
                bytes=size,
                checksum=checksum,
                values=self._values,
                value_bytes=self._written,
            ),
        )

    def abort(self) -> None:
        self._end()
        self._index.abort()
        if isinstance(self._folder, Path):
            shutil.rmtree(self._folder, ignore_errors=True)
            return
        from writers.objects.bucket import Bucket

        # The next run removes objects that stay.
        with suppress(OSError, WriteError):
            bucket = Bucket(self._folder)
            bucket.delete(each.key for each in bucket.within(self._folder.prefix))

    def _end(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        if self._disk is not None:
            os.close(self._disk)
            self._disk = None


def _number_name(number: int) -> str:
    """Return the name of a file by its number, from 0; 10,000 files share a folder."""
    return f"{number // _FILES_IN_FOLDER:04d}/{number + 1:08d}.{EXTENSION}"


def _key_name(template: Sequence[str], values: Sequence[str | None]) -> str:
    """Return the name of a file by values of its key, spread over 256 folders.

    Equal names are in one folder, so that the file system finds the second one.
    """
    parts = list(template)
    parts[1::2] = map(_safe, values)
    name = "/".join(map(_cut, "".join(parts).split("/")))
    return f"{crc32(name.partition('/')[0].encode()) & 255:02x}/{name}"


def _safe(value: str | None) -> str:
    """Return a value as a part of a name. No text becomes `%null` or `%empty`."""
    if not value:
        return "%null" if value is None else "%empty"
    text = quote(value, safe="+,=@")
    return f"%2E{text[1:]}" if text[0] == "." else text


def _cut(name: str) -> str:
    """Return a name that is too long as folders in each other, with `%/%` at each cut."""
    if len(name) <= _LONGEST_NAME:
        return name
    step = _LONGEST_NAME - 2
    return "%/%".join(name[at : at + step] for at in range(0, len(name), step))


def repeated(column: str, name: str) -> ValueNotRepresentable:
    return ValueNotRepresentable(
        f"column {column}: two rows have a value with the name {name.partition('/')[2]!r}.",
        "add columns to --lob-name until each row has another name, or leave it out.",
    )


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error("create", folder, error) from error


def _sync_disk(descriptor: int, folder: Path | Location) -> None:
    """Sync a file system. Since Linux 5.8 it reports errors of writes since it was opened."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if call is None:
        os.sync()
    elif call(descriptor):
        number = ctypes.get_errno()
        raise write_error("sync", str(folder), OSError(number, os.strerror(number)))


def _lengths_and_bytes(
    values: pa.Array, column: str, encoding: OutputEncoding
) -> tuple[list[int | None], memoryview]:
    """Return the lengths of texts or bytes, None for NULL, and all their bytes together."""
    if types.is_string_view(values.type) or types.is_binary_view(values.type):
        values = without_views(values)
    is_text = types.is_string(values.type) or types.is_large_string(values.type)
    if is_text and not encoding.is_utf8:
        texts = values.to_pylist()
        encoded = [None if text is None else _encoded(text, column, encoding) for text in texts]
        values = pa.array(encoded, pa.large_binary())
    lengths = pc.binary_length(values).to_pylist()
    data = value_bytes(values)
    if data.nbytes != sum(filter(None, lengths)):  # Bytes without a row, below a NULL.
        data = value_bytes(values.drop_null())
    return lengths, data


def _encoded_pieces(
    pieces: Iterator[bytes] | Iterator[str], column: str, encoding: OutputEncoding
) -> Iterator[bytes]:
    for piece in pieces:
        yield _encoded(piece, column, encoding) if isinstance(piece, str) else piece


def _encoded(text: str, column: str, encoding: OutputEncoding) -> bytes:
    try:
        return encoding.encode(text)
    except UnicodeEncodeError as error:
        raise ValueNotRepresentable(
            f"column {column}: {encoding.name} has no character U+{ord(text[error.start]):04X}.",
            "use --encoding utf-8.",
        ) from None
