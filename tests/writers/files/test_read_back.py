"""Reading back: a file that has no path here is read like one that has."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pytest

from writers.content.reading import file_sums
from writers.content.sums import ColumnSums
from writers.errors import WriteError
from writers.files.read_back import ReadBack, RemoteFile, read_back
from writers.model import Compression, FixedField, OutputSpec, ParquetFormat, TextFormat
from writers.registry import open_writer
from writers.schema import schema_text
from writers.text.dialects import dialect

BOM = "\ufeff"
ROWS = pa.record_batch({"number": pa.array([1, 2, 3]), "text": ["a", "b,\n", None]})
PREFIXED = TextFormat(record_length_digits=4, enclosure="~~", enclose="strings")
FIXED = TextFormat(
    header=False,
    null="-",
    fixed=(FixedField(start=0, width=5, right=True), FixedField(start=5, width=5)),
)


def remote(path: Path) -> RemoteFile:
    """Return the bytes of a file without its path."""
    data = path.read_bytes()
    return RemoteFile(name=f"bucket/{path.name}", open=lambda: io.BytesIO(data))


@pytest.mark.parametrize(
    ("output_format", "codec"),
    [
        *((TextFormat(), codec) for codec in ("none", "gzip", "zstd", "lz4")),
        *((PREFIXED, codec) for codec in ("none", "gzip", "zstd", "lz4")),
        (ParquetFormat(), "zstd"),
    ],
)
def test_a_remote_file_is_read_like_a_local_one(
    tmp_path: Path, output_format: TextFormat | ParquetFormat, codec: str
) -> None:
    """Size, checksum and rows are the same, for every format and codec."""
    compression = Compression(codec=codec)  # type: ignore[arg-type]
    spec = OutputSpec(directory=str(tmp_path), format=output_format, compression=compression)
    writer = open_writer(spec, ROWS.schema, "t")
    writer.write(ROWS)
    (file,) = writer.close()
    path = tmp_path / file.path
    local = read_back(path, output_format, compression, rows=True)
    assert local == ReadBack(bytes=file.bytes, checksum=file.checksum, rows=3)
    assert read_back(remote(path), output_format, compression, rows=True) == local


class ShortReads(io.BytesIO):
    """A file that returns some bytes at a time, however many are asked for."""

    def __init__(self, data: bytes, most: int) -> None:
        super().__init__(data)
        self._most = most

    def read(self, size: int | None = -1) -> bytes:
        return super().read(self._most if size is None or size < 0 else min(size, self._most))


@pytest.mark.parametrize("most", [3, 4, 5, 7, 16, 1000])
@pytest.mark.parametrize(
    "text",
    [
        TextFormat(),
        TextFormat(header=False, eol="\r\n", encoding="utf-8-sig", enclose="all"),
        TextFormat(delimiter="x", enclosure="'", eol="\r\n", trailing_delimiter=True),
        TextFormat(enclosure="<q>", eol="$\n", encoding="utf-16-le"),
        *(dialect(name) for name in ("tsv", "mysql", "sqlldr-var")),
    ],
)
def test_records_may_end_anywhere_in_what_is_read(
    tmp_path: Path, text: TextFormat, most: int
) -> None:
    """Rows and values are right, whether a piece ends in a mark, an end of line or a value."""
    values = [
        '"',
        "''",
        "~~a",
        "\\",
        "\\n\t",
        "\r\n",
        '"\n"',
        "",
        None,
        BOM,
        f'{BOM}"',
        "x,\n'",
        "long\n" * 9,
        '""\n',
    ]
    rows = pa.record_batch({"v": values, "w": values[::-1]})
    spec = OutputSpec(directory=str(tmp_path), format=text, compression=Compression())
    writer = open_writer(spec, rows.schema, "t")
    sums = ColumnSums(rows.schema)
    for _ in range(7):
        writer.write(rows)
        sums.add(rows.columns, rows.num_rows)
    (file,) = writer.close()
    data = (tmp_path / file.path).read_bytes()
    short = RemoteFile(name="t", open=lambda: ShortReads(data, most))
    assert read_back(short, text, Compression(), rows=True).rows in (7 * len(values), None)
    message = schema_text(rows.schema)
    found = file_sums(short, spec, message, header=text.header, check=lambda: None)
    assert found == sums.result()


@pytest.mark.parametrize("text", ["a,b\n1,2", 'a,b\n1,"2\n', 'a,b\n"1"",2\n'])
def test_a_record_without_an_end_is_damage(tmp_path: Path, text: str) -> None:
    """A file that ends within a record is damaged."""
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(WriteError, match="the last record has no end"):
        read_back(path, TextFormat(), Compression(), rows=True)


@pytest.mark.parametrize(
    "output_format",
    [TextFormat(), PREFIXED, FIXED, ParquetFormat()],
    ids=["plain", "prefixed", "fixed", "parquet"],
)
def test_counting_ends_where_the_caller_asks(
    tmp_path: Path, output_format: TextFormat | ParquetFormat
) -> None:
    """The caller is asked again after the checksum, so a signal ends the count as well."""
    spec = OutputSpec(directory=str(tmp_path), format=output_format, compression=Compression())
    rows = pa.record_batch({"number": [1, 2], "text": ["a", "b"]})
    writer = open_writer(spec, rows.schema, "t")
    writer.write(rows)
    (file,) = writer.close()

    def advance(size: int) -> None:
        if not size:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read_back(tmp_path / file.path, output_format, Compression(), rows=True, advance=advance)
