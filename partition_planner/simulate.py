"""What a plan costs when it runs: idle seats take the next unit until none is left."""

from __future__ import annotations

from msgspec import Struct

from partition_planner.balance import finish_times, lower_bound
from partition_planner.costs import unit_costs
from partition_planner.errors import PlanError
from partition_planner.model import Plan


class Simulation(Struct, frozen=True, kw_only=True):
    """One plan run by a number of workers; costs are in the plan's `cost_unit`."""

    makespan: float
    """Cost at which the last worker finishes."""
    lower_bound: float
    """Cost below which no assignment of these units finishes."""
    idle_share: float
    """Part of the workers' common time in which they have nothing to do, from 0 to below 1."""
    finish_times: tuple[float, ...]
    """Cost at which each worker finishes, by worker; 0 for one that gets no unit."""


def simulate(plan: Plan, parallelism: int) -> Simulation:
    """Return how the plan's units, taken in their order, keep this number of workers busy.

    The parallelism may differ from the one planned for. The workers are taken to be equally fast
    and the estimates to be right.

    Raises:
        PlanError: The parallelism is below 1.
    """
    if parallelism < 1:
        raise PlanError(
            f"Parallelism {parallelism} is below 1.",
            "give --parallelism 1 or more.",
        )
    costs, each = unit_costs(plan.table, plan.units)
    times = finish_times(each, parallelism)
    last = max(times)
    makespan = costs.reported(last, len(each))
    bound = costs.reported(lower_bound(each, parallelism), len(each))
    return Simulation(
        makespan=makespan,
        # Rounded apart, the two may cross by the last bit.
        lower_bound=min(bound, makespan),
        idle_share=(last * parallelism - sum(each)) / (last * parallelism) if last else 0.0,
        finish_times=tuple(costs.reported(time, len(each)) for time in times),
    )
