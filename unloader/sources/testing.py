"""The contract of a source as two calls, for the tests of this package and of other packages.

No test framework is needed: a broken promise raises `AssertionError` with a sentence saying
which.
"""

from __future__ import annotations

import csv
import io
import json
import multiprocessing
import pickle
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, suppress
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from partition_planner.model import PlanLimits, TableInfo, WorkUnit
from partition_planner.planner import plan
from unloader.errors import SnapshotGone, SourceError, UsageError
from unloader.model import (
    Extract,
    NamePart,
    Projection,
    Snapshot,
    SourceSpec,
    TableName,
    ValueOptions,
)
from unloader.request.names import matching_partitions
from unloader.selection.choice import Chosen
from unloader.selection.listing import FAMILIES, ListedTable, Listing, Obstacle
from unloader.sources.base import (
    Catalog,
    Source,
    described_or_obstacle,
    quoted_name,
    read_again,
    unit_batches,
    unit_text,
)
from unloader.sources.questions import describe_tables, project
from unloader.sources.readings import ENCODED_TYPE, OutputNeeds, Use
from unloader.sources.statement import qualified
from writers.model import TextFormat
from writers.schema import read_schema

PIECES = 7
"""About how many units a table is cut into where it can be cut."""
SMALL_FETCH, LARGE_FETCH = 4096, 32 * 1024 * 1024
PARQUET = OutputNeeds(text=None)
CSV_BATCHES = OutputNeeds(text=TextFormat(), batches_only=True)
CSV_ENCODED = OutputNeeds(text=TextFormat())


class Case(Struct, frozen=True):
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
            for batch in self.reader.ask("batches", extract, unit, batch_bytes)
        ]


