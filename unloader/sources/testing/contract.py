"""The contract of a source as one call, for the tests of this package and of other packages.

No test framework is needed: a broken promise raises `AssertionError` with a sentence saying
which.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from datetime import datetime
from threading import Thread

import msgspec
from msgspec.structs import replace

from partition_planner.model import PlanLimits, TableInfo, WorkUnit
from partition_planner.planner import plan
from unloader.errors import SnapshotGone, SourceError, UsageError
from unloader.model import Extract, NamePart, Snapshot, SourceSpec, TableName, ValueOptions
from unloader.request.names import matching_partitions
from unloader.selection.choice import Chosen
from unloader.selection.listing import FAMILIES, ListedTable, Listing, Obstacle
from unloader.sources.base import Catalog, Source, described_or_obstacle, quoted_name
from unloader.sources.questions import describe_tables
from unloader.sources.readings import ENCODED_TYPE, ColumnReadings, Use
from unloader.sources.statement import qualified
from unloader.sources.testing.case import (
    LARGE_FETCH,
    PARQUET,
    SMALL_FETCH,
    Case,
    Rows,
    WorkerReader,
    check_batches,
    check_both,
    check_rows,
    check_text,
    ensure,
    limits_for,
)
from writers.model import TextFormat


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

    Units are read in a spawned process, so a script that calls this needs the usual guard `if
    __name__ == "__main__"`, and `source` must be picklable.

    Args:
        table: A table of at least two rows.
        expected: All of its rows, in any order, as Arrow converts them to Python where the
            target is Parquet; a timestamp in nanoseconds is the text Arrow prints.
        empty: A table without rows, if there is one.
        after_close: Called after everything is closed, to show that the source let go of it.
    """
    with closing(source.open_catalog(spec)) as catalog:
        consistency = "snapshot" if catalog.capabilities.shared_snapshot else "none"
        snapshot = catalog.snapshot(consistency)  # type: ignore[arg-type]
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
        _check_unknown_table(catalog, table)
        info = _check_description(catalog, table)
        with closing(WorkerReader(source, spec, snapshot)) as reader:
            case = Case(catalog, reader, spec, snapshot, info, len(expected))
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
        for kind in ("none", "of an unknown kind"):
            back = source.at_snapshot(spec, kind, "")
            ensure(back is None, f"there is a way back to a snapshot that is {kind}")
        check_refused_conditions(case)
        check_cancel(case, case.extract(PARQUET))
    if consistency == "snapshot":
        _check_reentry(source, spec, info, snapshot, len(expected))
    if after_close is not None:
        after_close()


def _check_reentry(
    source: Source, spec: SourceSpec, info: TableInfo, snapshot: Snapshot, rows: int
) -> None:
    """Go back to the snapshot after all was closed: the same data, or the word that it is gone."""
    earlier = source.at_snapshot(spec, snapshot.kind, snapshot.value)
    if earlier is None:
        return
    ensure(earlier.kind == spec.kind, "the way back to a snapshot is not a source spec")
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
        again = catalog.describe(quoted_name(info.schema, info.name))
        ensure(again == info, "a table is described differently at the snapshot of an earlier run")
        with closing(WorkerReader(source, spec, snapshot)) as reader:
            case = Case(catalog, reader, spec, snapshot, again, rows)
            check_hold(case, extract := case.extract(PARQUET))
            check_amount(case, extract, rows, "at an earlier snapshot")


def check_amount(case: Case, extract: Extract, rows: int, how: str) -> None:
    """Check how many rows are read and counted."""
    batches = case.batches(extract, plan(case.table, PlanLimits(parallelism=2)).units)
    check_batches(batches, extract.projection)
    read = sum(batch.num_rows for batch in batches)
    ensure(read == rows, f"{read} rows, not {rows}, are read {how}")
    counted = case.catalog.count(extract)
    ensure(counted == rows, f"{counted} rows, not {rows}, are counted {how}")


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
        columns = tuple(case.table.columns[at] for at in chosen)
        cut = replace(case, table=replace(case.table, columns=columns))
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
    for name in names[:2]:
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


def check_readings(catalog: Catalog, table: TableInfo) -> None:
    found = catalog.readings(table, None, ValueOptions())
    columns = tuple(column for column in found if not column.beside)
    names = [column.name for column in table.columns]
    ensure(
        [column.name for column in columns] == names,
        f"readings are given of {[column.name for column in columns]}, not of {names}",
    )
    uses: tuple[Use, ...] = ("parquet", "text")
    if any(column.mask for column in columns):
        uses += ("masked",)
    if catalog.encodes(TextFormat()):
        uses += ("encoded",)
    for column in columns:
        for use in uses:
            for asked in (False, True):
                _check_served(column, use, asked=asked)
        for reading in column.readings:
            ensure(
                (reading.output_type == ENCODED_TYPE) == (reading.serves == {"encoded"}),
                f"a reading of column {column.name} is rendered text or Arrow, not both",
            )


def _check_served(column: ColumnReadings, use: Use, *, asked: bool) -> None:
    served = any(
        use in reading.serves and reading.as_text in (None, asked) for reading in column.readings
    )
    ensure(
        served or (use == "masked" and column.mask is None),
        f"column {column.name} has no reading for {use}, {'' if asked else 'not '}asked for as "
        "exact text",
    )


NO_CONDITIONS = ("unloader_no_such_column = 1", "1 = 1) OR (1 = 1")
"""What no source takes as one condition over the columns of a table."""


def check_conditions(case: Case) -> None:
    """Read with a condition that no row meets, and with one that all rows meet."""
    for where, rows in (("1 = 0 -- none", 0), ("1 = 1 -- all", case.rows)):
        extract = case.extract(PARQUET, where=where)
        try:
            case.catalog.check_where(extract)
        except UsageError:
            return  # The source knows no conditions.
        check_amount(case, extract, rows, f"where {where}")


