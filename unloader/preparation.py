"""From a job to everything a run needs: the open source, its snapshot, columns, plan and seats.

`plan` shows what this module prepares and `run` executes it, so the two cannot disagree.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from numa.model import Topology
from partition_planner.model import Plan, PlanLimits, RowRange, TableInfo, WholeTable
from partition_planner.planner import plan as make_plan
from unloader.cancelling import cancelled_by
from unloader.destinations.kinds import is_one_stream, kind_of
from unloader.errors import PlanFailed, UsageError
from unloader.model import Extract, JobSpec, Projection, Selection, Target
from unloader.named_columns import with_named_columns
from unloader.names import choose_columns, matching_any
from unloader.seating import Seating, automatic_parallelism, machine, seat_workers
from unloader.sources.base import Catalog
from unloader.sources.origin import with_origin
from unloader.sources.registry import source_of
from writers.model import ParquetFormat, TextFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A job, ready to run; its catalog holds the snapshot while the context is open."""

    job: JobSpec
    """As it was asked for, with the fields of records of fixed width filled in."""
    catalog: Catalog
    extract: Extract
    plan: Plan
    topology: Topology
    """The machine that the seats are on."""
    seating: Seating
    started: float
    """When the preparation began, by `time.perf_counter`."""


@contextmanager
def prepared(job: JobSpec, stop: Callable[[], bool] = lambda: False) -> Iterator[Prepared]:
    """Open the source, take the snapshot, plan and seat.

    The catalog is closed, and the snapshot released, at the end of the context.

    Args:
        job: What the user asked for.
        stop: Asked several times a second until all is prepared; True cancels what is going on.

    Raises:
        SourceError: The source refused.
        PlanFailed: The table cannot be cut as asked, or a given plan does not fit it.
        PlanError: As PlanFailed, from the planner itself.
        UsageError: The selection names what is not there.
    """
    started = time.perf_counter()
    catalog = source_of(job.source.kind).open_catalog(job.source)
    try:
        with cancelled_by(stop, catalog):
            ready = _prepare(job, catalog, started)
        yield ready
    finally:
        catalog.close()


def _prepare(job: JobSpec, catalog: Catalog, started: float) -> Prepared:
    topology = machine()
    snapshot = catalog.snapshot(job.consistency)
    table = chosen_table(catalog, job.selection)
    projection = catalog.project(table, job.selection.query, target_of(job))
    job = with_named_columns(_with_fields(job, projection, catalog), projection)
    plan = _plan(job, table, topology)
    extract = Extract(
        source=job.source,
        snapshot=snapshot,
        table=_slim(table),
        query=job.selection.query,
        where=job.selection.where,
        projection=projection,
    )
    if isinstance(job.output.output.format, ParquetFormat):
        extract = with_origin(extract)
    catalog.check_where(extract)
    catalog.hold(extract, plan.units)
    in_order = is_one_stream(kind_of(job.output.destinations))
    workers = 1 if in_order else min(plan.limits.parallelism, len(plan.units))
    seating = seat_workers(topology, workers, job.seats)
    return Prepared(
        job=job,
        catalog=catalog,
        extract=extract,
        plan=plan,
        topology=topology,
        seating=seating,
        started=started,
    )


def chosen_table(catalog: Catalog, selection: Selection) -> TableInfo:
    """Return the table cut down to the chosen columns, or the query as a table.

    Raises:
        UsageError: Neither or both of table and query, or an unknown column.
        SourceError: The source refused.
    """
    if (selection.table is None) == (selection.query is None):
        raise UsageError("a run reads one table or one query", "give --table or --query")
    if selection.query is not None:
        table = catalog.describe_query(selection.query)
    else:
        assert selection.table is not None
        table = catalog.describe(selection.table)
    names = [column.name for column in table.columns]
    chosen = choose_columns(names, selection.columns, selection.exclude)
    for pattern in selection.as_text:
        if not matching_any(chosen, (pattern,)):
            raise UsageError(
                f"--as-text {pattern} matches no column", "use one of: " + ", ".join(chosen[:50])
            )
    columns = tuple(table.columns[names.index(name)] for name in chosen)
    return replace(table, columns=columns)


def _with_fields(job: JobSpec, projection: Projection, catalog: Catalog) -> JobSpec:
    """Return the job with the fields of its records, if they are to be of fixed width."""
    text = job.output.output.format
    if job.fixed is None or not isinstance(text, TextFormat):
        return job
    from unloader.fixed_fields import fixed_fields
    from writers.text.dialects import check

    pads_char = catalog.capabilities.pads_char
    fields = fixed_fields(projection, text, job.fixed, pads_char=pads_char)
    text = replace(text, fixed=fields)
    check(text)
    output = replace(job.output.output, format=text)
    return replace(job, output=replace(job.output, output=output))


