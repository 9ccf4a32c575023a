"""Parquet by the native library, and how each column is encoded."""

from __future__ import annotations

import os
import random
import tempfile
import tracemalloc
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from amounts import tries
from encoders.parquet_files import read_duckdb, reference_rows, spec, typed_rows, write
from encoders.random_batches import tables
from hypothesis import given
from hypothesis import strategies as st

from writers import __version__
from writers.errors import FormatError, ValueNotRepresentable
from writers.model import Compression, ParquetFormat, TextFormat
from writers.parquet.native import pages as library
from writers.parquet.native.file import prepared
from writers.parquet.native.pages import Encoding, Page, PageEncoder
from writers.parquet.writer import ParquetWriter

NEEDS_LIBRARY = pytest.mark.skipif(
    library.why_not() is not None, reason=f"no native library: {library.why_not()}"
)
NATIVE = f"unloader version {__version__} (build native)"


def written(batches: list[pa.RecordBatch], **changes: Any) -> bytes | str:
    """Return the file that batches become, or the column that is named where they are refused."""
    with tempfile.TemporaryDirectory() as folder:
        writer = ParquetWriter(spec(Path(folder), **changes), batches[0].schema, "t")
        try:
            for batch in batches:
                writer.write(batch)
            (file,) = writer.close()
        except ValueNotRepresentable as exc:
            writer.abort()
            return str(exc).partition(" (")[0]
        return (Path(folder) / file.path).read_bytes()


def bits(table: pa.Table) -> pa.Table:
    """Return all values so that only the same ones are equal, NaN and -0.0 among them."""
    columns = []
    for column in table.columns:
        kind = column.type
        if pa.types.is_floating(kind) or (pa.types.is_temporal(kind) and kind.bit_width < 128):
            whole = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[kind.bit_width]
            chunks = [chunk.view(whole) for chunk in column.chunks]
            column = pa.chunked_array(chunks, whole)
        columns.append(column)
    return pa.table(columns, table.column_names)


def described(file: pq.ParquetFile) -> list[Any]:
    """Return the metadata of each column chunk: counts, bounds, order.

    The statistics of floating point are left out: files by pyarrow have none.
    """
    # Its first line has an address.
    schema = str(file.schema).partition("\n")[2]
    found: list[Any] = [schema, file.schema_arrow, file.metadata.num_rows]
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        found += [group.num_rows, group.sorting_columns]
        for index in range(group.num_columns):
            chunk = group.column(index)
            told = chunk.statistics
            found.append((chunk.path_in_schema, chunk.num_values, chunk.compression))
            found.append(chunk.has_offset_index)
            # Arrow leaves statistics out by name: of all columns with the name of a float.
            is_only = file.schema.names.count(chunk.path_in_schema) == 1
            if told is not None and is_only and told.physical_type not in ("FLOAT", "DOUBLE"):
                found.append(chunk.has_column_index)
                found.append((told.has_min_max, told.null_count, told.num_values))
                found.append((told.min_raw, told.max_raw) if told.has_min_max else None)
    return found


def same_as_arrow(batches: list[pa.RecordBatch], **changes: Any) -> bytes | None:
    """Compare both encoders; return the native file, None where the values are refused."""
    native = written(batches, encoder="native", **changes)
    plain = written(batches, encoder="plain", **changes)
    if isinstance(native, str) or isinstance(plain, str):
        assert native == plain
        return None
    file, reference = pq.ParquetFile(pa.py_buffer(native)), pq.ParquetFile(pa.py_buffer(plain))
    assert repr(described(file)) == repr(described(reference))
    read = file.read(use_threads=False)
    read.validate()
    assert bits(read).equals(bits(reference.read(use_threads=False)))
    return native


def is_native(data: bytes | None) -> bool:
    """Return whether the native library wrote a file."""
    assert data is not None
    created_by: str = pq.ParquetFile(pa.py_buffer(data)).metadata.created_by
    return created_by == NATIVE


