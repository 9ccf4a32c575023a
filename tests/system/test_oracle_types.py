"""Every type of Oracle, to CSV and Parquet, against the values that were put in."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from long_tests import OTHER_ROUTES, also
from oracle import expected as oracle_expected
from oracle import leg as oracle_leg
from oracle.leg import OracleLeg
from oracle_server.data.tables import Table
from oracle_server.database import Database
from oracle_server.model import Column, Moment, Type
from oracle_server.samples import tables as samples
from processes import command

ROWS = 64
"""Enough for each column to take every one of its values."""
FLOATS = ("BINARY_FLOAT", "BINARY_DOUBLE")
ID = Column(name="ID", type=Type(name="NUMBER", precision=9, scale=0), nullable=False)
LOB_SIZES = (0, 1, 4000, 32_767, 32_768, 32_769, 200_000)

PARQUET_TYPES = {
    "N_9": "int32", "N_18": "int64", "N_38": "decimal128(38, 0)", "N_20_5": "decimal128(20, 5)",
    "N_38_38": "decimal128(38, 38)", "N_3_5": "decimal128(5, 5)", "N_INTEGER": "decimal128(38, 0)",
    "BF": "float", "BD": "double", "B": "bool", "R_16": "binary", "BL": "binary",
    "TL_6": "timestamp[us, tz=UTC]", "TZ_6": "timestamp[us, tz=UTC]",
    "TZ_0": "timestamp[us, tz=UTC]",
    # Parquet has no seconds; milliseconds are its coarsest unit.
    "D": "timestamp[ms]",
    **{f"TS_{digits}": "timestamp[us]" for digits in range(7)},
}  # fmt: skip
"""What docs/types.md says, except for text, which is all the others."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A table's columns and the rows put into it, in the order of ID."""

    leg: OracleLeg
    name: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]


def _sample(leg: OracleLeg, table: Table, database: Database) -> Sample:
    """Put the rows of a sample table into the leg's database, by SQL."""
    rows = [row for segment in table.segments for _, row in segment.view(database.scn).rows()]
    if leg.is_real:
        # Oracle keeps no sign of a binary zero; the test server does.
        rows = [tuple(0.0 if isinstance(v, float) and v == 0 else v for v in row) for row in rows]
    leg.create(table.name, table.columns, rows=rows)
    return Sample(leg, table.name, table.columns, tuple(sorted(rows, key=lambda row: int(row[0]))))


@pytest.fixture(scope="module", params=oracle_leg.legs())
def leg(request: pytest.FixtureRequest) -> Iterator[OracleLeg]:
    """One database for the module."""
    with oracle_leg.opened(request.param) as found:
        yield found


@pytest.fixture(scope="module")
def scratch() -> Database:
    """Where sample tables come from."""
    database = Database()
    database.add_user("SCOTT", "tiger")
    return database


@pytest.fixture(scope="module")
def every_type(leg: OracleLeg, scratch: Database) -> Sample:
    """Hostile values of every type the version has."""
    without = [kind for kind in ("BOOLEAN", "JSON", "VECTOR") if not leg.supports(kind)]
    name = f"TYPES_{len(without)}"
    return _sample(
        leg, samples.types_table(scratch, name=name, rows=ROWS, without=without), scratch
    )


def _unload(leg: OracleLeg, table: str, to: Path, *options: str) -> Path:
    """Unload into one file and return it."""
    command.run(
        "run", leg.url, "--table", table, "--to", str(to), "--file-per", "table",
        "--progress", "none", *options, env=leg.environment,
    )  # fmt: skip
    (file,) = (entry for entry in to.iterdir() if entry.suffix in (".csv", ".parquet"))
    return file


def _csv(file: Path) -> tuple[list[str | None], list[list[str | None]]]:
    """Return header and records in the order of the first column."""
    header, *records = oracle_expected.csv_records(file.read_bytes().decode())
    return header, sorted(records, key=lambda record: int(record[0] or 0))


def _texts(values: Sequence[str | None], kind: Type, *, is_real: bool) -> list[Any]:
    if kind.name in FLOATS:
        return [None if text is None else oracle_expected.float_form(text, kind) for text in values]
    if is_real and "TIME ZONE" in kind.name:
        return [None if text is None else text.casefold() for text in values]
    return list(values)


