"""A part of a table in whole work units, the same for all points and spread over all of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

from msgspec.structs import replace

from partition_planner.model import Plan, WorkUnit
from unloader import api
from unloader.events import Observer
from unloader.model import Request
from unloader.resolve.resolved import ResolvedRun
from unloader.sweep.model import SampleTaken

T = TypeVar("T")

UNITS_A_WORKER = 4
"""So many units of a sample each worker gets, if units can be cut: with fewer of them most of the
workers wait for the last one."""

_LEAST_UNIT_BYTES = 1024 * 1024


def sampled(
    request: Request, parallelism: int, share: float, observe: Observer
) -> tuple[ResolvedRun, SampleTaken]:
    """Return a run that reads a part of what a request asks for, and how large that is.

    The plan is made once, for the largest parallelism of the sweep, so that all points read the
    same rows. Units are cut smaller than usual where the part would have too few of them.

    Args:
        request: What is asked.
        parallelism: The largest of all points.
        share: Of the table, above 0.
        observe: Takes the events of planning.

    Raises:
        UnloaderError: As `unloader.api.plan`.
    """
    wanted = parallelism * UNITS_A_WORKER
    run = _planned(request, parallelism, observe)
    size = _total([unit.bytes for unit in run.plan.units])
    few = math.ceil(len(run.plan.units) * share) < wanted
    if few and size and request.limits.unit_bytes is None:
        unit_bytes = max(_LEAST_UNIT_BYTES, int(size * share / wanted))
        limits = replace(request.limits, unit_bytes=unit_bytes)
        run = _planned(replace(request, limits=limits), parallelism, observe)
    units = run.plan.units
    number = max(math.ceil(len(units) * share), min(len(units), parallelism))
    chosen = evenly(sorted(units, key=lambda unit: unit.id), number)
    return _with_units(run, chosen), _taken(run.plan, chosen)


def with_parallelism(run: ResolvedRun, parallelism: int) -> ResolvedRun:
    """Return the same units for another number of workers."""
    limits = replace(run.plan.limits, parallelism=parallelism)
    return replace(run, plan=replace(run.plan, limits=limits))


def evenly(items: Sequence[T], number: int) -> tuple[T, ...]:
    """Return so many of the items, at equal distances."""
    step = len(items) / number
    return tuple(items[int((at + 0.5) * step)] for at in range(number))


def _planned(request: Request, parallelism: int, observe: Observer) -> ResolvedRun:
    limits = replace(request.limits, parallelism=parallelism)
    return api.plan(replace(request, limits=limits), observe=observe).run


def _with_units(run: ResolvedRun, chosen: Sequence[WorkUnit]) -> ResolvedRun:
    ids = {unit.id for unit in chosen}
    # In the order of the plan, the largest first: the order in which seats take them.
    units = tuple(unit for unit in run.plan.units if unit.id in ids)
    return replace(run, plan=replace(run.plan, units=units))


def _taken(plan: Plan, chosen: Sequence[WorkUnit]) -> SampleTaken:
    rows, of_rows = (_total([unit.rows for unit in units]) for units in (chosen, plan.units))
    size, of_size = (_total([unit.bytes for unit in units]) for units in (chosen, plan.units))
    share = len(chosen) / len(plan.units)
    if size and of_size:
        share = size / of_size
    elif rows and of_rows:
        share = rows / of_rows
    return SampleTaken(
        units=len(chosen), of_units=len(plan.units), rows=rows, of_rows=of_rows, share=share
    )


def _total(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