FORMATS = (
    ParquetFormat(),
    ParquetFormat(dictionary=False),
    ParquetFormat(byte_stream_split=True),
    ParquetFormat(statistics=False),
    ParquetFormat(row_group_rows=3),
)


@NEEDS_LIBRARY
@tries(150)
@given(batches=tables(TextFormat()), format=st.sampled_from(FORMATS))
def test_any_batches_are_written_as_by_arrow(
    batches: list[pa.RecordBatch], format: ParquetFormat
) -> None:
    """Values, statistics and schema are the same, and refusals name the same column."""
    known = [
        index
        for index, field in enumerate(batches[0].schema)
        if not pa.types.is_nested(field.type)
        # Arrow lets a time overflow that is far out of the day; this library refuses it.
        and field.type != pa.time32("s")
        and is_known(field)
    ]
    if known:
        chosen = [batch.select(known) for batch in batches]
        data = same_as_arrow(chosen, format=format)
        whole = pa.Table.from_batches(chosen).combine_chunks().to_batches()
        if data is not None and whole:
            assert written(whole, encoder="native", format=format) == data
        assert data is None or is_native(data) or not any(batch.num_rows for batch in batches)


def is_known(field: pa.Field) -> bool:
    """Return whether the native library writes columns of a type, which Parquet then has."""
    try:
        return prepared(pa.schema([field]), ParquetFormat()) is not None
    except (pa.ArrowException, OSError):
        return False


def buffer(size: int, chance: random.Random) -> pa.Buffer:
    return pa.py_buffer(chance.randbytes(size))


