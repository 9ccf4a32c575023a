"""The first cell of a file that begins with U+FEFF, which readers drop where it is not enclosed."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pyarrow as pa
import pytest
from encoders.text_encoders import NAMES
from msgspec.structs import replace

from writers.errors import FormatError, ValueNotRepresentable
from writers.model import Compression, OutputSpec, TextFormat
from writers.text.dialects import DIALECTS
from writers.text.text_writer import EncodedTextWriter, TextWriter, file_start, start_of_names

MARK = "\ufeff"
BARE = TextFormat(header=False)


def spec(directory: Path, text: TextFormat, **changes: object) -> OutputSpec:
    """Return a spec for a dialect without compression."""
    return OutputSpec(directory=str(directory), format=text, compression=Compression(), **changes)


def written(directory: Path, text: TextFormat, values: list[str], **changes: object) -> list[bytes]:
    """Return the files of a text column and the number 7 beside each value."""
    batch = pa.record_batch({"s": values, "n": [7] * len(values)})
    writer = TextWriter(spec(directory, text, **changes), batch.schema, "t")
    writer.write(batch)
    return [(directory / each.path).read_bytes() for each in writer.close()]


@pytest.mark.parametrize("encoder", NAMES)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32-be"])
@pytest.mark.parametrize(
    ("delimiter", "eol"), [(",", "\n"), ("\u201a\u2c00", "\r\n"), ("||", "<EOR>")]
)
def test_only_the_first_cell_of_a_file_is_enclosed(tmp_path, encoder, encoding, delimiter, eol):
    """The bytes are those of the records, with two enclosures around the first cell."""
    text = replace(BARE, encoding=encoding, delimiter=delimiter, eol=eol)
    (data,) = written(tmp_path, text, [MARK + "a", "b", MARK + "c"], encoder=encoder)
    records = f'"{MARK}a"{delimiter}7{eol}b{delimiter}7{eol}{MARK}c{delimiter}7{eol}'
    found = data.decode(encoding)
    assert found == records


def test_each_file_of_a_unit_has_a_first_cell(tmp_path):
    """A file that starts after another reached its size is looked at, too."""
    files = written(tmp_path, BARE, [MARK + "a"] * 4, file_size_bytes=1)
    assert files == [f'"{MARK}a",7\n'.encode()] * 4


@pytest.mark.parametrize("value", [MARK, MARK + "a,b", MARK + 'a"b', MARK + "x" * 9_000_000])
def test_python_reads_the_first_value_back(tmp_path, value):
    """A value alone, with marks, and one that is encoded in pieces."""
    (data,) = written(tmp_path, BARE, [value, "b"])
    limit = csv.field_size_limit(1 << 30)
    try:
        found = list(csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""), strict=True))
    finally:
        csv.field_size_limit(limit)
    assert found == [[value, "7"], ["b", "7"]]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_ready_text_in_pieces_of_any_size(tmp_path, size):
    """Text from the source is enclosed as our own is, wherever its pieces end."""
    records = f"{MARK}abc,7\nb,7\n".encode()
    writer = EncodedTextWriter(spec(tmp_path, BARE), "t")
    for start in range(0, len(records), size):
        writer.write(records[start : start + size])
    (file,) = writer.close(2)
    assert (tmp_path / file.path).read_bytes() == f'"{MARK}abc",7\nb,7\n'.encode()
    assert writer.records == 2


def test_ready_text_of_a_few_bytes_is_kept(tmp_path):
    """What may still become the mark is written when the file ends."""
    writer = EncodedTextWriter(spec(tmp_path, BARE), "t")
    writer.write(MARK.encode()[:2])
    (file,) = writer.close(1)
    assert (tmp_path / file.path).read_bytes() == MARK.encode()[:2]


def test_the_first_name_of_a_header_is_enclosed(tmp_path):
    """With a header it is its first name that matters, and no value."""
    names = [MARK + "s", MARK + "n"]
    header = f'"{MARK}s",{MARK}n\n'.encode()
    assert start_of_names(names, TextFormat()) == header
    schema = pa.schema([(name, pa.string()) for name in names])
    assert file_start(schema, TextFormat()) == header
    assert written(tmp_path, TextFormat(), [MARK]) == [f"s,n\n{MARK},7\n".encode()]


def test_what_cannot_be_enclosed_is_refused(tmp_path):
    """A dialect without enclosures names the column and the way out."""
    text = replace(DIALECTS["tsv"], header=False)
    with pytest.raises(ValueNotRepresentable, match=r"column s, row 1: .*U\+FEFF.*--header"):
        written(tmp_path, text, [MARK])
    with pytest.raises(FormatError, match=r"the first column begins with U\+FEFF.*--no-header"):
        start_of_names([MARK], DIALECTS["tsv"])