def _wanted_texts(values: Sequence[Any], kind: Type, *, is_real: bool) -> list[Any]:
    if kind.name in FLOATS:
        return [
            None if value is None else oracle_expected.float_form(value, kind) for value in values
        ]
    texts = [oracle_expected.csv_text(value, kind) for value in values]
    return _texts(texts, kind, is_real=is_real)


def _check_csv(sample: Sample, file: Path) -> None:
    """Compare a CSV file with the rows put in, column by column."""
    header, records = _csv(file)
    assert header == [column.name for column in sample.columns]
    assert len(records) == len(sample.rows)
    for place, column in enumerate(sample.columns):
        got = [record[place] for record in records]
        wanted = [row[place] for row in sample.rows]
        real = sample.leg.is_real
        assert _texts(got, column.type, is_real=real) == _wanted_texts(
            wanted, column.type, is_real=real
        ), column.name


def _check_array(column: Column, array: pa.Array, values: Sequence[Any], *, real: bool) -> None:
    """Compare a column of a Parquet file with the values put in."""
    kind = array.type
    if pa.types.is_string(kind):
        texts = array.to_pylist()
        if "TIME ZONE" in column.type.name:
            texts = [None if text is None else oracle_expected.closed_up(text) for text in texts]
        got: list[Any] = _texts(texts, column.type, is_real=real)
        wanted: list[Any] = _wanted_texts(values, column.type, is_real=real)
    else:
        got = oracle_expected.plain(array)
        wanted = [oracle_expected.expected(column, kind, _plain(value)) for value in values]
    assert got == wanted, column.name


def _plain(value: Any) -> Any:
    return value.read(0, value.length) if hasattr(value, "read") else value


def _check_parquet(sample: Sample, file: Path, types: dict[str, str]) -> None:
    """Compare a Parquet file with the rows put in, and its types with the published ones."""
    table = pq.read_table(file).sort_by(sample.columns[0].name)
    assert table.column_names == [column.name for column in sample.columns]
    for place, column in enumerate(sample.columns):
        array = table.column(place).combine_chunks()
        if place:
            assert str(array.type) == types.get(column.name, "string"), column.name
        values = [row[place] for row in sample.rows]
        _check_array(column, array, values, real=sample.leg.is_real)


@pytest.mark.parametrize("fetch", ["arrow", "native", *also(OTHER_ROUTES, "tuples")])
def test_every_type_in_csv(every_type: Sample, tmp_path: Path, fetch: str) -> None:
    """Each value of each type has its published text, by either way of fetching."""
    file = _unload(every_type.leg, every_type.name, tmp_path / "out", "--fetch", fetch)
    _check_csv(every_type, file)


@pytest.mark.parametrize("fetch", ["arrow", "native", *also(OTHER_ROUTES, "tuples")])
def test_every_type_in_parquet(every_type: Sample, tmp_path: Path, fetch: str) -> None:
    """Each value of each type is exact in the published Parquet type, by either way of fetching."""
    file = _unload(
        every_type.leg, every_type.name, tmp_path / "out", "--fetch", fetch, "--format", "parquet"
    )
    _check_parquet(every_type, file, PARQUET_TYPES)


def test_every_type_as_text_in_parquet(every_type: Sample, tmp_path: Path) -> None:
    """With --as-text the columns asked for are strings of the same exact text as in CSV."""
    asked = [
        column.name
        for column in every_type.columns[1:]
        if column.type.name not in ("BLOB", "RAW") and "LOCAL" not in column.type.name
    ]
    file = _unload(
        every_type.leg, every_type.name, tmp_path / "out", "--format", "parquet",
        "--as-text", ",".join(asked),
    )  # fmt: skip
    table = pq.read_table(file).sort_by("ID")
    for place, column in enumerate(every_type.columns):
        if column.name not in asked:
            continue
        array = table.column(place).combine_chunks()
        assert str(array.type) == "string", column.name
        got: list[str | None] = array.to_pylist()
        values = [row[place] for row in every_type.rows]
        if column.type.name == "NUMBER":
            # As text a number has no zeros at its end.
            free = [oracle_expected.csv_text(value, Type(name="NUMBER")) for value in values]
            assert got == free, column.name
        else:
            _check_array(column, array, values, real=every_type.leg.is_real)


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.oracle_modes("19c")
def test_every_type_of_an_older_server(
    oracle: OracleLeg, scratch: Database, tmp_path: Path
) -> None:
    """A server that speaks an older protocol gives the same values."""
    without = [kind for kind in ("BOOLEAN", "JSON", "VECTOR") if not oracle.supports(kind)]
    table = samples.types_table(scratch, name="OLDER", rows=ROWS, without=without)
    sample = _sample(oracle, table, scratch)
    _check_csv(sample, _unload(oracle, "OLDER", tmp_path / "csv"))
    parquet = _unload(oracle, "OLDER", tmp_path / "parquet", "--format", "parquet")
    _check_parquet(sample, parquet, PARQUET_TYPES)


