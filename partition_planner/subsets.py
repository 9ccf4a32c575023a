"""Some units of a plan: a sample of the rows, or the part of one of several machines.

Nothing is random. The same table, limits and share give the same units.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from partition_planner.costs import measure, parts_of, shares, unit_costs
from partition_planner.cutting import UNITS_PER_WORKER
from partition_planner.model import Plan, PlanError, PlanLimits, PlanPart, SampledUnits, TableInfo
from partition_planner.planner import plan, plan_of_units

LEAST_UNITS = 8
"""This number of places of a table is looked at, if the table is large enough."""

LEAST_UNIT_BYTES = 64 << 10
"""Guess: a smaller piece costs a round trip and saves nothing. Smaller tables are read whole."""

MOST_UNITS = 50_000
"""The whole is cut into no more units than these: each takes some memory and time to plan."""


def sampled_plan(
    table: TableInfo, limits: PlanLimits, share: float, partitions: Collection[str] | None = None
) -> Plan:
    """Return a plan with some of the units of the table, or of some partitions.

    They cost no more than their share, and are evenly spread in the order of the table. Unless the
    limits name a size, units are small enough for several of them to be taken. At least one is
    taken; so of a table with one unit that is the whole table.

    Raises:
        PlanError: The table can only be read in one go and may be large; or as `plan`.
    """
    if not 0 < share < 1:
        raise PlanError(
            f"A sample cannot have {share:.0%} of the table.", "give a share above 0 and below 1."
        )
    parts = parts_of(table)
    costs = measure(table, parts)
    size = costs.total * costs.bytes_each
    if limits.unit_bytes is None:
        # The sample has enough units to keep all workers busy.
        wanted = max(LEAST_UNITS, UNITS_PER_WORKER * limits.parallelism)
        each_bytes = max(LEAST_UNIT_BYTES, int(size * share / wanted), -(-size // MOST_UNITS))
        limits = replace(limits, unit_bytes=each_bytes)
    whole = plan(table, limits, partitions)
    if len(whole.units) == 1:
        # All of a table is taken for a sample only if the table is known to be small.
        known = any(part.bytes is not None or part.rows is not None for part in parts)
        small = known and size <= (limits.unit_bytes or LEAST_UNIT_BYTES)
        empty = table.rows == 0 or table.bytes == 0
        if not (small or empty or (table.row_ranges and limits.split != "none")):
            raise PlanError(
                f"{table.label} is read as one work unit, so a sample of its units would be the "
                "whole table.",
                "sample by the values of a column: --sample-by COLUMN.",
            )
    _, each = unit_costs(table, whole.units)
    # A unit reported as empty counts as an average one: estimates may be wrong.
    average = max(1, sum(each) // max(1, len(each)))
    in_order = sorted(zip(whole.units, each, strict=True), key=lambda unit: unit[0].id)
    owed, chosen = 0.0, []
    for unit, cost in in_order:
        weight = cost or average
        owed += share * weight
        # The rest of what a unit owes to the sample is carried on to the next unit.
        if 2 * owed >= weight:
            chosen.append((unit, cost))
            owed -= weight
    chosen = chosen or [min(in_order, key=lambda unit: (unit[1] or average, unit[0].id))]
    taken = sum(cost for _, cost in chosen)
    return plan_of_units(
        table=table,
        partitions=whole.partitions,
        units=tuple(unit for unit, _ in chosen),
        limits=limits,
        sampled=SampledUnits(
            share=share,
            of_units=len(whole.units),
            cost_share=taken / sum(each) if sum(each) else 1.0,
        ),
    )


def plan_part(plan: Plan, number: int, of: int) -> Plan | None:
    """Return the plan of one part; None if it has no unit, as there are more parts than units.

    Each machine finds its part from the plan alone. Every unit is in one part, and the parts are of
    about the same cost. The first parts have units, and the last may have none.

    Raises:
        PlanError: The part does not exist, or the plan is a part already.
    """
    if not 1 <= number <= of:
        raise PlanError(f"Part {number} of {of} does not exist.", f"give a part from 1/{of} on.")
    if plan.part is not None:
        raise PlanError(
            f"The plan is already part {plan.part.number} of {plan.part.of}.",
            "divide the plan of the whole table.",
        )
    owners = shares(plan, of)
    mine = tuple(unit for unit in plan.units if owners[unit.id] == number - 1)
    if not mine:
        return None
    return plan_of_units(
        table=plan.table,
        partitions=plan.partitions,
        units=mine,
        limits=plan.limits,
        sampled=plan.sampled,
        part=PlanPart(number=number, of=of, of_units=len(plan.units), plan_digest=plan.digest),
    )