def random_array(kind: pa.DataType, rows: int, nulls: bool, chance: random.Random) -> pa.Array:
    """Return any values of a type of fixed width, or of short text; under nulls as well."""
    bits = buffer(rows // 8 + 1, chance) if nulls else None
    if pa.types.is_decimal(kind):
        most = 10**kind.precision - 1
        data = b"".join(
            chance.randint(-most, most).to_bytes(16, "little", signed=True) for _ in range(rows)
        )
        return pa.Array.from_buffers(kind, rows, [bits, pa.py_buffer(data)])
    if pa.types.is_string(kind) or pa.types.is_large_binary(kind):
        code = pa.int32() if pa.types.is_string(kind) else pa.int64()
        ends = [0]
        for _ in range(rows):
            ends.append(ends[-1] + chance.choice((0, 1, 7, 8, 9, 40)))
        text = pa.py_buffer(bytes(byte & 0x7F for byte in chance.randbytes(ends[-1])))
        return pa.Array.from_buffers(kind, rows, [bits, pa.array(ends, code).buffers()[1], text])
    width = 1 if pa.types.is_boolean(kind) else kind.bit_width // 8
    return pa.Array.from_buffers(kind, rows, [bits, buffer(rows * width, chance)])


KINDS = (
    *(pa.bool_(), pa.int8(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()),
    *(pa.float32(), pa.float64(), pa.date32(), pa.timestamp("us", "UTC"), pa.timestamp("ns")),
    *(pa.decimal128(9, 2), pa.decimal128(18, 0), pa.decimal128(19, 4), pa.decimal128(38, 38)),
    *(pa.string(), pa.large_binary(), pa.binary(5)),
)


@NEEDS_LIBRARY
@pytest.mark.parametrize("nulls", [False, True], ids=["full", "nulls"])
@pytest.mark.parametrize("format", [FORMATS[0], FORMATS[2]], ids=["usual", "split"])
def test_every_type_over_several_blocks(format: ParquetFormat, nulls: bool) -> None:
    """Any bits of all types, in numbers that end no block, are read back by three readers."""
    chance = random.Random(format.byte_stream_split * 2 + nulls)
    arrays = [random_array(kind, 5003, nulls, chance) for kind in KINDS]
    table = pa.table(arrays, [f"c{number}" for number in range(len(KINDS))])
    data = same_as_arrow(table.to_batches(max_chunksize=999), format=format)
    assert is_native(data)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "t.parquet")
        path.write_bytes(data or b"")
        # DuckDB and polars do not accept random bits as days or times.
        narrow = [
            name
            for name, kind in zip(table.column_names, KINDS, strict=True)
            if not pa.types.is_temporal(kind) and not pa.types.is_fixed_size_binary(kind)
        ]
        wanted = table.select(narrow)
        assert bits(read_duckdb([path]).select(narrow).cast(wanted.schema)).equals(bits(wanted))
        polar = polars.read_parquet(path, columns=narrow).to_arrow().cast(wanted.schema)
        assert bits(polar).equals(bits(wanted))


def long_rows(rows: int, chance: random.Random) -> dict[str, Any]:
    """Return columns of 2 to 20 MB, some of them with long values."""
    words = [chance.randbytes(6).hex() for _ in range(300)]
    return {
        "whole": random_array(pa.int64(), rows, False, chance),
        "some": random_array(pa.int64(), rows, True, chance),
        "real": random_array(pa.float64(), rows, False, chance),
        "steps": pa.array(range(0, 3 * rows, 3)),
        "text": random_array(pa.string(), rows, True, chance),
        "word": pa.array([words[chance.randrange(300)] for _ in range(rows)]),
        "path": pa.array([f"/data/of/the/year/{row // 10:09d}/{row % 10}" for row in range(rows)]),
        "rising": pa.array([f"{row // 40:06d}" * 2 for row in range(rows)]),
        # Of 9 bytes each: a page ends in the middle of a step, near the end of a batch of 7,777 rows.
        "amount": pa.array(range(rows), pa.int32()).cast(pa.decimal128(21, 4)),
    }


@NEEDS_LIBRARY
def test_pages_end_and_do_not_depend_on_batches(tmp_path: Path) -> None:
    """Columns over several pages are read back, and the batches do not show in the bytes."""
    table = pa.table(long_rows(400_003, random.Random(1)))
    data = same_as_arrow(table.to_batches(max_chunksize=16_384))
    assert is_native(data)
    assert data == written(table.to_batches(max_chunksize=7_777), encoder="native")
    (path,) = write(tmp_path, table, 100_000, encoder="native")
    assert bits(read_duckdb([path])).equals(bits(table))
    assert bits(polars.read_parquet(path).to_arrow().cast(table.schema)).equals(bits(table))


@NEEDS_LIBRARY
def test_long_values_over_the_limit_of_a_page(tmp_path: Path) -> None:
    """Values of up to 5 MiB, and the empty ones and NULL between them, come back as they were."""
    chance = random.Random(2)
    sizes = [0, 5 << 20, 1, 2 << 20, (2 << 20) - 1, 4096, 4097, 3 << 20, 100_000]
    values = [None if row % 7 == 6 else chance.randbytes(size) for row, size in enumerate(sizes)]
    table = pa.table({"lob": pa.array(values, pa.large_binary()), "row": range(len(values))})
    for codec in ("zstd", "none", "lz4", "snappy", "gzip"):
        compression = Compression(codec=codec)  # type: ignore[arg-type]
        assert is_native(same_as_arrow(table.to_batches(max_chunksize=4), compression=compression))
    (path,) = write(tmp_path, table, 5, encoder="native")
    assert read_duckdb([path]).column("lob").to_pylist() == values


@NEEDS_LIBRARY
def test_a_dictionary_that_grows_too_large_is_given_up() -> None:
    """A column whose values stop to repeat has plain pages behind those with a dictionary."""
    chance = random.Random(3)
    repeated = [f"{row % 50:030d}" for row in range(60_000)]
    numbers = [row % 50 for row in range(60_000)]
    others = [f"{chance.randrange(10**12):030d}" for _ in range(60_000)]
    many = [chance.randrange(10**15) for _ in range(200_000)]
    text = [*repeated * 5, *others]
    table = pa.table({"text": text, "number": [*numbers * 2, *many, *numbers[:40_000]]})
    schema = pa.schema([pa.field("text", pa.string(), nullable=False), ("number", pa.int64())])
    batches = table.cast(schema).to_batches(max_chunksize=9_999)
    format = ParquetFormat(row_group_bytes=1 << 30)
    data = same_as_arrow(batches, format=format)
    assert is_native(data)
    chunk = pq.ParquetFile(pa.py_buffer(data)).metadata.row_group(0).column(0)
    assert chunk.encodings == ("PLAIN", "RLE", "RLE_DICTIONARY")
    assert data == written(table.cast(schema).to_batches(), encoder="native", format=format)


@NEEDS_LIBRARY
def test_no_rows_and_empty_batches(tmp_path: Path) -> None:
    """A file without rows has its schema, also if batches without rows were given."""
    empty = typed_rows().slice(0, 0)
    (path,) = write(tmp_path, empty, encoder="native")
    assert pq.read_table(path).to_pydict() == empty.to_pydict()
    assert pq.read_schema(path).names == empty.column_names
    batches = [*empty.to_batches(), *typed_rows().to_batches(), *empty.to_batches()]
    assert is_native(same_as_arrow(batches))


NAN, INFINITY = float("nan"), float("inf")


def bounds_of(file: pq.ParquetFile) -> list[dict[str, Any]]:
    groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
    return [
        {
            chunk.path_in_schema: (
                f"{chunk.statistics.min}, {chunk.statistics.max}"
                if chunk.statistics is not None and chunk.statistics.has_min_max
                else None
            )
            for chunk in map(group.column, range(group.num_columns))
        }
        for group in groups
    ]


FLOATS: dict[str, tuple[list[float | None], str | None]] = {
    "nan": ([NAN, NAN, NAN], None),
    "first": ([NAN, -1.0, 2.0], None),
    "last": ([-1.0, 2.0, NAN], None),
    "with null": ([None, NAN, 1.0], None),
    "infinite": ([INFINITY, INFINITY, NAN], None),
    "zeros": ([0.0, 0.0, 0.0], "-0.0, 0.0"),
    "minus zeros": ([-0.0, -0.0, None], "-0.0, 0.0"),
    "ends": ([INFINITY, -INFINITY, 5.0], "-inf, inf"),
    "null": ([None, None, None], None),
}
"""Values, and the bounds that cover them."""


@NEEDS_LIBRARY
@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=str)
@pytest.mark.parametrize("dictionary", [True, False], ids=["dictionary", "plain"])
def test_a_row_group_with_nan_has_no_bounds(kind: pa.DataType, dictionary: bool) -> None:
    """Readers would skip NaN by them. The other row groups keep theirs; zeros have both signs."""
    columns = {name: pa.array(values * 100, kind) for name, (values, _) in FLOATS.items()}
    fine = {name: pa.array([1.0, None, 2.0] * 100, kind) for name in columns}
    batches = [*pa.table(columns).to_batches(), *pa.table(fine).to_batches()]
    data = same_as_arrow(batches, format=ParquetFormat(dictionary=dictionary, row_group_rows=300))
    assert is_native(data)
    assert bounds_of(pq.ParquetFile(pa.py_buffer(data))) == [
        {name: bounds for name, (_, bounds) in FLOATS.items()},
        dict.fromkeys(FLOATS, "1.0, 2.0"),
    ]


