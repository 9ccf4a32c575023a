"""Rows of a batch that are too wide to be encoded whole: the same bytes, or refused by name."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from long_tests import OTHER_ROUTES, also

from writers.errors import ValueNotRepresentable
from writers.large_rows import COLLECTED_BYTES
from writers.model import Compression, EncoderChoice, OutputSpec, ParquetFormat, TextFormat
from writers.registry import open_writer
from writers.text.delimited import PlainEncoder

WIDE = 9 << 20

FORMATS = {
    "rfc4180": TextFormat(),
    "tsv": TextFormat(delimiter="\t", enclose="none", escape="backslash", null="\\N"),
    "all": TextFormat(enclose="all"),
    "length": TextFormat(record_length_digits=10, enclosure="~~", enclose="strings", header=False),
    "utf-16": TextFormat(encoding="utf-16-le"),
    "base64": TextFormat(binary="base64"),
}


def batch() -> pa.RecordBatch:
    """Return rows of which one is wide, in two columns of three."""
    text = ('Zoë,"q"\t\\' + "\n") * (WIDE // 11)
    return pa.RecordBatch.from_pydict(
        {
            "a": ["x", text, None],
            "b": [b"", bytes(range(256)) * (WIDE // 256), b"\0"],
            "n": [1, 2, 3],
        }
    )


@pytest.mark.parametrize(
    ("name", "encoder"),
    [
        *((name, "auto") for name in ("rfc4180", "length", "utf-16")),
        *also(OTHER_ROUTES, *((name, "auto") for name in ("tsv", "all", "base64"))),
        *also(OTHER_ROUTES, *((name, "plain") for name in ("tsv", "length", "base64"))),
    ],
)
def test_wide_rows_have_the_same_bytes(tmp_path: Path, name: str, encoder: EncoderChoice) -> None:
    """A wide row in a batch is written as the encoder writes it whole."""
    form, rows = FORMATS[name], batch()
    spec = OutputSpec(
        directory=str(tmp_path), format=form, compression=Compression(), encoder=encoder
    )
    writer = open_writer(spec, rows.schema, "t")
    writer.write(rows)
    (file,) = writer.close()
    whole = PlainEncoder(rows.schema, form)
    expected = whole.preamble() + whole.header() + bytes(whole.encode(rows))
    assert (tmp_path / file.path).read_bytes() == expected


def test_parquet_refuses_a_value_by_name(tmp_path: Path) -> None:
    """A value above the limit is refused with its column, its size and a way out."""
    size = COLLECTED_BYTES + 1
    rows = pa.RecordBatch.from_pydict({"n": [1, 2], "wide": ["x", "y" * size]})
    spec = OutputSpec(directory=str(tmp_path), format=ParquetFormat(), compression=Compression())
    writer = open_writer(spec, rows.schema, "t")
    with pytest.raises(ValueNotRepresentable, match=rf"column wide .* {size:,} bytes.*--exclude"):
        writer.write(rows)
    writer.abort()
