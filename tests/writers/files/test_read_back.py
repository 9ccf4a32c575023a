"""Reading back: a file that has no path here is read like one that has."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pytest

from writers.errors import WriteError
from writers.files.read_back import ReadBack, read_back
from writers.files.readable import RemoteFile
from writers.model import Compression, OutputSpec, ParquetFormat, TextFormat
from writers.registry import open_writer

ROWS = pa.record_batch({"number": pa.array([1, 2, 3]), "text": ["a", "b,\n", None]})
PREFIXED = TextFormat(record_length_digits=4, enclosure="~~", enclose="strings")


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
    """Size, checksum and rows are the same, whatever the format and the codec."""
    compression = Compression(codec=codec)  # type: ignore[arg-type]
    spec = OutputSpec(directory=str(tmp_path), format=output_format, compression=compression)
    writer = open_writer(spec, ROWS.schema, "t")
    writer.write(ROWS)
    (file,) = writer.close()
    path = tmp_path / file.path
    local = read_back(path, output_format, compression, rows=True)
    assert local == ReadBack(bytes=file.bytes, checksum=file.checksum, rows=3)
    assert read_back(remote(path), output_format, compression, rows=True) == local


def test_a_damaged_remote_file_is_named() -> None:
    """The message has the name that the file was given, for it has no path."""
    file = RemoteFile(name="bucket/t.parquet", open=lambda: io.BytesIO(b"PAR1 and no more"))
    with pytest.raises(WriteError, match=r"bucket/t\.parquet is not what was written"):
        read_back(file, ParquetFormat(), Compression(), rows=True)
