"""A worker's side of a PostgreSQL database: rows by COPY, as text or as batches, exactly or not.

libpq returns whole rows, so the text of a wide row is held once in memory at any size. Parsing the
row would take several times its size. Its long values are found in the text and read from there.

Native code parses texts of ordinary values only. A text with any other value is declined as a
whole, and the plain parser reads it: dates before year 1 or after 9999, infinity, values that do
not fit their type, text that is not UTF-8. So rules and errors are in the plain parser alone. For
the reference table of ten columns the native code takes half of the CPU of Arrow's CSV reader,
which is a fifth of that of a long run to Parquet.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace
from pyarrow import csv

from partition_planner.model import Piece, Selector
from unloader.errors import OutputFailed, SourceError, UnloaderError
from unloader.model import Extract, Snapshot, SourceSpec
from unloader.sources.base import Reader, Text
from unloader.sources.moments import MomentRefused, parse_moments, unfit
from unloader.sources.postgres import relations
from unloader.sources.postgres.binary_rows import BinaryRows, raw_columns
from unloader.sources.postgres.errors import NOT_UTF8, state_of
from unloader.sources.postgres.large_objects import LargeObjects, object_columns, with_oids
from unloader.sources.postgres.libpq.connection import native
from unloader.sources.postgres.session import session_in
from unloader.sources.postgres.statement import (
    CopyDialect,
    base_type,
    in_binary_form,
    is_number,
    reads_others,
    selector_statement,
)
from unloader.sources.statement import quoted, select_list
from writers.held_values import LEAST_BYTES, PIECE_BYTES, decoded, may_be_large
from writers.large_rows import LargeRow
from writers.model import TextFormat
from writers.schema import read_schema

ENCODED_PIECE_BYTES = 1024 * 1024
BINARY_PIECE_BYTES = 1024 * 1024


class PostgresReader(Reader):
    """A worker's session inside the run's snapshot."""

    def __init__(self, spec: SourceSpec, snapshot: Snapshot | None) -> None:
        """Connect. An interrupted COPY ends its connection, and a new one is made after it."""
        self._spec, self._snapshot = spec, snapshot
        self._session = session_in(spec, snapshot)
        self._objects = LargeObjects(lambda: session_in(spec, snapshot))

    def batches(
        self, extract: Extract, piece: Piece, *, batch_bytes: int
    ) -> Iterator[pa.RecordBatch | LargeRow]:
        """Yield the piece's rows, about `batch_bytes` of COPY text a batch; longer rows alone."""
        schema = read_schema(extract.projection.schema)
        if object_columns(schema):
            rows = self._rows(extract, piece, with_oids(schema), batch_bytes)
            yield from self._objects.filled(rows, schema)
        else:
            yield from self._rows(extract, piece, schema, batch_bytes)

    def _rows(
        self, extract: Extract, piece: Piece, schema: pa.Schema, batch_bytes: int
    ) -> Iterator[pa.RecordBatch | LargeRow]:
        parser = CopyParser(schema)
        if raw := raw_columns(schema):
            columns = tuple(
                in_binary_form(column, raw=at in raw)
                for at, column in enumerate(extract.projection.columns)
            )
            asked = replace(extract, projection=replace(extract.projection, columns=columns))
            # Longer rows are not copied before they are written.
            chunk_bytes = min(batch_bytes, BINARY_PIECE_BYTES)
            binary = BinaryRows(schema, parser.native, parser.plain, chunk_bytes)
            for chunks in self._copied(asked, piece.selector, None, chunk_bytes):
                for chunk in chunks:
                    yield from binary.rows(chunk)
                    del chunk
                del chunks
            return
        wide = WideRows(schema, parser, batch_bytes)
        for chunks in self._copied(extract, piece.selector, CopyDialect(), batch_bytes):
            for chunk in chunks:
                # The usual rows of a chunk come together, each wide one separately.
                if len(chunk) < batch_bytes:
                    yield parser.parse(chunk)
                else:
                    yield from wide.rows(memoryview(chunk))
                del chunk
            del chunks

    def encoded(
        self, extract: Extract, piece: Piece, text: TextFormat
    ) -> Iterator[tuple[Text, ...]]:
        forced: tuple[str, ...] | bool = text.enclose == "all"
        if text.enclose == "strings":
            forced = tuple(
                column.name
                for column in extract.table.columns
                if not is_number(column) and base_type(column) != "boolean"
            )
        dialect = CopyDialect(
            delimiter=text.delimiter, quote=text.enclosure, null=text.null, force_quote=forced
        )
        columns = [column.name for column in extract.projection.columns]
        yield from self._copied(extract, piece.selector, dialect, ENCODED_PIECE_BYTES, columns)
        self.encoded_rows = self._session.rows_copied

    def close(self) -> None:
        for each in (self._session, self._objects):
            with suppress(UnloaderError):
                each.close()

    def _reconnect(self) -> None:
        self._session.close()
        self._session = session_in(self._spec, self._snapshot)

    def _copied(
        self,
        extract: Extract,
        selector: Selector,
        dialect: CopyDialect | None,
        piece_bytes: int,
        columns: Sequence[str] = (),
    ) -> Iterator[tuple[Text, ...]]:
        sql = selector_statement(select_list(extract.projection.columns), extract, selector)
        try:
            if not self._session.alive:
                self._reconnect()
            yield from self._session.copied(sql, dialect, piece_bytes, columns)
        except SourceError as error:
            if state_of(error.__cause__) not in NOT_UTF8:
                raise
            raise self._not_utf8(extract, selector, error) from error
        if self._session.in_transaction and reads_others(extract):
            relations.check_unchanged(self._session)

    def _not_utf8(self, extract: Extract, selector: Selector, error: SourceError) -> SourceError:
        """Return the error of texts that have no UTF-8, with the names of their columns."""
        # A transaction takes no further statement after an error.
        self._reconnect()
        session, bad = self._session, list[str]()
        for column in extract.projection.columns:
            text = f"pg_catalog.convert_to(pg_catalog.concat({column.expression}), 'UTF8')"
            sql = selector_statement(f"pg_catalog.count({text})", extract, selector)
            kept = session.apart() if session.in_transaction else nullcontext()
            try:
                with kept, session.users_path():
                    session.rows(sql)
            except SourceError as found:
                if state_of(found.__cause__) not in NOT_UTF8:
                    raise
                bad.append(column.name)
        if not bad:
            return error
        encoding = session.value("SHOW server_encoding")
        label = "the query" if extract.query is not None else extract.table.label
        first = quoted(bad[0])
        return SourceError(
            f"{label} has text that is not UTF-8 in {', '.join(bad)}: {error.message}",
            f"leave it out with --exclude {','.join(bad)}, or read the bytes: use a --query that "
            f"has for each such column: convert_to({first}::text, '{encoding}') AS {first}",
        )


