"""Delimited text from record batches: the plain encoder.

It defines the bytes: any faster encoder must produce the same. Columns become string arrays, the
arrays are joined row by row, and the joined array's own buffer is the output, so UTF-8 text is
never copied into Python objects.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from writers.dialects import check
from writers.enclosing import Cells, Enclosing
from writers.errors import FormatError, ValueNotRepresentable
from writers.lookup_table import LookupTable
from writers.model import TextFormat
from writers.output_encoding import OutputEncoding
from writers.refusals import Place
from writers.string_arrays import STRING_LIMIT, value_bytes
from writers.text_values import alphabet_of, check_field, content_of_field, text_of


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
            raise FormatError("there is no column to write. Next: check --columns and --exclude.")
        for field in schema:
            check_field(field, format)
        self._schema = schema
        self._format = format
        self._encoding = OutputEncoding(format.encoding)
        self._enclosing = Enclosing(format, single=len(schema) == 1)
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
                f"the header cannot be written: {error} Or leave it out with --no-header."
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
        return encoded

    def _encoded(
        self, columns: list[pa.Array], fields: list[pa.Field], first_row: int
    ) -> bytes | memoryview:
        if not len(columns[0]):
            return b""
        cells = [
            self._cells(column, field, first_row)
            for column, field in zip(columns, fields, strict=True)
        ]
        records = _Records(cells, self._format)
        if self._encoding.is_utf8:
            return self._utf8(records, first_row)
        try:
            return self._other_encoding(records, first_row)
        except UnicodeError:
            raise self._unfit(cells, fields, first_row) from None

    def _cells(self, column: pa.Array, field: pa.Field, first_row: int) -> Cells:
        format = self._format
        texts = text_of(column, field, format, first_row=first_row)
        always = format.enclose == "all" or (
            format.enclose == "strings" and content_of_field(field) == "text"
        )
        place = Place(column=field.name, first_row=first_row)
        alphabet = alphabet_of(field.type, format)
        return self._enclosing.cells(texts, place, always=always, alphabet=alphabet)

    def _utf8(self, records: _Records, first_row: int) -> memoryview:
        if not self._format.record_length_digits:
            return value_bytes(records.joined())
        lengths = records.lengths()
        self._check_longest(pc.max(lengths).as_py(), lengths, first_row)
        return value_bytes(records.joined(self._prefixes.take(lengths)))

    def _other_encoding(self, records: _Records, first_row: int) -> bytes:
        joined = records.joined()
        if not self._format.record_length_digits:
            text = str(value_bytes(joined), "utf-8")
            encoded = self._encoding.encode(text)
        else:
            lines = joined.to_pylist()
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
            raise ValueNotRepresentable(
                f"row {first_row + index}: the record has {lengths[index].as_py()} bytes, too many "
                f"for a record length of {digits} digits. Next: raise --record-length."
            )

    def _unfit(
        self, cells: list[Cells], fields: list[pa.Field], first_row: int
    ) -> ValueNotRepresentable:
        """Find the value in the first row that the output encoding cannot hold."""
        name = self._encoding.name
        found = [
            (unfit[0], field, unfit[1])
            for cell, field in zip(cells, fields, strict=True)
            if (unfit := self._encoding.first_unfit(cell.texts)) is not None
        ]
        if not found:
            return ValueNotRepresentable(
                f"rows from {first_row} on hold text that {name} would read back as another. "
                "Next: use --encoding utf-8."
            )
        index, field, character = min(found, key=lambda item: item[0])
        return Place(column=field.name, first_row=first_row).refusal(
            index,
            f"{name} has no character U+{ord(character):04X}",
            "use --encoding utf-8",
        )


class _Records:
    """The cells of a batch with everything that stands between and behind them."""

    def __init__(self, cells: list[Cells], format: TextFormat) -> None:
        self._texts = [cell.texts for cell in cells]
        self._null = format.null
        mark = format.enclosure
        before = [mark if cell.enclosed else "" for cell in cells]
        ends = [format.delimiter] * (len(cells) - 1)
        ends.append((format.delimiter if format.trailing_delimiter else "") + format.eol)
        behind = [around + end for around, end in zip(before, ends, strict=True)]
        between = [end + start for end, start in zip(behind, [*before[1:], ""], strict=True)]
        self._literals = [before[0], *between]
        """The literal in front of each cell, and the one behind the last."""
        self._delimiter = format.delimiter

    def lengths(self) -> pa.Array:
        """Return the bytes of each record in UTF-8, int64."""
        null_bytes = len(self._null.encode())
        total: pa.Array | int = sum(len(literal.encode()) for literal in self._literals)
        for texts in self._texts:
            lengths = pc.binary_length(texts)
            if texts.null_count:
                lengths = pc.fill_null(lengths, null_bytes)
            total = pc.add(pc.cast(lengths, pa.int64()), total)
        return total

    def joined(self, prefixes: pa.Array | None = None) -> pa.Array:
        """Return the records, each behind its prefix, as string or large_string."""
        prefix_bytes = 0 if prefixes is None else len(value_bytes(prefixes))
        large = prefix_bytes + self._bytes() > STRING_LIMIT
        kind = pa.large_string() if large else pa.string()
        texts = [pc.cast(texts, kind) for texts in self._texts]
        pieces = [] if prefixes is None else [pc.cast(prefixes, kind)]
        *inner, last = self._literals[1:]
        if prefixes is None and not self._literals[0] and set(inner) <= {self._delimiter}:
            tail = self._join([texts[-1], last], "", kind)
            return self._join([*texts[:-1], tail], self._delimiter, kind)
        for literal, column in zip(self._literals, texts, strict=False):
            pieces += [literal, column] if literal else [column]
        return self._join([*pieces, last], "", kind)

    def _join(self, pieces: list[pa.Array | str], separator: str, kind: pa.DataType) -> pa.Array:
        columns = [pa.scalar(piece, kind) if isinstance(piece, str) else piece for piece in pieces]
        return pc.binary_join_element_wise(
            *columns,
            pa.scalar(separator, kind),
            null_handling="replace",
            null_replacement=self._null,
        )

    def _bytes(self) -> int:
        rows = len(self._texts[0])
        literals = sum(len(literal.encode()) for literal in self._literals)
        nulls = len(self._null.encode()) * len(self._texts)
        return rows * (literals + nulls) + sum(len(value_bytes(t)) for t in self._texts)
