"""The contract of a source as one call, for the tests of this package and of other packages.

No test framework is needed: a broken promise raises `AssertionError` with a sentence saying
which.
"""

from __future__ import annotations

import csv
import io
import json
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from partition_planner.model import PlanLimits, TableInfo, WorkUnit
from partition_planner.planner import plan
from unloader.errors import SourceError
from unloader.model import Extract, NamePart, Snapshot, SourceSpec, TableName
from unloader.request.names import matching_partitions
from unloader.sources.base import Catalog, Source
from unloader.sources.projection import OutputNeeds, project
from unloader.sources.statement import qualified
from unloader.sources.testing.readings import check_readings
from unloader.sources.testing.rows import Rows, check_batches, check_rows, columns_of, ensure
from unloader.sources.testing.worker import WorkerReader
from writers.model import TextFormat

if TYPE_CHECKING:
    import pyarrow as pa

PARALLELISMS = (1, 2, 5)
PIECES = 7
"""About how many units a table is cut into where it can be cut."""
ASSUMED_ROW_BYTES = 128
SMALL_FETCH, LARGE_FETCH = 4096, 32 * 1024 * 1024


def check_source(
    source: Source,
    spec: SourceSpec,
    table: TableName,
    expected: Rows,
    *,
    empty: TableName | None = None,
    after_close: Callable[[], None] | None = None,
) -> None:
    """Check what `unloader.sources.base` promises, on one table of a real database.

    Units are read in a spawned process, so a script that calls this needs the usual guard
    `if __name__ == "__main__"`, and `source` must be picklable.

    Args:
        source: The source under test.
        spec: The database.
        table: A table of at least two rows.
        expected: All of its rows, in any order, as Arrow converts them to Python where the
            target is Parquet; a timestamp in nanoseconds is the text Arrow prints.
        empty: A table without rows, if there is one.
        after_close: Called when all is closed again, to show that the source let go of the
            database.

    Raises:
        AssertionError: The source broke a promise.
    """
    with closing(source.open_catalog(spec)) as catalog:
        consistency = "snapshot" if catalog.capabilities.shared_snapshot else "none"
        snapshot = catalog.snapshot(consistency)  # type: ignore[arg-type]
        _check_snapshot(catalog, snapshot, consistency)
        _check_unknown_table(catalog, table)
        info = _check_description(catalog, table)
        with closing(WorkerReader(source, spec, snapshot)) as reader:
            case = _Case(catalog, reader, spec, snapshot, info, len(expected))
            check_readings(catalog, info)
            _check_plans(case, expected)
            _check_columns(case, expected)
            _check_where(case)
            _check_partitions(case)
            _check_query(case)
            _check_text(case)
            _check_both(case)
            if empty is not None:
                nothing = _check_description(catalog, empty)
                _check_plans(replace(case, table=nothing, rows=0), ())
        catalog.check_snapshot()
    if after_close is not None:
        after_close()


@dataclass(frozen=True)
class _Case:
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
        """Return the extract of the table, of partitions of it, or of a query."""
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


CHOSEN = 2
"""Partitions that are read each by itself; the others are read together."""

PARQUET = OutputNeeds(text=None)
CSV_BATCHES = OutputNeeds(text=TextFormat(), batches_only=True)
CSV_ENCODED = OutputNeeds(text=TextFormat())


def _check_snapshot(catalog: Catalog, snapshot: Snapshot, consistency: str) -> None:
    ensure(
        (snapshot.kind == "none") == (consistency == "none"),
        f"a snapshot of kind {snapshot.kind!r} was given for consistency {consistency!r}",
    )
    ensure(
        datetime.fromisoformat(snapshot.taken_at).utcoffset() is not None,
        f"the time of the snapshot has no zone: {snapshot.taken_at!r}",
    )
    catalog.check_snapshot()
    ensure(bool(catalog.server_version), "the catalog does not tell the server's version")


def _check_unknown_table(catalog: Catalog, table: TableName) -> None:
    unknown = replace(table, name=NamePart(text=f"{table.name.text} no such table", quoted=True))
    try:
        catalog.describe(unknown)
    except SourceError as error:
        ensure(bool(error.hint), "the error for an unknown table has no hint")
        ensure(
            unknown.name.text in error.message,
            f"the error for an unknown table does not name it: {error.message}",
        )
    else:
        raise AssertionError("an unknown table was described")


def _check_description(catalog: Catalog, table: TableName) -> TableInfo:
    info = catalog.describe(table)
    ensure(info == catalog.describe(table), "a table is described differently the second time")
    written = json.dumps(info.to_json())
    ensure(
        TableInfo.from_json(json.loads(written)) == info,
        "the description of a table does not survive JSON",
    )
    ensure(
        pickle.loads(pickle.dumps(info)) == info,
        "the description of a table does not survive pickling",
    )
    listed = {(summary.schema, summary.name) for summary in catalog.tables()}
    ensure((info.schema, info.name) in listed, f"the list of tables lacks {info.label}")
    ensure(isinstance(catalog.missing_privileges(info), tuple), "privileges are not a tuple")
    return info


def _check_plans(case: _Case, expected: Rows) -> None:
    """Read the table cut in every way the planner knows."""
    extract = case.extract(PARQUET)
    ensure(
        extract.projection == case.extract(PARQUET).projection,
        "a table is projected differently the second time",
    )
    seen: set[tuple[WorkUnit, ...]] = set()
    for limits in _limits(case.table):
        units = plan(case.table, limits).units
        if units in seen:
            continue
        seen.add(units)
        how = f"{len(units)} units of split {limits.split}"
        _check_statements(case, extract, units)
        # Small batches now and then, so that rows of one unit come in several.
        batch_bytes = SMALL_FETCH if len(seen) % 2 else LARGE_FETCH
        batches = case.batches(extract, units, batch_bytes)
        check_batches(batches, extract.projection)
        check_rows(batches, expected, how)
        counted = case.catalog.count(extract)
        ensure(
            counted == case.rows, f"the database counts {counted} rows, not {case.rows}, in {how}"
        )


