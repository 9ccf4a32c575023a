"""Which of several directories each work unit goes to. Pure: the same plan, the same stripes."""

from __future__ import annotations

from partition_planner.balance import Loads
from partition_planner.costs import unit_costs
from partition_planner.model import Plan


def stripes(plan: Plan, directories: int) -> dict[str, int]:
    """Return for each unit the number of its directory, from 0.

    The largest unit left goes to the directory that has been given least so far, by the planner's
    estimates of bytes (of rows, where the source knows no bytes).
    """
    if directories == 1:
        return {unit.id: 0 for unit in plan.units}
    _, costs = unit_costs(plan.table, plan.units)
    loads = Loads(directories, len(plan.units))
    return {unit.id: loads.take(cost) for unit, cost in zip(plan.units, costs, strict=True)}