_COLUMN = re.compile(r"In CSV column #(\d+): (?:Row #\d+: )?(.*)", re.DOTALL)
"""Arrow counts rows within a piece of the text, so its row number is left out of messages."""


class CopyParser:
    """Parses records of `COPY ... (FORMAT csv)`; NULL is the bare empty field."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._binary = [pa.types.is_binary(field.type) for field in schema]
        self._decoder = Decoder(schema)
        self._odd: set[int] = set()
        """Columns of dates with values that Arrow's reader does not accept."""
        self._types = {
            f"f{position}": pa.string() if binary else field.type
            for position, (field, binary) in enumerate(zip(schema, self._binary, strict=True))
        }

    def parse(self, *chunks: Text) -> pa.RecordBatch:
        """Return the records in some chunks as one batch; `OutputFailed` names columns that do not
        fit.
        """
        text = pa.py_buffer(chunks[0]) if len(chunks) == 1 else _joined(chunks)
        batch = self.native(text)
        return self.plain(text) if batch is None else batch

    def native(self, text: pa.Buffer, raw: Sequence[int] | None = None) -> pa.RecordBatch | None:
        """Return the records as the native code reads them; None if it declines them."""
        batch = self._decoder.batch(text, raw) if self._decoder.usable else None
        # Such values seldom come alone, so texts are not read twice from now on.
        self._decoder.usable = batch is not None
        return batch

    def plain(self, text: pa.Buffer) -> pa.RecordBatch:
        """Return the records of a text without the native code."""
        table, refused = self._table(text)
        arrays: list[pa.Array] = []
        for position, column in enumerate(table.columns):
            array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
            field = self._schema.field(position)
            if self._binary[position]:
                texts = array.to_pylist()
                values = [None if text is None else bytes.fromhex(text) for text in texts]
                array = pa.array(values, pa.binary())
            elif position in self._odd:
                try:
                    array = parse_moments(array, field.type)
                except MomentRefused as error:
                    refused[field.name] = ", which ".join(error.args)
            arrays.append(array)
        if refused:
            ordered = {name: refused[name] for name in self._schema.names if name in refused}
            raise unfit(ordered)
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _table(self, data: pa.Buffer) -> tuple[pa.Table, dict[str, str]]:
        """Return the columns as Arrow reads them, and those with values that do not fit.

        A column of dates that Arrow cannot read is text from then on, in all batches.
        """
        refused: dict[str, str] = {}
        types = dict(self._types)
        while True:
            try:
                return self._read(data, types), refused
            except pa.ArrowInvalid as error:
                match = _COLUMN.search(str(error))
                if match is None:
                    raise SourceError(f"COPY sent text that cannot be parsed: {error}") from error
                position, reason = int(match.group(1)), match.group(2).strip().splitlines()[0]
            field, column = self._schema.field(position), f"f{position}"
            if types[column] == pa.string():
                raise OutputFailed(
                    f"column {field.name} holds text that is not valid UTF-8",
                    f"leave it out with --exclude {field.name}",
                )
            types[column] = pa.string()
            if pa.types.is_temporal(field.type):
                self._types[column] = pa.string()
                self._odd.add(position)
            else:
                refused[field.name] = reason

    def _read(self, data: pa.Buffer, types: dict[str, pa.DataType]) -> pa.Table:
        return csv.read_csv(
            pa.BufferReader(data),
            read_options=csv.ReadOptions(
                use_threads=False, block_size=data.size + 1, column_names=list(types)
            ),
            parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
            convert_options=csv.ConvertOptions(
                column_types=types,
                null_values=[""],
                true_values=["t"],
                false_values=["f"],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )


def _joined(chunks: Sequence[Text]) -> pa.Buffer:
    """Return the chunks in one piece of Arrow's memory.

    The C library keeps freed memory up to the size of its largest allocations. With allocations as
    large as these chunks, a wide row took twice its size while it arrived.
    """
    buffer = pa.allocate_buffer(sum(map(len, chunks)))
    room, at = memoryview(buffer).cast("B"), 0
    for chunk in chunks:
        room[at : at + len(chunk)] = chunk
        at += len(chunk)
    return buffer


_END_OF_FIELD = re.compile(rb"[,\n]")
_QUOTES = re.compile(rb'"+')
_QUOTE = ord('"')
_COMMA = ord(",")


Field = tuple[int, int, bool]
"""Start and end of the text of one value, with its quotes, and whether it has some."""


def records(text: memoryview) -> Iterator[tuple[Field, ...]]:
    fields: list[Field] = []
    at = 0
    while at < len(text):
        quoted = text[at] == _QUOTE
        if quoted:
            # Quotes inside a value are doubled, so the first odd run of quotes ends with its end.
            runs = (run for run in _QUOTES.finditer(text, at + 1) if (run.end() - run.start()) % 2)
            end = next((run.end() for run in runs), len(text))
        else:
            found = _END_OF_FIELD.search(text, at)
            end = found.start() if found else len(text)
        fields.append((at, end, quoted))
        at = end + 1
        if text[end] != _COMMA:
            yield tuple(fields)
            fields = []


class CopiedValue(Struct, frozen=True, kw_only=True):
    """One value in the text of COPY, read piece by piece."""

    text: memoryview
    """Without the quotes around it."""
    quoted: bool
    """Quotes inside are doubled."""
    binary: bool
    """The text shows bytes in hexadecimal digits."""
    column: str

    def pieces(self) -> Iterator[bytes] | Iterator[str]:
        """Read the value from its start; `ValueNotRepresentable` where it is not UTF-8."""

        def unquoted() -> Iterator[bytes]:
            at = 0
            while at < len(self.text):
                piece = bytes(self.text[at : at + PIECE_BYTES])
                # A piece does not end in half of a doubled quote.
                if self.quoted and (len(piece) - len(piece.rstrip(b'"'))) % 2:
                    piece = bytes(self.text[at : at + len(piece) + 1])
                at += len(piece)
                yield piece.replace(b'""', b'"') if self.quoted else piece

        texts = decoded(unquoted(), self.column)
        # Pieces are even, so none ends between the two digits of a byte.
        return (bytes.fromhex(piece) for piece in texts) if self.binary else texts


class WideRows:
    """Makes batches of the usual rows of a text; a row of `least_bytes` or more is separate."""

    def __init__(self, schema: pa.Schema, parser: CopyParser, least_bytes: int) -> None:
        self._schema = schema
        self._parser = parser
        self.least_bytes = least_bytes
        self._may_be_large = [may_be_large(field) for field in schema]
        self._binary = [pa.types.is_binary(field.type) for field in schema]

    def rows(self, text: memoryview) -> Iterator[pa.RecordBatch | LargeRow]:
        begun = 0
        for fields in records(text):
            row_start, row_end = fields[0][0], fields[-1][1] + 1
            if row_end - row_start < self.least_bytes:
                continue
            values, small = [], []
            for index, (start, end, is_quoted) in enumerate(fields):
                if end - start < LEAST_BYTES or not self._may_be_large[index]:
                    small.append(bytes(text[start:end]))
                    continue
                small.append(b"")
                value = CopiedValue(
                    text=text[start + is_quoted : end - is_quoted],
                    quoted=is_quoted,
                    binary=self._binary[index],
                    column=self._schema.field(index).name,
                )
                values.append((index, value))
            if not values:
                continue
            if begun < row_start:
                yield self._parser.parse(text[begun:row_start])
            yield LargeRow(
                row=self._parser.parse(b",".join(small) + b"\n"),
                values=tuple(values),
                held_bytes=row_end - 1 - row_start,
            )
            begun = row_end
        if begun < len(text):
            yield self._parser.parse(text[begun:])


_KINDS = {
    pa.bool_(): 0,
    pa.int16(): 1,
    pa.int32(): 2,
    pa.int64(): 3,
    pa.uint32(): 4,
    pa.float32(): 5,
    pa.float64(): 6,
    pa.date32(): 8,
    pa.timestamp("us"): 9,
    pa.timestamp("us", "UTC"): 9,
    pa.string(): 10,
    pa.binary(): 11,
}
"""As `decode.cpp` has them; a decimal of 128 bits is 7."""
_BOOL, _DECIMAL, _STRING, _BINARY, _RAW = 0, 7, 10, 11, 12
_PLACE_BYTES = 8


class _Column(ctypes.Structure):
    """A column and its buffers; as `decode.cpp` has it."""

    _fields_ = (
        ("kind", ctypes.c_int32),
        ("precision", ctypes.c_int32),
        ("scale", ctypes.c_int32),
        ("zoned", ctypes.c_int32),
        ("values", ctypes.c_void_p),
        ("offsets", ctypes.c_void_p),
        ("validity", ctypes.c_void_p),
        ("size", ctypes.c_int64),
        ("nulls", ctypes.c_int64),
    )


class Decoder:
    """Reads texts of one schema; `usable` is false without the library, or for other types."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._kinds = [
            _DECIMAL if pa.types.is_decimal128(field.type) else _KINDS.get(field.type, -1)
            for field in schema
        ]
        self._library = native()
        self.usable = self._library is not None and min(self._kinds, default=-1) >= 0

    def batch(self, text: pa.Buffer, raw: Sequence[int] | None = None) -> pa.RecordBatch | None:
        """Return the records of a text, None if it is declined.

        With `raw` the text is in the binary form, and these columns have bytes as they are.
        """
        library, columns = self._library, len(self._kinds)
        assert library is not None
        kinds, index = self._kinds, library.unloader_copy_index
        if raw is None:
            most = library.unloader_copy_lines(text.address, text.size)
        else:
            most, index = text.size // (2 + 4 * columns) + 1, library.unloader_copy_index_binary
            kinds = [_RAW if at in raw else kind for at, kind in enumerate(kinds)]
        places = pa.allocate_buffer(most * columns * _PLACE_BYTES)
        described = (_Column * columns)()
        rows = index(text.address, text.size, columns, most, places.address, described)
        if rows < 0:
            return None
        arrays = []
        for at, (kind, field, column) in enumerate(
            zip(kinds, self._schema, described, strict=True)
        ):
            column.kind = kind
            if kind == _DECIMAL:
                column.precision, column.scale = field.type.precision, field.type.scale
            column.zoned = pa.types.is_timestamp(field.type) and field.type.tz is not None
            validity = _filled((rows + 7) // 8, 0xFF)
            if kind in (_STRING, _BINARY, _RAW):
                offsets = pa.allocate_buffer(4 * (rows + 1))
                values = pa.allocate_buffer(column.size)
                column.offsets = offsets.address
            else:
                offsets, values = None, _filled((rows * field.type.bit_width + 7) // 8, 0)
            column.validity, column.values = validity.address, values.address
            start = places.address + at * most * _PLACE_BYTES
            if library.unloader_copy_decode(text.address, start, rows, ctypes.byref(column)):
                return None
            buffers = [validity if column.nulls else None, values]
            if offsets is not None:
                buffers[1:] = [offsets, values.slice(0, column.size)]
            arrays.append(pa.Array.from_buffers(field.type, rows, buffers, column.nulls))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _filled(size: int, byte: int) -> pa.Buffer:
    """Return memory without leftovers of others: also a NULL has a value there."""
    buffer = pa.allocate_buffer(size)
    ctypes.memset(buffer.address, byte, size)
    return buffer
