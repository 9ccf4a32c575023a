"""COPY's CSV text into record batches of a fixed schema, exactly or not at all.

libpq returns whole rows, so the text of a wide row is held once in memory at any size. Parsing the
row would take several times its size. Its long values are found in the text and read from there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from pyarrow import csv

from unloader.errors import OutputFailed, SourceError
from unloader.sources.base import Text
from unloader.sources.moments import MomentRefused, parse_moments
from unloader.sources.postgres.libpq.decoding import Decoder
from writers.held_values import LEAST_BYTES, PIECE_BYTES, decoded, may_be_large
from writers.large_rows import LargeRow

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
        """Return the records in some chunks, each of whole ones, as one batch.

        `OutputFailed` names every column with a value that does not fit its Arrow type.
        """
        text = pa.py_buffer(chunks[0]) if len(chunks) == 1 else _joined(chunks)
        if self._decoder.usable:
            if batch := self._decoder.batch(text):
                return batch
            # Such values seldom come alone, so texts are not read twice from now on.
            self._decoder.usable = False
        table, refused = self._table(text)
        arrays: list[pa.Array] = []
        for position, column in enumerate(table.columns):
            array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
            field = self._schema.field(position)
            if self._binary[position]:
                array = _unhexed(array)
            elif position in self._odd:
                try:
                    array = parse_moments(array, field.type)
                except MomentRefused as error:
                    refused[field.name] = ", which ".join(error.args)
            arrays.append(array)
        if refused:
            names = [name for name in self._schema.names if name in refused]
            reported = "; ".join(f"column {name}: {refused[name]}" for name in names)
            raise OutputFailed(
                f"values do not fit the output type: {reported}",
                f"write them as exact text with --as-text {','.join(names)}, or leave them out "
                "with --exclude",
            )
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _table(self, data: pa.Buffer) -> tuple[pa.Table, dict[str, str]]:
        """Return the columns as Arrow reads them, and those with values that do not fit.

        A column of dates that Arrow cannot read is read as text from then on, in all batches.
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


def _unhexed(array: pa.Array) -> pa.Array:
    """Return binary values for an array of hex text, decoding the value buffer in one go."""
    length = len(array)
    lengths = pc.fill_null(pc.binary_length(array), 0)
    ends = pc.cumulative_sum(pc.divide(lengths, 2))
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends.cast(pa.int32())])
    dense = array.drop_null()
    whole = pa.ListArray.from_arrays(pa.array([0, len(dense)], pa.int32()), dense)
    values = pa.py_buffer(bytes.fromhex(pc.binary_join(whole, "")[0].as_py() or ""))
    validity = array.is_valid()
    if array.null_count == 0:
        return pa.Array.from_buffers(pa.binary(), length, [None, offsets.buffers()[1], values])
    bitmap = pa.array(validity, pa.bool_()).buffers()[1]
    return pa.Array.from_buffers(
        pa.binary(), length, [bitmap, offsets.buffers()[1], values], array.null_count
    )


_END_OF_FIELD = re.compile(rb"[,\n]")
_QUOTES = re.compile(rb'"+')
_QUOTE = ord('"')
_COMMA = ord(",")


class Field(Struct, frozen=True, kw_only=True):
    """Where the text of one value lies, with its quotes."""

    start: int
    end: int
    quoted: bool


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
        fields.append(Field(start=at, end=end, quoted=quoted))
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
        texts = decoded(self._unquoted(), self.column)
        # Pieces are even, so none ends between the two digits of a byte.
        return (bytes.fromhex(piece) for piece in texts) if self.binary else texts

    def _unquoted(self) -> Iterator[bytes]:
        at = 0
        while at < len(self.text):
            piece = bytes(self.text[at : at + PIECE_BYTES])
            if self.quoted and _ends_in_half_a_pair(piece):
                piece = bytes(self.text[at : at + len(piece) + 1])
            at += len(piece)
            yield piece.replace(b'""', b'"') if self.quoted else piece


def _ends_in_half_a_pair(piece: bytes) -> bool:
    return piece.endswith(b'"') and (len(piece) - len(piece.rstrip(b'"'))) % 2 == 1


class WideRows:
    """Makes batches of the usual rows of a text, and a separate row of each wide row.

    The text of a wide row has at least `least_bytes`.
    """

    def __init__(self, schema: pa.Schema, parser: CopyParser, least_bytes: int) -> None:
        self._schema = schema
        self._parser = parser
        self.least_bytes = least_bytes
        self._may_be_large = [may_be_large(field) for field in schema]
        self._binary = [pa.types.is_binary(field.type) for field in schema]

    def rows(self, text: memoryview) -> Iterator[pa.RecordBatch | LargeRow]:
        begun = 0
        for fields in records(text):
            start, end = fields[0].start, fields[-1].end + 1
            row = self._large_row(text, fields) if end - start >= self.least_bytes else None
            if row is None:
                continue
            if begun < start:
                yield self._parser.parse(text[begun:start])
            yield row
            del row
            begun = end
        if begun < len(text):
            yield self._parser.parse(text[begun:])

    def _large_row(self, text: memoryview, fields: tuple[Field, ...]) -> LargeRow | None:
        values, small = [], []
        for index, field in enumerate(fields):
            if field.end - field.start < LEAST_BYTES or not self._may_be_large[index]:
                small.append(bytes(text[field.start : field.end]))
                continue
            small.append(b"")
            inner = slice(field.start + field.quoted, field.end - field.quoted)
            value = CopiedValue(
                text=text[inner],
                quoted=field.quoted,
                binary=self._binary[index],
                column=self._schema.field(index).name,
            )
            values.append((index, value))
        if not values:
            return None
        row = self._parser.parse(b",".join(small) + b"\n")
        held = fields[-1].end - fields[0].start
        return LargeRow(row=row, values=tuple(values), held_bytes=held)
