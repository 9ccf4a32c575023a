"""The run over several tables that a command line and a job file ask for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click
from click.core import ParameterSource
from msgspec.structs import replace

from unloader.cli.invocation import Invocation
from unloader.cli.jobs.outputs import EntryCalls
from unloader.cli.mistakes import usage_error
from unloader.cli.options.command import ARGUMENTS
from unloader.cli.options.origins import settings_of
from unloader.cli.options.routes import asked_request
from unloader.cli.options.source_argument import SourceArgument, check_statements
from unloader.cli.options.tables import ONE_OF_SEVERAL, choice_of
from unloader.errors import UnloaderError, UsageError
from unloader.model import OutputOptions, Request, Setting, TablesOptions
from unloader.request.job.entries import SUBJECT, Entry, JobFile, only_route, routes_of, values_of
from unloader.request.job.grammar import meaning
from unloader.request.option import of_command
from unloader.request.options import every_option
from unloader.resolve.places import directories_of
from unloader.selection.choice import AskedTables, TablesRequest
from unloader.storage.place_names import destination_kind


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
    """Return whether a setting stands in the first entry alone, and is not of the whole run."""
    key = setting.name.replace("-", "_")
    given = context.obj.job_values.get(key)
    in_file = context.get_parameter_source(key) is ParameterSource.DEFAULT_MAP
    return in_file and given is not None and bool(given.entry)


def _check_subject(context: click.Context, job: JobFile) -> None:
    """Refuse to have the same tables in the place of those of each entry."""
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
    """Yield the entries of a job file, each with what the command line says of all."""
    prompt = True
    calls = EntryCalls(str(context.command.name), context.meta[ARGUMENTS])
    for table in job.tables:
        try:
            inner = _context_of(context, calls, job, table)
            if not prompt:
                # Asked for already.
                inner.params["password_prompt"] = False
            yield _asked(inner, url, inner.params, table.label)
        except (UnloaderError, click.UsageError) as error:
            known = usage_error(error) if isinstance(error, click.UsageError) else error
            raise type(known)(
                f"{table.place}: {table.label}: {known.message}", known.hint
            ) from error
        prompt = False


def _context_of(
    context: click.Context, calls: EntryCalls, job: JobFile, table: Entry
) -> click.Context:
    """Return the call of the command that an entry stands for."""
    routes = tuple(each for each in routes_of(job, table) if each is not None)
    values = values_of(job, table, only_route(job, table))
    check_statements(values)
    known = Invocation(
        job_file=job.path, job_values=values, routes=routes if len(routes) > 1 else ()
    )
    inner = calls.context(known)
    inner.params[ONE_OF_SEVERAL] = True
    if context.command.name == "run" and not (inner.params["to"] or len(routes) > 1):
        raise UsageError("the output has no destination", "set the key 'to'")
    return inner


def _check_places(entries: tuple[AskedTables, ...]) -> None:
    """Refuse streams, and one directory for two entries; that needs no source to be known."""
    first: dict[str, str] = {}
    kinds = set()
    for entry in entries:
        for output in _outputs(entry.request):
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


def _outputs(request: Request) -> tuple[OutputOptions, ...]:
    return tuple(route.output for route in request.routes or ()) or (request.output,)


def common_place(job: JobFile | None, entries: tuple[AskedTables, ...]) -> str:
    """Return the directory of the manifest of all, with fields; empty where nothing says it."""
    places = {entry.request.output.destination for entry in entries}
    if len(places) == 1:
        return places.pop()
    top = None if job is None else values_of(job).get("to")
    option = next(each for each in of_command(every_option(), "run") if each.key == "to")
    return "" if top is None else str(meaning(option, top.value)[0])
