#!/usr/bin/env python3
"""CPU of the writers beside other libraries with the same rows in memory, on one core.

    python examples/bench_writers.py --rows 1000000 --runs 5

The table is the reference table (ten columns, 165 bytes a record in `sqlldr-var`), with the types
that the Oracle source gives them, in batches as a worker gets them; polars and DuckDB get them in
their own memory format first. Text goes to /dev/null, so that only the encoding is compared. Ours
goes through the overlapped sink and its checksum, theirs through their own writers. Parquet goes to
files, whose sizes are compared, too. Ours:

  reference          dialect `sqlldr-var`
  minimal            dialect `rfc4180`
  plain              dialect `sqlldr-var` by the plain encoder
  parquet            zstd, all defaults

Theirs:

  write_csv          pyarrow.csv in its own dialect
  compute            the reference dialect by pyarrow.compute: dates by integer arithmetic, one
                     join, no escaping
  polars             write_csv, as near to the reference dialect as it comes
  duckdb             COPY, as near to the reference dialect as it comes
  parquet_pyarrow    the settings of pyarrow that were found best for each column, zstd
  parquet_duckdb     COPY, zstd; parquet_duckdb_v2 with PARQUET_VERSION v2

CPU is user and system time of this process, all threads, bound to one core. A round runs all of
them in turn, every other round the other way about. Ratios are taken within a round, theirs over
ours, and the median over the rounds counts: `write_csv`, `compute`, `polars` and `duckdb` against
`reference`, `write_csv_minimal` is write_csv against `minimal`, `parquet` is pyarrow against ours.
`parquet_size_vs_duckdb` is our size over the smaller of DuckDB's.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from progress import say

from unloader.sources.duckdb.reference import build_reference_table
from writers.files.sink import Sink
from writers.model import Compression, OutputSpec, ParquetFormat, TextFormat
from writers.registry import open_writer
from writers.text.dialects import dialect
from writers.text.text_writer import encode_into, open_encoder

TABLE = "HASH_PART_0160"
BATCH_ROWS = 16_384
"""About what a worker's batches have with the default --fetch-memory."""
KINDS = (
    pa.string(), pa.timestamp("s"), pa.int64(), pa.string(), pa.decimal128(12, 2),
    pa.timestamp("s"), pa.string(), pa.string(), pa.int64(), pa.string(),
)  # fmt: skip
Contender = Callable[[], None]


def main() -> None:
    """Measure and print."""
    options = parsed()
    cpu = min(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpu})
    pa.set_cpu_count(1)
    with tempfile.TemporaryDirectory(prefix="unloader-bench-") as place:
        report = measure(options, Path(place))
    print(json.dumps(report, indent=1) if options.json else table_of(report))


def parsed() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000, help="default: 1000000")
    parser.add_argument("--runs", type=int, default=5, help="rounds; default: 5")
    parser.add_argument("--only", action="append", help="only this contender; can be repeated")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser.parse_args()


def measure(options: argparse.Namespace, place: Path) -> dict[str, Any]:
    """Run all contenders round after round; the round before the first is not counted."""
    rows = reference_rows(options.rows, place)
    check_text(rows)
    contenders = {**ours(rows, place), **theirs(rows, place), **from_duckdb(rows, place)}
    names = [name for name in contenders if not options.only or name in options.only]
    taken: dict[str, list[float]] = {name: [] for name in names}
    for number in range(options.runs + 1):
        for name in names if number % 2 else names[::-1]:
            started = time.process_time()
            contenders[name]()
            used = (time.process_time() - started) * 1e6 / options.rows
            say(f"{'warm-up' if not number else f'round {number}'}: {name} {used:.3f}")
            if number:
                taken[name].append(used)
    check_parquet(rows, place)
    return {
        "ratios": ratios(taken, place),
        "cpu_s_per_million_rows": {
            name: round(statistics.median(each), 3) for name, each in taken.items()
        },
        "runs": {name: [round(value, 3) for value in each] for name, each in taken.items()},
        "parquet_bytes": {
            path.stem: path.stat().st_size for path in sorted(place.glob("*.parquet"))
        },
        "rows": options.rows,
        "encoder": encoder_in_use(rows.schema),
        "machine": {"system": platform.platform(), "cpus_used": 1},
        "versions": versions(),
    }


def ratios(taken: dict[str, list[float]], place: Path) -> dict[str, float]:
    """Return the medians of the ratios within each round, and the ratio of the sizes."""
    pairs = [(name, name, "reference") for name in ("write_csv", "compute", "polars", "duckdb")]
    pairs += [("write_csv_minimal", "write_csv", "minimal"), ("plain", "plain", "reference")]
    pairs += [("parquet", "parquet_pyarrow", "parquet")]
    found = {
        label: round(
            statistics.median(a / b for a, b in zip(taken[other], taken[mine], strict=True)), 3
        )
        for label, other, mine in pairs
        if other in taken and mine in taken
    }
    sizes = {path.stem: path.stat().st_size for path in place.glob("*.parquet")}
    duckdb = [size for name, size in sizes.items() if name.startswith("parquet_duckdb")]
    if duckdb and "parquet" in sizes:
        found["parquet_size_vs_duckdb"] = round(sizes["parquet"] / min(duckdb), 3)
    return found


