"""`unloader plan`: show exactly what `run` would do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import to_builtins

from partition_planner.balance import Loads
from partition_planner.costs import unit_costs
from unloader import api
from unloader.api import FOR_THE_READER
from unloader.cli.display import render, seats
from unloader.cli.display.columns import column_table, routes_text, subset_text
from unloader.cli.display.progress import display_for
from unloader.cli.display.render import legend, terminal_width
from unloader.cli.display.summary import selection
from unloader.cli.jobs.tables import plan_tables
from unloader.cli.options import rules
from unloader.cli.options.command import JobCommand, declared_options
from unloader.cli.options.parameter import on_command_line
from unloader.cli.options.routes import asked_request, kept_routes
from unloader.cli.options.source_argument import (
    JOB,
    JOB_DIGEST,
    ROUTES,
    SourceArgument,
    job_digest,
    job_document,
    source_argument,
)
from unloader.cli.options.tables import is_of_several
from unloader.errors import OutputFailed, UsageError
from unloader.nouns import counted
from unloader.redaction import redact
from writers.codecs.choice import label
from writers.files.publish import write_atomically
from writers.model import TextFormat

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from partition_planner.model import WorkUnit
    from unloader.api import PlannedRun
    from unloader.model import Setting
    from unloader.resolve.resolved import ResolvedTable

SHORT_PLAN, FIRST_UNITS = 20, 5
"""A plan of more units than that shows its first ones only."""


@click.command(
    "plan",
    cls=JobCommand,
    short_help="Show exactly what run would do.",
    epilog="""\b
    Examples:
      unloader plan oracle://scott@db01:1521/SALES --table ORDERS --parallelism 8
      unloader plan duckdb:///data/sales.db --table ORDERS --output plan.json
      unloader plan postgresql://etl@db01/sales --table orders --to /shared/orders \\
          --output plan.json --keep-snapshot 6h
      unloader run plan.json --part 3/16
    """,
)
@source_argument(plans=False, tables=True)
@declared_options("plan")
@click.pass_context
def command(context: click.Context, /, argument: SourceArgument, **values: Any) -> None:
    """Show the work units of a run, their SQL, estimates, and the placement of workers.

    The command takes the options of run. It reads only the dictionary of the database. If
    --compression measures codecs, it also reads a sample of the rows. If there are more than 20
    work units, it shows the first of them, unless --units is given. --json and --output contain
    all work units.

    For several tables, the command shows a line for each table. It does not write their plans to
    a file: --output is refused, and `unloader run` plans these tables again.
    """
    if "keep_snapshot" not in on_command_line(context):
        values["keep_snapshot"] = 0.0  # In a job file or a variable it is about runs.
    rules.validate_plan_file(values)
    if argument.job is not None or is_of_several(values):
        plan_tables(context, argument, values)
        return

    job = asked_request(context, argument.url, values)

    output = Path(values["output"]) if values["output"] else None
    with display_for(values) as display:
        planned = api.plan(job, kept_with=output, observe=display)
    kept = to_builtins(_kept(context, argument, planned, values), enc_hook=str)
    document = {**planned.to_json(), JOB: kept, JOB_DIGEST: job_digest(kept)}
    if output is not None:
        _save(output, document)
    if values["json"]:
        _check_shown_whole(document)
        render.emit_json(document)
    elif not values["quiet"]:
        shown = _shown(planned, job.settings, every=values["units"])
        if output is not None:
            shown += f"\n\nthe plan was written to {render.visible(str(output))}"
        render.emit(shown, asked=not values["output"])
        for notice in planned.run.seating.notices:
            click.echo(f"unloader: notice: {notice}", err=True)


def _kept(
    context: click.Context,
    argument: SourceArgument,
    planned: PlannedRun,
    values: Mapping[str, Any],
) -> dict[str, Any]:

    kept = job_document(context, argument)
    if routes := kept_routes(context, values):
        kept[ROUTES] = routes
        return kept
    if planned.run.output.choice is not None:
        # The plan keeps the measured choice: a second measurement might choose differently.
        kept["compression"] = label(planned.run.output.compression)
    return kept


def _check_shown_whole(document: dict[str, Any]) -> None:
    """Refuse to show a plan that would not be the same plan without what looks like a password.

    Saved from standard output, it would read other rows when it is run.
    """

    kept = {
        name: part for name, part in document.items() if name == JOB or name not in FOR_THE_READER
    }
    run = render.json_text(kept)
    if redact(run) != run:
        raise UsageError(
            "the plan holds a text that looks like a password, and standard output hides passwords",
            "write it to a file with --output FILE",
        )


def _save(path: Path, document: dict[str, Any]) -> None:

    text = (render.json_text(document) + "\n").encode("utf-8")
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(text)  # A device or a pipe takes all bytes.
        else:
            write_atomically(path.resolve(), text)
    except OSError as error:
        raise OutputFailed(
            f"the plan cannot be written to {path}: {error.strerror}", "give another --output"
        ) from error


def _shown(planned: PlannedRun, settings: tuple[Setting, ...], *, every: bool) -> str:
    units = planned.run.plan.units
    if len(units) > SHORT_PLAN and not every:
        units = units[:FIRST_UNITS]
    rest = len(planned.run.plan.units) - len(units)
    more = f"... {render.count(rest)} more: --units shows all" if rest else ""
    statements = render.facts(
        (unit.id, render.statement(planned.statements[unit.id])) for unit in units
    )
    run = planned.run
    table = seats.seat_table(
        run.topology, run.seating.seats, run.seating.memory_policy, terminal_width()
    )
    parts = (
        _overview(planned, settings),
        _columns(run),
        table,
        legend(table),
        _with(_units(planned, units), more),
        _with(statements, more),
        routes_text(planned.run),
    )
    return "\n\n".join(part for part in parts if part)


def _columns(run: ResolvedTable) -> str:
    """Return the written columns, where they differ from the read columns."""
    if run.request.routes is not None or run.output.transform is None:
        return ""  # Each route has its own.
    return column_table(run.written.columns, is_text=isinstance(run.output.format, TextFormat))


def _with(text: str, more: str) -> str:
    return f"{text}\n{more}" if more else text


def _overview(planned: PlannedRun, settings: tuple[Setting, ...]) -> str:

    plan, table, simulation = planned.run.plan, planned.run.plan.table, planned.simulation
    rows, sizes = [unit.rows for unit in plan.units], [unit.bytes for unit in plan.units]
    written, read = _sum(rows, table.rows), round(sum(simulation.finish_times))
    of_read, most = "estimate", planned.run.extract.limit_rows
    balance = (
        f"the busiest worker reads {_cost(simulation.makespan, plan.cost_unit)} "
        f"(at best {_cost(simulation.lower_bound, plan.cost_unit)}); "
        f"the workers are idle {simulation.idle_share * 100:.0f} % of the time"
    )
    if most is not None:
        balance = f"one worker reads, and the database stops after {counted(most, 'row')}"
    elif plan.cost_unit == "rows" and written is not None and written < read:
        # For --sample-by the database reads all rows, and sends only the rows of the sample.
        of_read = f"estimate; the database reads {read:,} rows"
    return render.facts(
        (
            ("table", render.name(table.label)),
            *selection(settings),
            *_column_counts(planned.run),
            *((("subset", part),) if (part := subset_text(planned.run)) else ()),
            ("units", render.count(len(plan.units))),
            ("workers", render.count(len(planned.run.seating.seats))),
            ("rows", render.about(render.count(written), of_read)),
            ("bytes", render.about(render.size(_sum(sizes, table.bytes)), "in the source")),
            ("ranges from", table.ranges_from or render.UNKNOWN),
            ("balance", balance),
            ("compression", label(planned.run.output.compression)),
            ("digest", plan.digest),
        )
    )


def _column_counts(run: ResolvedTable) -> Iterator[tuple[str, str]]:
    """Yield how many columns are written, and read where those are not the same."""
    read = len({each.name for each in run.extract.projection.columns})
    if len(run.outputs) == 1:
        written = len(run.written.columns)
        yield "columns", render.count(written)
        if run.request.routes is None or read == written:
            return
    yield "columns read", render.count(read)


def _sum(units: Sequence[int | None], table: int | None) -> int | None:
    """Return the sum over the units, which may be chosen partitions; else the table's number."""
    known = [each for each in units if each is not None]
    return sum(known) if known and len(known) == len(units) else table


def _units(planned: PlannedRun, units: tuple[WorkUnit, ...]) -> str:
    takers = _takers(planned)
    heads = ("unit", "partition", ">rows", ">bytes", ">worker", "to")
    return render.table(
        heads if planned.places else heads[:-1],
        (
            (
                unit.id,
                render.name(unit.partition or render.UNKNOWN),
                render.count(unit.rows),
                render.size(unit.bytes),
                takers[unit.id],
                *([planned.places[unit.id]] if planned.places else []),
            )
            for unit in units
        ),
    )


def _takers(planned: PlannedRun) -> dict[str, str]:
    """Return the worker that each unit would go to if the estimates held."""

    units = planned.run.plan.units
    _, costs = unit_costs(planned.run.plan.table, units)
    loads = Loads(len(planned.run.seating.seats), len(units))
    return {unit.id: str(loads.take(cost)) for unit, cost in zip(units, costs, strict=True)}


def _cost(value: float, unit: str) -> str:
    return render.size(value) if unit == "bytes" else counted(round(value), unit.removesuffix("s"))
