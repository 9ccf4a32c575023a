"""Records of fixed width: places of values, refusals, and counts."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from encoders import random_batches as text_encoders
from encoders.writer_contract import PiecedText

from writers.errors import FormatError, ValueNotRepresentable, WriteError
from writers.files.read_back import read_back
from writers.large_rows import LargeRow
from writers.model import Compression, FixedField, OutputSpec, TextFormat
from writers.registry import open_writer

SCHEMA = pa.schema(
    [
        ("id", pa.int32()),
        ("name", pa.string()),
        ("code", pa.string()),
        ("price", pa.decimal128(6, 2)),
        ("day", pa.date32()),
    ]
)
WIDTHS = (11, 12, 4, 8, 10)
ROWS: dict[str, list[Any]] = {
    "id": [1, None, -2147483648],
    "name": ["Müller", "a\nb", None],
    "code": ["AB  ", None, "ABCD"],
    "price": [Decimal("-9999.99"), Decimal("0.50"), None],
    "day": [date(2024, 1, 31), None, date(1, 1, 1)],
}


def fixed_format(unit: int = 1, **options: Any) -> TextFormat:
    fields, start = [], 0
    for width, column in zip(WIDTHS, SCHEMA, strict=True):
        number = pa.types.is_integer(column.type) or pa.types.is_decimal(column.type)
        padded = column.name == "code"
        fields.append(FixedField(start=start, width=width * unit, right=number, padded=padded))
        start += width * unit
    return TextFormat(header=False, fixed=tuple(fields), **options)


def table(**columns: list[Any]) -> pa.RecordBatch:
    """Return a batch of the rows above, or of others with one row's values for the rest."""
    if not columns:
        return pa.record_batch([ROWS[f.name] for f in SCHEMA], schema=SCHEMA)
    count = len(next(iter(columns.values())))
    return pa.record_batch(
        [columns.get(f.name, [ROWS[f.name][0]] * count) for f in SCHEMA], schema=SCHEMA
    )


def sliced(data: bytes, format: TextFormat) -> list[list[str | None]]:
    """Read records as a reader of fixed fields does: by place, blanks stripped, NULL by its text."""
    last = format.fixed[-1]
    size = last.start + last.width + len(format.eol.encode(format.encoding))
    assert len(data) % size == 0
    records = []
    for begin in range(0, len(data), size):
        fields = []
        for field in format.fixed:
            place = begin + field.start
            text = data[place : place + field.width].decode(format.encoding)
            text = text.lstrip(" ") if field.right else text.rstrip(" ")
            fields.append(None if text == format.null else text)
        records.append(fields)
    return records