@NEEDS_LIBRARY
def test_a_page_with_nan_leaves_its_row_group_without_bounds() -> None:
    """One of four pages has NaN: neither the row group nor the index of pages has bounds."""
    rows = 1 << 20
    fine = [float(row) for row in range(rows)]
    some = [*fine[:-1], NAN]
    schema = pa.schema([("some", pa.float64()), ("fine", pa.float64())])
    table = pa.table([some, fine], schema=schema)
    data = written(table.to_batches(), encoder="native", format=ParquetFormat(dictionary=False))
    file = pq.ParquetFile(pa.py_buffer(data))
    chunks = [file.metadata.row_group(0).column(index) for index in range(2)]
    assert [chunk.has_column_index for chunk in chunks] == [False, True]
    assert [chunk.has_offset_index for chunk in chunks] == [True, True]
    assert bounds_of(file)[0] == {"some": None, "fine": "-0.0, 1048575.0"}


@NEEDS_LIBRARY
def test_bounds_of_awkward_values() -> None:
    """Text is compared by bytes, and left out if it is long."""
    columns = {
        "unsigned": pa.array([2**63, 1, 2**64 - 1], pa.uint64()),
        "small": pa.array([2**31, 1, None], pa.uint32()),
        "negative": pa.array([Decimal("-1"), Decimal(10**37), None], pa.decimal128(38, 0)),
        "umlauts": ["é", "z", ""],
        "prefixes": ["abcdefgh", "abcdefgh\x00", "abcdefg"],
        "bytes": [b"\xff", b"\x00", b"\x7f"],
        "long": ["a" * 4096, "b" * 4097, "c"],
        "longer": ["c" * 4097, "a" * 5000, None],
    }
    assert is_native(same_as_arrow(pa.table(columns).to_batches()))