def _limits(table: TableInfo) -> Iterator[PlanLimits]:
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


def _check_statements(case: _Case, extract: Extract, units: Sequence[WorkUnit]) -> None:
    selectors = [selector for unit in units for selector in unit.selectors]
    statements = [case.catalog.selector_sql(extract, selector) for selector in selectors]
    ensure(all(text.strip() for text in statements), "a selector has no statement")
    ensure(len(set(statements)) == len(selectors), "two selectors are read by the same statement")


def _check_columns(case: _Case, expected: Rows) -> None:
    """Read the columns the other way round and one fewer, and break off in the middle once."""
    width = len(case.table.columns)
    chosen = tuple(reversed(range(width)))[: max(1, width - 1)]
    cut = replace(case, table=_with_columns(case.table, chosen))
    extract = cut.extract(PARQUET)
    units = plan(cut.table, PlanLimits(parallelism=1, split="none")).units
    case.reader.break_off(extract, units[0], batch_bytes=SMALL_FETCH)
    batches = cut.batches(extract, units)
    check_batches(batches, extract.projection)
    rows = [tuple(row[at] for at in chosen) for row in expected]
    check_rows(batches, rows, "a choice of columns, after a reading that was broken off")


def _check_where(case: _Case) -> None:
    for where, rows in (("1 = 0 -- none", 0), ("1 = 1 -- all", case.rows)):
        extract = case.extract(PARQUET, where=where)
        units = plan(case.table, PlanLimits(parallelism=2)).units
        batches = case.batches(extract, units)
        check_batches(batches, extract.projection)
        read = sum(batch.num_rows for batch in batches)
        ensure(read == rows, f"{read} rows, not {rows}, are read where {where}")
        counted = case.catalog.count(extract)
        ensure(counted == rows, f"{counted} rows, not {rows}, are counted where {where}")


def _check_partitions(case: _Case) -> None:
    """Read some partitions in every way the planner knows: always the same rows, and as counted."""
    names = [part.name for part in case.table.partitions]
    for name in names[:CHOSEN]:
        _check_chosen(case, matching_partitions(names, (name,)))
    if len(names) > 1:
        _check_chosen(case, matching_partitions(names, names[1:]))
    counts = [case.catalog.count(case.extract(PARQUET, partitions=(name,))) for name in names]
    overlap = any(len(matching_partitions(names, (name,))) > 1 for name in names)
    ensure(
        not names or overlap or sum(counts) == case.rows,
        f"the partitions have {sum(counts)} rows, not {case.rows}",
    )


def _check_chosen(case: _Case, chosen: frozenset[str]) -> None:
    extract = case.extract(PARQUET, partitions=tuple(sorted(chosen)))
    counted = case.catalog.count(extract)
    for limits in _limits(case.table):
        units = plan(case.table, limits, chosen).units
        _check_statements(case, extract, units)
        read = sum(batch.num_rows for batch in case.batches(extract, units))
        ensure(
            read == counted,
            f"{read} rows, not {counted}, are read of partitions {', '.join(sorted(chosen))} in "
            f"{len(units)} units of split {limits.split}",
        )


def _check_query(case: _Case) -> None:
    if not case.catalog.capabilities.queries:
        return
    query = f"SELECT * FROM {qualified(case.table.schema, case.table.name)} -- all;"
    info = case.catalog.describe_query(query)
    names = [column.name for column in info.columns]
    ensure(
        names == [column.name for column in case.table.columns],
        f"a query for all columns has the columns {names}",
    )
    ensure(info.name == "query" and not info.partitions, "a query is not described as one")
    asked = replace(case, table=info)
    extract = asked.extract(PARQUET, query=query)
    units = plan(info, PlanLimits(parallelism=2)).units
    batches = asked.batches(extract, units)
    check_batches(batches, extract.projection)
    read = sum(batch.num_rows for batch in batches)
    ensure(read == case.rows, f"{read} rows, not {case.rows}, are read by a query for all")
    counted = case.catalog.count(extract)
    ensure(counted == case.rows, f"{counted} rows, not {case.rows}, are counted by a query")


def _check_text(case: _Case) -> None:
    """Read for CSV, by batches and, where the source offers it, as text of its own."""
    extract = case.extract(CSV_BATCHES)
    ensure(extract.projection.route == "arrow", "text was rendered where batches were asked for")
    units = plan(case.table, PlanLimits(parallelism=2)).units
    batches = case.batches(extract, units)
    check_batches(batches, extract.projection)
    read = sum(batch.num_rows for batch in batches)
    ensure(read == case.rows, f"{read} rows, not {case.rows}, are read for CSV")
    encoded = case.extract(CSV_ENCODED)
    if encoded.projection.route == "encoded":
        ensure(case.catalog.capabilities.encoded_text, "text is rendered without the capability")
        total = sum(_check_encoded(case, encoded, unit) for unit in units)
        ensure(total == case.rows, f"{total} rows, not {case.rows}, are rendered as text")


def _check_both(case: _Case) -> None:
    """Read once for Parquet and for CSV: each gets what it gets from a scan of its own."""
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


def _check_encoded(case: _Case, extract: Extract, unit: WorkUnit) -> int:
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
    ensure(len(records) == rows, f"{len(records)} records were rendered, {rows} were counted")
    return len(records)


def _with_columns(table: TableInfo, chosen: Sequence[int]) -> TableInfo:
    return replace(table, columns=tuple(table.columns[at] for at in chosen))