@pytest.fixture(params=["plain", "native"], autouse=True)
def _encoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run every test with both encoders; the native one where it was built."""
    if request.param == "native":
        text_encoders.native_or_skip()
    monkeypatch.setattr(f"{__name__}.ENCODER", request.param)


ENCODER = "plain"


def made(schema: pa.Schema, format: TextFormat) -> Any:
    """Return the encoder of the test."""
    return text_encoders.encoder(ENCODER, schema, format)


def written(batch: pa.RecordBatch, format: TextFormat) -> bytes:
    """Return the records of a batch."""
    return bytes(made(batch.schema, format).encode(batch))


def refusal(format: TextFormat, **columns: list[Any]) -> str:
    """Return why a value is refused."""
    with pytest.raises(ValueNotRepresentable) as error:
        written(table(**columns), format)
    return str(error.value)


def test_numbers_stand_right_and_everything_else_left() -> None:
    """The record is padded with blanks to the byte, in bytes and not in characters."""
    first = "          1Müller     AB  -9999.992024-01-31\n".encode()
    assert written(table(), fixed_format())[: len(first)] == first
    assert len(first) == sum(WIDTHS) + 1


@pytest.mark.parametrize(
    ("encoding", "unit"), [("utf-8", 1), ("latin-1", 1), ("utf-16-le", 2), ("cp037", 1)]
)
@pytest.mark.parametrize("eol", ["\n", "\r\n", ""])
@pytest.mark.parametrize("null", ["", "NIL"])
def test_a_reader_by_places_gets_every_value_back(
    encoding: str, unit: int, eol: str, null: str
) -> None:
    """In any encoding, with any end of record or none: values, NULLs and ends of line in values."""
    format = fixed_format(unit, encoding=encoding, eol=eol, null=null)
    assert sliced(written(table(), format), format) == [
        ["1", "Müller", "AB", "-9999.99", "2024-01-31"],
        [None, "a\nb", None, "0.50", None],
        ["-2147483648", None, "ABCD", None, "0001-01-01"],
    ]


def test_a_value_longer_than_its_field_is_refused() -> None:
    """Nothing is cut: the error has column, row, both lengths and the option."""
    assert refusal(fixed_format(), name=["fits", "x" * 13]) == (
        "column name, row 2: the value needs 13 bytes, but its field has 12. Next: give the column "
        "more bytes with --width name=BYTES, or leave it out with --exclude."
    )
    assert "needs 14 bytes" in refusal(fixed_format(), name=["ü" * 7])
    assert "needs 26 bytes" in refusal(fixed_format(2, encoding="utf-16-le"), name=["ü" * 13])


def test_a_value_that_would_read_as_null_is_refused() -> None:
    """The empty string beside an empty NULL text, or the text itself; CHAR without its blanks."""
    assert "column name, row 2: the value would read as NULL" in refusal(
        fixed_format(), name=["x", ""]
    )
    assert "--null" in refusal(fixed_format(null="NIL"), name=["NIL"])
    assert "column code, row 1" in refusal(fixed_format(), code=["    "])
    kept = written(table(name=[""], code=["    "]), fixed_format(null="NIL"))
    assert kept[11:27] == b" " * 16


@pytest.mark.parametrize("end", [" ", "\t", "\n", "\r", "\x00"])
def test_a_value_whose_end_a_reader_strips_is_refused(end: str) -> None:
    """Not so in a CHAR column, where blanks at the end mean nothing."""
    assert "ends in a blank or control character" in refusal(fixed_format(), name=["x" + end])
    assert written(table(name=[" x"]), fixed_format())[11:23] == b" x" + b" " * 10


def test_a_large_value_is_written_if_it_fits() -> None:
    """Otherwise it is refused before more of it is read than its field has room for."""
    schema = pa.schema([("id", pa.int32()), ("note", pa.string())])
    fields = (FixedField(start=0, width=11, right=True), FixedField(start=11, width=9))
    format = TextFormat(header=False, fixed=fields)
    row = pa.record_batch([[7], [None]], schema=schema)

    def record(text: str) -> bytes:
        large = LargeRow(row=row, values=((1, PiecedText(text=text)),))
        return b"".join(made(schema, format).encode_large(large))

    assert record("straße") == "          7straße  \n".encode()
    with pytest.raises(ValueNotRepresentable, match=r"more than the 9 bytes of its field.*--width"):
        record("x" * 100_000)
    with pytest.raises(ValueNotRepresentable, match="needs 10 bytes"):
        record("straßenü")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"header": True}, "no header"),
        ({"trailing_delimiter": True}, "no delimiter"),
        ({"record_length_digits": 5}, "no record length"),
        ({"null": " "}, "padded with blanks"),
        ({"null": "a\nb"}, "end of line"),
        ({"encoding": "utf-16-le"}, "width of 11 bytes"),
        ({"fixed": (FixedField(start=1, width=2),)}, "leave no gap"),
        ({"fixed": (FixedField(start=0, width=0),)}, "width of 0 bytes"),
        ({"fixed": (FixedField(start=0, width=2),)}, "do not fit 5 columns"),
    ],
)
def test_a_format_that_contradicts_itself_is_refused(options: dict[str, Any], said: str) -> None:
    """Before any row is read."""
    format = TextFormat(**{"header": False, "fixed": fixed_format().fixed, **options})
    with pytest.raises(FormatError, match=said):
        made(SCHEMA, format)


def files(directory: Path, format: TextFormat, codec: Any = "none") -> Path:
    """Write the rows above a hundred times and return the one file."""
    spec = OutputSpec(directory=str(directory), format=format, compression=Compression(codec=codec))
    writer = open_writer(spec, SCHEMA, "t")
    for _ in range(100):
        writer.write(table())
    (file,) = writer.close()
    assert file.rows == 300
    return directory / file.path


@pytest.mark.parametrize("codec", ["none", "gzip", "zstd"])
@pytest.mark.parametrize(("encoding", "unit"), [("utf-8", 1), ("utf-8-sig", 1), ("utf-16", 2)])
def test_records_are_counted_by_their_size(
    tmp_path: Path, codec: Any, encoding: str, unit: int
) -> None:
    """They follow the byte order mark, if one is there, and under any codec."""
    format = fixed_format(unit, encoding=encoding)
    path = files(tmp_path, format, codec)
    assert read_back(path, format, Compression(codec=codec), rows=True).rows == 300


def test_half_a_record_and_a_shifted_one_are_found(tmp_path: Path) -> None:
    """A file without a whole number of records is damaged."""
    format = fixed_format()
    path = files(tmp_path, format)
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole[1:] + b"\n"):
        path.write_bytes(damaged)
        with pytest.raises(WriteError, match="differs from the data that was written"):
            read_back(path, format, Compression(), rows=True)


def test_a_character_that_the_encoding_lacks_is_refused_or_substituted() -> None:
    """As in delimited text; the substitute's bytes count."""
    assert "has no character U+20AC" in refusal(fixed_format(encoding="latin-1"), name=["1 €"])
    format = fixed_format(encoding="latin-1", substitute="EUR")
    assert written(table(name=["1 €"]), format)[11:23] == b"1 EUR       "
    assert "needs 15 bytes" in refusal(format, name=["€" * 5])
