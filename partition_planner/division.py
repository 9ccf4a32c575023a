"""A plan shared out among several machines: which units are whose.

Each machine finds its own part from the plan alone, so none of them needs to know of the others.
Every unit is in exactly one part, and the parts are of about the same cost.
"""

from __future__ import annotations

import heapq

from partition_planner.costs import unit_costs
from partition_planner.errors import PlanError
from partition_planner.model import Plan, PlanPart


def plan_part(plan: Plan, number: int, of: int) -> Plan | None:
    """Return the plan of one part; None if it has no unit, as there are more parts than units.

    The largest unit goes first, each to the part that has least so far: of equals to the one with
    fewest units, then to the first. So the first parts have units, and the last may have none.

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
    _, costs = unit_costs(plan.table, plan.units)
    parts = [(0.0, 0, each) for each in range(1, of + 1)]
    mine = []
    for unit, cost in zip(plan.units, costs, strict=True):
        so_far, units, part = parts[0]
        heapq.heapreplace(parts, (so_far + cost, units + 1, part))
        if part == number:
            mine.append(unit)
    if not mine:
        return None
    return Plan.of(
        table=plan.table,
        partitions=plan.partitions,
        units=tuple(mine),
        limits=plan.limits,
        sampled=plan.sampled,
        part=PlanPart(number=number, of=of, of_units=len(plan.units), plan_digest=plan.digest),
    )