def check_refused_conditions(case: Case) -> None:
    """Check that invalid conditions are refused; the source may be unusable afterwards."""
    for wrong in NO_CONDITIONS:
        try:
            case.catalog.check_where(case.extract(PARQUET, where=wrong))
        except UsageError:
            return  # The source knows no conditions.
        except SourceError as error:
            ensure(wrong in error.message, f"the error for a condition lacks it: {error.message}")
        else:
            raise AssertionError(f"{wrong} was accepted as a condition")


def check_query(case: Case) -> None:
    query = f"SELECT * FROM {qualified(case.table.schema, case.table.name)} -- all;"
    try:
        info = case.catalog.describe_query(query)
    except UsageError:
        return  # The source knows no queries.
    names = [column.name for column in info.columns]
    ensure(
        names == [column.name for column in case.table.columns],
        f"a query for all columns has the columns {names}",
    )
    ensure(info.name == "query" and not info.partitions, "a query is not described as one")
    asked = replace(case, table=info)
    check_amount(asked, asked.extract(PARQUET, query=query), case.rows, "by a query for all")


def check_hold(case: Case, extract: Extract) -> None:
    """Hold what a plan reads, as before a run: nothing has changed, so nothing is refused."""
    for limits in (PlanLimits(parallelism=2), PlanLimits(parallelism=1, split="none")):
        case.catalog.hold(extract, plan(case.table, limits).selectors)


def check_cancel(case: Case, extract: Extract) -> None:
    """Cancel from another thread, twice, with and without a call that waits, which never hangs."""
    problems: list[str] = []

    def cancel_twice() -> None:
        for _ in range(2):
            try:
                case.catalog.cancel()
            except Exception as error:  # the test names any error
                problems.append(repr(error))

    for waiting in (False, True):
        thread = Thread(target=cancel_twice)
        thread.start()
        if waiting:
            with suppress(Exception):
                case.catalog.count(extract)
        thread.join()
        ensure(not problems, f"cancel raised: {', '.join(problems)}")


GONE = "unloader no such table"


def check_many_tables(source: Source, spec: SourceSpec, *, at_least: int = 1) -> Listing:
    """Check a source's list of tables, and that it describes all of them as it does each alone.

    Args:
        spec: A database whose tables may all be described.
        at_least: How many tables must have been compared.
    """
    with closing(source.open_catalog(spec)) as catalog:
        consistency = "snapshot" if catalog.capabilities.shared_snapshot else "none"
        catalog.snapshot(consistency)  # type: ignore[arg-type]
        listing = catalog.list_tables()
        check_listing(catalog, listing)
        tables = [table for table in listing.tables if not table.system and table.readable]
        ensure(len(tables) >= at_least, f"{len(tables)} tables are listed, not {at_least}")
        check_descriptions(catalog, tables)
        ensure(catalog.list_tables() == listing, "a second list of the tables differs")
    return listing


def check_among_others(catalog: Catalog, info: TableInfo) -> None:
    """Check that one table is listed, and described among others as it is alone."""
    listing = catalog.list_tables()
    check_listing(catalog, listing)
    key = (info.schema or "", info.name)
    found = [table for table in listing.tables if table.key == key]
    ensure(len(found) == 1, f"{info.label} is not in the list of tables")
    check_descriptions(catalog, found)


def check_listing(catalog: Catalog, listing: Listing) -> None:
    """Check that a list is in order, has each table once, and each table that `tables` has."""
    keys = [table.key for table in listing.tables]
    ensure(keys == sorted(set(keys)), "the list has a table twice, or is not in order")
    ensure(
        listing.folding == catalog.capabilities.folding,
        "the list reads names in another way than the catalog",
    )
    for table in listing.tables:
        ensure(table.family in FAMILIES, f"{table.label} has an unknown family: {table.family}")
    known = {table.key: table for table in listing.tables}
    for one in catalog.tables():
        listed = known.get((one.schema or "", one.name))
        ensure(listed is not None, f"{one.schema}.{one.name} is not in the list")
        assert listed is not None
        same = listed.kind == one.kind or one.kind == "table"
        ensure(same, f"{listed.label} is a {listed.kind} instead of a {one.kind}")


def check_descriptions(catalog: Catalog, tables: Sequence[ListedTable]) -> None:
    """Check that tables described together are what each is alone, and that one may be missing."""
    alone = [
        described_or_obstacle(catalog, quoted_name(table.schema, table.name)) for table in tables
    ]
    chosen = Chosen(tables=tuple(tables))
    together = describe_tables(catalog, chosen)
    infos = {(info.schema or "", info.name): info for info in together.tables}
    refused = {problem.table for problem in together.problems}
    for table, one in zip(tables, alone, strict=True):
        if isinstance(one, Obstacle):
            ensure(table.label in refused, f"{table.label} is described only among others")
            continue
        among = infos.get(table.key)
        ensure(among is not None, f"{table.label} is not described among others")
        ensure(
            one == among,
            f"{table.label} is described as {among} among other tables, but as {one} alone",
        )
    if tables:
        _check_missing(catalog, tables[0])


def _check_missing(catalog: Catalog, table: ListedTable) -> None:
    """Check that a table dropped meanwhile is reported, and the other tables are described."""
    gone = replace(table, name=GONE)
    found = describe_tables(catalog, Chosen(tables=(gone, table)))
    ensure(
        len(found.tables) == 1, "a table is not described next to one that does not exist any more"
    )
    kinds = [(problem.kind, problem.table) for problem in found.problems]
    ensure(
        kinds in ([("gone", gone.label)], [("refused", gone.label)]),
        f"for a table that does not exist any more the catalog returns: {kinds}",
    )