@NEEDS_LIBRARY
def test_long_values_are_not_held_for_their_bounds(tmp_path: Path) -> None:
    """Of values of 1 MB nothing is held once their row group is written."""
    schema = pa.schema([("text", pa.string())])
    one = pa.record_batch([pa.array(["x" * 1_000_000])], schema=schema)
    changes = {"encoder": "native", "format": ParquetFormat(row_group_rows=1)}
    writer = ParquetWriter(spec(tmp_path, **changes), schema, "t")
    tracemalloc.start()
    try:
        for _ in range(50):
            writer.write(one)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    (file,) = writer.close()
    assert is_native((tmp_path / file.path).read_bytes())
    assert held < 1_000_000


@NEEDS_LIBRARY
def test_page_index_leads_to_the_pages(tmp_path: Path) -> None:
    """Readers that skip pages by the index find just the rows they look for."""
    rows = 600_000
    table = pa.table({"id": range(rows), "text": [f"{row:030d}" for row in range(rows)]})
    (path,) = write(tmp_path, table, encoder="native", format=ParquetFormat(dictionary=False))
    for low in (0, 70_001, 130_000, rows - 1):
        wanted = [{"id": low, "text": f"{low:030d}"}]
        for column, value in (("id", low), ("text", f"{low:030d}")):
            found = polars.scan_parquet(path).filter(polars.col(column) == value).collect()
            assert found.to_dicts() == wanted
            assert pq.read_table(path, filters=[(column, "==", value)]).to_pylist() == wanted


@NEEDS_LIBRARY
@pytest.mark.parametrize(
    "array",
    [
        pa.array([1, 2**62], pa.int64()).view(pa.timestamp("s")),
        pa.array([1, 2**30], pa.int32()).view(pa.time32("s")),
    ],
    ids=["timestamp", "time"],
)
def test_a_value_that_does_not_fit_is_refused(tmp_path: Path, array: pa.Array) -> None:
    """It is named by its column; nothing is written that is another value, and nothing is left."""
    table = pa.table({"fine": [1, 2], "when": array})
    with pytest.raises(ValueNotRepresentable, match=r"'when'.*Next: "):
        write(tmp_path, table, encoder="native")
    assert not list(tmp_path.iterdir())


@NEEDS_LIBRARY
def test_a_decimal_of_too_many_digits_is_refused(tmp_path: Path) -> None:
    """Its low digits alone would be another number."""
    data = pa.py_buffer((2**100).to_bytes(16, "little"))
    for kind in (pa.decimal128(9, 0), pa.decimal128(18, 2), pa.decimal128(19, 0)):
        array = pa.Array.from_buffers(kind, 1, [None, data])
        with pytest.raises(ValueNotRepresentable, match=r"'d'.*Next: "):
            write(tmp_path, pa.table({"d": array}), encoder="native")
        assert not list(tmp_path.iterdir())


