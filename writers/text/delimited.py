"""Delimited text from record batches: the plain encoder.

It defines the bytes: any faster encoder must produce the same. Columns become string arrays, which
are joined row by row. A large value is written piece by piece, and so is the header.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial

import pyarrow as pa

from writers.errors import FormatError, ValueNotRepresentable
from writers.large_rows import LargeRow, LargeValue
from writers.model import TextFormat
from writers.schema import pc
from writers.text.dialects import OutputEncoding, check
from writers.text.enclosing import Enclosing, Pieces, large_alphabet, large_text
from writers.text.fixed_width import FixedRecords
from writers.text.string_arrays import STRING_LIMIT, Place, compact, joined, value_bytes, with_room
from writers.text.text_values import alphabet_of, check_field, content_of_field, text_of


class PlainEncoder:
    """Encodes a unit in order; FormatError: a contradiction, or a type without text."""

    def __init__(self, schema: pa.Schema, format: TextFormat) -> None:
        check(format)
        if not len(schema):
            raise FormatError("the output has no columns.", "check --columns and --exclude.")
        for field in schema:
            check_field(field, format)
        self._schema = schema
        self._format = format
        self._end = (format.delimiter if format.trailing_delimiter else "") + format.eol
        self._encoding = OutputEncoding(format.encoding)
        self._fixed = FixedRecords(schema, format, self._encoding) if format.fixed else None
        self._enclosing = Enclosing(format, single=len(schema) == 1)
        self._substitutes = (
            Substitutes(self._encoding, format.substitute)
            if format.substitute is not None and not self._encoding.holds_all
            else None
        )
        self.rows_encoded = 0
        """Rows of all batches so far; the row named in an error is counted from their start."""

    def preamble(self) -> bytes:
        """Return the first bytes of a file, before everything else: a byte order mark, if any."""
        return self._encoding.preamble

    def header(self) -> bytes:
        """Return the record of column names, or refuse one; empty if the format has no header."""
        if not self._format.header:
            return b""
        try:
            cells = [
                self._large_cell(
                    self._substituted(partial(iter, (name,))), pa.field(name, pa.string()), row=0
                )
                for name in self._schema.names
            ]
            return b"".join(self._record(cells, row=0))
        except ValueNotRepresentable as error:
            raise FormatError(
                f"the header cannot be written: {error.message}",
                f"{error.hint} Or leave it out with --no-header.",
            ) from error

    def encode(self, batch: pa.RecordBatch) -> bytes | memoryview:
        """Return the records of a batch, in its order and in the output encoding.

        For UTF-8 it is a view of an Arrow buffer that stays alive with it. ValueNotRepresentable
        names column and row; the encoder must not be used after it.
        """
        encoded = self._encoded(batch, self.rows_encoded + 1) if batch.num_rows else b""
        self.rows_encoded += batch.num_rows
        # Arrow's views are of signed bytes, which do not go into a buffer of bytes.
        return encoded if isinstance(encoded, bytes) else encoded.cast("B")

    def encode_large(self, large: LargeRow) -> Iterator[bytes]:
        """Return the record of one row piece by piece, as `encode` writes it with whole values.

        Its large values are read once, and once more before where the format counts a record or
        encloses only some values. ValueNotRepresentable comes at any piece; the encoder must not be
        used after it.
        """
        row = self.rows_encoded + 1
        columns = list(zip(large.row.columns, self._schema, strict=True))
        if self._fixed is not None:
            texts = [self._texts(column, field, row) for column, field in columns]
            for index, value in large.values:
                pieces = self._large_pieces(value, self._schema.field(index))
                whole = self._fixed.whole(pieces, index, row)
                texts[index] = pa.array([whole], pa.large_string())
            yield bytes(self._fixed.encoded(texts, row))
        else:
            cells: list[str | Pieces] = [
                self._format.null if (text := cell[0].as_py()) is None else text
                for cell in (self._cells(column, field, row) for column, field in columns)
            ]
            for index, value in large.values:
                field = self._schema.field(index)
                alphabet = large_alphabet(value, self._format.binary)
                pieces = self._large_pieces(value, field)
                cells[index] = self._large_cell(pieces, field, row, alphabet)
            yield from self._record(cells, row)
        self.rows_encoded += 1

    def _large_cell(
        self, pieces: Pieces, field: pa.Field, row: int, alphabet: frozenset[str] | None = None
    ) -> Pieces:
        place = Place(column=field.name, first_row=row)
        return self._enclosing.cell(pieces, place, always=self._always(field), alphabet=alphabet)

    def _large_pieces(self, value: LargeValue, field: pa.Field) -> Pieces:
        number = content_of_field(field) == "number"
        separator = self._format.decimal_separator if number else "."
        pieces = large_text(value, self._format.binary, separator)
        return pieces if value.binary else self._substituted(pieces)

    def _substituted(self, pieces: Pieces) -> Pieces:
        table = self._substitutes
        if table is None:
            return pieces
        return lambda: (piece.translate(table) for piece in pieces())

    def _record(self, cells: Sequence[str | Pieces], row: int) -> Iterator[bytes]:
        """Return a record in the output encoding; its length reads large values twice."""
        if digits := self._format.record_length_digits:
            length = sum(map(len, self._record_pieces(cells, row)))
            yield self._encoding.encode(_length_text(length, digits, row))
        yield from self._record_pieces(cells, row)

    def _record_pieces(self, cells: Sequence[str | Pieces], row: int) -> Iterator[bytes]:
        # One for the record, as a few encodings join a character with the one before it.
        stream = EncodingStream(self._encoding)
        for index, (name, cell) in enumerate(zip(self._schema.names, cells, strict=True)):
            try:
                if index:
                    yield stream.encode(self._format.delimiter)
                for piece in [cell] if isinstance(cell, str) else cell():
                    yield stream.encode(piece)
                if index == len(cells) - 1:
                    yield stream.encode(self._end, last=True)
            except UnicodeError as error:
                # What a stream failed at: nothing if that is not known.
                character = str(error)
                if isinstance(error, UnicodeEncodeError):
                    character = error.object[error.start]
                place = Place(column=name, first_row=row)
                raise place.no_character(0, character, self._encoding.name) from None

    def _always(self, field: pa.Field) -> bool:
        enclose = self._format.enclose
        return enclose == "all" or (enclose == "strings" and content_of_field(field) == "text")

    def _encoded(self, batch: pa.RecordBatch, first_row: int) -> bytes | memoryview:
        columns = list(zip(batch.columns, self._schema, strict=True))
        if self._fixed is not None:
            texts = [self._texts(column, field, first_row) for column, field in columns]
            return self._fixed.encoded(texts, first_row)
        cells = [self._cells(column, field, first_row) for column, field in columns]
        digits = self._format.record_length_digits
        if self._encoding.is_utf8:
            lines = self._joined(cells)
            if digits:
                lengths = pc.binary_length(lines)
                if pc.max(lengths).as_py() >= 10**digits:
                    row = pc.index(pc.greater_equal(lengths, 10**digits), pa.scalar(True)).as_py()
                    _length_text(lengths[row].as_py(), digits, first_row + row)
                prefixes = pc.ascii_lpad(pc.cast(lengths, pa.string()), digits, "0")
                lines = joined(prefixes, with_room(lines, more=digits))
            return value_bytes(lines)
        if not digits:
            text = str(value_bytes(self._joined(cells)), "utf-8")
            with suppress(UnicodeError):
                encoded = self._encoding.encode(text)
                if self._encoding.reads_back(text, encoded):
                    return encoded
        # Row by row, which names the first value that the encoding cannot hold.
        null = self._format.null
        rows = zip(*(pc.fill_null(cell, null).to_pylist() for cell in cells), strict=True)
        return b"".join(
            piece for row, texts in enumerate(rows, first_row) for piece in self._record(texts, row)
        )

    def _cells(self, column: pa.Array, field: pa.Field, first_row: int) -> pa.Array:
        alphabet = alphabet_of(field, self._format)
        texts = text_of(column, field, self._format, first_row=first_row)
        plain = alphabet is not None and "".join(alphabet).isascii()
        if self._substitutes is not None and not plain:
            texts, alphabet = self._substitutes.array(texts), None
        place = Place(column=field.name, first_row=first_row)
        return self._enclosing.cells(texts, place, always=self._always(field), alphabet=alphabet)

    def _texts(self, column: pa.Array, field: pa.Field, first_row: int) -> pa.Array:
        """Return the texts of values before anything is enclosed, with substitutes."""
        texts = text_of(column, field, self._format, first_row=first_row)
        return texts if self._substitutes is None else self._substitutes.array(texts)

    def _joined(self, cells: list[pa.Array]) -> pa.Array:
        """Return each record, string or large_string, of cells as `Enclosing.cells` has them."""
        format, end = self._format, self._end
        between = len(format.delimiter.encode()) * (len(cells) - 1) + len(end.encode())
        nulls = len(format.null.encode()) * len(cells)
        size = len(cells[0]) * (between + nulls) + sum(len(value_bytes(cell)) for cell in cells)
        kind = pa.large_string() if size > STRING_LIMIT else pa.string()
        join = partial(
            pc.binary_join_element_wise, null_handling="replace", null_replacement=format.null
        )
        columns = [pc.cast(cell, kind) for cell in cells]
        columns[-1] = join(columns[-1], pa.scalar(end, kind), pa.scalar("", kind))
        return join(*columns, pa.scalar(format.delimiter, kind)) if len(columns) > 1 else columns[0]


class Substitutes(dict[int, "int | str"]):
    """What `str.translate` puts in place of a character; filled as characters are met.

    Those are replaced that the encoding has no code for, or would read back as another: in the
    values themselves, before anything is enclosed, escaped or counted. A substitute that holds the
    delimiter is then enclosed as any such value is.
    """

    def __init__(self, encoding: OutputEncoding, substitute: str) -> None:
        super().__init__()
        self._encoding = encoding
        self._substitute = substitute

    def __missing__(self, code: int) -> int | str:
        self[code] = result = code if self._encoding.holds(chr(code)) else self._substitute
        return result

    def array(self, texts: pa.Array) -> pa.Array:
        """Return string or large_string texts with substitutes; null stays."""
        text = str(value_bytes(texts), "utf-8")
        with suppress(UnicodeError):
            if text.isascii() or self._encoding.reads_back(text, self._encoding.encode(text)):
                return texts
        replaced = [None if each is None else each.translate(self) for each in texts.to_pylist()]
        return compact(pa.array(replaced, pa.large_string()))


class EncodingStream:
    """Encodes one text piece by piece, to the bytes that the whole text has."""

    def __init__(self, encoding: OutputEncoding) -> None:
        self._encoder = codecs.getincrementalencoder(encoding.codec)()
        self._decoder = (
            None if encoding.is_utf8 else codecs.getincrementaldecoder(encoding.codec)("replace")
        )
        self._given = self._read = ""

    def encode(self, text: str, *, last: bool = False) -> bytes:
        """Return the next bytes; a codec may hold a character back until it sees the next.

        UnicodeError: the encoding has no code for a character, or reads it back as another.
        """
        encoded = self._encoder.encode(text, last)
        if self._decoder is not None:
            self._given += text
            self._read += self._decoder.decode(encoded, last)
            common = min(len(self._given), len(self._read))
            if self._given[:common] != self._read[:common] or (last and self._given != self._read):
                pairs = zip(self._given, self._read, strict=False)
                raise UnicodeError(next((a for a, b in pairs if a != b), ""))
            self._given, self._read = self._given[common:], self._read[common:]
        return encoded


def _length_text(length: int, digits: int, row: int) -> str:
    """Return the length of a record as written before it."""
    if length >= 10**digits:
        raise ValueNotRepresentable(
            f"row {row}: the record has {length} bytes, too many for a record length of {digits} "
            "digits.",
            "raise --record-length.",
        )
    return f"{length:0{digits}}"
