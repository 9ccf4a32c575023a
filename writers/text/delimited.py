"""Delimited text from record batches: the plain encoder.

It defines the bytes: any faster encoder must produce the same. Columns become string arrays, which
are joined row by row into a buffer that is the output, so UTF-8 text is never copied into Python
objects.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from writers.arrow_compute import pc
from writers.errors import FormatError, ValueNotRepresentable
from writers.large_rows import LargeRow, LargeValue
from writers.model import TextFormat
from writers.schema import has_infinities
from writers.text.datetime_texts import datetime_texts
from writers.text.dialects import check
from writers.text.enclosing import Enclosing
from writers.text.fixed_width import FixedRecords
from writers.text.large_enclosing import LargeEnclosing
from writers.text.large_records import LargeRecord
from writers.text.large_texts import Pieces, large_alphabet, large_text
from writers.text.lookup_table import LookupTable
from writers.text.output_encoding import OutputEncoding
from writers.text.records import Records
from writers.text.refusals import Place, too_long
from writers.text.substitutes import Substitutes
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
        """Return what stands in front of everything else in a file: a byte order mark, if any."""
        return self._encoding.preamble

    def header(self) -> bytes:
        """Return the record of column names, or nothing if the format has none.

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