def limits_for(table: TableInfo) -> Iterator[PlanLimits]:
    """Yield every way in which the planner may cut a table."""
    addresses = sum(extent.addresses for extent in table.extents)
    size = table.bytes or (table.rows or addresses) * 128  # Guess: bytes of a row.
    unit_bytes = max(1, size // PIECES)
    carriers = table.partitions or (table,)
    for parallelism in (1, 2, 5):
        yield PlanLimits(parallelism=parallelism)
        yield PlanLimits(parallelism=parallelism, split="none")
        yield PlanLimits(parallelism=parallelism, unit_bytes=unit_bytes)
        if table.partitions:
            yield PlanLimits(parallelism=parallelism, split="partition")
        if table.row_ranges and any(each.extents or each.keys for each in carriers):
            yield PlanLimits(parallelism=parallelism, split="range", unit_bytes=unit_bytes)


class WorkerReader:
    """A reader in another process; a failure there is an `AssertionError` with its traceback.

    A snapshot that the reader cannot enter is a `SnapshotGone`.
    """

    def __init__(self, source: Source, spec: SourceSpec, snapshot: Snapshot | None) -> None:
        self._pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
        try:
            self.ask("open", source, spec, snapshot)
        except (AssertionError, SnapshotGone):
            self._pool.shutdown()
            raise

    def ask(self, task: str, *arguments: Any) -> Any:
        """Have a task of `_answer` done: `batches`, `first batch` or `encoded`."""
        try:
            return self._pool.submit(_answer, task, *arguments).result()
        except BrokenProcessPool:
            raise AssertionError("the worker process ended without an answer") from None

    def close(self) -> None:
        self.ask("close")
        self._pool.shutdown()


_opened: list[Any] = []
"""In the worker process: the reader."""


def _answer(task: str, *arguments: Any) -> object:
    try:
        if task == "open":
            source, spec, snapshot = arguments
            _opened.append(source.open_reader(spec, snapshot))
            return None
        if task == "close":
            _opened.pop().close()
            return None
        if task == "encoded":
            extract, unit, text = arguments
            counted: list[int] = []
            found = unit_text(_opened[0], extract, unit, text, counted.append)
            return [bytes(chunk) for chunks in found for chunk in chunks], sum(counted)
        extract, unit, batch_bytes = arguments

        def read() -> list[Any]:
            batches = unit_batches(_opened[0], extract, unit, batch_bytes=batch_bytes)
            return list(batches) if task == "batches" else [next(batches, None)]

        batches = read_again(read)
        return batches if task == "batches" else None
    except SnapshotGone as error:
        raise SnapshotGone(error.message, error.hint) from None
    except Exception:  # Not every error of a driver can be sent to the test.
        raise AssertionError(f"a worker failed:\n{traceback.format_exc()}") from None


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
    found, wanted = _counted(batches), Counter(tuple(map(_key, row)) for row in expected)

    def some(rows: Counter[tuple[Any, ...]]) -> str:
        shown = [str(tuple(part[1] for part in row)) for row in list(rows)[:3]]
        return f"{' and '.join(shown)}, {sum(rows.values())} in all" if rows else "none"

    ensure(
        found == wanted,
        f"in {how}, rows are missing: {some(wanted - found)}; "
        f"rows are too many or different: {some(found - wanted)}",
    )


def _counted(batches: Iterable[pa.RecordBatch]) -> Counter[tuple[Any, ...]]:
    """Return the rows of batches as comparable values, each with its number."""
    return Counter(tuple(map(_key, row)) for batch in batches for row in _tuples(batch))


def _tuples(batch: pa.RecordBatch) -> Iterator[tuple[object, ...]]:
    columns = [
        column.cast(pa.string())
        if pa.types.is_timestamp(column.type) and column.type.unit == "ns"
        else column
        for column in batch.columns
    ]
    return zip(*(column.to_pylist() for column in columns), strict=True)


def _key(value: Any) -> object:
    """Return what values share only if they are the same; `1`, `1.0`, `True` and `"1"` differ."""
    if isinstance(value, datetime):
        return ("datetime", value.isoformat())
    if isinstance(value, Decimal):
        return ("Decimal", str(Fraction(value)))  # a decimal's own arithmetic rounds to 28 digits
    return (type(value).__name__, repr(value))


def check_text(case: Case) -> None:
    """Read for CSV, by batches and, if the source offers it, as text that the source renders."""
    extract = case.extract(CSV_BATCHES)
    ensure(extract.projection.route == "arrow", "text was rendered where batches were asked for")
    units = plan(case.table, PlanLimits(parallelism=2)).units
    batches = case.batches(extract, units)
    check_batches(batches, extract.projection)
    read = sum(batch.num_rows for batch in batches)
    ensure(read == case.rows, f"{read} rows, not {case.rows}, are read for CSV")
    both = case.extract(PARQUET, CSV_BATCHES)
    whole = plan(case.table, PlanLimits(parallelism=1, split="none")).units
    found = case.batches(both, whole)
    check_batches(found, both.projection)
    for taken, output in zip(both.projection.outputs, (PARQUET, CSV_BATCHES), strict=True):
        ensure(
            _counted(batch.select(list(taken)) for batch in found)
            == _counted(case.batches(case.extract(output), whole)),
            f"one scan for Parquet and CSV has other values than one for {output} alone",
        )
    encoded = case.extract(CSV_ENCODED)
    if encoded.projection.route != "encoded":
        return
    total, width = 0, len(encoded.projection.columns)
    for unit in units:
        pieces, rows = case.reader.ask("encoded", encoded, unit, TextFormat())
        complete = all(piece.endswith(b"\n") for piece in pieces)
        ensure(complete, "a piece of text ends within a record")
        text = b"".join(pieces).decode("utf-8")
        records = list(csv.reader(io.StringIO(text, newline=""), strict=True))
        # The module gives an empty list for an empty line: one column that is NULL.
        ensure(
            all(len(record) == width or (width == 1 and not record) for record in records),
            f"a record of rendered text does not have {width} values",
        )
        count = len(records)
        ensure(count == rows, f"{count} records were rendered, but {rows} were counted")
        total += count
    ensure(total == case.rows, f"{total} rows, not {case.rows}, are rendered as text")


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
        unknown = NamePart(text=f"{table.name.text} no such table", quoted=True)
        try:
            catalog.describe(replace(table, name=unknown))
        except SourceError as error:
            ensure(bool(error.hint), "the error for an unknown table has no hint")
            ensure(
                unknown.text in error.message,
                f"the error for an unknown table does not name it: {error.message}",
            )
        else:
            raise AssertionError("an unknown table was described")
        info = _check_description(catalog, table)
        with closing(WorkerReader(source, spec, snapshot)) as reader:
            case = Case(catalog, reader, spec, snapshot, info, len(expected))
            listing = catalog.list_tables()
            check_listing(catalog, listing)
            listed = [each for each in listing.tables if each.key == (info.schema or "", info.name)]
            ensure(len(listed) == 1, f"{info.label} is not in the list of tables")
            check_descriptions(catalog, listed)
            check_readings(catalog, info)
            _hold(case, case.extract(PARQUET))
            _check_plans(case, expected)
            _check_columns(case, expected)
            check_conditions(case)
            _check_partitions(case)
            check_query(case)
            check_text(case)
            if empty is not None:
                nothing = _check_description(catalog, empty)
                _check_plans(replace(case, table=nothing, rows=0), ())
        catalog.check_snapshot()
        for kind in ("none", "of an unknown kind"):
            back = source.at_snapshot(spec, kind, "")
            ensure(back is None, f"there is a way back to a snapshot that is {kind}")
        for wrong in NO_CONDITIONS:
            # The source may be unusable afterwards. One without conditions refuses the option.
            with suppress(UsageError):
                try:
                    catalog.check_where(case.extract(PARQUET, where=wrong))
                except SourceError as error:
                    lacks = f"the error for a condition lacks it: {error.message}"
                    ensure(wrong in error.message, lacks)
                else:
                    raise AssertionError(f"{wrong} was accepted as a condition")
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
            ensure(
                entered.is_same(snapshot),
                f"the source entered another snapshot than the requested one: {entered}, not "
                f"{snapshot}",
            )
            again = catalog.describe(quoted_name(info.schema, info.name))
            ensure(
                again == info, "a table is described differently at the snapshot of an earlier run"
            )
            with closing(WorkerReader(source, spec, snapshot)) as reader:
                case = Case(catalog, reader, spec, snapshot, again, rows)
                _hold(case, extract := case.extract(PARQUET))
                check_amount(case, extract, rows, "at an earlier snapshot")
        except SnapshotGone as error:
            # Also later than at the entry: a server may need a moment to end a closed session.
            ensure(not lasts, f"a snapshot that outlives its run does not exist any more: {error}")
            ensure(bool(error.hint), "the error for a lost snapshot has no hint")


def check_amount(case: Case, extract: Extract, rows: int, how: str) -> None:
    batches = case.batches(extract, plan(case.table, PlanLimits(parallelism=2)).units)
    check_batches(batches, extract.projection)
    read = sum(batch.num_rows for batch in batches)
    ensure(read == rows, f"{read} rows, not {rows}, are read {how}")
    counted = case.catalog.count(extract)
    ensure(counted == rows, f"{counted} rows, not {rows}, are counted {how}")


def _hold(case: Case, extract: Extract) -> None:
    """Hold what a plan reads, as before a run: nothing has changed, so nothing is refused."""
    for limits in (PlanLimits(parallelism=2), PlanLimits(parallelism=1, split="none")):
        case.catalog.hold(extract, plan(case.table, limits).selectors)


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
        _plan_statements(case, extract, units)
        # Small batches now and then, so that rows of one unit come in several.
        batch_bytes = SMALL_FETCH if len(seen) % 2 else LARGE_FETCH
        batches = case.batches(extract, units, batch_bytes)
        check_batches(batches, extract.projection)
        check_rows(batches, expected, how)
        counted = case.catalog.count(extract)
        ensure(
            counted == case.rows, f"the database counts {counted} rows, not {case.rows}, in {how}"
        )


def _plan_statements(case: Case, extract: Extract, units: Sequence[WorkUnit]) -> None:
    selectors = [selector for unit in units for selector in unit.selectors]
    statements = {case.catalog.statement(extract, selector) for selector in selectors}
    ensure(all(text.strip() for text in statements), "a selector has no statement")
    ensure(len(statements) == len(selectors), "two selectors are read by the same statement")


def _check_columns(case: Case, expected: Rows) -> None:
    """Read a choice of columns, cut in every way; interrupt a reading once for each way.

    Each column is left out of one choice: ranges may go by any column, also by one that is left
    out. The first choice has the columns in the opposite order. Batches are small, so a source that
    reads wide rows in another way does it without the columns of its ranges, too.
    """
    width = len(case.table.columns)
    carriers = case.table.partitions or (case.table,)
    keys = {each.keys.column for each in carriers if each.keys}
    choices = (
        tuple(reversed(range(1, width))) or (0,),
        (0,),
        tuple(at for at in range(width) if case.table.columns[at].name not in keys) or (0,),
    )
    for chosen in dict.fromkeys(choices if keys else choices[:2]):
        columns = tuple(case.table.columns[at] for at in chosen)
        cut = replace(case, table=replace(case.table, columns=columns))
        extract = cut.extract(PARQUET)
        rows = [tuple(row[at] for at in chosen) for row in expected]
        names = ", ".join(column.name for column in cut.table.columns)
        for units in dict.fromkeys(plan(case.table, each).units for each in limits_for(case.table)):
            case.reader.ask("first batch", extract, units[0], SMALL_FETCH)
            for batch_bytes in (SMALL_FETCH, LARGE_FETCH)[: 1 + (len(units) == 1)]:
                batches = cut.batches(extract, units, batch_bytes)
                check_batches(batches, extract.projection)
                check_rows(batches, rows, f"{len(units)} units with the columns {names} only")


def _check_partitions(case: Case) -> None:
    """Read some partitions in every way the planner knows: always the same rows, and as counted."""
    names = [part.name for part in case.table.partitions]
    counts = [case.catalog.count(case.extract(PARQUET, partitions=(name,))) for name in names]
    overlap = any(len(matching_partitions(names, (name,))) > 1 for name in names)
    ensure(
        not names or overlap or sum(counts) == case.rows,
        f"the partitions have {sum(counts)} rows, not {case.rows}",
    )
    for some in [(name,) for name in names[:2]] + [tuple(names[1:])] * (len(names) > 1):
        chosen = matching_partitions(names, some)
        extract = case.extract(PARQUET, partitions=tuple(sorted(chosen)))
        counted = case.catalog.count(extract)
        for limits in limits_for(case.table):
            units = plan(case.table, limits, chosen).units
            _plan_statements(case, extract, units)
            read = sum(batch.num_rows for batch in case.batches(extract, units))
            ensure(
                read == counted,
                f"{read} rows, not {counted}, are read of partitions {', '.join(sorted(chosen))} "
                f"in {len(units)} units of split {limits.split}",
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
                served = any(
                    use in reading.serves and reading.as_text in (None, asked)
                    for reading in column.readings
                )
                ensure(
                    served or (use == "masked" and column.mask is None),
                    f"column {column.name} has no reading for {use}, "
                    f"{'' if asked else 'not '}asked for as exact text",
                )
        for reading in column.readings:
            ensure(
                (reading.output_type == ENCODED_TYPE) == (reading.serves == {"encoded"}),
                f"a reading of column {column.name} is rendered text or Arrow, not both",
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


def check_cancel(case: Case, extract: Extract) -> None:
    """Cancel from another thread, twice, with and without a call that waits, which never hangs."""
    for waiting in (False, True):
        with ThreadPoolExecutor(1) as pool:
            cancelled = [pool.submit(case.catalog.cancel) for _ in range(2)]
            if waiting:
                with suppress(Exception):
                    case.catalog.count(extract)
        problems = [repr(each.exception()) for each in cancelled if each.exception()]
        ensure(not problems, f"cancel raised: {', '.join(problems)}")


def check_many_tables(source: Source, spec: SourceSpec, *, at_least: int = 1) -> Listing:
    """Check a source's list of tables, and that it describes all of them as it does each alone.

    `spec` is a database whose tables may all be described; at least `at_least` must be compared.
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
    kinds = {table.key: table.kind for table in listing.tables}
    for one in catalog.tables():
        kind = kinds.get((one.schema or "", one.name))
        ensure(kind is not None, f"{one.schema}.{one.name} is not in the list")
        same = one.kind in (kind, "table")
        ensure(same, f"{one.schema}.{one.name} is a {kind} instead of a {one.kind}")


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
    for table in tables[:1]:
        gone = replace(table, name="unloader no such table")
        found = describe_tables(catalog, Chosen(tables=(gone, table)))
        ensure(
            len(found.tables) == 1,
            "a table is not described next to one that does not exist any more",
        )
        kinds = [(problem.kind, problem.table) for problem in found.problems]
        ensure(
            kinds in ([("gone", gone.label)], [("refused", gone.label)]),
            f"for a table that does not exist any more the catalog returns: {kinds}",
        )
