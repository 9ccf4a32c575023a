"""Substitutes for characters that the output encoding lacks."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from writers.errors import FormatError, ValueNotRepresentable
from writers.large_rows import LargeRow
from writers.model import TextFormat
from writers.testing import PiecedText
from writers.text.delimited import PlainEncoder


def written(values: list[str | None], **options: object) -> bytes:
    """Return the file of one column of text."""
    batch = pa.record_batch([pa.array(values, pa.string())], ["text"])
    encoder = PlainEncoder(batch.schema, TextFormat(header=False, **options))  # type: ignore[arg-type]
    return bytes(encoder.encode(batch))


def pieces(text: str, size: int, format: TextFormat) -> Iterator[bytes]:
    """Yield the record of one large value that comes in pieces of so many characters."""
    schema = pa.schema([("text", pa.string())])
    row = pa.record_batch([pa.array([None], pa.string())], schema=schema)
    yield from PlainEncoder(schema, format).encode_large(
        LargeRow(row=row, values=((0, PiecedText(text=text, piece_characters=size)),))
    )


def test_each_character_that_is_lacking_becomes_the_substitute() -> None:
    """Others stay, NULL stays NULL, and a value may be longer than before."""
    values = ["naïve", "10 €", None, "€€", "plain"]
    expected = "naïve\n10 EUR\n\nEUREUR\nplain\n".encode("latin-1")
    assert written(values, encoding="latin-1", substitute="EUR", null="") == expected


def test_without_a_substitute_the_error_names_the_option() -> None:
    """The value is refused as ever, and both ways out are told."""
    with pytest.raises(ValueNotRepresentable, match=r"U\+20AC.*--encoding utf-8.*--substitute"):
        written(["€"], encoding="latin-1")


def test_a_substitute_is_enclosed_and_escaped_like_any_text() -> None:
    """One that holds the delimiter or the enclosure can still be read."""
    assert written(["a€"], encoding="latin-1", substitute=",") == b'"a,"\n'
    assert written(["a€"], encoding="latin-1", substitute='"') == b'"a"""\n'
    assert written(["a€"], encoding="latin-1", substitute="\n", escape="backslash") == b'"a\n"\n'
    assert written(["€"], encoding="latin-1", substitute="NIL", null="NIL") == b'"NIL"\n'


def test_what_would_read_back_as_another_character_is_substituted() -> None:
    """Shift JIS has a code for the yen sign that reads back as a backslash."""
    assert written(["¥5"], encoding="shift_jis", substitute="JPY ") == b"JPY 5\n"


def test_a_substitute_must_be_encodable_itself() -> None:
    """It is refused before any row."""
    with pytest.raises(FormatError, match=r"--substitute '€' holds U\+20AC"):
        written(["x"], encoding="latin-1", substitute="€")


def test_names_of_columns_are_written_as_values_are() -> None:
    """The header has the substitute, too."""
    schema = pa.schema([("preis_€", pa.int32())])
    format = TextFormat(encoding="latin-1", substitute="E")
    assert PlainEncoder(schema, format).header() == b"preis_E\n"


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize("enclose", ["minimal", "strings", "all"])
def test_large_values_have_the_same_bytes(enclose: str, size: int) -> None:
    """In pieces of any length, the record is that of the whole value."""
    text = "10 €, 20 €€ é"
    format = TextFormat(
        encoding="latin-1",
        substitute=";,",
        enclose=enclose,  # type: ignore[arg-type]
        header=False,
        record_length_digits=6,
    )
    whole = written(
        [text],
        encoding="latin-1",
        substitute=";,",
        enclose=enclose,
        record_length_digits=6,
    )
    assert b"".join(pieces(text, size, format)) == whole
