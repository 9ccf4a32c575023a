"""Values in pieces and wide rows: the bytes of whole values, in bounded memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from amounts import examples
from encoders.random_batches import formats
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from long_tests import OTHER_ROUTES, also
from msgspec.structs import replace

from writers.errors import ValueNotRepresentable, WriteError
from writers.large_rows import COLLECTED_BYTES, LargeRow
from writers.model import Compression, EncoderChoice, OutputSpec, ParquetFormat, TextFormat
from writers.parquet.writer import ParquetWriter
from writers.registry import open_writer
from writers.text.delimited import PlainEncoder
from writers.text.dialects import DIALECTS, dialect
from writers.text.text_writer import TextWriter

QUICK = settings(
    max_examples=examples(150),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TEXT = st.text(
    st.sampled_from("ab ,;|~\"'<>\t\r\n\\.N-éか\u309a😀\x01\x02\x7f"), max_size=12
) | st.sampled_from(["", "\\N", "\\.", "NULL", "0", "~", "~~", "~~~", "aba", "ababa", "||", "\\x"])


@dataclass(frozen=True)
class Pieces:
    """A whole value cut at given places."""

    whole: Any
    cuts: tuple[int, ...] = ()

    @property
    def binary(self) -> bool:
        return isinstance(self.whole, bytes)

    def pieces(self) -> Iterator[Any]:
        places = [0, *sorted(cut % (len(self.whole) + 1) for cut in self.cuts), len(self.whole)]
        return (self.whole[a:b] for a, b in pairwise(places))


CUTS = st.lists(st.integers(0, 40), max_size=5).map(tuple)
FIELDS = {
    "text": (pa.field("text", pa.string()), TEXT),
    "large": (pa.field("large", pa.large_string()), TEXT),
    "number": (
        pa.field("number", pa.string(), metadata={"text_class": "number"}),
        st.sampled_from(["1.5", "-0.25", "1e400", "", "12"]),
    ),
    "binary": (pa.field("binary", pa.binary()), st.binary(max_size=8)),
    "int": (pa.field("int", pa.int64()), st.integers(0, 10)),
}


@st.composite
def rows(draw):
    kinds = draw(st.lists(st.sampled_from(sorted(FIELDS)), min_size=1, max_size=3))
    values, cuts = [], []
    for kind in kinds:
        large = kind != "int" and draw(st.booleans())
        values.append(draw(FIELDS[kind][1] if large else FIELDS[kind][1] | st.none()))
        cuts.append(draw(CUTS) if large else None)
    return kinds, values, cuts


def record(kinds, values) -> pa.RecordBatch:
    fields = [FIELDS[kind][0].with_name(f"c{i}") for i, kind in enumerate(kinds)]
    arrays = [pa.array([v], field.type) for v, field in zip(values, fields, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def large_row(kinds, values, cuts) -> LargeRow:
    small = [v if cut is None else None for v, cut in zip(values, cuts, strict=True)]
    pieces = [
        (i, Pieces(v, cut))
        for i, (v, cut) in enumerate(zip(values, cuts, strict=True))
        if cut is not None
    ]
    return LargeRow(row=record(kinds, small), values=tuple(pieces))


def whole_outcome(kinds, values, form):
    batch = record(kinds, values)
    try:
        return bytes(PlainEncoder(batch.schema, form).encode(batch))
    except ValueNotRepresentable:
        return None


def pieces_outcome(kinds, values, cuts, form):
    large = large_row(kinds, values, cuts)
    try:
        return b"".join(PlainEncoder(large.row.schema, form).encode_large(large))
    except ValueNotRepresentable:
        return None


@settings(QUICK, max_examples=examples(400))
@given(rows(), formats())
@example((["text"], ["aba"], [(1,)]), TextFormat(enclosure="aba", delimiter=","))
@example((["text", "int"], ["xab", 1], [(2,), None]), TextFormat(delimiter="aba"))
@example((["text"], ["か\u309a"], [(1,)]), TextFormat(encoding="euc_jis_2004"))
@example((["text"], ["~ ~~"], [(3,)]), TextFormat(enclosure="~~", escape="none"))
@example((["text", "text"], ["か", "\u309a"], [(), (0,)]), TextFormat(encoding="euc_jis_2004"))
def test_pieces_give_the_bytes_of_whole_values(row, form):
    """A value in pieces gives the same record as the whole value, or the same refusal."""
    kinds, values, cuts = row
    assert pieces_outcome(kinds, values, cuts, form) == whole_outcome(kinds, values, form)


@QUICK
@given(st.sampled_from(sorted(DIALECTS)), TEXT, TEXT)
def test_every_cut_of_a_text_gives_the_same_bytes(name, start, end):
    """Marks that straddle two pieces are seen, in every dialect, one character at a time."""
    text = start + end
    form = dialect(name)
    cuts = tuple(range(len(text) + 1))
    whole = whole_outcome(["text"], [text], form)
    assert pieces_outcome(["text"], [text], [cuts], form) == whole
    assert pieces_outcome(["text"], [text], [(len(start),)], form) == whole


def refusal(values, form, cuts=(1,)) -> str:
    kinds = ["text" if isinstance(v, str) else "binary" for v in values]
    large = large_row(kinds, values, [cuts] * len(values))
    with pytest.raises(ValueNotRepresentable) as caught:
        list(PlainEncoder(large.row.schema, form).encode_large(large))
    return str(caught.value)


def test_a_refusal_names_the_column():
    """A value that a dialect cannot write is refused with its column, the row and what to do."""
    bare = TextFormat(enclose="none", escape="none")
    assert refusal(["fine", "a,b"], bare).startswith("column c1, row 1: the value holds ','")
    assert "reads as NULL" in refusal([""], bare) or "read as NULL" in refusal([""], bare)
    assert "holds the enclosure" in refusal(["~~"], TextFormat(enclosure="~~", escape="none"))
    assert "runs into" in refusal(["a,~"], TextFormat(enclosure="~~"))
    latin = refusal(["x", "ab日"], TextFormat(encoding="latin-1"))
    assert latin.startswith("column c1, row 1: latin-1 has no character U+65E5")
    assert "column c0" in refusal(["half of a pair \ud83d"], TextFormat())
    assert "102 bytes" in refusal(
        ["a" * 98], replace(TextFormat(), record_length_digits=2, enclose="all", eol="\r\n")
    )


def spec(directory: Path, form: Any, codec: Any = "none", **changes: Any) -> OutputSpec:
    return OutputSpec(
        directory=str(directory), format=form, compression=Compression(codec=codec), **changes
    )


SCHEMA = pa.schema([("id", pa.int64()), ("doc", pa.string()), ("raw", pa.binary())])


def document(number: int) -> tuple[pa.RecordBatch, LargeRow]:
    """The same row whole and in pieces."""
    text, data = f'"{number}",\r\n日' * 5000, bytes(range(256)) * 50
    values = [[number], [text], [data]]
    whole = pa.record_batch(
        [pa.array(v, f.type) for v, f in zip(values, SCHEMA, strict=True)], schema=SCHEMA
    )
    small = pa.record_batch(
        [whole.column(0), pa.nulls(1, pa.string()), pa.nulls(1, pa.binary())], schema=SCHEMA
    )
    cuts = tuple(range(0, 30_000, 997))
    return whole, LargeRow(row=small, values=((1, Pieces(text, cuts)), (2, Pieces(data, cuts))))


@pytest.mark.parametrize("codec", ["none", "gzip", "zstd", "lz4"])
@pytest.mark.parametrize("name", sorted(DIALECTS))
def test_files_are_the_same_with_every_codec(tmp_path, name, codec):
    """Large rows between batches leave the file that whole values leave, byte for byte."""
    files = []
    for way in ("whole", "pieces"):
        writer = TextWriter(spec(tmp_path, dialect(name), codec, buffer_bytes=70_000), SCHEMA, way)
        for number in range(4):
            whole, large = document(number)
            writer.write(whole)
            if way == "pieces":
                writer.write_large(large)
            else:
                writer.write(whole)
        (file,) = writer.close()
        files.append((file.rows, file.checksum, (tmp_path / file.path).read_bytes()))
    assert files[0] == files[1]
    assert files[0][0] == 8


BOUNDED = """
import resource, sys
from writers.text.dialects import dialect
from writers.large_rows import LargeRow
from writers.model import Compression, OutputSpec
from writers.text.text_writer import TextWriter
import pyarrow as pa

