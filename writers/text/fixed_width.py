"""Records of fixed width: every value in its own bytes, padded with blanks, nothing between them.

A reader cuts a record at known places (`POSITION(1:15)`), strips the blanks and takes what is left,
so a value that this would change is refused: one that ends in a blank or control character, and
one that reads as NULL. Nothing is ever cut. What a value holds does not matter otherwise; an end of
line inside it is fine, for records are counted in bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from writers.arrow_compute import pc
from writers.errors import FormatError
from writers.model import FixedField, TextFormat
from writers.schema import text_class
from writers.text.large_texts import Pieces
from writers.text.output_encoding import OutputEncoding
from writers.text.refusals import Place
from writers.text.string_arrays import STRING_LIMIT, value_bytes, with_room
from writers.text.text_values import content_of_field, plain_type

_BLANK = " "
_ENDS_IN_BLANK = r"[\x00-\x20]\z"
"""What SQL*Loader strips: blanks, tabs and other characters that do not print."""
_ASCII = "".join(map(chr, range(128)))


def record_bytes(format: TextFormat) -> int:
    """Return the size of a record in bytes, the end of line included."""
    last = format.fixed[-1]
    return last.start + last.width + len(OutputEncoding(format.encoding).encode(format.eol))


class FixedRecords:
    """Makes records of fixed width out of texts.

    Args:
        schema: Of the batches.
        format: A checked one with a field for each column.
        encoding: That of the format.

    Raises:
        FormatError: There are more or fewer fields than columns.
    """

    def __init__(self, schema: pa.Schema, format: TextFormat, encoding: OutputEncoding) -> None:
        if len(format.fixed) != len(schema):
            raise FormatError(
                f"{len(format.fixed)} fields of fixed width do not fit {len(schema)} columns.",
                "give one field for each column.",
            )
        self._fields = [
            _Field(field, is_free_text(column), format, encoding)
            for field, column in zip(format.fixed, schema, strict=True)
        ]
        self._names = schema.names
        self._end = encoding.encode(format.eol)
        self._record_bytes = record_bytes(format)

    def encoded(self, texts: Sequence[pa.Array], first_row: int) -> memoryview:
        """Return the records.

        Args:
            texts: One array a column, string or large_string, null for NULL; at least one row.
            first_row: Row of the first value, named in errors.

        Raises:
            ValueNotRepresentable: A value does not fit its field, or would not be read back.
        """
        rows = len(texts[0])
        large = rows * self._record_bytes > STRING_LIMIT
        kind = pa.large_binary() if large else pa.binary()
        cells = [
            pc.cast(field.cells(column, Place(column=name, first_row=first_row)), kind)
            for field, column, name in zip(self._fields, texts, self._names, strict=True)
        ]
        joined = pc.binary_join_element_wise(
            *cells, pa.scalar(self._end, kind), pa.scalar(b"", kind)
        )
        return value_bytes(joined)

    def whole(self, pieces: Pieces, index: int, row: int) -> str:
        """Return a text in pieces as a whole, which takes no more memory than its field has bytes.

        Args:
            pieces: Read until they are longer than the field.
            index: Of the column.
            row: Named in errors.

        Raises:
            ValueNotRepresentable: The text is longer than its field.
        """
        width = self._fields[index].width
        parts: list[str] = []
        length = 0
        for piece in pieces():
            parts.append(piece)
            # No encoding has less than a byte for a character.
            length += len(piece)
            if length > width:
                place = Place(column=self._names[index], first_row=row)
                reason = f"the value needs more than the {width} bytes of its field"
                raise place.refusal(0, *_too_wide(place.column, reason))
        return "".join(parts)


class _Field:
    """One field of a record: checks, encodes and pads the values of its column."""

    def __init__(
        self, field: FixedField, free_text: bool, format: TextFormat, encoding: OutputEncoding
    ) -> None:
        self.width = field.width
        self._field = field
        self._free_text = free_text
        self._null = format.null
        self._encoding = encoding
        self._blank = encoding.encode(_BLANK)
        self._keeps_ascii = encoding.encode(_ASCII) == _ASCII.encode()

    def cells(self, texts: pa.Array, place: Place) -> pa.Array:
        """Return the padded values, string or binary, none of them null."""
        if self._field.padded:
            texts = pc.ascii_rtrim(texts, _BLANK)
        place.refuse_where(
            pc.equal(texts, self._null),
            f"the value would read as NULL, which is written {self._null!r} and padded with blanks",
            "use another --null",
        )
        if self._free_text:
            place.refuse_where(
                pc.match_substring_regex(texts, _ENDS_IN_BLANK),
                "the value ends in a blank or control character, which a reader of fixed fields "
                "strips",
                "trim it in --query, write delimited text without --fixed, or leave the column "
                "out with --exclude",
            )
        if texts.null_count:
            texts = pc.fill_null(texts, pa.scalar(self._null, texts.type))
        return self._padded(texts, place)

    def _padded(self, texts: pa.Array, place: Place) -> pa.Array:
        data = value_bytes(texts)
        if self._encoding.is_utf8 or (self._keeps_ascii and str(data, "latin-1").isascii()):
            lengths = pc.binary_length(texts)
            self._check_widths(lengths, place)
            # Arrow pads up to a number of bytes, whatever they stand for.
            pad: Callable[..., pa.Array] = pc.ascii_lpad if self._field.right else pc.ascii_rpad
            return pad(with_room(texts, factor=0, more=self.width), self.width, _BLANK)
        encoded = [self._encode(text, index, place) for index, text in enumerate(texts.to_pylist())]
        self._check_widths(pa.array(map(len, encoded), pa.int64()), place)
        return pa.array(map(self._filled, encoded), pa.large_binary())

    def _encode(self, text: str, index: int, place: Place) -> bytes:
        try:
            encoded = self._encoding.encode(text)
            if self._encoding.reads_back(text, encoded):
                return encoded
        except UnicodeError:
            pass
        lacking = next((each for each in text if not self._encoding.holds(each)), "")
        raise place.no_character(index, lacking, self._encoding.name)

    def _filled(self, encoded: bytes) -> bytes:
        blanks = self._blank * ((self.width - len(encoded)) // len(self._blank))
        return blanks + encoded if self._field.right else encoded + blanks

    def _check_widths(self, lengths: pa.Array, place: Place) -> None:
        longest = pc.max(lengths).as_py()
        if longest > self.width:
            wide = pc.greater(lengths, self.width)
            index = pc.index(wide, pa.scalar(True)).as_py()
            length = lengths[index].as_py()
            reason = f"the value needs {length} bytes, but its field has {self.width}"
            raise place.refusal(index, *_too_wide(place.column, reason))


def is_free_text(column: pa.Field) -> bool:
    """Tell whether a column's values may end in anything: they are text, and not of a mask."""
    free = content_of_field(column) == "text" and not text_class(column)
    return free and not pa.types.is_temporal(plain_type(column.type))


def _too_wide(column: str, reason: str) -> tuple[str, str]:
    hint = f"give the column more bytes with --width {column}=BYTES, or leave it out with --exclude"
    return reason, hint