def reference_rows(rows: int, place: Path) -> pa.Table:
    """Return the reference table's rows as the Oracle source types them."""
    import duckdb

    path = place / "reference.duckdb"
    build_reference_table(path, rows, table=TABLE, stop=lambda: False)
    with duckdb.connect(str(path), read_only=True) as database:
        found = database.sql(f'FROM "{TABLE}"').to_arrow_table()
    kinds = pa.schema(list(zip(found.schema.names, KINDS, strict=True)))
    batches = found.cast(kinds).combine_chunks().to_batches(max_chunksize=BATCH_ROWS)
    # Separate buffers: a worker does not get slices of one large buffer.
    return pa.Table.from_batches([pa.concat_batches([batch]) for batch in batches])


def ours(rows: pa.Table, place: Path) -> dict[str, Contender]:
    """Return our writers."""

    def text(name: str, choice: str) -> Contender:
        return lambda: write_text(rows, dialect(name), choice)

    return {
        "reference": text("sqlldr-var", "auto"),
        "minimal": text("rfc4180", "auto"),
        "plain": text("sqlldr-var", "plain"),
        "parquet": lambda: write_parquet(rows, place),
    }


def write_text(rows: pa.Table, text_format: TextFormat, choice: str) -> None:
    """Encode into the buffers of a sink, as `writers.text.text_writer` does."""
    encoder = open_encoder(rows.schema, text_format, choice)
    sink = Sink(os.devnull, compression=Compression(), buffer_bytes=4 << 20, buffers=4)
    sink.write(encoder.preamble() + encoder.header())
    for batch in rows.to_batches():
        encode_into(sink, encoder, batch)
    sink.close()


def check_text(rows: pa.Table) -> None:
    """End the bench if the two encoders or pyarrow.compute disagree about a byte."""
    text_format = dialect("sqlldr-var")
    native, plain = (open_encoder(rows.schema, text_format, each) for each in ("auto", "plain"))
    for batch in rows.to_batches():
        made = bytes(plain.encode(batch))
        if made != bytes(native.encode(batch)) or made != bytes(joined_records(batch)):
            raise SystemExit("the encoders do not write the same bytes; nothing was measured")


def check_parquet(rows: pa.Table, place: Path) -> None:
    """End the bench if a Parquet file of ours does not hold the rows."""
    path = place / "parquet.parquet"
    if path.exists() and not pq.read_table(path).cast(rows.schema).equals(rows):
        raise SystemExit("our Parquet file has other rows; the figures are not valid")


def write_parquet(rows: pa.Table, place: Path) -> None:
    """Write with the product's defaults."""
    spec = OutputSpec(
        directory=str(place), format=ParquetFormat(), compression=Compression(codec="zstd")
    )
    writer = open_writer(spec, rows.schema, "ours")
    for batch in rows.to_batches():
        writer.write(batch)
    (file,) = writer.close()
    (place / file.path).replace(place / "parquet.parquet")


def theirs(rows: pa.Table, place: Path) -> dict[str, Contender]:
    """Return the other libraries, except DuckDB."""
    # Read when it is first imported.
    os.environ["POLARS_MAX_THREADS"] = "1"
    import polars

    frame = polars.from_arrow(rows)
    return {
        "write_csv": lambda: pyarrow.csv.write_csv(rows, os.devnull),
        "compute": lambda: write_compute(rows),
        "polars": lambda: frame.write_csv(
            os.devnull,
            include_header=False,
            line_terminator="\r\n",
            quote_char="~",
            quote_style="non_numeric",
            datetime_format="%Y%m%d%H%M%S",
        ),
        "parquet_pyarrow": lambda: pq.write_table(
            rows, place / "parquet_pyarrow.parquet", **best_parquet(rows.schema)
        ),
    }


def write_compute(rows: pa.Table) -> None:
    """Make the reference dialect's records with one join a batch and no escaping."""
    with open(os.devnull, "wb") as null:
        for batch in rows.to_batches():
            null.write(joined_records(batch))


def joined_records(batch: pa.RecordBatch) -> memoryview:
    """Return the records of a batch: `~~text~~,~~YYYYMMDDHH24MISS~~,number,...,` and a length."""
    pieces: list[Any] = []
    length: Any = 0
    before = ""
    for column in batch.columns:
        if pa.types.is_timestamp(column.type):
            texts, marked = digits_of(column), True
        elif pa.types.is_string(column.type):
            texts, marked = column, True
        else:
            texts, marked = column.cast(pa.string()), False
        before += "~~" if marked else ""
        pieces += [before, texts]
        length = pc.add(pc.add(pc.binary_length(texts), len(before)), length)
        before = "~~," if marked else ","
    pieces.append(before + "\r\n")
    length = pc.add(length, len(pieces[-1]))
    prefix = pc.ascii_lpad(length.cast(pa.string()), 10, "0")
    join = [piece if isinstance(piece, pa.Array) else pa.scalar(piece) for piece in pieces]
    records = pc.binary_join_element_wise(prefix, *join, pa.scalar(""))
    return memoryview(records.buffers()[2])