class Big:
    binary = {binary}
    def pieces(self):
        piece = {piece}
        return (piece for _ in range(120))

schema = pa.schema([("n", pa.int64()), ("c", pa.{kind}())])
row = pa.record_batch([pa.array([1]), pa.nulls(1, pa.{kind}())], schema=schema)
spec = OutputSpec(directory=sys.argv[1], format=dialect({name!r}), compression=Compression())
writer = TextWriter(spec, schema, "t")
writer.write(row)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
writer.write_large(LargeRow(row=row, values=((1, Big()),)))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, writer.close()[0].bytes)
"""


@pytest.mark.parametrize(
    ("name", "kind", "piece", "size"),
    [
        ("sqlldr-var", "string", "'a~~b, ' * 100_000", 96_000_000),
        ("rfc4180", "binary", "bytes(500_001)", 120_000_000),
    ],
)
def test_memory_does_not_grow_with_the_value(tmp_path, name, kind, piece, size):
    """A value of about 100 MB takes less than 40 MB of memory on its way into the file."""
    script = BOUNDED.format(name=name, kind=kind, piece=piece, binary=kind == "binary")
    run = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    grown, written = map(int, run.stdout.split())
    assert written > size
    assert grown * (1024 if sys.platform != "darwin" else 1) < 40_000_000


def test_parquet_collects_up_to_its_limit(tmp_path):
    """Parquet holds the same values as from a batch."""
    writer = ParquetWriter(spec(tmp_path, ParquetFormat()), SCHEMA, "t")
    whole, large = document(7)
    writer.write(whole)
    writer.write_large(large)
    (file,) = writer.close()
    table = pq.read_table(tmp_path / file.path)
    assert table.to_pylist() == whole.to_pylist() * 2
    assert file.rows == 2


class Endless:
    binary = True

    def pieces(self) -> Iterator[bytes]:
        return (bytes(1024 * 1024) for _ in range(10**9))


def test_parquet_refuses_a_value_above_its_limit(tmp_path):
    """The refusal names the column, the limit and both ways out, without reading on."""
    writer = ParquetWriter(spec(tmp_path, ParquetFormat()), SCHEMA, "t")
    _, large = document(1)
    with pytest.raises(ValueNotRepresentable, match="column raw") as caught:
        writer.write_large(replace(large, values=((2, Endless()),)))
    writer.abort()
    message = str(caught.value)
    assert f"{COLLECTED_BYTES:,}" in message
    assert "--exclude raw" in message
    assert "--format csv" in message


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"values": ((0, Pieces("x")),)}, "column id has the type int64"),
        ({"values": ((2, Pieces("x")),)}, "cannot hold a large text value"),
        ({"values": ((1, Pieces(b"x")),)}, "cannot hold a large binary value"),
        ({"values": ((2, Pieces(b"x")), (1, Pieces("x")))}, "ascending"),
        ({"values": ((5, Pieces("x")),)}, "ascending"),
        (
            {"row": pa.record_batch([pa.array([1])], names=["id"])},
            "a batch does not have the columns of the schema: column 2",
        ),
    ],
)
def test_a_row_that_does_not_suit_the_schema_is_refused(tmp_path, change, words):
    """Nothing of a contradictory row is written, in either format."""
    _, large = document(1)
    for make, form in ((TextWriter, TextFormat()), (ParquetWriter, ParquetFormat())):
        writer = make(spec(tmp_path, form), SCHEMA, "t")
        with pytest.raises(WriteError, match=words):
            writer.write_large(replace(large, **change))
        writer.abort()


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
