"""Runs and plans of several tables, as a command line and a job file ask for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from msgspec.structs import replace

from unloader import api
from unloader.cli.display import render
from unloader.cli.display.columns import subset_text
from unloader.cli.display.progress import display_for
from unloader.cli.invocation import Invocation
from unloader.cli.options.parameter import entry_context, settings_of
from unloader.cli.options.routes import asked_request
from unloader.cli.options.source_argument import SourceArgument, check_statements
from unloader.cli.options.tables import ONE_OF_SEVERAL, choice_of
from unloader.cli.signals import stop_on_signals
from unloader.cli.watching import watched, write_report
from unloader.errors import UnloaderError, UsageError
from unloader.events import Notice
from unloader.model import OutputOptions, Request, Setting, TablesOptions
from unloader.request.job.entries import SUBJECT, Entry, JobFile, only_route, routes_of, values_of
from unloader.request.job.grammar import meaning
from unloader.request.options import options_of
from unloader.resolve.places import directories_of
from unloader.resolve.resolved import of_output, routes_json
from unloader.selection.choice import AskedTables, TablesRequest
from unloader.selection.listing import script
from unloader.storage.place_names import destination_kind
from writers.codecs.choice import label
from writers.model import ParquetFormat

if TYPE_CHECKING:
    from unloader.api import PlannedRun
    from unloader.model import Request
    from unloader.resolve.resolved import ResolvedTable
    from unloader.selection.choice import TablesRequest


def tables_request(
    context: click.Context, argument: SourceArgument, values: Mapping[str, Any]
) -> TablesRequest:
    """Return the run over several tables that options and a job file ask for.

    Args:
        context: Of the command.
        argument: Its source; a job file with several tables has the entries.
        values: The options by their names with underscores, of the first entry.

    Raises:
        UsageError: Options contradict or lack one another; the message names the entry.
        ConfigError: The password's place is not there or cannot be read.
    """
    if argument.job is None:
        entries: tuple[AskedTables, ...] = (_asked(context, argument.url, values, ""),)
    else:
        _check_subject(context, argument.job)
        entries = tuple(_entries(context, argument.job, argument.url))
    _check_places(entries)
    settings = settings_of(context, entries[0].request.source.kind)
    options = TablesOptions(
        destination=common_place(argument.job, entries),
        overwrite=values.get("overwrite", False),
        publish=values["publish"],
        on_failure=values["on_table_failure"],
        settings=tuple(each for each in settings if not _is_of_entry(context, each)),
    )
    return TablesRequest(entries=entries, options=options)


def _asked(context: click.Context, url: str, values: Mapping[str, Any], label: str) -> AskedTables:
    request = asked_request(context, url, values)
    selection = replace(request.selection, table=None)
    return AskedTables(
        request=replace(request, selection=selection), choice=choice_of(values), label=label
    )


def _is_of_entry(context: click.Context, setting: Setting) -> bool:
    """Return whether only the first entry has a setting, and not the whole run."""
    key = setting.name.replace("-", "_")
    given = context.obj.job_values.get(key)
    in_file = context.get_parameter_source(key) is ParameterSource.DEFAULT_MAP
    return in_file and given is not None and bool(given.entry)


def _check_subject(context: click.Context, job: JobFile) -> None:
    """Refuse tables on the command line in place of the tables of each entry."""
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


def _entries(context: click.Context, job: JobFile, url: str) -> Iterator[AskedTables]:
    """Yield the entries of a job file, each with the options of the command line."""
    prompt = True
    for table in job.tables:
        try:
            inner = _context_of(context, job, table)
            if not prompt:
                # Asked for already.
                inner.params["password_prompt"] = False
            yield _asked(inner, url, inner.params, table.label)
        except UnloaderError as error:
            raise type(error)(
                f"{table.place}: {table.label}: {error.message}", error.hint
            ) from error
        prompt = False


def _context_of(context: click.Context, job: JobFile, table: Entry) -> click.Context:
    """Return the call of the command for an entry."""
    routes = tuple(each for each in routes_of(job, table) if each is not None)
    values = values_of(job, table, only_route(job, table))
    check_statements(values)
    known = Invocation(
        job_file=job.path, job_values=values, routes=routes if len(routes) > 1 else ()
    )
    inner = entry_context(context, known)
    inner.params[ONE_OF_SEVERAL] = True
    if context.command.name == "run" and not (inner.params["to"] or len(routes) > 1):
        raise UsageError("the output has no destination", "set the key 'to'")
    return inner


def _check_places(entries: tuple[AskedTables, ...]) -> None:
    """Refuse streams, and one directory for two entries; that needs no source to be known."""
    first: dict[str, str] = {}
    kinds = set()
    for entry in entries:
        for output in [one.output for one in entry.request.of_outputs()]:
            kinds.add(_kind_of(output))
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


def _kind_of(output: OutputOptions) -> str:
    kind = destination_kind(output.destinations)
    if kind in ("stdout", "pipe"):
        raise UsageError(
            f"--to {output.destination} is a stream, and several tables need separate files",
            "give a directory, --to '/extract/{schema}.{table}', or run one table",
        )
    return kind


def common_place(job: JobFile | None, entries: tuple[AskedTables, ...]) -> str:
    """Return the directory of the manifest of all, with fields; empty where nothing says it."""
    places = {entry.request.output.destination for entry in entries}
    if len(places) == 1:
        return places.pop()
    top = None if job is None else values_of(job).get("to")
    option = next(each for each in options_of("run") if each.key == "to")
    return "" if top is None else str(meaning(option, top)[0])


MOST_NOTES = 20
"""Columns whose note is shown; the others are counted."""


def plan_tables(context: click.Context, argument: SourceArgument, values: dict[str, Any]) -> None:
    """Show what a run over several tables would do."""
    if values["output"]:
        raise UsageError(
            "--output writes the plan of one table, and there are several tables",
            "leave it out, and give run the same options or job file: it plans in the same way",
        )
    asked = tables_request(context, argument, values)
    with display_for(values) as display:
        planned = api.plan(asked, observe=display)
    if values["json"]:
        render.emit_json(_document(planned))
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
        "rows": _total([_rows(run) for run in planned.tables]),
        "bytes": _total([_bytes(run) for run in planned.tables]),
        "tables": [_table(run) for run in planned.tables],
        "left_out": [
            {"table": each.table, "error": each.error.message} for each in planned.problems
        ],
        "script": script(planned.problems),
        "notices": list(first.seating.notices),
    }


def _table(run: ResolvedTable) -> dict[str, Any]:
    table = run.extract.table
    return {
        "schema": table.schema,
        "name": table.name,
        "query": run.extract.query,
        "subset": subset_text(run) or None,
        "rows": _rows(run),
        "bytes": _bytes(run),
        "units": len(run.plan.units),
        "directories": list(filter(None, run.output.options.destinations)),
        "format": "parquet" if _is_parquet(run) else "csv",
        "compression": label(run.output.compression),
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


def _is_parquet(run: ResolvedTable) -> bool:
    return isinstance(run.output.format, ParquetFormat)


def _rows(run: ResolvedTable) -> int | None:
    return _total([unit.rows for unit in run.plan.units])


def _bytes(run: ResolvedTable) -> int | None:
    return _total([unit.bytes for unit in run.plan.units])


def _total(values: list[int | None]) -> int | None:
    return None if any(each is None for each in values) else sum(filter(None, values))


def _text(planned: PlannedRun) -> str:
    parts = [_tables(planned), "\n".join(_notes(planned)), _whole(planned)]
    left_out = [
        (render.name(each.table), f"is left out: {each.error.message}") for each in planned.problems
    ]
    parts.append(render.facts(left_out))
    return "\n\n".join(part for part in parts if part)


def _tables(planned: PlannedRun) -> str:
    """Return a line for each table; for each output where a table has several."""
    shown = [(run, *output) for run in planned.tables for output in _outputs(run)]
    parts = [subset_text(run) for run, _, _ in shown]
    some, routes = any(parts), any(name for _, name, _ in shown)
    heads = ("table", ">rows", ">bytes", ">units", ">columns", "format")
    return render.table(
        (
            *heads,
            *(("route",) if routes else ()),
            *(("subset",) if some else ()),
            *(("to",) if planned.home else ()),
        ),
        (
            (
                render.name(run.extract.table.label),
                render.count(_rows(run)),
                render.size(_bytes(run)),
                render.count(len(run.plan.units)),
                render.count(len(own.written.columns)),
                _form(own),
                *([name] if routes else []),
                *([part or "all"] if some else []),
                *([",".join(own.output.options.destinations)] if planned.home else []),
            )
            for (run, name, own), part in zip(shown, parts, strict=True)
        ),
    )


def _outputs(run: ResolvedTable) -> Iterator[tuple[str, ResolvedTable]]:
    """Yield each output's name, which is empty for the only one, with the run of it alone."""
    if run.request.routes is None:
        yield "", run
        return
    for number, route in enumerate(run.request.routes):
        yield route.name, of_output(run, number)


