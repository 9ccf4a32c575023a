"""Parquet's reference implementation, in Java, reads what our writers have written."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from encoders.parquet_files import write
from witness_clients import Missing, java_reader

from writers.model import Compression, ParquetFormat

ROWS = 2_000

FILES: tuple[tuple[str, str, ParquetFormat], ...] = (
    ("native", "zstd", ParquetFormat()),
    ("native", "snappy", ParquetFormat(byte_stream_split=True)),
    ("native", "gzip", ParquetFormat(dictionary=False, row_group_rows=700)),
    ("native", "lz4", ParquetFormat(statistics=False)),
    ("plain", "none", ParquetFormat(data_page_version="2.0")),
)
"""Encoder, codec and form; each part of the format is in one of them."""

_EXACT = Context(prec=80)
NOT_NATIVE = ["half", "huge"]
"""Columns of types that the native encoder leaves to pyarrow."""

DAY = 86_400
MILLISECONDS, MICROSECONDS, NANOSECONDS = 10**3, 10**6, 10**9


def whole(kind: pa.DataType, low: int, high: int) -> Callable[[random.Random], pa.Array]:
    """Return what makes a column of a type that is a whole number inside, some of them repeated."""

    def column(chance: random.Random) -> pa.Array:
        few = [low, high, 0, *(chance.randint(low, high) for _ in range(20))]
        values = [
            chance.choice(few) if chance.random() < 0.5 else chance.randint(low, high)
            for _ in range(ROWS)
        ]
        inner = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[kind.bit_width]
        return pa.array(values, kind if pa.types.is_integer(kind) else inner).view(kind)

    return column


def decimals(kind: Any) -> Callable[[random.Random], pa.Array]:
    """Return what makes a column of decimals of a type."""
    most = 10**kind.precision - 1
    return lambda chance: pa.array(
        [
            Decimal((number < 0, tuple(map(int, str(abs(number)))), -kind.scale))
            for number in (
                chance.choice((-most, most, chance.randint(-most, most))) for _ in range(ROWS)
            )
        ],
        kind,
    )


def texts(kind: pa.DataType) -> Callable[[random.Random], pa.Array]:
    """Return what makes a column of texts, a few of them again and again."""
    letters = ("a", "é", "日", "😀", " ", "\0", '"')
    return lambda chance: pa.array(
        ["".join(chance.choices(letters, k=chance.randrange(6))) for _ in range(ROWS)], kind
    )


def binaries(kind: pa.DataType, size: int | None) -> Callable[[random.Random], pa.Array]:
    """Return what makes a column of bytes, of one size or of several."""
    return lambda chance: pa.array(
        [chance.randbytes(chance.randrange(40) if size is None else size) for _ in range(ROWS)],
        kind,
    )


COLUMNS: dict[str, Callable[[random.Random], pa.Array]] = {
    "flag": lambda chance: pa.array([chance.random() < 0.5 for _ in range(ROWS)]),
    **{
        f"i{b}": whole(getattr(pa, f"int{b}")(), -(1 << b - 1), (1 << b - 1) - 1)
        for b in (8, 16, 32, 64)
    },
    **{f"u{b}": whole(getattr(pa, f"uint{b}")(), 0, (1 << b) - 1) for b in (8, 16, 32, 64)},
    "half": whole(pa.float16(), -(1 << 15), (1 << 15) - 1),
    "real": whole(pa.float32(), -(1 << 31), (1 << 31) - 1),
    "double": whole(pa.float64(), -(1 << 63), (1 << 63) - 1),
    "day": whole(pa.date32(), -719_162, 2_932_896),
    "t_ms": whole(pa.time32("ms"), 0, DAY * MILLISECONDS - 1),
    "t_us": whole(pa.time64("us"), 0, DAY * MICROSECONDS - 1),
    "ts_ms": whole(
        pa.timestamp("ms"), -719_162 * DAY * MILLISECONDS, 2_932_896 * DAY * MILLISECONDS
    ),
    "ts_us": whole(
        pa.timestamp("us"), -719_162 * DAY * MICROSECONDS, 2_932_896 * DAY * MICROSECONDS
    ),
    "ts_ns": whole(pa.timestamp("ns"), -9 * 10**18, 9 * 10**18),
    "tz_us": whole(pa.timestamp("us", "UTC"), -719_162 * DAY * MICROSECONDS, 10**15),
    "short": decimals(pa.decimal128(5, 2)),
    "mid": decimals(pa.decimal128(18, 4)),
    "long": decimals(pa.decimal128(38, 10)),
    "huge": decimals(pa.decimal256(60, 7)),
    "text": texts(pa.string()),
    "large": texts(pa.large_string()),
    "raw": binaries(pa.binary(), None),
    "fixed": binaries(pa.binary(16), 16),
}


def table() -> pa.Table:
    """Return all columns, with NULL in a fifth of the places."""
    chance = random.Random(16)
    found = {}
    for name, make in COLUMNS.items():
        places = [place if chance.random() < 0.8 else None for place in range(ROWS)]
        found[name] = make(chance).take(pa.array(places, pa.int32()))
    return pa.table(found)


def stored(column: pa.ChunkedArray) -> list[str]:
    """Return the values of a column as the reader in Java shows them."""
    kind, values = column.type, column.combine_chunks()
    if pa.types.is_float16(kind):
        numbers = values.view(pa.int16()).to_pylist()
        shown = [
            None if each is None else each.to_bytes(2, "little", signed=True).hex()
            for each in numbers
        ]
    elif pa.types.is_floating(kind) or pa.types.is_temporal(kind):
        shown = values.view(pa.int32() if kind.bit_width == 32 else pa.int64()).to_pylist()
    elif pa.types.is_decimal(kind):
        shown = [
            None if each is None else int(_EXACT.scaleb(each, kind.scale))
            for each in values.to_pylist()
        ]
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        shown = [None if each is None else each.encode().hex() for each in values.to_pylist()]
    elif pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        shown = values.to_pylist()
    else:
        shown = [None if each is None else each.hex() for each in values.to_pylist()]
    return ["null" if each is None else str(each).lower() for each in shown]


@pytest.mark.long("a reader in Java")
def test_java_reads_every_type(tmp_path: Path) -> None:
    """What parquet-java finds in our files is what pyarrow finds there, bit for bit."""
    try:
        reader = java_reader("ReadParquet")
    except Missing as missing:
        pytest.skip(f"no reader of Parquet in Java: {missing}")
    rows, expected = table(), []
    for number, (encoder, codec, form) in enumerate(FILES):
        place = tmp_path / str(number)
        place.mkdir()
        written = rows.drop_columns(NOT_NATIVE) if encoder == "native" else rows
        made = write(
            place, written, encoder=encoder, format=form, compression=Compression(codec=codec)
        )
        for path in made:
            read = pq.read_table(path)
            by = pq.read_metadata(path).created_by
            assert by.startswith("unloader") == (encoder == "native")
            assert read.num_rows == ROWS
            lines = zip(*(stored(column) for column in read.columns), strict=True)
            expected += [f"file {path}", *("|".join(("row", *line)) for line in lines)]
    files = [line.removeprefix("file ") for line in expected if line.startswith("file ")]
    done = subprocess.run(
        [*reader, *files], capture_output=True, text=True, check=False, timeout=170
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == expected
