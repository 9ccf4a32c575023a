"""One table of an open source for the checks of the contract, its cuts, its rows and its worker.

The reader works in another process, as in a run. Parent and worker must not share a process even in
a test: DuckDB opens a file with one set of options in a process, and SQLite loses its locks where
two libraries meet.
"""

from __future__ import annotations

import csv
import io
import multiprocessing
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeVar, cast

import pyarrow as pa
from msgspec import Struct

from partition_planner.model import PlanLimits, TableInfo, WorkUnit
from partition_planner.planner import plan
from unloader.model import Extract, Projection, Snapshot, SourceSpec
from unloader.sources.base import Catalog, Source, read_again, unit_batches, unit_text
from unloader.sources.questions import project
from unloader.sources.readings import OutputNeeds
from writers.model import TextFormat
from writers.schema import read_schema

T = TypeVar("T")

PARALLELISMS = (1, 2, 5)
PIECES = 7
"""About how many units a table is cut into where it can be cut."""
ASSUMED_ROW_BYTES = 128
SMALL_FETCH, LARGE_FETCH = 4096, 32 * 1024 * 1024
PARQUET = OutputNeeds(text=None)
CSV_BATCHES = OutputNeeds(text=TextFormat(), batches_only=True)
CSV_ENCODED = OutputNeeds(text=TextFormat())


class Case(Struct, frozen=True):
    """One table of an open source."""

    catalog: Catalog
    reader: WorkerReader
    spec: SourceSpec
    snapshot: Snapshot
    table: TableInfo
    rows: int

    def extract(
        self,
        *outputs: OutputNeeds,
        query: str | None = None,
        where: str | None = None,
        partitions: tuple[str, ...] = (),
    ) -> Extract:
        return Extract(
            source=self.spec,
            snapshot=self.snapshot,
            table=self.table,
            query=query,
            where=where,
            partitions=partitions,
            projection=project(self.catalog, self.table, query, outputs),
        )

    def batches(
        self, extract: Extract, units: Iterable[WorkUnit], batch_bytes: int = LARGE_FETCH
    ) -> list[pa.RecordBatch]:
        """Return the batches of all units, read one after the other by one reader."""
        return [
            batch
            for unit in units
            for batch in self.reader.batches(extract, unit, batch_bytes=batch_bytes)
        ]