def digits_of(moments: pa.Array) -> pa.Array:
    """Return YYYYMMDDHH24MISS of seconds since 1970, by integer arithmetic (years 1 to 9999)."""
    seconds = moments.cast(pa.int64())
    days = pc.divide(pc.add(seconds, 62_135_596_800), 86_400)
    of_day = pc.subtract(pc.add(seconds, 62_135_596_800), pc.multiply(days, 86_400))
    # Howard Hinnant's civil_from_days; day 0 is 0001-01-01.
    shifted = pc.add(days, 306)
    quarters = pc.add(pc.multiply(shifted, 4), 3)
    century = pc.divide(quarters, 146_097)
    rest = pc.bit_wise_or(pc.subtract(quarters, pc.multiply(century, 146_097)), 3)
    year = pc.divide(rest, 1461)
    day = pc.shift_right(pc.subtract(rest, pc.multiply(year, 1461)), 2)
    month = pc.divide(pc.add(pc.multiply(day, 5), 2), 153)
    of_month = pc.add(pc.subtract(day, pc.divide(pc.add(pc.multiply(month, 153), 2), 5)), 1)
    late = pc.cast(pc.greater_equal(month, 10), pa.int64())
    years = pc.add(pc.add(pc.multiply(century, 100), year), late)
    months = pc.subtract(pc.add(month, 3), pc.multiply(late, 12))
    minutes = pc.divide(of_day, 60)
    hours = pc.divide(minutes, 60)
    number = pc.add(pc.multiply(years, 10_000_000_000), pc.multiply(months, 100_000_000))
    number = pc.add(number, pc.multiply(of_month, 1_000_000))
    number = pc.add(number, pc.multiply(hours, 10_000))
    number = pc.add(number, pc.multiply(pc.subtract(minutes, pc.multiply(hours, 60)), 100))
    number = pc.add(number, pc.subtract(of_day, pc.multiply(minutes, 60)))
    return pc.ascii_lpad(number.cast(pa.string()), 14, "0")


def best_parquet(schema: pa.Schema) -> dict[str, Any]:
    """Return the options of pyarrow that were found best for these columns."""
    texts = [field.name for field in schema if pa.types.is_string(field.type)]
    encodings = dict.fromkeys(schema.names, "DELTA_BINARY_PACKED")
    return {
        "column_encoding": encodings | dict.fromkeys(texts, "DELTA_LENGTH_BYTE_ARRAY"),
        "use_dictionary": False,
        # Codecs gain nothing on packed numbers.
        "compression": dict.fromkeys(schema.names, "none") | dict.fromkeys(texts, "zstd"),
        "compression_level": dict.fromkeys(texts, 1),
        "store_decimal_as_integer": True,
        "write_page_index": True,
        "data_page_size": 2 << 20,
        "row_group_size": 284_000,
    }


def from_duckdb(rows: pa.Table, place: Path) -> dict[str, Contender]:
    """Return DuckDB's COPY from a table in its own memory, one thread."""
    import duckdb

    database = duckdb.connect()
    database.execute("SET threads = 1")
    database.register("rows_in_arrow", rows)
    database.execute("CREATE TABLE reference AS SELECT * FROM rows_in_arrow")
    database.unregister("rows_in_arrow")

    def copy(to: str, how: str) -> Contender:
        return lambda: database.execute(f"COPY reference TO '{to}' ({how})") and None

    text = "FORMAT csv, HEADER false, QUOTE '~', FORCE_QUOTE *, TIMESTAMPFORMAT '%Y%m%d%H%M%S'"
    parquet = "FORMAT parquet, COMPRESSION zstd"
    return {
        "duckdb": copy(os.devnull, text),
        "parquet_duckdb": copy(str(place / "parquet_duckdb.parquet"), parquet),
        "parquet_duckdb_v2": copy(
            str(place / "parquet_duckdb_v2.parquet"), f"{parquet}, PARQUET_VERSION v2"
        ),
    }


def encoder_in_use(schema: pa.Schema) -> str:
    """Return the class of the text encoder that `auto` gives here."""
    return type(open_encoder(schema, dialect("sqlldr-var"), "auto")).__name__


def versions() -> dict[str, str]:
    """Return the versions of what took part."""
    from importlib.metadata import version

    return {"python": platform.python_version()} | {
        name: version(name) for name in ("pyarrow", "polars", "duckdb")
    }


def table_of(report: dict[str, Any]) -> str:
    """Return the report as text."""
    lines = [f"{'by':<20}{'CPU s per million rows':>24}"]
    lines += [f"{name:<20}{cpu:>24.3f}" for name, cpu in report["cpu_s_per_million_rows"].items()]
    lines.append("\ntheirs over ours, median of the rounds:")
    lines += [f"{name:<32}{ratio:>8.3f}" for name, ratio in report["ratios"].items()]
    lines += [f"\n{report[name]}" for name in ("parquet_bytes", "encoder", "machine", "versions")]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
