"""One work unit into staged files: a scan that feeds two outputs equals two scans."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import closing
from copy import copy
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from partition_planner.model import Piece, PlanLimits, TableInfo
from partition_planner.planner import plan
from unloader.events import UnitAdvanced
from unloader.model import (
    Extract,
    OutputTask,
    Projection,
    ReadColumn,
    SourceSpec,
    UnitResult,
    UnitTask,
)
from unloader.request.names import parse_table
from unloader.sources.base import Reader
from unloader.sources.questions import project
from unloader.sources.readings import OutputNeeds
from unloader.sources.registry import source_of
from unloader.worker.outputs import columns_of
from unloader.worker.process import release, run_unit
from unloader.worker.unit import RowEstimate, copy_unit
from writers.large_rows import LargeRow, LargeValue
from writers.model import Compression, OutputSpec, ParquetFormat, TextFormat
from writers.schema import schema_text

FORMATS = (TextFormat(), ParquetFormat())
NEEDS = (OutputNeeds(text=TextFormat(), batches_only=True), OutputNeeds(text=None))
TABLE = TableInfo(schema=None, name="t", columns=(), named_partitions=False, row_ranges=False)


def silent(progress: UnitAdvanced) -> None:
    """Take a report of progress."""


def task_of(extract: Extract, folder: Path, *formats: TextFormat | ParquetFormat) -> UnitTask:
    """Return the task that reads a whole table into files of these formats, one stem for each."""
    folder.mkdir()
    (unit,) = plan(extract.table, PlanLimits(parallelism=1, split="none")).units
    outputs = tuple(
        OutputTask(
            spec=OutputSpec(directory=str(folder), format=each, compression=Compression()),
            stem=type(each).__name__,
            number=number,
        )
        for number, each in enumerate(formats)
    )
    return UnitTask(unit=unit, attempt=1, extract=extract, outputs=outputs, fetch_bytes=1 << 20)


def text_of(folder: Path) -> bytes:
    """Return the one text file of a folder."""
    (path,) = folder.glob("TextFormat*")
    return path.read_bytes()


def parquet_of(folder: Path) -> pa.Table:
    """Return the one Parquet file of a folder as a table."""
    (path,) = folder.glob("ParquetFormat*")
    return pq.read_table(path)


def test_tasks_of_one_run_hold_one_extract_where_they_are_read(tmp_path: Path) -> None:
    """A worker receives each extract as it was sent, also after one of another table."""
    first, second = (
        Extract(
            source=SourceSpec(kind="duckdb", location=f"{tmp_path}/{name}"),
            snapshot=None,
            table=TABLE,
            query=None,
            where=None,
            projection=Projection(columns=(), route="arrow", schema=""),
        )
        for name in ("first", "second")
    )
    sent = [task_of(each, tmp_path / str(n)) for n, each in enumerate((first, second, first))]
    before, between, after = (pickle.loads(pickle.dumps(task)) for task in sent)
    assert [before, between, after] == sent
    assert before.extract is after.extract
    assert copy(first) == first


def test_two_outputs_of_one_scan_equal_two_scans(tmp_path: Path) -> None:
    """A column that CSV and Parquet read in two ways is in each file as from a separate scan."""
    url = f"duckdb:///{tmp_path / 'db'}"
    with duckdb.connect(str(tmp_path / "db")) as database:
        database.execute(
            "CREATE TABLE t AS SELECT i AS k, i * 1.5::DOUBLE AS d, i % 2 = 0 AS flag, "
            "TIMESTAMP '2024-02-29 12:00:00' + to_days(i::INT) AS at, 'text ' || i AS s, "
            "(i * 7)::HUGEINT AS h, TIMESTAMPTZ '2024-02-29 12:00:00+01' AS z "
            "FROM range(1000) r(i)"
        )
    spec = SourceSpec(kind="duckdb", location=url)
    with closing(source_of("duckdb").open_catalog(spec)) as catalog:
        table = catalog.describe(parse_table("t"))

        def extract(*needs: OutputNeeds) -> Extract:
            projection = project(catalog, table, None, needs)
            return Extract(
                source=spec,
                snapshot=None,
                table=table,
                query=None,
                where=None,
                projection=projection,
            )

        tasks = [
            task_of(extract(*NEEDS), tmp_path / "both", *FORMATS),
            task_of(extract(NEEDS[0]), tmp_path / "csv", FORMATS[0]),
            task_of(extract(NEEDS[1]), tmp_path / "parquet", FORMATS[1]),
        ]
    taken = tasks[0].extract.projection.outputs
    assert taken[0] != taken[1], "the two outputs share all columns, so this shows nothing"
    results = [run_unit(task, silent) for task in tasks]
    release()
    assert [each.rows for each in results if isinstance(each, UnitResult)] == [1000] * 3
    assert text_of(tmp_path / "both") == text_of(tmp_path / "csv")
    assert parquet_of(tmp_path / "both").equals(
        parquet_of(tmp_path / "parquet"), check_metadata=True
    )


@dataclass(frozen=True, kw_only=True)
class Pieces:
    """A large text in two pieces."""

    text: str
    binary: bool = False

    def pieces(self) -> Iterator[str]:
        """Yield its halves."""
        yield self.text[:2]
        yield self.text[2:]


ROWS = pa.record_batch({"n": [1, 2], "s": ["one", "two"], "l": ["x", "y"]})
WIDE = pa.record_batch({"n": [3], "s": ["three"], "l": pa.array([None], pa.string())})


class ThreeColumns(Reader):
    """A reader of the columns n, s and l; l is large in one row."""

    def batches(
        self, extract: Extract, piece: Piece, *, batch_bytes: int
    ) -> Iterator[pa.RecordBatch | LargeRow]:
        """Yield the columns that the extract names, in its order."""
        names = [each.expression for each in extract.projection.columns]
        values: list[tuple[int, LargeValue]] = [
            (at, Pieces(text="large")) for at, name in enumerate(names) if name == "l"
        ]
        yield ROWS.select(names)
        wide = WIDE.select(names)
        yield LargeRow(row=wide, values=tuple(values)) if values else wide
        yield ROWS.select(names)

    def cancel(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def reading(names: str, outputs: tuple[tuple[int, ...], ...] = ()) -> Extract:
    """Return what reads columns of `ThreeColumns` for these outputs."""
    columns = tuple(
        ReadColumn(
            name=name,
            source_type="T",
            expression=name,
            output_type=str(ROWS.schema.field(name).type),
            nullable=None,
            lossless=True,
        )
        for name in names
    )
    return Extract(
        source=SourceSpec(kind="three", location="three://"),
        snapshot=None,
        table=TABLE,
        query=None,
        where=None,
        projection=Projection(
            columns=columns,
            route="arrow",
            schema=schema_text(ROWS.select(list(names)).schema),
            outputs=outputs,
        ),
    )


@pytest.mark.parametrize(
    ("text", "parquet"), [("nl", "sln"), ("ls", "n"), ("n", "ls"), ("nsl", "lsn")]
)
def test_each_output_has_its_columns_in_its_order(tmp_path: Path, text: str, parquet: str) -> None:
    """Large values go to the outputs that have their column, at its place there."""
    places = tuple(tuple(map("nsl".index, names)) for names in (text, parquet))
    both = task_of(reading("nsl", places), tmp_path / "both", *FORMATS)
    alone = task_of(reading(text, (tuple(range(len(text))),)), tmp_path / "csv", FORMATS[0])
    other = task_of(reading(parquet), tmp_path / "parquet", FORMATS[1])
    for task in (both, alone, other):
        rows = copy_unit(task, ThreeColumns(), silent).rows
        assert rows == 5
    assert text_of(tmp_path / "both") == text_of(tmp_path / "csv")
    assert parquet_of(tmp_path / "both").equals(parquet_of(tmp_path / "parquet"))
    assert parquet_of(tmp_path / "both").column_names == list(parquet)


@pytest.mark.parametrize("outputs", [(), ((0, 1, 2),)])
def test_a_single_output_has_its_own_writer(outputs: tuple[tuple[int, ...], ...]) -> None:
    """It gets the batches of the scan unchanged, without a selection of columns."""
    assert columns_of(reading("nsl", outputs).projection, 0) is None


def test_rows_in_memory_that_serves_again_are_counted_and_a_large_row_is_one() -> None:
    """Both are views; the second cannot be written to. Later pieces go by the size of the first."""
    rows = RowEstimate()
    chunk = memoryview(bytearray(b"1,a\n2,b\n3,c\n"))
    large = memoryview(b"4," + b"x" * 1000 + b"\n")
    assert rows((chunk,)) == 3
    assert rows((large,)) == 1
    assert rows((chunk[:8], large)) == 3
    assert rows((b"5,e\n",)) == 1
