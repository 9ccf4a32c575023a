"""From the request for a table to the plan that reads all or some of its rows.

Some rows are `--partition`, `--sample`, with or without `--sample-by`, or `--limit-rows`.
"""

from __future__ import annotations

import shlex

from msgspec.structs import replace

from partition_planner.model import Plan, PlanLimits, TableInfo
from partition_planner.planner import plan as make_plan
from partition_planner.planner import plan_of_units
from partition_planner.subsets import sampled_plan
from unloader.errors import PlanFailed, UsageError
from unloader.model import Request, SampledKeys, Selection
from unloader.request.names import matching_partitions, one_column, typed
from unloader.sources.base import Catalog
from unloader.sources.questions import check_able, describe_query, sampled_keys

SHOWN_NAMES = 5


def keys_of(catalog: Catalog, table: TableInfo, selection: Selection) -> SampledKeys | None:
    """Return the sample of keys that was asked for; None if rows of all keys are read.

    Raises:
        UsageError: The column does not exist or cannot be a key, or the source has no samples.
        SourceError: The source refused.
    """
    share = selection.sampled_share
    if share is None or selection.sample_by is None:
        return None
    check_able(catalog, "sample")
    wanted, whole = selection.sample_by, table
    if selection.columns or selection.exclude:
        # A name must mean the same column for every choice of columns.
        if selection.query is not None:
            whole = describe_query(catalog, selection.query)
        elif selection.table is not None:
            whole = catalog.describe(selection.table)
    names = [column.name for column in whole.columns]
    try:
        name = one_column(names, wanted, catalog.capabilities.folding)
    except UsageError as error:
        raise UsageError(
            f"--sample-by {wanted}: {error.message} in {table.label}",
            f"{error.hint}; in a run of several tables, give this table its own sample-by, or "
            'sample = "100%", below its [[table]] in a job file',
        ) from error
    return sampled_keys(catalog, table.label, whole.columns[names.index(name)], share)


def takes_units(selection: Selection) -> bool:
    return selection.sampled_share is not None and selection.sample_by is None


def limits_of(request: Request, parallelism: int, unit_bytes: int | None = None) -> PlanLimits:
    """Return the limits of a plan.

    Args:
        unit_bytes: The size of the units of all tables, if there are several. A size that the user
            gave has priority. The units of a sample are as small as it needs them.
    """
    asked = request.limits
    if unit_bytes is None or asked.unit_bytes is not None or takes_units(request.selection):
        unit_bytes = asked.unit_bytes
    return PlanLimits(parallelism=parallelism, split=asked.split, unit_bytes=unit_bytes)


def check_sampling(catalog: Catalog, selection: Selection) -> None:
    """Check that the source can read the part of the rows that is asked for.

    Raises:
        UsageError: It cannot.
    """
    if selection.sampled_share is not None:
        check_able(catalog, "sample")
    if selection.part is not None:
        check_able(catalog, "part")
    if selection.limit_rows is None:
        return
    check_able(catalog, "limit-rows")
    if takes_units(selection):
        raise UsageError(
            "--sample takes whole work units, but --limit-rows takes a number of rows",
            "leave out one of the two, or add --sample-by",
        )


def plan_of(table: TableInfo, selection: Selection, limits: PlanLimits) -> Plan:
    """Return the plan of the requested rows of a table.

    Rows that are limited in number are one unit, because a unit cannot count the rows of others.

    Raises:
        PlanFailed: A pattern matches no partition.
        PlanError: From the planner itself.
    """
    wanted = _partitions(table, selection.partitions) if selection.partitions else None
    if selection.limit_rows is not None:
        limits = replace(limits, split="none")
    share = selection.sampled_share
    if share is not None and takes_units(selection):
        return sampled_plan(table, limits, share, wanted)
    plan, most = make_plan(table, limits, wanted), selection.limit_rows
    if share is None and most is None:
        return plan
    units = []
    for unit in plan.units:
        if unit.rows is not None:
            rows = unit.rows if share is None else round(unit.rows * share)
            unit = replace(unit, rows=rows if most is None else min(rows, most))
        units.append(unit)
    return plan_of_units(
        table=plan.table, partitions=plan.partitions, units=tuple(units), limits=plan.limits
    )


def _partitions(table: TableInfo, patterns: tuple[str, ...]) -> frozenset[str]:
    names = [part.name for part in table.partitions]
    typed_name = ".".join(typed(each, "any") for each in (table.schema, table.name) if each)
    described = shlex.join(("unloader", "describe", "SOURCE", "--table", typed_name))
    if not names:
        raise PlanFailed(
            f"{table.label} has no partitions that can be read separately, but --partition asks "
            f"for {', '.join(patterns)}",
            f"leave out --partition, or use --where; to find a missing privilege, see: {described}",
        )
    known = frozenset(names)
    missed = [
        each for each in patterns if each not in known and not matching_partitions(names, (each,))
    ]
    if not missed:
        return matching_partitions(names, patterns)
    near = [name for name in names if name.casefold().endswith(f"/{missed[0].casefold()}")]
    shown = (near or names)[:SHOWN_NAMES]
    raise PlanFailed(
        f"--partition {', '.join(missed)} matches no partition of {table.label}",
        f"use names such as {', '.join(shown)}, or see all {len(names)} with: {described}; in a "
        "run of several tables, give each table its own partition below its [[table]] in a job "
        "file",
    )
