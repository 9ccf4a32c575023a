"""Runs and plans of several tables, as a command line and a job file ask for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from msgspec.structs import replace

from unloader import api
from unloader.cli.display import render
from unloader.cli.display.columns import subset_text
from unloader.cli.invocation import Invocation
from unloader.cli.options.parameter import entry_context, settings_of
from unloader.cli.options.request_of import asked_request
from unloader.cli.options.rules import ONE_OF_SEVERAL, choice_of
from unloader.cli.options.source_argument import SourceArgument, check_statements
from unloader.cli.signals import stop_on_signals
from unloader.cli.watching import display_for, watched, write_report
from unloader.errors import UnloaderError, UsageError
from unloader.events import Notice
from unloader.model import Request, TablesOptions
from unloader.request.job_files import SUBJECT, JobFile, meaning
from unloader.request.options import options_of
from unloader.resolve.places import directories_of
from unloader.resolve.resolved import of_output, routes_json
from unloader.selection.choice import AskedTables, TablesRequest
from unloader.selection.listing import script
from unloader.storage.place_names import destination_kind
from writers.model import ParquetFormat

if TYPE_CHECKING:
    from unloader.api import PlannedRun
    from unloader.resolve.resolved import ResolvedTable


def tables_request(
    context: click.Context, argument: SourceArgument, values: Mapping[str, Any]
) -> TablesRequest:
    """Return the run over several tables that options and a job file ask for.

    `values` are the options of the first entry. Errors name the entry.
    """
    if argument.job is None:
        entries: tuple[AskedTables, ...] = (_asked(context, argument.url, values, ""),)
    else:
        entries = tuple(_entries(context, argument.job, argument.url))
    _check_places(entries)
    whole = []
    for setting in settings_of(context, entries[0].request.source.kind):
        key = setting.name.replace("-", "_")
        known = context.obj.job_values.get(key)
        in_file = context.get_parameter_source(key) is ParameterSource.DEFAULT_MAP
        if not (in_file and known is not None and known.entry):
            whole.append(setting)  # Not of the first entry alone.
    options = TablesOptions(
        destination=common_place(argument.job, entries),
        overwrite=values.get("overwrite", False),
        publish=values["publish"],
        on_failure=values["on_table_failure"],
        settings=tuple(whole),
    )
    return TablesRequest(entries=entries, options=options)


def _asked(context: click.Context, url: str, values: Mapping[str, Any], label: str) -> AskedTables:
    request = asked_request(context, url, values)
    selection = replace(request.selection, table=None)
    return AskedTables(
        request=replace(request, selection=selection), choice=choice_of(values), label=label
    )


def _entries(context: click.Context, job: JobFile, url: str) -> Iterator[AskedTables]:
    """Yield the entries of a job file, each with the options of the command line."""
    for key in SUBJECT:
        if context.get_parameter_source(key) in (
            ParameterSource.COMMANDLINE,
            ParameterSource.ENVIRONMENT,
        ):
            raise UsageError(
                f"--{key.replace('_', '-')} does not apply to the {len(job.tables)} [[table]] "
                f"entries of {job.path}, which name the tables",
                "leave it out; --exclude-table excludes some of their tables",
            )
    for number, table in enumerate(job.tables):
        try:
            routes = job.routes_of(table)
            values = job.values_of(table, job.only_route(table))
            check_statements(values)
            several = routes if len(routes) > 1 else ()
            known = Invocation(job_file=job.path, job_values=values, routes=several)
            inner = entry_context(context, known)
            inner.params[ONE_OF_SEVERAL] = True
            if number:
                # It was asked for already.
                inner.params["password_prompt"] = False
            if context.command.name == "run" and not (inner.params["to"] or several):
                raise UsageError("the output has no destination", "set the key 'to'")
            yield _asked(inner, url, inner.params, table.label)
        except UnloaderError as error:
            raise type(error)(
                f"{table.place}: {table.label}: {error.message}", error.hint
            ) from error


def _check_places(entries: tuple[AskedTables, ...]) -> None:
    """Refuse one directory for two entries; the source need not be known for that."""
    first: dict[str, str] = {}
    kinds = set()
    for entry, output in [
        (each, one.output) for each in entries for one in each.request.of_outputs()
    ]:
        kinds.add(destination_kind(output.destinations))
        for place in directories_of(output):
            if "{table}" not in place and first.setdefault(place, entry.label) != entry.label:
                raise UsageError(
                    f"{first[place]} and {entry.label} go to the same directory, {place}",
                    "add {table} to it, or give each entry a separate to",
                )
    if len(kinds) > 1:
        raise UsageError(
            "some tables go to directories, and other tables are dropped",
            "give all tables the same --to",
        )


def common_place(job: JobFile | None, entries: tuple[AskedTables, ...]) -> str:
    """Return the directory of the manifest of all, with fields; empty where nothing says it."""
    places = {entry.request.output.destination for entry in entries}
    if len(places) == 1:
        return places.pop()
    top = None if job is None else job.values_of().get("to")
    option = next(each for each in options_of("run") if each.key == "to")
    return "" if top is None else str(meaning(option, top)[0])


MOST_NOTES = 20
"""Columns whose note is shown; the others are counted."""


def plan_tables(context: click.Context, argument: SourceArgument, values: dict[str, Any]) -> None:
    if values["output"]:
        raise UsageError(
            "--output writes the plan of one table, and there are several tables",
            "leave it out, and give run the same options or job file: it plans in the same way",
        )
    asked = tables_request(context, argument, values)
    with display_for(values) as display:
        planned = api.plan(asked, observe=display)
    if values["json"]:
        render.emit(render.json_text(_document(planned)))
    elif not values["quiet"]:
        render.emit(_text(planned))


def _document(planned: PlannedRun) -> dict[str, Any]:
    first = planned.tables[0]
    return {
        "source": first.extract.source.location,
        "server_version": first.server_version,
        "directory": planned.home or None,
        "workers": len(first.seating.seats),
        "units": planned.units,
        "rows": _total(map(_rows, planned.tables)),
        "bytes": _total(map(_bytes, planned.tables)),
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
                        "name": column.name,
                        "source_type": column.source_type,
                        "output_type": column.output_type,
                        "lossless": column.lossless,
                        "note": column.note,
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
    return _total(unit.rows for unit in run.plan.units)


def _bytes(run: ResolvedTable) -> int | None:
    return _total(unit.bytes for unit in run.plan.units)


def _total(values: Iterable[int | None]) -> int | None:
    known = list(values)
    return None if None in known else sum(filter(None, known))


def _text(planned: PlannedRun) -> str:
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
                table,
                render.count(_rows(run)),
                render.size(_bytes(run)),
                render.count(len(run.plan.units)),
                render.count(len(own.written.columns)),
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
    rows, size = _total(map(_rows, planned.tables)), _total(map(_bytes, planned.tables))
    facts = (
        ("tables", render.count(len(planned.tables))),
        ("units", render.count(planned.units)),
        ("workers", render.count(len(planned.tables[0].seating.seats))),
        ("rows", render.about(render.count(rows), "estimate")),
        ("bytes", render.about(render.size(size), "in the source")),
        *((("directory", planned.home),) if planned.home else ()),
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


def is_skipped(asked: Request | TablesRequest, values: dict[str, Any]) -> bool:
    """Return whether a finished run of the job is left alone, and report it (`--skip-finished`).

    Nothing else follows: no command of `--on-success`, which would load the same files again.
    """
    if not values["skip_finished"]:
        return False
    found = api.finished(asked)
    if found is None:
        return False
    with display_for(values) as display:
        display(Notice(text=f"run {found['run_id']} of this job is finished: nothing was done"))
    if values["json"]:
        render.emit(render.json_text({**found, "skipped": True}))
    return True


def run_tables(
    context: click.Context, argument: SourceArgument, values: dict[str, Any]
) -> dict[str, Any] | None:
    """Unload several tables; return the manifest of the run, None if it was skipped."""
    asked = tables_request(context, argument, values)
    if is_skipped(asked, values):
        return None
    place = asked.options.destination or "several"
    # One request for metrics and traces of all tables.
    shown = replace(asked.common, output=replace(asked.common.output, destination=place, others=()))
    with (
        watched(values, shown, "several tables") as display,
        stop_on_signals(display.stopping) as stop,
    ):
        manifest = api.unload(asked, resume=values["resume_or_start"], observe=display, stop=stop)
        if values["report"] is not None:
            write_report(values["report"], manifest)
    return manifest
