"""Text files: codecs, sizes, headers, ready text, and counted records."""

from __future__ import annotations

import csv
import gzip
import io
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
import xxhash
import zstandard
from encoders.writer_contract import check_writer
from hypothesis import given
from hypothesis import strategies as st
from long_tests import OTHER_ROUTES, also

from writers.built_library import Unusable
from writers.errors import SchemaMismatch, ValueNotRepresentable, WriteError
from writers.files.publish import text_extension
from writers.model import Compression, OutputSpec, TextFormat
from writers.native import encoder as library
from writers.text.text_writer import EncodedTextWriter, RecordCounter, TextWriter, file_start

SCHEMA = pa.schema([("number", pa.int64()), ("name", pa.string())])


def spec(directory: Path, codec: Any = "none", **changes: Any) -> OutputSpec:
    """Return a spec for text with that codec and the changes asked for."""
    return OutputSpec(
        **{
            "directory": str(directory),
            "format": TextFormat(),
            "compression": Compression(codec=codec),
            **changes,
        }
    )


def rows(numbers: range, width: int = 8) -> pa.RecordBatch:
    """Return numbered rows with text that hardly compresses."""
    chance = random.Random(numbers.start)
    names = [chance.randbytes(width // 2).hex() for _ in numbers]
    return pa.record_batch([pa.array(numbers, pa.int64()), pa.array(names)], schema=SCHEMA)


def content(path: Path) -> bytes:
    """Return the text of a file, decompressed by its name."""
    kind = path.name.removesuffix(".part").rpartition(".")[2]
    if kind == "gz":
        return gzip.decompress(path.read_bytes())
    if kind == "zst":
        with zstandard.open(path, "rb") as file:
            return bytes(file.read())
    if kind == "lz4":
        with pa.CompressedInputStream(pa.OSFile(str(path)), "lz4") as stream:
            return bytes(stream.read())
    return path.read_bytes()


def read_duckdb(paths: list[Path]) -> pa.Table:
    """Read files with DuckDB as text, the bare nothing being NULL and the empty string not."""
    tables = []
    query = """
        from read_csv($path, header = true, all_varchar = true, allow_quoted_nulls = false,
                      delim = ',', quote = '"', escape = '"', nullstr = '',
                      new_line = '\\n', auto_detect = false, columns = $columns,
                      max_line_size = 1000000)
    """
    with duckdb.connect(config={"threads": 1}) as connection:
        for path in paths:
            plain = path.with_suffix(".plain")
            plain.write_bytes(content(path))
            header = plain.read_bytes().partition(b"\n")[0].decode()
            columns = dict.fromkeys(header.split(","), "VARCHAR")
            params = {"path": str(plain), "columns": columns}
            tables.append(connection.sql(query, params=params).to_arrow_table())
            plain.unlink()
    return pa.concat_tables(tables)


def write(directory: Path, batches: list[pa.RecordBatch], codec: Any, **changes: Any) -> list[Path]:
    """Write batches and return the files."""
    writer = TextWriter(spec(directory, codec, **changes), SCHEMA, "t")
    for batch in batches:
        writer.write(batch)
    return [directory / file.path for file in writer.close()]


@pytest.mark.parametrize(
    ("codec", "file_size"),
    [
        *(("none", 0), ("zstd", 5000)),
        *also(OTHER_ROUTES, ("none", 20_000), ("gzip", 0), ("lz4", 0)),
    ],
)
def test_contract(codec: Any, file_size: int) -> None:
    """Another reader gets back every value, from one file and from several."""
    check_writer(
        lambda directory, schema: TextWriter(
            spec(directory, codec, file_size_bytes=file_size, buffer_bytes=10_000), schema, "t"
        ),
        read_duckdb,
    )


def test_no_rows_leave_the_header(tmp_path: Path) -> None:
    """An empty input leaves one file with the header."""
    (path,) = write(tmp_path, [], "none")
    assert path.name == "t.csv.part"
    assert path.read_bytes() == file_start(SCHEMA, TextFormat()) == b"number,name\n"


def test_new_file_after_file_size(tmp_path: Path) -> None:
    """Each file but the last reaches the size, exceeds it by little, and has the header."""
    batches = [rows(range(n, n + 5000)) for n in range(0, 20_000, 5000)]
    paths = write(tmp_path, batches, "none", file_size_bytes=40_000)
    assert [path.name for path in paths[:2]] == ["t.001.csv.part", "t.002.csv.part"]
    assert all(40_000 <= path.stat().st_size < 50_000 for path in paths[:-1])
    lines = [path.read_bytes().splitlines() for path in paths]
    assert {found[0] for found in lines} == {b"number,name"}
    numbers = [int(line.partition(b",")[0]) for found in lines for line in found[1:]]
    assert numbers == list(range(20_000))


@pytest.mark.parametrize("codec", ["gzip", "zstd", "lz4"])
def test_file_size_counts_compressed_bytes(tmp_path: Path, codec: Any) -> None:
    """The size is measured on disk, and the cuts are the same on every run."""
    found = []
    for run in ("a", "b"):
        (tmp_path / run).mkdir()
        batches = [rows(range(n, n + 5000), 40) for n in range(0, 50_000, 5000)]
        paths = write(tmp_path / run, batches, codec, file_size_bytes=400_000, buffer_bytes=20_000)
        found.append([path.read_bytes() for path in paths])
    assert found[0] == found[1]
    assert len(paths) >= 2
    # What a codec holds back is not counted: up to 128 KiB for zstd.
    assert all(400_000 <= path.stat().st_size < 600_000 for path in paths[:-1])
    assert sum(content(path).count(b"\n") - 1 for path in paths) == 50_000


def test_row_that_outgrows_the_pieces(tmp_path: Path) -> None:
    """Rows that are suddenly much longer, or longer than a buffer, are written whole."""
    names = ["x"] * 5000 + ["y" * 50_000] * 20
    batch = pa.record_batch([pa.array(range(5020), pa.int64()), pa.array(names)], schema=SCHEMA)
    (path,) = write(tmp_path, [batch], "none", buffer_bytes=1000, buffers=2)
    lines = path.read_bytes().splitlines()[1:]
    assert [line.partition(b",")[2].decode() for line in lines] == names


def test_refused_value_names_its_row(tmp_path: Path) -> None:
    """The row in the refusal is counted from the first row written, however pieces are cut."""
    text = TextFormat(enclose="none", enclosure="", escape="none")
    writer = TextWriter(spec(tmp_path, format=text, buffer_bytes=50), SCHEMA, "t")
    writer.write(rows(range(100)))
    with pytest.raises(ValueNotRepresentable, match=r"name.*row 103"):
        writer.write(pa.record_batch([[1, 2, 3], ["a", "b", "c,d"]], schema=SCHEMA))
    writer.abort()
    assert not list(tmp_path.iterdir())


def test_abort_removes_finished_files_too(tmp_path: Path) -> None:
    """After several files were finished, abort leaves none."""
    writer = TextWriter(spec(tmp_path, file_size_bytes=2000), SCHEMA, "t")
    writer.write(rows(range(1000)))
    assert len(list(tmp_path.iterdir())) > 3
    writer.abort()
    assert not list(tmp_path.iterdir())


def test_full_disk_takes_the_finished_files_along(full_disk: Path) -> None:
    """When a later file does not fit, abort removes the earlier ones too."""
    writer = TextWriter(spec(full_disk, file_size_bytes=300_000), SCHEMA, "t")
    writer.write(rows(range(10_000), 40))
    assert len(list(full_disk.iterdir())) > 1
    large = pa.record_batch([[1], ["x" * (2 << 20)]], schema=SCHEMA)
    with pytest.raises(WriteError, match=r"t\.002\.csv\.part: .*(ENOSPC|EFBIG).*Next: "):
        writer.write(large)
    writer.abort()
    assert not list(full_disk.iterdir())


def test_batch_of_another_schema_is_refused(tmp_path: Path) -> None:
    """A batch with other columns than the file is an error, not a wrong file."""
    writer = TextWriter(spec(tmp_path), SCHEMA, "t")
    with pytest.raises(SchemaMismatch, match=r"column 1 is b \(string\) instead of number"):
        writer.write(pa.RecordBatch.from_pydict({"b": ["x"]}))
    writer.abort()


@pytest.mark.parametrize("codec", ["none", "gzip", "zstd", "lz4"])
def test_ready_bytes_pass_unchanged(tmp_path: Path, codec: Any) -> None:
    """Ready text is written unchanged after the header, into one file of the given rows."""
    writer = EncodedTextWriter(spec(tmp_path, codec, file_size_bytes=10), "t", b"head\r\n")
    data = [b"%d;\xff\x00\r\n" % n for n in range(5000)]
    for record in data:
        writer.write(record)
    (file,) = writer.close(len(data))
    path = tmp_path / file.path
    assert file.path == f"t.{text_extension(TextFormat(), Compression(codec=codec))}.part"
    assert content(path) == b"head\r\n" + b"".join(data)
    assert (file.rows, file.bytes) == (5000, path.stat().st_size)
    assert file.checksum == f"xxh3:{xxhash.xxh3_64_hexdigest(path.read_bytes())}"
    assert writer.bytes_written == file.bytes
    assert writer.stages.write_s > 0


VALUES = st.lists(
    st.lists(st.text('a"\n, é\r', max_size=6), min_size=2, max_size=2), min_size=1, max_size=8
)


@pytest.fixture(params=["native", "plain"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With the native library, and as if it had not been built."""
    if request.param == "plain":
        monkeypatch.setattr("writers.text.text_writer.library", _unusable)
    elif why := library.why_not():
        pytest.skip(f"the native encoder is not in use: {why}")
    return request.param


def _unusable() -> None:
    raise Unusable("it was not built")


def _counted(text: bytes, cuts: list[int]) -> int:
    counter = RecordCounter(b'"')
    places = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    for number, (start, end) in enumerate(pairwise(places)):
        piece = text[start:end]
        counter.add((bytes, bytearray, memoryview)[number % 3](piece))
    return counter.records


@pytest.mark.usefixtures("way")
def test_records_are_those_of_a_csv_reader() -> None:
    """Line ends and quotes within values, and cuts anywhere, change no count."""

    @given(VALUES, st.lists(st.integers(0, 60), max_size=5), st.booleans())
    def check(rows: list[list[str]], cuts: list[int], every: bool) -> None:
        text = io.StringIO()
        quoting = csv.QUOTE_ALL if every else csv.QUOTE_MINIMAL
        csv.writer(text, lineterminator="\n", quoting=quoting).writerows(rows)
        assert _counted(text.getvalue().encode(), cuts) == len(rows)

    check()


@pytest.mark.usefixtures("way")
def test_long_stretches_without_enclosures() -> None:
    """Every byte of a stretch is looked at, and no count inside is too small for it."""
    for size in (*range(200), 16_319, 16_320, 16_321, 70_000):
        assert _counted(b"\n" * size, [3]) == size
        assert _counted(b"a" * size + b"\n", []) == 1


@pytest.mark.usefixtures("way")
def test_a_text_larger_than_a_window(tmp_path: Path) -> None:
    """A value of megabytes is one record, and the header of a file does not count."""
    spec = OutputSpec(
        directory=str(tmp_path), format=TextFormat(), compression=Compression(codec="none")
    )
    writer = EncodedTextWriter(spec, "t", b'"a\nb"\n')
    writer.write(memoryview(b'"' + b'x\n""' * 700_000 + b'"\n1\n'))
    assert writer.records == 2
    writer.abort()
