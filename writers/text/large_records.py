"""One record whose values may be of any size, encoded piece by piece."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from writers.model import TextFormat
from writers.text.large_texts import Pieces
from writers.text.output_encoding import OutputEncoding, character_of
from writers.text.refusals import Place, too_long


class LargeRecord(Struct, frozen=True, kw_only=True):
    """The cells of a record, as they stand between two delimiters."""

    cells: Sequence[str | Pieces]
    names: Sequence[str]
    """Of the columns."""
    row: int
    """Counted from 1 within the work unit."""
    format: TextFormat
    encoding: OutputEncoding

    def encoded(self) -> Iterator[bytes]:
        """Return the record in the output encoding, behind its length if the format has one.

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
