"""The contract of a source as one call, for the tests of this package and of other packages.

No test framework is needed: a broken promise raises `AssertionError` with a sentence saying
which.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import datetime

import msgspec
from msgspec.structs import replace

from partition_planner.model import PlanLimits, TableInfo, WorkUnit
from partition_planner.planner import plan
from unloader.errors import SnapshotGone, SourceError
from unloader.model import Extract, NamePart, Snapshot, SourceSpec, TableName
from unloader.request.names import matching_partitions
from unloader.sources.base import Catalog, Source
from unloader.sources.testing.abilities import (
    check_cancel,
    check_conditions,
    check_declared,
    check_hold,
    check_query,
    check_refused_conditions,
)
from unloader.sources.testing.case import LARGE_FETCH, PARQUET, SMALL_FETCH, Case, limits_for
from unloader.sources.testing.many_tables import check_among_others
from unloader.sources.testing.outputs import check_both, check_text
from unloader.sources.testing.readings import check_readings
from unloader.sources.testing.rows import Rows, check_batches, check_rows, ensure
from unloader.sources.testing.worker import WorkerReader


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
            case = Case(catalog, reader, spec, snapshot, info, len(expected))
            check_declared(catalog)
            check_among_others(catalog, info)
            check_readings(catalog, info)
            check_hold(case, case.extract(PARQUET))
            _check_plans(case, expected)
            _check_columns(case, expected)
            check_conditions(case)
            _check_partitions(case)
            check_query(case)
            check_text(case)
            check_both(case)
            if empty is not None:
                nothing = _check_description(catalog, empty)
                _check_plans(replace(case, table=nothing, rows=0), ())
        catalog.check_snapshot()
        _check_the_way_back(source, spec, snapshot)
        check_refused_conditions(case)
        check_cancel(case, case.extract(PARQUET))
    if consistency == "snapshot":
        _check_reentry(source, spec, info, snapshot, len(expected))
    if after_close is not None:
        after_close()


CHOSEN = 2
"""Partitions that are read each by itself; the others are read together."""


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
    ensure(bool(catalog.server_version), "the catalog does not report the server's version")


def _check_the_way_back(source: Source, spec: SourceSpec, snapshot: Snapshot) -> None:
    """Check what a later process is given to read at the snapshot; that of no snapshot is none."""
    found = source.at_snapshot(spec, snapshot.kind, snapshot.value)
    ensure(
        found is None or found.kind == spec.kind, "the way back to a snapshot is not a source spec"
    )
    ensure(source.at_snapshot(spec, "none", "") is None, "there is a way back to no snapshot")
    ensure(
        source.at_snapshot(spec, "of an unknown kind", "") is None,
        "there is a way back to a snapshot of another source",
    )


def _check_reentry(
    source: Source, spec: SourceSpec, info: TableInfo, snapshot: Snapshot, rows: int
) -> None:
    """Go back to the snapshot after all was closed: the same data, or the word that it is gone."""
    earlier = source.at_snapshot(spec, snapshot.kind, snapshot.value)
    if earlier is None:
        return
    with closing(source.open_catalog(earlier)) as catalog:
        lasts = catalog.capabilities.snapshot_outlives_run
        try:
            entered = catalog.snapshot("snapshot")
        except SnapshotGone as error:
            ensure(not lasts, f"a snapshot that outlives its run does not exist any more: {error}")
            ensure(bool(error.hint), "the error for a lost snapshot has no hint")
            return
        ensure(
            entered.is_same(snapshot),
            f"the source entered another snapshot than the requested one: {entered}, not "
            f"{snapshot}",
        )
        again = catalog.describe(_name_of(info))
        ensure(again == info, "a table is described differently at the snapshot of an earlier run")
        with closing(WorkerReader(source, spec, snapshot)) as reader:
            case = Case(catalog, reader, spec, snapshot, again, rows)
            check_hold(case, extract := case.extract(PARQUET))
            units = plan(info, PlanLimits(parallelism=2)).units
            read = sum(batch.num_rows for batch in case.batches(extract, units))
        counted = catalog.count(extract)
    ensure(counted == rows, f"{counted} rows, not {rows}, are counted at an earlier snapshot")
    ensure(read == rows, f"{read} rows, not {rows}, are read at an earlier snapshot")


def _name_of(info: TableInfo) -> TableName:
    schema = None if info.schema is None else NamePart(text=info.schema, quoted=True)
    return TableName(schema=schema, name=NamePart(text=info.name, quoted=True))


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
    written = json.dumps(msgspec.to_builtins(info))
    ensure(
        msgspec.convert(json.loads(written), TableInfo) == info,
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


def _check_plans(case: Case, expected: Rows) -> None:
    """Read the table cut in every way the planner knows."""
    extract = case.extract(PARQUET)
    ensure(
        extract.projection == case.extract(PARQUET).projection,
        "a table is projected differently the second time",
    )
    seen: set[tuple[WorkUnit, ...]] = set()
    for limits in limits_for(case.table):
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


def _check_statements(case: Case, extract: Extract, units: Sequence[WorkUnit]) -> None:
    selectors = [selector for unit in units for selector in unit.selectors]
    statements = [case.catalog.statement(extract, selector) for selector in selectors]
    ensure(all(text.strip() for text in statements), "a selector has no statement")
    ensure(len(set(statements)) == len(selectors), "two selectors are read by the same statement")


def _check_columns(case: Case, expected: Rows) -> None:
    """Read a choice of columns, cut in every way; interrupt a reading once for each way.

    Each column is left out of one choice: ranges may go by any column, also by one that is left
    out. The first choice has the columns in the opposite order.
    """
    width = len(case.table.columns)
    choices = (tuple(reversed(range(1, width))) or (0,), (0,))
    for chosen in dict.fromkeys(choices):
        cut = replace(case, table=_with_columns(case.table, chosen))
        extract = cut.extract(PARQUET)
        rows = [tuple(row[at] for at in chosen) for row in expected]
        names = ", ".join(column.name for column in cut.table.columns)
        for units in dict.fromkeys(plan(case.table, each).units for each in limits_for(case.table)):
            case.reader.break_off(extract, units[0], batch_bytes=SMALL_FETCH)
            batches = cut.batches(extract, units)
            check_batches(batches, extract.projection)
            check_rows(batches, rows, f"{len(units)} units with the columns {names} only")


def _check_partitions(case: Case) -> None:
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


def _check_chosen(case: Case, chosen: frozenset[str]) -> None:
    extract = case.extract(PARQUET, partitions=tuple(sorted(chosen)))
    counted = case.catalog.count(extract)
    for limits in limits_for(case.table):
        units = plan(case.table, limits, chosen).units
        _check_statements(case, extract, units)
        read = sum(batch.num_rows for batch in case.batches(extract, units))
        ensure(
            read == counted,
            f"{read} rows, not {counted}, are read of partitions {', '.join(sorted(chosen))} in "
            f"{len(units)} units of split {limits.split}",
        )


def _with_columns(table: TableInfo, chosen: Sequence[int]) -> TableInfo:
    return replace(table, columns=tuple(table.columns[at] for at in chosen))