def _form(run: ResolvedTable) -> str:
    codec = label(run.output.compression)
    name = "parquet" if _is_parquet(run) else "csv"
    return name if codec == "none" else f"{name} {codec}"


def _notes(planned: PlannedRun) -> Iterator[str]:
    """Yield what becomes of columns that are not written as they are in the source."""
    notes = [
        f"{f'route {name}: ' if name else ''}{render.name(run.extract.table.label)}."
        f"{render.name(column.name)}: {column.note}"
        for run in planned.tables
        for name, own in _outputs(run)
        for column in own.written.columns
        if column.note
    ]
    yield from notes[:MOST_NOTES]
    if len(notes) > MOST_NOTES:
        yield f"... {render.count(len(notes) - MOST_NOTES)} more: --json shows all"


def _whole(planned: PlannedRun) -> str:
    first = planned.tables[0]
    rows, size = (_total([of(run) for run in planned.tables]) for of in (_rows, _bytes))
    return render.facts(
        (
            ("tables", render.count(len(planned.tables))),
            ("units", render.count(planned.units)),
            ("workers", render.count(len(first.seating.seats))),
            ("rows", render.about(render.count(rows), "estimate")),
            ("bytes", render.about(render.size(size), "in the source")),
            *((("directory", planned.home),) if planned.home else ()),
        )
    )


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
        render.emit_json({**found, "skipped": True})
    return True


def run_tables(
    context: click.Context, argument: SourceArgument, values: dict[str, Any]
) -> dict[str, Any] | None:
    """Unload several tables; return the manifest of the run, None if it was skipped."""
    asked = tables_request(context, argument, values)
    if is_skipped(asked, values):
        return None
    with (
        watched(values, _shown(asked), "several tables") as display,
        stop_on_signals(display.stopping) as stop,
    ):
        manifest = api.unload(asked, resume=values["resume_or_start"], observe=display, stop=stop)
        write_report(values, manifest)
    return manifest


def _shown(asked: TablesRequest) -> Request:
    """Return one request for metrics and traces of all tables."""
    common, place = asked.common, asked.options.destination
    return replace(common, output=replace(common.output, destination=place or "several", others=()))
