"""Commands that look before a run: describe a source, and plan what `run` would do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from msgspec import to_builtins

from partition_planner.costs import shares, simulate
from partition_planner.planner import known_sum
from unloader import api
from unloader.cli.display import render, seats
from unloader.cli.display.summary import column_table, csv_form, selection
from unloader.cli.options import rules
from unloader.cli.options.command import declared, given, given_values, on_command_line
from unloader.cli.options.request_of import asked_request, connect_to, routes_of, tables_request
from unloader.cli.options.source_argument import (
    JOB,
    JOB_DIGEST,
    ROUTES,
    SOURCE,
    SourceArgument,
    job_digest,
    source_argument,
)
from unloader.cli.watching import display_for
from unloader.errors import OutputFailed, UsageError
from unloader.model import Setting
from unloader.nouns import counted
from unloader.redaction import holds_sql_password, redact
from unloader.request.names import parse_table
from unloader.request.settings import percent_text
from unloader.resolve.places import places as places_of
from unloader.resolve.resolved import ResolvedTable, of_output, routes_json
from unloader.selection.listing import script
from writers.files.publish import write_atomically
from writers.model import ParquetFormat

SHORT_PLAN, FIRST_UNITS = 20, 5
"""A plan of more units than that shows its first ones only."""

MOST_NOTES = 20
"""Columns whose note is shown; the others are counted."""


@declared(
    "describe",
    "Show the tables of a database, or the columns of one table.",
    """
    unloader describe duckdb:///data/sales.db
    unloader describe oracle://scott@db01:1521/SALES --table ORDERS
    unloader describe postgresql://etl@db01/sales --table public.orders
    """,
)
@click.argument("source")
@click.pass_context
def describe(context: click.Context, /, source: str, **values: Any) -> None:
    """List the tables of SOURCE, or show the columns and partitions of one table.

    For each column, the command shows its type in the database, its form in CSV and in Parquet,
    and whether the conversion is lossless.
    """
    table = None if values["table"] is None else parse_table(values["table"])
    spec = connect_to(source, values, given(context))
    with display_for(values) as display:
        if table is None:
            tables = api.list_tables(spec, display)
            document: dict[str, Any] = {"source": spec.location, "tables": tables}
            rows = (
                (
                    render.name(each.schema or render.UNKNOWN),
                    render.shortened(render.name(each.name), 60),
                    *(each.kind, each.rows, render.size(each.bytes), each.partitions),
                )
                for each in tables
            )
            heads = ("schema", "name", "kind", ">rows", ">bytes", ">partitions")
            text = render.table(heads, rows)
        else:
            document = api.describe(spec, table, values["as_text"], display)
            text = _described(document)
    render.answer(values, document, text)


def _described(table: dict[str, Any]) -> str:
    label = ".".join(filter(None, (table["schema"], table["name"])))
    facts = (
        ("table", render.shortened(render.name(label))),
        ("server", table["server_version"]),
        ("rows", render.about(render.count(table["rows"]), "estimate")),
        ("bytes", render.about(render.size(table["bytes"]), "in the source")),
        ("ranges from", table["ranges_from"] or render.UNKNOWN),
    )
    columns = []
    for each in table["columns"]:
        csv, parquet = each["csv"], each["parquet"]
        notes = dict.fromkeys(filter(None, (csv["note"], parquet["note"])))
        columns.append(
            (
                *(render.shortened(render.name(each["name"]), 60), each["source_type"]),
                *(csv_form(csv["output_type"]), parquet["output_type"]),
                *(bool(csv["lossless"] and parquet["lossless"]), "; ".join(notes)),
            )
        )
    heads = ("column", "type", "in CSV", "in Parquet", "lossless", "note")
    parts = [render.facts(facts), render.table(heads, columns)]
    if table["partitions"]:
        partitions = (
            (
                *(str(each["position"]), render.name(each["name"])),
                *(each["rows"], render.size(each["bytes"])),
            )
            for each in table["partitions"]
        )
        parts.append(render.table((">position", "partition", ">rows", ">bytes"), partitions))
    parts.extend(f"missing privilege: {each}" for each in table["missing_privileges"])
    return "\n\n".join(parts)


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
    if values["keep_snapshot"] and not values["output"]:
        raise UsageError(
            "--keep-snapshot keeps the snapshot of a plan while its file exists, and --output is "
            "missing",
            "give --output FILE, or leave --keep-snapshot out",
        )
    if values["output"] and any(map(holds_sql_password, values["session_sql"])):
        raise UsageError(
            "--output would keep the password of a --session-sql in the plan file",
            "leave --output out, and give run the same options",
        )
    output = Path(values["output"]) if values["output"] else None
    if argument.job is not None or rules.is_of_several(values):
        if output is not None:
            raise UsageError(
                "--output writes the plan of one table, and there are several tables",
                "leave it out, and give run the same options or job file: it plans in the same way",
            )
        several = tables_request(context, argument.url, argument.job, values)
        with display_for(values) as display:
            planned = api.plan(several, observe=display)
        render.answer(values, _tables_document(planned), lambda: _tables_text(planned))
        return
    job = asked_request(context, argument.url, values)
    with display_for(values) as display:
        planned = api.plan(job, kept_with=output, observe=display)
    asked: dict[str, Any] = {SOURCE: argument.url}
    for option, value in given_values(context):
        # A variable for the other format may be set for all jobs of a machine.
        if option.declared.kept and option.declared.knows(values["format"]):
            asked[option.declared.name] = value
    if isinstance(asked.get("table"), list) and len(asked["table"]) == 1:
        asked["table"] = asked["table"][0]
    if entries := routes_of(context, values):
        asked[ROUTES] = [
            (each.name, tuple((given.key, given.value) for given in each.values))
            for each in entries
        ]
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
    if run.request.routes is None and run.output.transformed is not None:
        # They differ from the read columns. Each of several routes has its own.
        columns = column_table(run.written.columns, is_text=_format(run) == "csv")
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
        "\n".join([render.table(heads, rows), *more]),
        "\n".join([statements, *more]),
        *_routes_text(run),
    )
    return "\n\n".join(part for part in parts if part)


def _overview(planned: api.PlannedRun, settings: tuple[Setting, ...]) -> str:
    run, plan, table = planned.run, planned.run.plan, planned.run.plan.table
    simulation, most = simulate(plan, max(1, len(run.seating.seats))), run.extract.limit_rows
    # The sum over the units, which may be chosen partitions; else the number of the table.
    rows = table.rows if (known := _rows(run)) is None else known
    sizes = table.bytes if (known := _bytes(run)) is None else known
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


def _cost(value: float, unit: str) -> str:
    return render.size(value) if unit == "bytes" else counted(round(value), unit.removesuffix("s"))


def _tables_document(planned: api.PlannedRun) -> dict[str, Any]:
    first = planned.tables[0]
    return {
        "source": first.extract.source.location,
        "server_version": first.server_version,
        "directory": planned.home or None,
        "workers": len(first.seating.seats),
        "units": planned.units,
        "rows": known_sum(_rows(run) for run in planned.tables),
        "bytes": known_sum(_bytes(run) for run in planned.tables),
        "tables": [
            {
                "schema": run.extract.table.schema,
                "name": run.extract.table.name,
                "query": run.extract.query,
                "subset": subset_text(run) or None,
                "rows": _rows(run),
                "bytes": _bytes(run),
                "units": len(run.plan.units),
                "directories": list(filter(None, run.output.options.destinations)),
                "format": _format(run),
                "compression": run.output.compression.label,
                "digest": run.plan.digest,
                "columns": [
                    {
                        name: getattr(column, name)
                        for name in ("name", "source_type", "output_type", "lossless", "note")
                    }
                    for column in run.written.columns
                ],
                "routes": routes_json(run),
            }
            for run in planned.tables
        ],
        "left_out": [
            {"table": each.table, "error": each.error.message} for each in planned.problems
        ],
        "script": script(planned.problems),
        "notices": list(first.seating.notices),
    }


def _format(run: ResolvedTable) -> str:
    return "parquet" if isinstance(run.output.format, ParquetFormat) else "csv"


def _rows(run: ResolvedTable) -> int | None:
    return known_sum(unit.rows for unit in run.plan.units)


def _bytes(run: ResolvedTable) -> int | None:
    return known_sum(unit.bytes for unit in run.plan.units)


def _tables_text(planned: api.PlannedRun) -> str:
    """Return a line for each table and output, notes on columns, the sums, and what is left out."""
    outputs = [(run, *output) for run in planned.tables for output in _outputs(run)]
    subsets, routes = any(subset_text(run) for run, _, _ in outputs), any(n for _, n, _ in outputs)
    heads = ["table", ">rows", ">bytes", ">units", ">columns", "format"]
    heads += ["route"] * routes + ["subset"] * subsets + ["to"] * bool(planned.home)
    lines, notes = [], []
    for run, name, own in outputs:
        table, codec = render.name(run.extract.table.label), own.output.compression.label
        lines.append(
            (
                *(table, _rows(run), render.size(_bytes(run)), len(run.plan.units)),
                len(own.written.columns),
                _format(own) if codec == "none" else f"{_format(own)} {codec}",
                *([name] if routes else []),
                *([subset_text(run) or "all"] if subsets else []),
                *([",".join(own.output.options.destinations)] if planned.home else []),
            )
        )
        route = f"route {name}: " if name else ""
        notes += [
            f"{route}{table}.{render.name(column.name)}: {column.note}"
            for column in own.written.columns
            if column.note
        ]
    if len(notes) > MOST_NOTES:
        more = render.count(len(notes) - MOST_NOTES)
        notes[MOST_NOTES:] = [f"... {more} more: --json shows all"]
    rows, size = (known_sum(of(run) for run in planned.tables) for of in (_rows, _bytes))
    facts = (
        ("tables", len(planned.tables)),
        ("units", planned.units),
        ("workers", len(planned.tables[0].seating.seats)),
        ("rows", render.about(render.count(rows), "estimate")),
        ("bytes", render.about(render.size(size), "in the source")),
        ("directory", planned.home or None),
    )
    left_out = [
        (render.name(each.table), f"is left out: {each.error.message}") for each in planned.problems
    ]
    parts = (render.table(heads, lines), "\n".join(notes), render.facts(facts))
    return "\n\n".join(filter(None, (*parts, render.facts(left_out))))


def _outputs(run: ResolvedTable) -> Iterator[tuple[str, ResolvedTable]]:
    """Yield each output's name, which is empty for the only one, with the run of it alone."""
    if run.request.routes is None:
        yield "", run
        return
    for number, route in enumerate(run.request.routes):
        yield route.name, of_output(run, number)


