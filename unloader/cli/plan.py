"""`unloader plan`: show exactly what `run` would do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from unloader.cli import options, render, rules, seats
from unloader.cli.columns import legend, terminal_width
from unloader.cli.option import JobCommand, JobOption, given
from unloader.cli.progress import display_for
from unloader.cli.targets import JOB, Target, job_document, target_argument
from unloader.errors import OutputFailed

if TYPE_CHECKING:
    from unloader.api import PlannedRun


@click.command(
    "plan",
    cls=JobCommand,
    short_help="Show exactly what run would do.",
    epilog="""\b
    Examples:
      unloader plan oracle://scott@db01:1521/SALES --table ORDERS --parallelism 8
      unloader plan duckdb:///data/sales.db --table ORDERS --output plan.json
    """,
)
@target_argument(plans=False)
@options.subject
@click.option(
    "--output",
    cls=JobOption,
    section="Output",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Write the plan to FILE, for `unloader run FILE`.",
)
@options.planned_destination
@options.manner
@options.progress
@options.answer
@click.pass_context
def command(context: click.Context, /, target: Target, **values: Any) -> None:
    """Show what run would do: work units, their SQL, estimates and seats.

    Takes the options of run and reads nothing but the database's dictionary, and a sample of the
    rows where --compression is to be chosen by measuring.
    """
    from unloader.cli import jobs
    from unloader.cli.credentials import connect_to, warn

    rules.validate(values, given(context))
    job = jobs.job_spec(values, connect_to(target.url, values, given(context)))
    warn(values)
    from unloader import api

    with display_for(values) as display:
        planned = api.plan(job, observe=display)
    document = {**planned.to_json(), JOB: _kept(context, target, planned)}
    if values["output"]:
        _save(Path(values["output"]), document)
    if values["json"]:
        render.emit_json(document)
    elif not values["quiet"]:
        render.emit(_shown(planned))
        for notice in planned.notices:
            click.echo(f"unloader: notice: {notice}", err=True)


def _kept(context: click.Context, target: Target, planned: PlannedRun) -> dict[str, Any]:
    from writers.codecs.choice import label

    kept = job_document(context, target)
    if planned.choice is not None:
        # The plan stands for what was measured: another measuring might come to something else.
        kept["compression"] = label(planned.compression)
    return kept


def _save(path: Path, document: dict[str, Any]) -> None:
    try:
        path.write_text(render.json_text(document) + "\n", "utf-8")
    except OSError as error:
        raise OutputFailed(
            f"the plan cannot be written to {path}: {error.strerror}", "give another --output"
        ) from error


def _shown(planned: PlannedRun) -> str:
    statements = render.facts(
        (unit.id, " ".join(planned.statements[unit.id].split())) for unit in planned.plan.units
    )
    table = seats.seat_table(
        planned.topology, planned.seats, planned.memory_policy, terminal_width()
    )
    parts = (_overview(planned), _units(planned), table, legend(table), statements)
    return "\n\n".join(part for part in parts if part)


def _overview(planned: PlannedRun) -> str:
    from writers.codecs.choice import label

    plan, table, simulation = planned.plan, planned.table, planned.simulation
    idle = f"{simulation.idle_share * 100:.0f} % of the workers' time idle"
    return render.facts(
        (
            ("table", table.label),
            ("columns", render.count(len(planned.columns))),
            ("units", render.count(len(plan.units))),
            ("workers", render.count(len(planned.seats))),
            ("rows", render.about(render.count(table.rows), "estimate")),
            ("bytes", render.about(render.size(table.bytes), "in the source")),
            ("ranges from", table.ranges_from or render.UNKNOWN),
            (
                "last worker",
                f"{_cost(simulation.makespan, plan.cost_unit)}; no plan of these units is below "
                f"{_cost(simulation.lower_bound, plan.cost_unit)}; {idle}",
            ),
            ("compression", label(planned.compression)),
            ("digest", plan.digest),
        )
    )


def _units(planned: PlannedRun) -> str:
    takers = _takers(planned)
    heads = ("unit", "partition", ">rows", ">bytes", ">worker", "to")
    return render.table(
        heads if planned.places else heads[:-1],
        (
            (
                unit.id,
                unit.partition or render.UNKNOWN,
                render.count(unit.rows),
                render.size(unit.bytes),
                takers[unit.id],
                *([planned.places[unit.id]] if planned.places else []),
            )
            for unit in planned.plan.units
        ),
    )


def _takers(planned: PlannedRun) -> dict[str, str]:
    """Return the worker that each unit would go to if the estimates held."""
    from partition_planner.balance import Loads
    from partition_planner.costs import unit_costs

    units = planned.plan.units
    _, costs = unit_costs(planned.plan.table, units)
    loads = Loads(len(planned.seats), len(units))
    return {unit.id: str(loads.take(cost)) for unit, cost in zip(units, costs, strict=True)}


def _cost(value: float, unit: str) -> str:
    return render.size(value) if unit == "bytes" else f"{value:,.0f} {unit}"
