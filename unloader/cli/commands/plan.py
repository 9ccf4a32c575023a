"""`unloader plan`: show exactly what `run` would do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from msgspec import to_builtins

from partition_planner.costs import shares, simulate
from unloader import api
from unloader.cli.commands import declared
from unloader.cli.display import render, seats
from unloader.cli.display.columns import column_table, routes_text, subset_text
from unloader.cli.display.summary import selection
from unloader.cli.jobs.tables import plan_tables
from unloader.cli.options import rules
from unloader.cli.options.parameter import on_command_line
from unloader.cli.options.request_of import asked_request, kept_routes
from unloader.cli.options.rules import is_of_several
from unloader.cli.options.source_argument import (
    JOB,
    JOB_DIGEST,
    ROUTES,
    SourceArgument,
    job_digest,
    job_document,
    source_argument,
)
from unloader.cli.watching import display_for
from unloader.errors import OutputFailed, UsageError
from unloader.model import Setting
from unloader.nouns import counted
from unloader.redaction import redact
from unloader.resolve.places import places as places_of
from writers.files.publish import write_atomically
from writers.model import TextFormat

SHORT_PLAN, FIRST_UNITS = 20, 5
"""A plan of more units than that shows its first ones only."""


@declared(
    "plan",
    "Show exactly what run would do.",
    """
    unloader plan oracle://scott@db01:1521/SALES --table ORDERS --parallelism 8
    unloader plan duckdb:///data/sales.db --table ORDERS --output plan.json
    unloader plan postgresql://etl@db01/sales --table orders --to /shared/orders \\
        --output plan.json --keep-snapshot 6h
    unloader run plan.json --part 3/16
    """,
)
@source_argument(plans=False, tables=True)
@click.pass_context
def plan(context: click.Context, /, argument: SourceArgument, **values: Any) -> None:
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
    asked = job_document(context, argument)
    if routes := kept_routes(context, values):
        asked[ROUTES] = routes
    elif planned.run.output.choice is not None:
        # The plan keeps the measured choice: a second measurement might choose differently.
        asked["compression"] = planned.run.output.compression.label
    kept = to_builtins(asked, enc_hook=str)
    document = {**planned.to_json(), JOB: kept, JOB_DIGEST: job_digest(kept)}
    if output is not None:
        text = (render.json_text(document) + "\n").encode("utf-8")
        try:
            if output.exists() and not output.is_file():
                output.write_bytes(text)  # A device or a pipe takes all bytes.
            else:
                write_atomically(output.resolve(), text)
        except OSError as error:
            raise OutputFailed(
                f"the plan cannot be written to {output}: {error.strerror}", "give another --output"
            ) from error
    if values["json"]:
        # Saved from standard output without what looks like a password, the plan would not be the
        # same: it would read other rows when it is run.
        executed = render.json_text(
            {
                name: part
                for name, part in document.items()
                if name == JOB or name not in api.FOR_THE_READER
            }
        )
        if redact(executed) != executed:
            raise UsageError(
                "the plan holds a text that looks like a password, and standard output hides "
                "passwords",
                "write it to a file with --output FILE",
            )
        render.emit(render.json_text(document))
    elif not values["quiet"]:
        shown = _shown(planned, job.settings, every=values["units"])
        if output is not None:
            shown += f"\n\nthe plan was written to {render.visible(str(output))}"
        render.emit(shown, asked=not values["output"])
        render.notices(planned.run.seating.notices)


def _shown(planned: api.PlannedRun, settings: tuple[Setting, ...], *, every: bool) -> str:
    run, units = planned.run, planned.run.plan.units
    if len(units) > SHORT_PLAN and not every:
        units = units[:FIRST_UNITS]
    rest = len(run.plan.units) - len(units)
    more = [f"... {render.count(rest)} more: --units shows all"] if rest else []
    statements = render.facts(
        (unit.id, render.statement(planned.statements[unit.id])) for unit in units
    )
    columns = ""
    if run.request.routes is None and run.output.transform is not None:
        # They differ from the read columns. Each of several routes has its own.
        is_text = isinstance(run.output.format, TextFormat)
        columns = column_table(run.written.columns, is_text=is_text)
    width = render.terminal_width()
    seating = seats.seat_table(run.topology, run.seating.seats, run.seating.memory_policy, width)
    # The worker that each unit would go to if the estimates held.
    takers, places = shares(run.plan, len(run.seating.seats)), places_of(run)
    heads = ("unit", "partition", ">rows", ">bytes", ">worker", *(("to",) if places else ()))
    rows = (
        (
            *(unit.id, render.name(unit.partition or render.UNKNOWN), unit.rows),
            *(render.size(unit.bytes), takers[unit.id]),
            *((places[unit.id],) if places else ()),
        )
        for unit in units
    )
    parts = (
        _overview(planned, settings),
        columns,
        seating,
        render.legend(seating),
        "\n".join([render.table(heads, rows), *more]),
        "\n".join([statements, *more]),
        routes_text(run),
    )
    return "\n\n".join(part for part in parts if part)


def _overview(planned: api.PlannedRun, settings: tuple[Setting, ...]) -> str:
    run, plan, table = planned.run, planned.run.plan, planned.run.plan.table
    simulation, most = simulate(plan, max(1, len(run.seating.seats))), run.extract.limit_rows
    rows = _sum([unit.rows for unit in plan.units], table.rows)
    sizes = _sum([unit.bytes for unit in plan.units], table.bytes)
    scanned, estimate = round(sum(simulation.finish_times)), "estimate"
    balance = (
        f"the busiest worker reads {_cost(simulation.makespan, plan.cost_unit)} "
        f"(at best {_cost(simulation.lower_bound, plan.cost_unit)}); "
        f"the workers are idle {simulation.idle_share * 100:.0f} % of the time"
    )
    if most is not None:
        balance = f"one worker reads, and the database stops after {counted(most, 'row')}"
    elif plan.cost_unit == "rows" and rows is not None and rows < scanned:
        # For --sample-by the database reads all rows, and sends only the rows of the sample.
        estimate = f"estimate; the database reads {scanned:,} rows"
    read = len({each.name for each in run.extract.projection.columns})
    written = len(run.written.columns) if len(run.outputs) == 1 else None
    same = written is not None and (run.request.routes is None or read == written)
    return render.facts(
        (
            ("table", render.name(table.label)),
            *selection(settings),
            ("columns", written),
            ("columns read", None if same else read),
            ("subset", subset_text(run) or None),
            ("units", len(plan.units)),
            ("workers", len(run.seating.seats)),
            ("rows", render.about(render.count(rows), estimate)),
            ("bytes", render.about(render.size(sizes), "in the source")),
            ("ranges from", table.ranges_from or render.UNKNOWN),
            ("balance", balance),
            ("compression", run.output.compression.label),
            ("digest", plan.digest),
        )
    )


def _sum(units: list[int | None], table: int | None) -> int | None:
    """Return the sum over the units, which may be chosen partitions; else the table's number."""
    known = [each for each in units if each is not None]
    return sum(known) if known and len(known) == len(units) else table


def _cost(value: float, unit: str) -> str:
    return render.size(value) if unit == "bytes" else counted(round(value), unit.removesuffix("s"))