@pytest.mark.parametrize(
    ("kind", "format"),
    [("LONG", "csv"), ("LONG RAW", "parquet"), *also(OTHER_ROUTES, ("LONG RAW", "csv"))],
)
def test_longs(leg: OracleLeg, scratch: Database, tmp_path: Path, kind: str, format: str) -> None:
    """LONG and LONG RAW come out whole, however long they are."""
    name = f"{kind.replace(' ', '_')}_TABLE"
    if ("SCOTT", name) not in scratch.catalog.tables:
        samples.long_tables(scratch)
    sample = _sample(leg, scratch.table("SCOTT", name), scratch)
    file = _unload(leg, name, tmp_path / "out", "--format", format)
    if format == "csv":
        _check_csv(sample, file)
    else:
        _check_parquet(sample, file, {"LR": "binary"})
    leg.drop(name)


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_lobs(leg: OracleLeg, scratch: Database, tmp_path: Path, format: str) -> None:
    """LOBs of every size around the inline limit are whole; an empty one is not NULL."""
    name = f"LOBS_{format.upper()}_{leg.version[0]}"
    sample = _sample(leg, samples.lob_table(scratch, LOB_SIZES, name=name), scratch)
    file = _unload(leg, name, tmp_path / "out", "--format", format)
    if format == "csv":
        _check_csv(sample, file)
    else:
        _check_parquet(sample, file, {"B": "binary"})


def test_zone_columns(every_type: Sample, tmp_path: Path) -> None:
    """--zone-columns adds the offset or region that the instant alone does not have."""
    place = [column.name for column in every_type.columns].index("TZ_6")
    file = _unload(
        every_type.leg, every_type.name, tmp_path / "out", "--format", "parquet",
        "--zone-columns", "--columns", "ID,TZ_6",
    )  # fmt: skip
    table = pq.read_table(file).sort_by("ID")
    assert table.column_names == ["ID", "TZ_6", "TZ_6_zone"]
    values = [row[place] for row in every_type.rows]
    array = table.column("TZ_6").combine_chunks()
    real = every_type.leg.is_real
    _check_array(every_type.columns[place], array, values, real=real)
    got = table.column("TZ_6_zone").to_pylist()
    wanted = [None if value is None else value.zone for value in values]
    fold = str.casefold if real else str
    assert [zone and fold(zone) for zone in got] == [zone and fold(zone) for zone in wanted]


def test_masks(every_type: Sample, tmp_path: Path) -> None:
    """Dates and timestamps follow the masks that are given, for typed and textual values."""
    file = _unload(
        every_type.leg, every_type.name, tmp_path / "out", "--columns", "ID,D,TS_6,TS_9,TZ_9",
        "--timestamp-format", 'DD.MM.YYYY"T"HH24MISSFF9',
        "--timestamp-tz-format", "YYYYMMDDHH24MISS.FF9TZH:TZM",
    )  # fmt: skip
    _, records = _csv(file)
    names = [column.name for column in every_type.columns]
    for at, name in enumerate(("D", "TS_6", "TS_9", "TZ_9"), 1):
        values = [row[names.index(name)] for row in every_type.rows]
        wanted = [None if value is None else _masked(value) for value in values]
        assert [record[at] for record in records] == wanted, name


def _masked(m: Moment) -> str:
    clock = f"{m.hour:02d}{m.minute:02d}{m.second:02d}"
    if m.zone is None:
        return f"{m.day:02d}.{m.month:02d}.{m.year:04d}T{clock}{m.nanos:09d}"
    seconds = oracle_expected.offset_seconds(m)
    sign = "-" if math.copysign(1, seconds) < 0 else "+"
    minutes = abs(seconds) // 60
    offset = f"{sign}{minutes // 60:02d}:{minutes % 60:02d}"
    return f"{m.year:04d}{m.month:02d}{m.day:02d}{clock}.{m.nanos:09d}{offset}"
