"""From a request to what its source and this machine decide: snapshot, columns, plan and seats."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from numa.model import Topology
from partition_planner.model import Plan, TableInfo
from unloader.errors import UnloaderError, UsageError
from unloader.events import Notice, Observer, PhaseStarted, silent
from unloader.model import (
    COMPARING,
    Extract,
    Projection,
    Request,
    Snapshot,
    SourceSpec,
)
from unloader.placement.seating import Seating, SeatPlan, seat_request
from unloader.request.names import Folding, one_column
from unloader.resolve.chosen_table import chosen_table
from unloader.resolve.guarded_columns import marked
from unloader.resolve.masked_ranges import without_masked_ranges
from unloader.resolve.outputs.columns import projection_of_output
from unloader.resolve.outputs.one import extract_of_output
from unloader.resolve.patience import Patience
from unloader.resolve.plan_fit import check_fits
from unloader.resolve.planning import check_sampling, keys_of, plan_of, planned_part
from unloader.sources.abilities import check_where
from unloader.sources.base import Catalog
from unloader.sources.cancelling import cancelled_by, open_unless
from unloader.sources.projection import OutputNeeds, project, with_origin
from unloader.sources.registry import source_of
from unloader.storage.place_names import destination_kind, is_one_stream
from writers.model import ParquetFormat, TextFormat

if TYPE_CHECKING:
    from unloader.resolve.outputs.transforming import ResolvedTransform
    from unloader.transforms.model import TransformOptions


class Prepared(Struct, frozen=True, kw_only=True):
    """A request and its open source; the catalog holds the snapshot while the context is open."""

    request: Request
    format: TextFormat | ParquetFormat
    """With the fields of records of fixed width, and columns named as the source names them."""
    catalog: Catalog
    extract: Extract
    plan: Plan
    topology: Topology
    """The machine that the seats are on."""
    seating: Seating
    started: float = 0.0
    """When the preparation began, by `time.perf_counter`."""
    formats: tuple[TextFormat | ParquetFormat, ...] = ()
    """Of each output where there are routes; the first is `format`."""
    transform: ResolvedTransform | None = None
    """What is done to the rows of the output, or the first one."""
    transforms: tuple[ResolvedTransform | None, ...] = ()
    """Of each output where there are routes; the first is `transform`."""

    @property
    def task_transform(self) -> TransformOptions | None:
        """What a worker is told to do to the rows."""
        return None if self.transform is None else self.transform.options

    def of_outputs(self) -> tuple[Prepared, ...]:
        """Return what each output would be as the only one."""
        if self.request.routes is None:
            return (self,)
        asked = self.request.of_outputs()
        return tuple(
            replace(
                self,
                request=each,
                format=self.formats[number],
                extract=extract_of_output(self.extract, number),
                formats=(),
                transform=self.transforms[number],
                transforms=(),
            )
            for number, each in enumerate(asked)
        )


@contextmanager
def prepared(
    request: Request,
    stop: Callable[[], bool] = lambda: False,
    observe: Observer = silent,
    *,
    run_id: str = "",
    planned: Plan | None = None,
    seats: Callable[[], SeatPlan] | None = None,
) -> Iterator[Prepared]:
    """Open the source, take the snapshot, plan and seat.

    The catalog is closed, and the snapshot released, at the end of the context.

    Args:
        request: What the user asked for.
        stop: Asked several times a second until all is prepared; True cancels what is going on.
        observe: Reports each step as it begins.
        run_id: Names the run in the source's sessions; empty outside a run.
        planned: A plan made earlier; None makes one from the table as it is.
        seats: Returns those that were decided already, as soon as they are known; called once the
            table is. None decides them before anything else.

    Raises:
        ConfigError: The requested seats are unavailable.
        PlacementError: `--numa-nodes` names a node that is not there.
        SourceError: The source refused.
        PlanFailed: The table cannot be cut as asked, or a given plan does not fit it.
        PlanError: As PlanFailed, from the planner itself.
        UsageError: The selection names what is not there.
    """
    started = time.perf_counter()
    seated = seats or _seats_here(request, planned)
    observe(PhaseStarted(phase="connecting"))
    asked = request.source
    source = replace(asked, session=replace(asked.session, run_id=run_id))
    patience = Patience(retry=request.retry, run_id=run_id, stop=stop, observe=observe)
    step = "connecting"

    def prepare() -> Prepared:
        nonlocal step
        step = "connecting"
        catalog = open_unless(stop, source)
        step = "planning"
        with closing_after_failure(catalog), cancelled_by(stop, catalog):
            observe(PhaseStarted(phase="snapshot"))
            snapshot = catalog.snapshot(request.consistency)
            return _prepare(request, source, catalog, snapshot, seated, planned, observe)

    # Nothing is decided yet: whatever a lost session had found out is found out again.
    # Seats that cannot be had are no fault of the source, and end the attempts.
    ready = patience.with_retries(lambda: step, prepare, seated)
    with closing(ready.catalog):
        yield replace(ready, started=started)


def _seats_here(request: Request, planned: Plan | None) -> Callable[[], SeatPlan]:
    decided = seat_request(request, planned.limits.parallelism if planned else None)
    return lambda: decided


@contextmanager
def closing_after_failure(catalog: Catalog) -> Iterator[None]:
    """Close a catalog if the block raises; what raised comes through whatever closing says."""
    try:
        yield
    except BaseException:
        with suppress(UnloaderError):
            catalog.close()
        raise


def _prepare(
    request: Request,
    source: SourceSpec,
    catalog: Catalog,
    snapshot: Snapshot,
    seats: Callable[[], SeatPlan],
    planned: Plan | None,
    observe: Observer,
) -> Prepared:
    observe(PhaseStarted(phase="table"))
    table = chosen_table(catalog, request.selection, observe)
    observe(PhaseStarted(phase="planning"))
    ready = prepared_table(request, source, catalog, snapshot, table, seats(), planned)
    hold(catalog, ready.extract, ready.plan, observe)
    return ready


def prepared_table(
    request: Request,
    source: SourceSpec,
    catalog: Catalog,
    snapshot: Snapshot,
    table: TableInfo,
    seats: SeatPlan,
    planned: Plan | None = None,
) -> Prepared:
    """Return what a described table, or query, becomes: columns, format and plan.

    Args:
        request: What the user asked for.
        source: The request's, with the name of the run in its sessions.
        catalog: Is at the snapshot.
        snapshot: See there.
        table: From `chosen_table`.
        seats: How many workers there may be, and where.
        planned: A plan made earlier; None makes one from the table as it is.

    Raises:
        SourceError: A column cannot be read exactly.
        PlanFailed: The table cannot be cut as asked, or a given plan does not fit it.
        PlanError: As PlanFailed, from the planner itself.
        UsageError: The selection names what is not there.
    """
    columns = columns_of(request, catalog, table)
    formats = columns.formats
    split = request.limits.split if planned is None else "auto"
    table = without_masked_ranges(table, catalog, columns.transforms, split)
    plan = _plan(request, catalog, table, seats.parallelism, planned)
    extract = Extract(
        source=source,
        snapshot=snapshot,
        table=slim(table),
        query=request.selection.query,
        where=request.selection.where,
        partitions=request.selection.partitions,
        keys=keys_of(catalog, table, request.selection),
        limit_rows=request.selection.limit_rows,
        projection=columns.read,
    )
    if any(isinstance(each, ParquetFormat) for each in formats):
        extract = with_origin(extract)
    in_order = is_one_stream(destination_kind(request.output.destinations))
    workers = 1 if in_order else min(plan.limits.parallelism, len(plan.units))
    routes = request.routes is not None
    return Prepared(
        request=request,
        format=formats[0],
        formats=formats if routes else (),
        catalog=catalog,
        extract=extract,
        plan=plan,
        topology=seats.topology,
        seating=seats.first(workers),
        transform=columns.transforms[0],
        transforms=columns.transforms if routes else (),
    )


class ScanColumns(Struct, frozen=True, kw_only=True):
    """The columns of a scan, and what becomes of them in each output."""

    read: Projection
    formats: tuple[TextFormat | ParquetFormat, ...]
    """With the fields of records of fixed width, and columns named as they are written."""
    transforms: tuple[ResolvedTransform | None, ...]
    """None where the columns are written as they are read."""

    @property
    def written(self) -> Projection:
        """The columns that the first output writes."""
        first = self.transforms[0]
        if first is not None:
            return first.written
        # What a filter alone looks at is read, and not written.
        return self.read if self.read.filters is None else projection_of_output(self.read, 0)


def columns_of(request: Request, catalog: Catalog, table: TableInfo) -> ScanColumns:
    """Return the columns of the scan, with the format and the transform of each output.

    Raises:
        SourceError: A column cannot be read exactly.
        UsageError: A format, a filter or a transform does not fit the columns.
        ConfigError: The key of a mask is missing.
    """
    asked = request.of_outputs()
    needs = tuple(needs_of(each) for each in asked)
    if request.routes is not None:
        from unloader.resolve.outputs.routes import with_columns

        needs = with_columns(asked, needs, table, catalog.capabilities.folding)
    needs = tuple(
        _with_values(each, need, catalog, table) for each, need in zip(asked, needs, strict=True)
    )
    read = _projected(catalog, table, request, needs)
    if request.routes is not None:
        from unloader.resolve.outputs.routes import check_filters

        check_filters(asked, read)
    outputs = [_of_output(each, read, number, catalog) for number, each in enumerate(asked)]
    formats = tuple(each for each, _ in outputs)
    transforms = tuple(each for _, each in outputs)
    if request.routes is None and transforms[0] is None:
        read = marked(read, formats[0])
    return ScanColumns(read=_shared(read), formats=formats, transforms=transforms)


@lru_cache(maxsize=256)
def _shared(projection: Projection) -> Projection:
    """Return one object for all that are equal: many tables of a schema have the same columns.

    Whatever is made of it, or sent to a worker, is then made and sent once for many tables.
    """
    return projection


def _with_values(
    request: Request, needs: OutputNeeds, catalog: Catalog, table: TableInfo
) -> OutputNeeds:
    """Return the needs of an output with the columns that its transform works on."""
    asked = request.output.transform
    if asked is None:
        return needs
    from unloader.resolve.outputs.transforming import columns_as_values

    def read_for(own: OutputNeeds) -> Projection:
        return projection_of_output(_projected(catalog, table, request, (own,)), 0)

    names = [column.name for column in table.columns]
    return replace(needs, values=columns_as_values(asked, needs, read_for, names))


def _of_output(
    request: Request, read: Projection, number: int, catalog: Catalog
) -> tuple[TextFormat | ParquetFormat, ResolvedTransform | None]:
    """Return the format of an output, and what is done to its rows."""
    asked = request.output.transform
    own = projection_of_output(read, number) if len(read.outputs) > 1 or read.filters else read
    if asked is None:
        return format_of(request, own, catalog), None
    from unloader.resolve.outputs.transforming import check_order, resolved_transform

    transform = resolved_transform(asked, own)
    shape = format_of(request, transform.declared, catalog)
    check_order(shape, transform)
    return shape, replace(transform, written=marked(transform.written, shape))


def _projected(
    catalog: Catalog, table: TableInfo, request: Request, needs: Sequence[OutputNeeds]
) -> Projection:
    return project(
        catalog,
        table,
        request.selection.query,
        needs,
        as_text=request.selection.as_text,
        values=request.values,
    )


def hold(catalog: Catalog, extract: Extract, plan: Plan, observe: Observer) -> None:
    """Check the condition, and keep what is to be read as it is until the catalog is closed.

    Raises:
        SourceError: The condition is wrong, or something cannot be held.
        SnapshotGone: Something has changed since the snapshot, so that its rows are lost.
    """
    observe(PhaseStarted(phase="locking"))
    check_where(catalog, extract)
    catalog.hold(extract, plan.selectors)
    for text in catalog.unheld():
        observe(Notice(text=text))


def format_of(
    request: Request, projection: Projection, catalog: Catalog
) -> TextFormat | ParquetFormat:
    """Return the format with what could not be said before the columns were known.

    Raises:
        UsageError: It does not fit the columns.
    """
    shape = request.output.format
    known = catalog.capabilities
    if isinstance(shape, ParquetFormat):
        return named_columns(shape, projection, known.folding)
    if request.fixed is None:
        return shape
    from unloader.resolve.outputs.fixed_fields import fixed_fields
    from writers.errors import FormatError
    from writers.text.dialects import check

    fields = fixed_fields(
        projection,
        shape,
        request.fixed,
        declared=source_of(request.source.kind).declared,
        folding=known.folding,
    )
    shape = replace(shape, fixed=fields)
    try:
        check(shape)
    except FormatError as error:
        # Such as a --width that no number of characters fills.
        raise UsageError(error.message, error.hint) from error
    return shape


def needs_of(request: Request) -> OutputNeeds:
    """Return what the output needs of the columns."""
    output = request.output
    # Text that the database has finished holds no values that could be hashed.
    hashed = request.verify in COMPARING
    changed = output.transform is not None
    return OutputNeeds(
        text=output.format if isinstance(output.format, TextFormat) else None,
        batches_only=(
            hashed or changed or output.file_size_bytes != 0 or request.fixed is not None
        ),
    )


def _plan(
    request: Request, catalog: Catalog, table: TableInfo, parallelism: int, planned: Plan | None
) -> Plan:
    check_sampling(catalog, request.selection)
    if planned is not None:
        check_fits(planned, table, request.selection.partitions)
        return planned_part(planned, request.selection.part)
    return plan_of(table, request.selection, request.limits.limits(parallelism))


def slim(table: TableInfo) -> TableInfo:
    """Return a table without its parts."""
    # Workers read by selector; ten thousand partitions or extents need not travel with each task.
    return replace(table, partitions=(), extents=(), keys=None)


def named_columns(
    parquet: ParquetFormat, projection: Projection, folding: Folding
) -> ParquetFormat:
    """Return the layout with the names of its columns as the database writes them.

    Raises:
        UsageError: There is no such column, it may be several, or one is named twice.
    """
    if not (parquet.bloom_filters or parquet.sorted_by):
        return parquet
    names = [column.name for column in projection.columns]
    blooms = tuple(one_column(names, name, folding) for name in parquet.bloom_filters)
    order = tuple(
        replace(column, name=one_column(names, column.name, folding))
        for column in parquet.sorted_by
    )
    _check_once("--bloom-filter", blooms)
    _check_once("--sorted-by", (column.name for column in order))
    return replace(parquet, bloom_filters=blooms, sorted_by=order)


def _check_once(option: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise UsageError(f"{option} names {name!r} twice", "name each column once")
        seen.add(name)