def _routes_text(run: ResolvedTable) -> Iterator[str]:
    """Yield each output of a run that has several, with its columns and their types."""
    for name, own in _outputs(run) if run.request.routes else ():
        options = own.output.options
        facts = (
            ("to", render.one_line(", ".join(filter(None, options.destinations))) or None),
            ("format", f"{_format(own)}, {own.output.compression.codec}"),
            ("filter", render.one_line(options.filter) if options.filter else None),
        )
        columns = column_table(own.written.columns, is_text=_format(own) == "csv")
        yield f"{f'route {name}' if name else 'output'}\n{render.facts(facts)}\n\n{columns}"


def subset_text(run: ResolvedTable) -> str:
    """Return what part of the rows is read by `--sample`, `--part` and so on; empty for all."""
    keys, sampled, most = run.extract.keys, run.plan.sampled, run.extract.limit_rows
    parts, one = [], run.plan.part
    if one is not None:
        of = f"{render.count(len(run.plan.units))} of {counted(one.of_units, 'unit')}"
        parts.append(f"part {one.number} of {one.of}, {of}")
    if keys is not None:
        parts.append(f"{percent_text(keys.share)} by {render.name(keys.column)}")
    elif sampled is not None:
        of = f"{render.count(len(run.plan.units))} of {counted(sampled.of_units, 'unit')}"
        parts.append(f"{of}, {percent_text(round(sampled.cost_share, 6))}")
    if most is not None:
        parts.append(f"first {counted(most, 'row')}")
    return ", ".join(parts)
