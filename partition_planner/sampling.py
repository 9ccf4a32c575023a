"""Some of a table's units in place of all: a sample of its rows that costs no more than its share.

The units are spread over the table in its own order. Same table, limits and share, same units.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from partition_planner.costs import measure, unit_costs
from partition_planner.cutting import UNITS_PER_WORKER
from partition_planner.errors import PlanError
from partition_planner.model import Plan, PlanLimits, SampledUnits, TableInfo, WorkUnit
from partition_planner.parts import parts_of
from partition_planner.planner import plan

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

    Unless the limits name a size, units are small enough for several of them to be taken. At least
    one is taken; so of a table with one unit that is the whole table.

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
    chosen = _chosen(whole.units, each, share)
    ids = {unit.id for unit in chosen}
    taken = sum(cost for unit, cost in zip(whole.units, each, strict=True) if unit.id in ids)
    return Plan.of(
        table=table,
        partitions=whole.partitions,
        units=chosen,
        limits=limits,
        sampled=SampledUnits(
            share=share,
            of_units=len(whole.units),
            cost_share=taken / sum(each) if sum(each) else 1.0,
        ),
    )


def _chosen(units: Sequence[WorkUnit], costs: Sequence[int], share: float) -> tuple[WorkUnit, ...]:
    """Return the units that come to a share of the cost, evenly spread in the order of the table.

    What a unit owes to the sample is carried on to the next until a unit of at most twice that is
    there. A unit reported as empty counts as an average one: estimates may be wrong.
    """
    average = max(1, sum(costs) // max(1, len(costs)))
    weighed = sorted(
        ((unit, cost or average) for unit, cost in zip(units, costs, strict=True)),
        key=lambda each: each[0].id,
    )
    owed, chosen = 0.0, []
    for unit, cost in weighed:
        owed += share * cost
        if 2 * owed >= cost:
            chosen.append(unit)
            owed -= cost
    if not chosen:
        chosen = [min(weighed, key=lambda each: (each[1], each[0].id))[0]]
    return tuple(chosen)
