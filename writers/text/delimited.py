"""Delimited text from record batches: the plain encoder.

It defines the bytes: any faster encoder must produce the same. Columns become string arrays, which
are joined row by row into a buffer that is the output, so UTF-8 text is never copied into Python
objects.

Substitutes for characters that the output encoding lacks, where the format has a substitute.

Characters are replaced in the values themselves, before anything is enclosed, escaped or counted:
a substitute that holds the delimiter is then enclosed as any such value is.

The header in the most usual dialects, made without loading the plain encoder.

Those are the dialects that servers know, too: one-character marks, doubling, UTF-8. The rules are a
small part of the rules of `writers.text.enclosing`, and a test compares the two. It saves the
import of Arrow's compute functions, which takes longer than planning a table.

Arrow's own CSV writer, used where it is known to write exactly the bytes that are wanted.

It joins columns of text in two thirds of the time that `binary_join_element_wise` takes, and puts a
mark around every value of a column in a third (measured, ten columns, 133 bytes a row). It only
copies: it refuses values that hold its marks of structure, and they are joined the other way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa
from msgspec import Struct

from writers.errors import FormatError, ValueNotRepresentable
from writers.large_rows import LargeRow, LargeValue
from writers.model import TextFormat
from writers.schema import has_infinities, pc
from writers.text.datetime_texts import datetime_texts
from writers.text.dialects import OutputEncoding, character_of, check
from writers.text.enclosing import Enclosing, LargeEnclosing, Pieces, large_alphabet, large_text
from writers.text.fixed_width import FixedRecords
from writers.text.marks import enclosed_for, not_bare
from writers.text.string_arrays import (
    STRING_LIMIT,
    LookupTable,
    Place,
    compact,
    csv_bytes,
    too_long,
    value_bytes,
)
from writers.text.text_values import alphabet_of, check_field, content_of_field, format_for, text_of


class PlainEncoder:
    """Encodes the batches of one work unit, in order.

    Args:
        schema: Of every batch.
        format: The dialect.

    Raises:
        FormatError: The format contradicts itself, or a column's type has no text form in it.
    """

    def __init__(self, schema: pa.Schema, format: TextFormat) -> None:
        check(format)
        if not len(schema):
            raise FormatError("the output has no columns.", "check --columns and --exclude.")
        for field in schema:
            check_field(field, format)
        self._schema = schema
        self._format = format
        self._encoding = OutputEncoding(format.encoding)
        self._fixed = FixedRecords(schema, format, self._encoding) if format.fixed else None
        self._enclosing = Enclosing(format, single=len(schema) == 1)
        self._large_enclosing = LargeEnclosing(format, single=len(schema) == 1)
        self._substitutes = (
            Substitutes(self._encoding, format.substitute)
            if format.substitute is not None and not self._encoding.holds_all
            else None
        )
        self._prefixes = LookupTable(f"{{:0{format.record_length_digits}}}".format)
        self.rows_encoded = 0
        """Rows of all batches so far; the row named in an error is counted from their start."""

    def preamble(self) -> bytes:
        """Return the first bytes of a file, before everything else: a byte order mark, if any."""
        return self._encoding.preamble

    def header(self) -> bytes:
        """Return the record of column names; empty if the format has no header.

        Raises:
            FormatError: A name cannot be written in this format.
        """
        if not self._format.header:
            return b""
        names = [pa.array([field.name], pa.string()) for field in self._schema]
        fields = [pa.field(field.name, pa.string()) for field in self._schema]
        try:
            return bytes(self._encoded(names, fields, first_row=0))
        except ValueNotRepresentable as error:
            raise FormatError(
                f"the header cannot be written: {error.message}",
                f"{error.hint} Or leave it out with --no-header.",
            ) from error

    def encode(self, batch: pa.RecordBatch) -> bytes | memoryview:
        """Return the records of a batch, in its order and in the output encoding.

        Args:
            batch: Of the encoder's schema.

        Returns:
            Whole records; for UTF-8 a view of an Arrow buffer that stays alive with it.

        Raises:
            ValueNotRepresentable: A value cannot be written without a change; the message names
                column and row. The encoder must not be used after it.
        """
        encoded = self._encoded(batch.columns, list(self._schema), self.rows_encoded + 1)
        self.rows_encoded += batch.num_rows
        # Arrow's views are of signed bytes, which do not go into a buffer of bytes.
        return encoded if isinstance(encoded, bytes) else encoded.cast("B")

    def encode_large(self, large: LargeRow) -> Iterator[bytes]:
        """Return the record of one row piece by piece, as `encode` writes it with whole values.

        Args:
            large: One row of the encoder's schema. Its large values are read once, and once more
                before where the format counts a record or encloses only some values.

        Raises:
            ValueNotRepresentable: At any piece; the encoder must not be used after it.
        """
        row = self.rows_encoded + 1
        if self._fixed is not None:
            yield bytes(self._fixed.encoded(self._large_texts(large, self._fixed), row))
            self.rows_encoded += 1
            return
        small = [
            self._cells(column, field, row)
            for column, field in zip(large.row.columns, self._schema, strict=True)
        ]
        cells: list[str | Pieces] = [
            self._format.null if (text := cell[0].as_py()) is None else text for cell in small
        ]
        for index, value in large.values:
            cells[index] = self._large_cell(value, self._schema.field(index), row)
        record = LargeRecord(
            cells=cells,
            names=self._schema.names,
            row=row,
            format=self._format,
            encoding=self._encoding,
        )
        yield from record.encoded()
        self.rows_encoded += 1

    def _large_texts(self, large: LargeRow, fixed: FixedRecords) -> list[pa.Array]:
        """Return the texts of a row whose large values are to fit into their fields."""
        row = self.rows_encoded + 1
        texts = [
            self._texts(column, field, row)
            for column, field in zip(large.row.columns, self._schema, strict=True)
        ]
        for index, value in large.values:
            pieces = self._large_pieces(value, self._schema.field(index))
            texts[index] = pa.array([fixed.whole(pieces, index, row)], pa.large_string())
        return texts

    def _large_cell(self, value: LargeValue, field: pa.Field, row: int) -> Pieces:
        return self._large_enclosing.cell(
            self._large_pieces(value, field),
            Place(column=field.name, first_row=row),
            always=self._always(field),
            alphabet=large_alphabet(value, self._format.binary),
        )

    def _large_pieces(self, value: LargeValue, field: pa.Field) -> Pieces:
        format = self._format
        number = content_of_field(field) == "number"
        pieces = large_text(value, format.binary, format.decimal_separator if number else ".")
        if self._substitutes is None or value.binary:
            return pieces
        return self._substitutes.pieces(pieces)

    def _always(self, field: pa.Field) -> bool:
        enclose = self._format.enclose
        return enclose == "all" or (enclose == "strings" and content_of_field(field) == "text")

    def _encoded(
        self, columns: list[pa.Array], fields: list[pa.Field], first_row: int
    ) -> bytes | memoryview:
        if not len(columns[0]):
            return b""
        if self._fixed is not None:
            pairs = zip(columns, fields, strict=True)
            return self._fixed.encoded([self._texts(*pair, first_row) for pair in pairs], first_row)
        cells = [
            self._cells(column, field, first_row)
            for column, field in zip(columns, fields, strict=True)
        ]
        records = Records(cells, self._format)
        if self._encoding.is_utf8:
            return self._utf8(records, first_row)
        try:
            return self._other_encoding(records, first_row)
        except UnicodeError:
            raise self._unfit(cells, fields, first_row) from None

    def _cells(self, column: pa.Array, field: pa.Field, first_row: int) -> pa.Array:
        format, always = self._format, self._always(field)
        place = Place(column=field.name, first_row=first_row)
        alphabet = alphabet_of(field, format)
        if self._substitutes is not None and not _is_ascii(alphabet):
            texts = self._texts(column, field, first_row)
            return self._enclosing.cells(texts, place, always=always, alphabet=None)
        ready = pa.types.is_timestamp(field.type) and not has_infinities(field)
        if always and ready and self._enclosing.leaves(alphabet):
            # Marks that are a part of the mask cost next to nothing.
            return datetime_texts(column, format_for(field, format), place, mark=format.enclosure)
        texts = text_of(column, field, format, first_row=first_row)
        return self._enclosing.cells(texts, place, always=always, alphabet=alphabet)

    def _texts(self, column: pa.Array, field: pa.Field, first_row: int) -> pa.Array:
        """Return the texts of values before anything is enclosed, with substitutes."""
        texts = text_of(column, field, self._format, first_row=first_row)
        return texts if self._substitutes is None else self._substitutes.array(texts)

    def _utf8(self, records: Records, first_row: int) -> memoryview:
        if not self._format.record_length_digits:
            return records.bytes()
        lengths = records.lengths()
        self._check_longest(pc.max(lengths).as_py(), lengths, first_row)
        return records.prefixed(self._prefixes.take(lengths))

    def _other_encoding(self, records: Records, first_row: int) -> bytes:
        if not self._format.record_length_digits:
            text = str(records.bytes(), "utf-8")
            encoded = self._encoding.encode(text)
        else:
            lines = records.lines().to_pylist()
            text = "".join(lines)
            parts = [self._encoding.encode(line) for line in lines]
            if not self._encoding.reads_back(text, b"".join(parts)):
                raise UnicodeError
            lengths = pa.array([len(part) for part in parts], pa.int64())
            self._check_longest(pc.max(lengths).as_py(), lengths, first_row)
            prefixes = map(self._encoding.encode, self._prefixes.take(lengths).to_pylist())
            return b"".join(p + part for p, part in zip(prefixes, parts, strict=True))
        if not self._encoding.reads_back(text, encoded):
            raise UnicodeError
        return encoded

    def _check_longest(self, longest: int, lengths: pa.Array, first_row: int) -> None:
        digits = self._format.record_length_digits
        if len(str(longest)) > digits:
            index = pc.index(pc.greater_equal(lengths, 10**digits), pa.scalar(True)).as_py()
            raise too_long(first_row + index, lengths[index].as_py(), digits)

    def _unfit(
        self, cells: list[pa.Array], fields: list[pa.Field], first_row: int
    ) -> ValueNotRepresentable:
        """Find the value in the first row that the output encoding cannot hold."""
        name = self._encoding.name
        found = [
            (unfit[0], field, unfit[1])
            for cell, field in zip(cells, fields, strict=True)
            if (unfit := self._encoding.first_unfit(cell)) is not None
        ]
        if not found:
            return ValueNotRepresentable(
                f"rows from {first_row} on hold text that {name} would read back as another text.",
                "use --encoding utf-8.",
            )
        index, field, character = min(found, key=lambda item: item[0])
        place = Place(column=field.name, first_row=first_row)
        return place.no_character(index, character, name)


def _is_ascii(alphabet: frozenset[str] | None) -> bool:
    return alphabet is not None and "".join(alphabet).isascii()


class LargeRecord(Struct, frozen=True, kw_only=True):
    """The cells of a record, each as the text between two delimiters."""

    cells: Sequence[str | Pieces]
    names: Sequence[str]
    """Of the columns."""
    row: int
    """Counted from 1 within the work unit."""
    format: TextFormat
    encoding: OutputEncoding

    def encoded(self) -> Iterator[bytes]:
        """Return the record in the output encoding, after its length if the format has one.

        Large values are read once, and once more before for the length.

        Raises:
            ValueNotRepresentable: A value cannot be written, or the record is too long.
        """
        if digits := self.format.record_length_digits:
            length = sum(map(len, self._encoded()))
            if len(str(length)) > digits:
                raise too_long(self.row, length, digits)
            yield self.encoding.encode(f"{length:0{digits}}")
        yield from self._encoded()

    def _encoded(self) -> Iterator[bytes]:
        # One for the record, as a few encodings join a character with the one before it.
        stream = self.encoding.stream()
        end = self.format.eol
        if self.format.trailing_delimiter:
            end = self.format.delimiter + end
        for index, (name, cell) in enumerate(zip(self.names, self.cells, strict=True)):
            try:
                if index:
                    yield stream.encode(self.format.delimiter)
                for piece in [cell] if isinstance(cell, str) else cell():
                    yield stream.encode(piece)
                if index == len(self.cells) - 1:
                    yield stream.encode(end, last=True)
            except UnicodeError as error:
                place = Place(column=name, first_row=self.row)
                raise place.no_character(0, character_of(error), self.encoding.name) from None


class Substitutes:
    """The substitute of one format.

    Args:
        encoding: Decides which characters are replaced: those it has no code for, or would read
            back as another.
        substitute: Written for each of them.
    """

    def __init__(self, encoding: OutputEncoding, substitute: str) -> None:
        self._encoding = encoding
        self._table = _Table(encoding, substitute)

    def array(self, texts: pa.Array) -> pa.Array:
        """Return string or large_string texts with substitutes; null stays."""
        if self._fits(texts):
            return texts
        replaced = [
            None if text is None else text.translate(self._table) for text in texts.to_pylist()
        ]
        return compact(pa.array(replaced, pa.large_string()))

    def pieces(self, pieces: Pieces) -> Pieces:
        """Return a text that comes in pieces with substitutes."""
        return partial(self._replaced, pieces)

    def _replaced(self, pieces: Pieces) -> Iterator[str]:
        for piece in pieces():
            yield piece.translate(self._table)

    def _fits(self, texts: pa.Array) -> bool:
        """Return, for all texts together, whether all fit without a substitute."""
        try:
            text = str(value_bytes(texts), "utf-8")
            return text.isascii() or self._encoding.reads_back(text, self._encoding.encode(text))
        except UnicodeError:
            return False


class _Table(dict[int, "int | str"]):
    """What `str.translate` puts in place of a character; filled as characters are met."""

    def __init__(self, encoding: OutputEncoding, substitute: str) -> None:
        super().__init__()
        self._encoding = encoding
        self._substitute = substitute

    def __missing__(self, code: int) -> int | str:
        kept = self._encoding.holds(chr(code))
        self[code] = result = code if kept else self._substitute
        return result


class Records:
    """The records of a batch.

    Args:
        cells: For each column the texts between two delimiters, null for NULL; string or
            large_string, at least one row.
        format: Its delimiter, end of line and NULL text are used.
    """

    def __init__(self, cells: list[pa.Array], format: TextFormat) -> None:
        self._cells = cells
        self._rows = len(cells[0])
        self._delimiter, self._eol, self._null = format.delimiter, format.eol, format.null
        self._trailing = format.trailing_delimiter
        self._end = (self._delimiter if self._trailing else "") + self._eol

    def lengths(self) -> pa.Array:
        """Return the bytes of each record in UTF-8, int32 or int64."""
        kind = pa.int64() if self._most_bytes() > STRING_LIMIT else pa.int32()
        null_bytes = len(self._null.encode())
        total: pa.Array | pa.Scalar = pa.scalar(self._literal_bytes(), kind)
        for cells in self._cells:
            lengths = pc.cast(pc.binary_length(cells), kind)
            if cells.null_count:
                lengths = pc.fill_null(lengths, pa.scalar(null_bytes, kind))
            total = pc.add(lengths, total)
        return total

    def prefixed(self, prefixes: pa.Array) -> memoryview:
        """Return the bytes of all records, each after its prefix."""
        kind = self._kind(len(value_bytes(prefixes)))
        first = self._join([prefixes, self._cells[0]], "", kind)
        return self._bytes([first, *self._cells[1:]])

    def bytes(self) -> memoryview:
        """Return the bytes of all records."""
        return self._bytes(self._cells)

    def lines(self) -> pa.Array:
        """Return each record, string or large_string."""
        return self._lines(self._cells, self._kind())

    def _bytes(self, cells: list[pa.Array]) -> memoryview:
        size = self._most_bytes() + len(value_bytes(cells[0])) - len(value_bytes(self._cells[0]))
        last = [_empty(self._rows)] if self._trailing else []
        data = csv_bytes([*cells, *last], self._delimiter, self._eol, self._null, size)
        if data is not None:
            return data
        large = size > STRING_LIMIT
        return value_bytes(self._lines(cells, pa.large_string() if large else pa.string()))

    def _lines(self, cells: list[pa.Array], kind: pa.DataType) -> pa.Array:
        if self._trailing:
            return self._join([*cells, self._eol], self._delimiter, kind)
        last = self._join([cells[-1], self._eol], "", kind)
        return self._join([*cells[:-1], last], self._delimiter, kind)

    def _join(self, pieces: list[pa.Array | str], separator: str, kind: pa.DataType) -> pa.Array:
        columns = [
            pa.scalar(piece, kind) if isinstance(piece, str) else pc.cast(piece, kind)
            for piece in pieces
        ]
        return pc.binary_join_element_wise(
            *columns,
            pa.scalar(separator, kind),
            null_handling="replace",
            null_replacement=self._null,
        )

    def _kind(self, more_bytes: int = 0) -> pa.DataType:
        large = self._most_bytes() + more_bytes > STRING_LIMIT
        return pa.large_string() if large else pa.string()

    def _literal_bytes(self) -> int:
        """Return the bytes of a record outside its cells."""
        return len(self._delimiter.encode()) * (len(self._cells) - 1) + len(self._end.encode())

    def _most_bytes(self) -> int:
        """Return the bytes of all records, plus the NULL text for every cell."""
        nulls = len(self._null.encode()) * len(self._cells)
        cells = sum(len(value_bytes(cells)) for cells in self._cells)
        return self._rows * (self._literal_bytes() + nulls) + cells


def _empty(rows: int) -> pa.Array:
    """Return a column of empty texts, for the place after the last delimiter."""
    # Not by `pa.repeat`: each call looks for NumPy, even where NumPy is not installed.
    offsets = pa.py_buffer(bytes(4 * (rows + 1)))
    return pa.Array.from_buffers(pa.string(), rows, [None, offsets, pa.py_buffer(b"")])


def is_simple(text_format: TextFormat) -> bool:
    """Return whether the rules here cover the dialect."""
    return (
        len(text_format.delimiter) == 1
        and len(text_format.enclosure) == 1
        and text_format.enclose != "none"
        and text_format.escape == "double"
        and text_format.record_length_digits == 0
        and not (text_format.header and (text_format.refused or text_format.eol_ends_always))
        and text_format.encoding.lower() in ("utf-8", "utf8")
    )


def simple_header(names: Sequence[str], text_format: TextFormat) -> bytes:
    """Return the record of column names in a simple dialect, or nothing if it has no header."""
    if not text_format.header:
        return b""
    end = text_format.delimiter if text_format.trailing_delimiter else ""
    fields = text_format.delimiter.join(
        _field(name, text_format, single=len(names) == 1) for name in names
    )
    return (fields + end + text_format.eol).encode()


def _field(name: str, text_format: TextFormat, *, single: bool) -> str:
    mark = text_format.enclosure
    if (
        text_format.enclose != "minimal"
        or name in not_bare(text_format, single=single)
        or any(each in name for each in enclosed_for(text_format))
    ):
        return mark + name.replace(mark, mark * 2) + mark
    return name