def target_of(job: JobSpec) -> Target:
    """Return what the source must know of the job's output."""
    spec = job.output.output
    text = spec.format if isinstance(spec.format, TextFormat) else None
    return Target(
        format="parquet" if text is None else "csv",
        text=text,
        as_text=job.selection.as_text,
        encoded_allowed=spec.file_size_bytes == 0 and job.fixed is None,
        values=job.values,
    )


def _plan(job: JobSpec, table: TableInfo, topology: Topology) -> Plan:
    if job.plan is not None:
        _check_fits(job.plan, table, job.selection.partitions)
        return job.plan
    parallelism = job.limits.parallelism or automatic_parallelism(topology, job.seats)
    limits = replace(job.limits, parallelism=parallelism)
    return plan_partitions(table, job.selection.partitions, limits)


def plan_partitions(table: TableInfo, patterns: tuple[str, ...], limits: PlanLimits) -> Plan:
    """Return the plan of a table, or of its partitions that match a pattern.

    Raises:
        PlanFailed: No partition matches, or the plan does not go by partition.
        PlanError: From the planner itself.
    """
    if not patterns:
        return make_plan(table, limits)
    wanted = _chosen((part.name for part in table.partitions), patterns)
    if not wanted:
        raise PlanFailed(
            f"no partition of {table.name} matches {', '.join(patterns)}",
            f"see their names with: unloader describe SOURCE --table {table.name}",
        )
    if table.named_partitions:
        kept = tuple(part for part in table.partitions if part.name in wanted)
        return make_plan(replace(table, partitions=kept), limits)
    return _kept_units(make_plan(table, limits), wanted, limits)


def _chosen(names: Iterable[str], patterns: tuple[str, ...]) -> frozenset[str]:
    """Return the partitions that a pattern matches; a partition's name stands for its parts."""
    return matching_any(names, (*patterns, *(f"{pattern}/*" for pattern in patterns)))


def _kept_units(plan: Plan, wanted: frozenset[str], limits: PlanLimits) -> Plan:
    """Return the plan cut down to units of the wanted partitions.

    Partitions that are row ranges must tile their table, so all are planned first.
    """
    units = tuple(unit for unit in plan.units if unit.partition in wanted)
    if not units:
        raise PlanFailed(
            "this plan reads the table as a whole, not by partition", "use --split partition"
        )
    return Plan.of(table=plan.table, units=units, limits=limits)


def _check_fits(plan: Plan, table: TableInfo, patterns: tuple[str, ...]) -> None:
    """Check that a plan made earlier still describes the table.

    Sizes may have changed, as units at the edges are open-ended; columns and partitions may not:
    a partition that no unit knows would be missing from output and count alike.
    """
    was, now = plan.table, table
    before = {(part.name, part.relation) for part in was.partitions}
    after = {(part.name, part.relation) for part in now.partitions}
    chosen = _chosen((name for name, _ in after), patterns or ("*",))
    wanted = {part for part in after if part[0] in chosen}
    in_parts = any(not isinstance(unit.selector, WholeTable) for unit in plan.units)
    problem = None
    if (was.schema, was.name) != (now.schema, now.name):
        problem = f"it is for {was.label}, not for {now.label}"
    elif was.columns != now.columns:
        problem = "the columns have changed"
    elif before - after:
        problem = f"partitions have gone, such as {min(before - after)[0]}"
    elif in_parts and wanted - before:
        problem = f"partitions have come, such as {min(wanted - before)[0]}"
    elif not _segments_of(plan) <= {now.object_id, *(part.object_id for part in now.partitions)}:
        problem = "rows were moved to other segments, so its ranges mean other rows by now"
    if problem:
        raise PlanFailed(f"the plan no longer fits the table: {problem}", "make a new plan")


def _segments_of(plan: Plan) -> set[int]:
    """Return the segments whose addresses the plan's ranges hold."""
    selectors = (unit.selector for unit in plan.units)
    ids = {each.object_id for each in selectors if isinstance(each, RowRange)}
    return {each for each in ids if each is not None}


def _slim(table: TableInfo) -> TableInfo:
    # Workers read by selector; ten thousand partitions or extents need not travel with each task.
    return replace(table, partitions=(), extents=(), keys=None)