def limits_for(table: TableInfo) -> Iterator[PlanLimits]:
    """Yield every way in which the planner may cut a table."""
    addresses = sum(extent.addresses for extent in table.extents)
    size = table.bytes or (table.rows or addresses) * ASSUMED_ROW_BYTES
    unit_bytes = max(1, size // PIECES)
    carriers = table.partitions or (table,)
    for parallelism in PARALLELISMS:
        yield PlanLimits(parallelism=parallelism)
        yield PlanLimits(parallelism=parallelism, split="none")
        yield PlanLimits(parallelism=parallelism, unit_bytes=unit_bytes)
        if table.partitions:
            yield PlanLimits(parallelism=parallelism, split="partition")
        if table.row_ranges and any(each.extents or each.keys for each in carriers):
            yield PlanLimits(parallelism=parallelism, split="range", unit_bytes=unit_bytes)


class WorkerReader:
    """A reader of one source in another process, which gets extracts and units pickled.

    A failure in that process is an `AssertionError` with its traceback.
    """

    def __init__(self, source: Source, spec: SourceSpec, snapshot: Snapshot | None) -> None:
        self._pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
        try:
            self._ask(_open, source, spec, snapshot)
        except AssertionError:
            self._pool.shutdown()
            raise

    def batches(
        self, extract: Extract, unit: WorkUnit, *, batch_bytes: int
    ) -> list[pa.RecordBatch]:
        return self._ask(_batches, extract, unit, batch_bytes)

    def break_off(self, extract: Extract, unit: WorkUnit, *, batch_bytes: int) -> None:
        """Read one batch of the unit and drop the rest."""
        self._ask(_first_batch, extract, unit, batch_bytes)

    def encoded(
        self, extract: Extract, unit: WorkUnit, text: TextFormat
    ) -> tuple[list[bytes], int]:
        return self._ask(_encoded, extract, unit, text)

    def close(self) -> None:
        self._ask(_close)
        self._pool.shutdown()

    def _ask(self, task: Callable[..., T], *arguments: object) -> T:
        try:
            answer, problem = self._pool.submit(_answer, task, *arguments).result()
        except BrokenProcessPool:
            raise AssertionError("the worker process ended without an answer") from None
        if problem is not None:
            raise AssertionError(f"a worker failed:\n{problem}")
        return cast(T, answer)


_opened: list[Any] = []
"""In the worker process: the reader."""


def _answer(task: Callable[..., object], *arguments: object) -> tuple[object, str | None]:
    try:
        return task(*arguments), None
    except Exception:  # the test reports any error
        return None, traceback.format_exc()


def _open(source: Source, spec: SourceSpec, snapshot: Snapshot | None) -> None:
    _opened.append(source.open_reader(spec, snapshot))


def _batches(extract: Extract, unit: WorkUnit, batch_bytes: int) -> list[pa.RecordBatch]:
    def read() -> list[Any]:
        return list(unit_batches(_opened[0], extract, unit, batch_bytes=batch_bytes))

    return read_again(read)


def _first_batch(extract: Extract, unit: WorkUnit, batch_bytes: int) -> None:
    read_again(lambda: next(unit_batches(_opened[0], extract, unit, batch_bytes=batch_bytes), None))


def _encoded(extract: Extract, unit: WorkUnit, text: TextFormat) -> tuple[list[bytes], int]:
    counted: list[int] = []
    found = unit_text(_opened[0], extract, unit, text, counted.append)
    return [bytes(chunk) for chunks in found for chunk in chunks], sum(counted)


def _close() -> None:
    _opened.pop().close()


Rows = Sequence[tuple[object, ...]]


def ensure(kept: bool, sentence: str) -> None:
    if not kept:
        raise AssertionError(sentence)


def check_batches(batches: Sequence[pa.RecordBatch], projection: Projection) -> None:
    schema = read_schema(projection.schema)
    names = [column.name for column in projection.columns]
    ensure(schema.names == names, f"the schema has the columns {schema.names}, not {names}")
    for batch in batches:
        ensure(
            batch.schema.equals(schema),
            f"a batch has the schema {batch.schema}, which is not the projection's {schema}",
        )
        try:
            batch.validate(full=True)
        except pa.ArrowInvalid as error:
            raise AssertionError(f"a batch is not valid Arrow data: {error}") from error


def check_rows(batches: Sequence[pa.RecordBatch], expected: Rows, how: str) -> None:
    """Check that the batches hold the expected rows, each as often, in any order.

    Rows are as Arrow converts them to Python; nanosecond timestamps as Arrow's text.
    """
    found = Counter(row for batch in batches for row in _keys(_tuples(batch)))
    wanted = Counter(_keys(expected))
    ensure(
        found == wanted,
        f"in {how}, rows are missing: {_some(wanted - found)}; "
        f"rows are too many or different: {_some(found - wanted)}",
    )


def columns_of(batches: Sequence[pa.RecordBatch], taken: Sequence[int] | None = None) -> object:
    """Return the rows of some columns, by index, as a comparable object without an order."""
    chosen = batches if taken is None else [batch.select(list(taken)) for batch in batches]
    return Counter(row for batch in chosen for row in _keys(_tuples(batch)))


def _tuples(batch: pa.RecordBatch) -> Iterator[tuple[object, ...]]:
    columns = [
        column.cast(pa.string())
        if pa.types.is_timestamp(column.type) and column.type.unit == "ns"
        else column
        for column in batch.columns
    ]
    return zip(*(column.to_pylist() for column in columns), strict=True)


def _keys(rows: Iterable[tuple[object, ...]]) -> Iterator[tuple[object, ...]]:
    return (tuple(_key(value) for value in row) for row in rows)


def _key(value: Any) -> object:
    """Return what values share only if they are the same; `1`, `1.0`, `True` and `"1"` differ."""
    if isinstance(value, datetime):
        return ("datetime", value.isoformat())
    if isinstance(value, Decimal):
        return ("Decimal", str(Fraction(value)))  # a decimal's own arithmetic rounds to 28 digits
    return (type(value).__name__, repr(value))


def _some(rows: Counter[tuple[object, ...]]) -> str:
    if not rows:
        return "none"
    shown = [str(tuple(cast(Any, part)[1] for part in row)) for row in list(rows)[:3]]
    return f"{' and '.join(shown)}, {sum(rows.values())} in all"


def check_text(case: Case) -> None:
    """Read for CSV, by batches and, if the source offers it, as text that the source renders."""
    extract = case.extract(CSV_BATCHES)
    ensure(extract.projection.route == "arrow", "text was rendered where batches were asked for")
    units = plan(case.table, PlanLimits(parallelism=2)).units
    batches = case.batches(extract, units)
    check_batches(batches, extract.projection)
    read = sum(batch.num_rows for batch in batches)
    ensure(read == case.rows, f"{read} rows, not {case.rows}, are read for CSV")
    encoded = case.extract(CSV_ENCODED)
    if encoded.projection.route == "encoded":
        total = sum(_check_encoded(case, encoded, unit) for unit in units)
        ensure(total == case.rows, f"{total} rows, not {case.rows}, are rendered as text")


def check_both(case: Case) -> None:
    """Read once for Parquet and CSV: each gets the same values as from a separate scan."""
    units = plan(case.table, PlanLimits(parallelism=1, split="none")).units
    both = case.extract(PARQUET, CSV_BATCHES)
    found = case.batches(both, units)
    check_batches(found, both.projection)
    for taken, output in zip(both.projection.outputs, (PARQUET, CSV_BATCHES), strict=True):
        alone = case.extract(output)
        ensure(
            columns_of(found, taken) == columns_of(case.batches(alone, units)),
            f"one scan for Parquet and CSV has other values than one for {output} alone",
        )


def _check_encoded(case: Case, extract: Extract, unit: WorkUnit) -> int:
    pieces, rows = case.reader.encoded(extract, unit, TextFormat())
    ensure(all(piece.endswith(b"\n") for piece in pieces), "a piece of text ends within a record")
    text = b"".join(pieces).decode("utf-8")
    records = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    width = len(extract.projection.columns)
    # The module gives an empty list for an empty line: one column that is NULL.
    ensure(
        all(len(record) == width or (width == 1 and not record) for record in records),
        f"a record of rendered text does not have {width} values",
    )
    ensure(len(records) == rows, f"{len(records)} records were rendered, but {rows} were counted")
    return len(records)
