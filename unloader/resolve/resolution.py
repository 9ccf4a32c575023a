"""From a request to a resolved run with its open source: tables, their outputs, their work units.

`plan` shows and writes the result, `run` executes it, so the two cannot disagree. All problems of
all tables are known before the first row is read, and are reported in one error.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import PurePath
from typing import TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from partition_planner.model import Plan, PlanError, TableInfo
from partition_planner.planner import estimated_bytes, plan_part
from partition_planner.planner import unit_bytes as common_unit_bytes
from unloader.engine.schedule import delay_seconds, spread
from unloader.errors import (
    ConfigError,
    Interrupted,
    PlanFailed,
    SnapshotGone,
    UnloaderError,
    UsageError,
    translate,
)
from unloader.events import Notice, Observer, PhaseStarted, Tick, silent
from unloader.lakehouse.lake_formats import lake_format, lake_kind
from unloader.model import (
    Extract,
    LakeTable,
    Projection,
    Request,
    Snapshot,
    SourceSpec,
    TablesOptions,
)
from unloader.placement.seating import SeatPlan, seat_request
from unloader.request.names import one_column
from unloader.resolve.choosing import ChosenTable, chosen_tables
from unloader.resolve.columns import columns_of, without_masked_ranges
from unloader.resolve.places import (
    at_absolute_places,
    check_places,
    checked_encryption,
    directories_of,
    home_of,
    placed,
)
from unloader.resolve.planning import (
    AGAIN,
    check_fits,
    gone,
    keys_of,
    limits_of,
    plan_of,
    snapshot_of,
    source_of_plan,
    with_keys_of_plan,
)
from unloader.resolve.resolved import ResolvedOutput, ResolvedTable, of_output
from unloader.selection.asked import TablesRequest
from unloader.selection.listing import TableProblem, each_once, one_error
from unloader.sources.base import Catalog
from unloader.sources.questions import hold_tables
from unloader.sources.readings import with_origin
from unloader.sources.registry import cancelled_by, open_unless
from unloader.storage.place_names import destination_kind, is_one_stream, real
from writers.model import Choice, Compression, ParquetFormat
from writers.objects.location import below
from writers.schema import read_schema

T = TypeVar("T")

_POLL_SECONDS = 0.1


class OpenRun(Struct, frozen=True, kw_only=True):
    """A resolved run; its catalog holds the snapshot while the context is open."""

    run_id: str
    tables: tuple[ResolvedTable, ...]
    catalog: Catalog
    started: float
    """When the preparation began, by `time.perf_counter`."""
    options: TablesOptions
    is_single: bool
    problems: tuple[TableProblem, ...] = ()
    resumed_in: str = ""
    """The directory with the record of the interrupted run that continues; empty for a new run."""


def with_retries(
    request: Request,
    run_id: str,
    what: str | Callable[[], str],
    act: Callable[[], T],
    *,
    check: Callable[[], object] = lambda: None,
    stop: Callable[[], bool],
    observe: Observer,
) -> T:
    """Return what an act returns, asking the source again after each error that may pass.

    A nightly job must not fail because the database restarts when it begins. So it is asked as
    often as units are retried. `what` names the act in the log; it is called after each failure
    where an act has several steps. `check` is called after an error that may pass; it raises what
    ends the attempts. `stop` is asked several times a second; True ends a wait.
    """
    # Many jobs may begin at one minute.
    jitter = spread(run_id)
    for failures in range(1, request.retry.retries + 1):
        try:
            return act()
        except UnloaderError as error:
            if not error.retryable:
                raise
            check()
            name = what if isinstance(what, str) else what()
            delay = delay_seconds(request.retry, failures, jitter(name, failures))
            text = f"{name}, attempt {failures} failed: {error.message}"
            observe(Notice(text=f"{text} (next attempt in {delay:.3g} s)"))
        until = time.monotonic() + delay
        while (left := until - time.monotonic()) > 0:
            if stop():
                raise Interrupted(f"stopped by a signal while waiting for the next attempt: {name}")
            observe(Tick())
            time.sleep(min(left, _POLL_SECONDS))
    return act()


@contextmanager
def resolved(
    asked: TablesRequest,
    *,
    planned: ResolvedTable | None = None,
    seats: Callable[[], SeatPlan] | None = None,
    stop: Callable[[], bool] = lambda: False,
    observe: Observer = silent,
) -> Iterator[OpenRun]:
    """Open the source, take one snapshot and decide everything for all tables.

    Args:
        asked: Which tables. Its options may leave out tables that cannot be unloaded, if other
            tables remain. A pattern that matches nothing is always an error.
        planned: The only table as it was resolved earlier. Its plan and its codec are used again,
            if the plan fits the table. Snapshot, seats and run id are new.
        seats: Returns the seats of workers that are being started; called once the tables are
            known. None decides the seats first.

    Raises PlanFailed if the table cannot be cut as asked, the planned run does not fit it, or some
    tables cannot be unloaded for more than one kind of reason, and UsageError if the selection
    names what does not exist.
    """
    run_id, first = new_run_id(), asked.common
    if planned is not None:
        for was, each in zip(planned.outputs, first.of_outputs(), strict=True):
            if checked_encryption(each) is None and was.options.encryption is not None:
                raise PlanFailed(
                    "the plan is for encrypted files, but no key or recipient is given",
                    "give the key or the recipients again, or make a new plan",
                )
    is_part = first.selection.part is not None
    with ExitStack() as opened:
        with gone("the plan", AGAIN, *(SnapshotGone,) * is_part):
            ready = opened.enter_context(
                prepared(
                    asked,
                    source=source_of_plan(first.source, planned) if is_part else None,
                    run_id=run_id,
                    planned=None if planned is None else planned.plan,
                    seats=seats,
                    stop=stop,
                    observe=observe,
                )
            )
            if is_part and planned is not None:
                table, had = ready.tables[0], snapshot_of(planned)
                taken = table.extract.snapshot
                if not had.is_same(taken):
                    found = "none" if taken is None else f"{taken.kind} {taken.value}".strip()
                    text = f"it was {had.kind} {had.value}, and the source is now at {found}"
                    raise SnapshotGone(text)
                # With the time at which it was taken, which names directories and files.
                ready.tables[0] = replace(table, extract=replace(table.extract, snapshot=had))
        if planned is not None:
            # The places of keys may differ.
            had_steps, steps = (
                [each.options.transform and each.options.transform.steps for each in of.outputs]
                for of in (planned, ready.tables[0])
            )
            if had_steps != steps:
                raise PlanFailed(
                    "the plan transforms the rows in another way than these options do",
                    "give the options of the plan again, or make a new plan",
                )
        measured: dict[object, Choice] = {}
        # A preset is measured on the largest table.
        for number, table in sorted(
            ready.tables.items(),
            key=lambda each: -sum(unit.rows or 0 for unit in each[1].plan.units),
        ):
            outputs = tuple(
                _with_codec(at, of_output(table, at), planned, measured, stop, observe)
                for at in range(len(table.outputs))
            )
            ready.tables[number] = replace(table, outputs=outputs)
        placed_outputs = ready.each(
            ready.tables, lambda at: _placed_outputs(ready.tables[at], ready.catalog)
        )
        if is_part and planned is not None:
            placed_outputs[0] = with_keys_of_plan(placed_outputs[0], planned)
        if not asked.is_single:
            ready.refuse_collisions(placed_outputs)
        tables = list(ready.tables.values())
        # A worker reads any table with units left, so all tables have the same seats.
        workers = min(
            max((table.plan.limits.parallelism for table in tables), default=0),
            sum(len(table.plan.units) for table in tables),
        )
        places = [table.request.output.destinations for table in tables]
        if any(is_one_stream(destination_kind(each)) for each in places):
            workers = 1
        seating = ready.seats.first(workers)
        runs = tuple(
            replace(table, outputs=placed_outputs[number], seating=seating)
            for number, table in ready.tables.items()
        )
        if runs and not asked.is_single:
            # A place for the manifest of the run is needed before any row is read.
            home_of(asked.options.destination, runs)
        lost = [TableProblem.earlier(table, why) for table, why in asked.left_out]
        late = [ready.problems[number] for number in sorted(ready.problems)]
        problems = each_once((*lost, *ready.missing, *late))
        goes_on = asked.options.on_failure == "continue" and runs
        unmatched = any(each.kind == "unmatched" for each in problems)
        if unmatched or (problems and not goes_on):
            raise one_error(problems, len(runs) + len({each.table for each in problems}))
        for text in ready.notices:
            observe(Notice(text=text))
        yield OpenRun(
            run_id=run_id,
            tables=runs,
            catalog=ready.catalog,
            started=ready.started,
            options=asked.options,
            is_single=asked.is_single,
            problems=problems,
        )


def new_run_id() -> str:
    """Return a unique name for a run, which sorts by time: to the second, microseconds, random."""
    now = datetime.now(UTC)
    return f"{now:%Y%m%dT%H%M%SZ}-{now.microsecond:05x}{os.urandom(3).hex()}"


class PreparedRun(Struct, kw_only=True):
    """The planned tables of an open source, and the problems of the other tables."""

    asked: TablesRequest
    catalog: Catalog
    seats: SeatPlan
    stop: Callable[[], bool]
    chosen: list[ChosenTable]
    missing: list[TableProblem]
    """Problems of tables and patterns that are not among the chosen tables."""
    notices: list[str]
    tables: dict[int, ResolvedTable] = field(default_factory=dict)
    """By the number of the chosen table. Codecs and places are not decided yet."""
    problems: dict[int, TableProblem] = field(default_factory=dict)
    started: float

    def each(self, numbers: Iterable[int], do: Callable[[int], T]) -> dict[int, T]:
        """Return the result of a step for each table; refuse the tables for which it fails."""
        found: dict[int, T] = {}
        for number in list(numbers):
            if self.stop():
                raise Interrupted("stopped by a signal before all tables were planned")
            try:
                found[number] = do(number)
            except (UnloaderError, PlanError) as error:
                known = translate(error) or error
                assert isinstance(known, UnloaderError)
                common = known.retryable or isinstance(known, (Interrupted, ConfigError))
                if common or self.asked.is_single:
                    raise
                self.refuse(number, known)
        return found

    def refuse(self, number: int, error: UnloaderError) -> None:
        """Note that a table cannot be unloaded; the error of the only table is raised."""
        if self.asked.is_single:
            raise error
        table = self.chosen[number]
        self.tables.pop(number, None)
        self.problems.setdefault(
            number, TableProblem(table=table.table.label, error=error, entry=table.entry)
        )

    def refuse_collisions(self, outputs: Mapping[int, tuple[ResolvedOutput, ...]]) -> None:
        """Refuse tables whose directory equals or contains the directory of another table."""
        # The place in an object store is compared as a path, too, and shown as it is.
        texts: dict[PurePath, str] = {}
        taken: list[tuple[PurePath, int]] = []
        for number, several in outputs.items():
            for output in several:
                for place in map(real, directories_of(output.options)):
                    taken.append((PurePath(place), number))
                    texts[PurePath(place)] = str(place)
        owners: dict[PurePath, int] = {}
        found: dict[int, tuple[int, PurePath]] = {}
        for path, number in taken:
            other = owners.setdefault(path, number)
            if other != number:
                found.setdefault(number, (other, path))
                found.setdefault(other, (number, path))
        for path, number in taken:
            around = next((above for above in path.parents if above in owners), None)
            if around is not None and owners[around] != number:
                found.setdefault(number, (owners[around], around))
        for number, (other, path) in found.items():
            request = self.tables[number].request
            to = request.output.destination
            hint = "give each table a separate directory: --to '/extract/{schema}.{table}'"
            if request.selection.query is not None and "{table}" in to:
                hint = (
                    'name the query, so that {table} means its name: query-name = "NAME" below its '
                    "[[table]]"
                )
            elif "{schema}" in to and "{table}" in to:
                hint = "give one of the tables a separate `to` below a [[table]] of a job file"
            label = self.chosen[other].table.label
            self.refuse(
                number,
                UsageError(f"it would be written to the directory of {label}, {texts[path]}", hint),
            )


@contextmanager
def prepared(
    asked: TablesRequest,
    *,
    source: SourceSpec | None = None,
    run_id: str = "",
    planned: Plan | None = None,
    seats: Callable[[], SeatPlan] | None = None,
    stop: Callable[[], bool] = lambda: False,
    observe: Observer = silent,
) -> Iterator[PreparedRun]:
    """Open the source, take the snapshot, plan all tables and hold them.

    The catalog is closed, and the snapshot released, at the end of the context. `source` is at the
    snapshot of a plan; None is the source of the request. `run_id` names the run in the sessions of
    the source; it is empty outside a run. `planned` is an earlier plan of the only table. Raises
    ConfigError if the requested seats are unavailable, and other errors as `resolved`.
    """
    started, first = time.perf_counter(), asked.common
    if seats is None:
        decided = seat_request(first, planned.limits.parallelism if planned else None)

        def seats() -> SeatPlan:
            return decided

    source = source or first.source
    source = replace(source, session=replace(source.session, run_id=run_id))
    step = "connecting"
    observe(PhaseStarted(phase="connecting"))

    def prepare() -> PreparedRun:
        nonlocal step
        step = "connecting"
        catalog = open_unless(stop, source)
        step = "planning"
        with ExitStack() as failed, cancelled_by(stop, catalog):
            failed.callback(_closed_quietly, catalog)
            observe(PhaseStarted(phase="snapshot"))
            chosen_seats = seats()
            catalog.expect_workers(chosen_seats.parallelism if run_id else 0)
            snapshot = catalog.snapshot(first.consistency)
            observe(PhaseStarted(phase="table"))
            chosen, missing, notices = chosen_tables(catalog, asked.entries, observe)
            if asked.is_single and missing:
                raise missing[0].error
            observe(PhaseStarted(phase="planning"))
            run = PreparedRun(
                asked=asked,
                catalog=catalog,
                seats=chosen_seats,
                stop=stop,
                chosen=chosen,
                missing=missing,
                notices=notices,
                started=started,
            )
            size = None
            if not asked.is_single:
                sizes = (estimated_bytes(each.table) for each in chosen)
                size = common_unit_bytes(sizes, run.seats.parallelism)
            run.tables = run.each(
                range(len(chosen)),
                lambda at: prepared_table(
                    chosen[at],
                    catalog=catalog,
                    source=source,
                    snapshot=snapshot,
                    seats=run.seats,
                    run_id=run_id,
                    planned=planned,
                    unit_bytes=size,
                ),
            )
            observe(PhaseStarted(phase="locking"))
            run.each(run.tables, lambda at: catalog.check_where(run.tables[at].extract))
            wanted = [(each.extract, each.plan.selectors) for each in run.tables.values()]
            held = hold_tables(catalog, wanted, observe)
            for number, error in zip(list(run.tables), held, strict=True):
                if error is None:
                    continue
                # Another attempt may get a lock, but not while other tables could be read.
                if error.retryable and asked.options.on_failure == "stop":
                    raise error
                run.refuse(number, error)
            failed.pop_all()
            return run

    # Nothing is decided yet: the findings of a lost session are looked for again. Seats that are
    # unavailable are not the fault of the source, and end the attempts.
    ready = with_retries(
        first, run_id, lambda: step, prepare, check=seats, stop=stop, observe=observe
    )
    with closing(ready.catalog):
        yield ready


def _closed_quietly(catalog: Catalog) -> None:
    with suppress(UnloaderError):
        catalog.close()


def prepared_table(
    found: ChosenTable,
    *,
    catalog: Catalog,
    source: SourceSpec,
    snapshot: Snapshot,
    seats: SeatPlan,
    run_id: str = "",
    planned: Plan | None = None,
    unit_bytes: int | None = None,
) -> ResolvedTable:
    request, selection, table = found.request, found.request.selection, found.table
    read, outputs = columns_of(request, catalog, table)
    split = request.split if planned is None else "auto"
    if any(each.origins for each in outputs):
        table = without_masked_ranges(table, catalog, outputs, split)
    limits = limits_of(request, catalog, seats.parallelism, unit_bytes)
    if planned is None:
        plan = plan_of(table, selection, limits)
    else:
        check_fits(planned, table, selection.partitions)
        part = selection.part
        found_part = planned if part is None else plan_part(planned, part.number, part.of)
        if part is not None and found_part is None:
            raise PlanFailed(
                f"the plan has {len(planned.units)} work units, so part {part.number} of "
                f"{part.of} is empty",
                "run fewer parts",
            )
        plan = found_part or planned
    extract = extract_of(request, table, read, catalog, source, snapshot)
    if any(isinstance(each.format, ParquetFormat) for each in outputs):
        extract = with_origin(extract)
    in_order = is_one_stream(destination_kind(request.output.destinations))
    return ResolvedTable(
        run_id=run_id,
        request=request,
        server_version=catalog.server_version,
        extract=extract,
        plan=plan,
        outputs=outputs,
        topology=seats.topology,
        seating=seats.first(1 if in_order else min(plan.limits.parallelism, len(plan.units))),
    )


def extract_of(
    request: Request,
    table: TableInfo,
    read: Projection,
    catalog: Catalog,
    source: SourceSpec,
    snapshot: Snapshot | None,
) -> Extract:
    selection = request.selection
    return Extract(
        source=source,
        snapshot=snapshot,
        # Workers read by selector: thousands of partitions need not travel with each task.
        table=replace(table, partitions=(), extents=(), keys=None),
        query=selection.query,
        where=selection.where,
        partitions=selection.partitions,
        keys=None if selection.sample_by is None else keys_of(catalog, table, selection),
        limit_rows=selection.limit_rows,
        projection=read,
    )


def _with_codec(
    number: int,
    table: ResolvedTable,
    planned: ResolvedTable | None,
    measured: dict[object, Choice],
    stop: Callable[[], bool],
    observe: Observer,
) -> ResolvedOutput:
    """Return the only output of `table`, output `number` of its run, with the codec of its preset.

    A codec of the plan, and measurements for an output of other tables, are used again.
    """
    output, asked, choice = table.output, table.request.output.compression, None
    # A codec that was measured for files of another format is not used again.
    if planned is not None and type(planned.outputs[number].format) is type(output.format):
        choice = planned.outputs[number].choice
    if choice is None or asked not in (choice.compression, choice.preset):
        if isinstance(asked, Compression):
            return output
        kind = (number, asked, type(output.format))
        if kind not in measured:
            # Imported here: few runs measure codecs.
            from unloader.tuning.codec_choice import chosen

            observe(PhaseStarted(phase="measuring"))
            measured[kind] = chosen(table, asked, observe=observe, stop=stop)
        choice = measured[kind]
    return replace(output, compression=choice.compression, choice=choice)


def _placed_outputs(table: ResolvedTable, catalog: Catalog) -> tuple[ResolvedOutput, ...]:
    """Return the outputs of a table, with their real places and the proofs of their keys."""
    found = []
    for number, output in enumerate(table.outputs):
        own = of_output(table, number)
        options = placed(output.options, own.extract, table.run_id)
        if options.encryption is not None:
            options = replace(options, encryption=checked_encryption(own.request))
        name, shape, written = options.destination, own.output.format, own.written
        if (kind := lake_kind(name)) is not None:
            names = [column.name for column in written.columns]
            folding = catalog.capabilities.folding
            tables = lake_format(kind)
            lake_table = tables.prepared(
                LakeTable(
                    kind=kind,
                    name=name,
                    save_mode=options.save_mode or "create",
                    replace_where=options.replace_where,
                    branch=options.branch,
                    location="",
                    files="",
                    partition_by=tuple(
                        replace(each, column=one_column(names, each.column, folding))
                        for each in options.partition_by
                    ),
                    sorted_by=shape.sorted_by if isinstance(shape, ParquetFormat) else (),
                ),
                read_schema(written.schema),
            )
            options = replace(
                options,
                destination=below(tables.data_place(name), own.run_id),
                lake_table=replace(lake_table, files=f"{lake_table.files}/{own.run_id}"),
            )
        found.append(replace(output, options=options))
    if len(found) > 1:
        check_places(table.request, [each.options for each in found])
    if len(found) > 1 or table.request.uses_cluster:
        # Another process, in another directory, reads the place.
        found = [replace(each, options=at_absolute_places(each.options)) for each in found]
    return tuple(found)