@NEEDS_LIBRARY
def test_what_the_library_does_not_know_is_left_to_arrow(tmp_path: Path) -> None:
    """One column of another kind, or an option of another kind, and pyarrow writes the file."""
    table = reference_rows(50)
    nested = table.append_column("list", pa.array([[1]] * 50))
    for changes, rows in (
        ({}, nested),
        ({"format": ParquetFormat(version="2.4")}, table),
        ({"format": ParquetFormat(data_page_version="2.0")}, table),
        ({"format": ParquetFormat(bloom_filters=("name",))}, table),
        ({"encoder": "plain"}, table),
    ):
        (path,) = write(tmp_path, rows, **changes)  # type: ignore[arg-type]
        assert not is_native(path.read_bytes())
        assert pq.read_table(path).equals(rows)
    (path,) = write(tmp_path, table)
    assert is_native(path.read_bytes())


ANOTHER_BUILD = pytest.mark.skipif(
    library.OVERRIDE in os.environ, reason="another build of the library is under test"
)


@ANOTHER_BUILD
def test_without_the_library_files_are_arrows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are written all the same; a request for the native encoder names the missing library."""
    monkeypatch.setenv(library.OVERRIDE, str(tmp_path / "none.so"))
    library.library.cache_clear()
    try:
        rows = reference_rows(100)
        writer = ParquetWriter(spec(tmp_path), rows.schema, "t")
        writer.write(rows.to_batches()[0])
        (file,) = writer.close()
        assert file.rows == 100
        with pytest.raises(FormatError, match=r"cannot be loaded.*Next: .*--encoder plain"):
            ParquetWriter(spec(tmp_path, encoder="native"), rows.schema, "u")
    finally:
        library.library.cache_clear()


@ANOTHER_BUILD  # Sanitizers keep freed memory back.
@NEEDS_LIBRARY
def test_pages_that_are_held_keep_their_memory_and_others_give_it_back() -> None:
    """Neither more pages nor the end of their encoder touch what someone holds."""

    def pages_of(first: int) -> list[Page]:
        batch = pa.RecordBatch.from_pydict({"k": pa.array(range(first, first + 600_000))})
        common = prepared(batch.schema, ParquetFormat())
        assert common is not None
        encoder = PageEncoder(common.forms, [Encoding.PLAIN], page_bytes=1 << 20, bounds=True)
        return [*encoder.append(batch), *encoder.finish()]

    held = pages_of(0)
    content = [page.data.to_pybytes() for page in held]
    places = {page.data.address for page in held}
    others = pages_of(10**12)
    assert [page.data.to_pybytes() for page in held] == content
    assert not places & {page.data.address for page in others}
    del held
    assert {page.data.address for page in pages_of(10**15)} <= places
    assert others[-1].data.to_pybytes()[-8:] == (10**12 + 599_999).to_bytes(8, "little")


def chunks(path: Path) -> dict[str, Any]:
    """Return the metadata of each column of the first row group."""
    group = pq.read_metadata(path).row_group(0)
    return {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}


def test_columns_are_encoded_by_their_values(tmp_path: Path) -> None:
    """Repeating values get a dictionary, others a delta encoding, floating point stays plain."""
    (path,) = write(tmp_path, reference_rows(5000))
    group = pq.read_metadata(path).row_group(0)
    encodings = [set(group.column(i).encodings) for i in range(5)]
    assert encodings[0] == {"RLE", "DELTA_BYTE_ARRAY"}
    assert encodings[1] == encodings[2] == {"RLE", "DELTA_BINARY_PACKED"}
    assert "RLE_DICTIONARY" in encodings[3]
    assert encodings[4] == {"RLE", "PLAIN"}


def test_file_is_smaller_than_with_arrow_defaults(tmp_path: Path) -> None:
    """On rows like a real table's our choices beat pyarrow's own, at the same codec."""
    table = reference_rows(20_000)
    (path,) = write(tmp_path, table)
    pq.write_table(table, tmp_path / "plain.parquet", compression="zstd")
    assert path.stat().st_size < 0.95 * (tmp_path / "plain.parquet").stat().st_size


def many_rows() -> pa.Table:
    """Return enough rows for a trial, in columns that want different things."""
    chance = random.Random(11)
    rows = 70_000
    cents = [Decimal(chance.randrange(10**8)) / 100 for _ in range(rows)]
    return pa.table(
        {
            "paths": sorted(
                f"/data/sales/{chance.randrange(10**9):09d}/part-{chance.randrange(10**6)}"
                for _ in range(rows)
            ),
            "words": [chance.randbytes(6).hex() for _ in range(rows)],
            "cents": pa.array(cents, pa.decimal128(12, 2)),
            "serial": range(rows),
            "days": pa.array([number // 300 for number in range(rows)], pa.int32()),
            "far": pa.array([chance.choice((1, 10**17)) for _ in range(rows)], pa.int64()),
            "price": [chance.randrange(10**6) / 100 for _ in range(rows)],
        }
    )


@pytest.fixture(scope="module")
def tried() -> pa.Table:
    """Return those rows, made once."""
    return many_rows()


def test_trial_finds_what_the_types_do_not_tell(tmp_path: Path, tried: pa.Table) -> None:
    """Text has prefixes taken out where that is smaller; packed numbers have no codec behind.

    Lengths as deltas would be smaller yet: Spark up to 4.0.0 reads wrong text from them.
    """
    (path,) = write(tmp_path, tried, 30_000)
    found = chunks(path)
    assert "DELTA_BYTE_ARRAY" in found["paths"].encodings
    assert not any("DELTA_LENGTH_BYTE_ARRAY" in each.encodings for each in found.values())
    assert found["words"].compression == "ZSTD"
    assert "DELTA_BINARY_PACKED" in found["cents"].encodings
    assert found["cents"].compression == "UNCOMPRESSED"
    assert found["cents"].physical_type == "INT64"
    assert "RLE_DICTIONARY" in found["far"].encodings
    assert found["price"].compression == "ZSTD"
    assert pq.read_table(path).equals(tried)
    assert read_duckdb([path]).cast(tried.schema).equals(tried)


def test_byte_stream_split_is_for_those_who_ask(tmp_path: Path, tried: pa.Table) -> None:
    """Floating point goes byte by byte where the option allows it, and only there."""
    few = tried.select(["price"])
    sums = pa.table({"price": [number * 0.5 for number in range(70_000)]})
    (path,) = write(tmp_path, sums)
    assert chunks(path)["price"].encodings == ("RLE", "PLAIN")
    plain = path.stat().st_size
    (path,) = write(tmp_path, sums, format=ParquetFormat(byte_stream_split=True))
    assert "BYTE_STREAM_SPLIT" in chunks(path)["price"].encodings
    assert path.stat().st_size < plain / 2
    assert read_duckdb([path]).equals(sums)
    (path,) = write(tmp_path, few, format=ParquetFormat(byte_stream_split=True))
    assert read_duckdb([path]).equals(few)


def test_nested_columns_and_dots_keep_the_codec(tmp_path: Path) -> None:
    """Columns that are not tried are compressed like any other, and none takes another's options."""
    rows, chance = 70_000, random.Random(5)
    table = pa.table(
        {
            "a": pa.array([{"b": "some text"}] * rows),
            "a.b": pa.array(range(rows)),
            "list": pa.array([["x", "y"]] * rows),
            "n": pa.array([chance.randrange(10**12) for _ in range(rows)], pa.int64()),
        }
    )
    (path,) = write(tmp_path, table, rows)
    group = pq.read_metadata(path).row_group(0)
    codecs = [group.column(i).compression for i in range(group.num_columns)]
    assert codecs == ["ZSTD", "ZSTD", "ZSTD", "UNCOMPRESSED"]
    assert pq.ParquetFile(path).read().equals(table)
