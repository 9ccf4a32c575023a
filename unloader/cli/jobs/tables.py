"""The run over several tables that a command line and a job file ask for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click
from click.core import ParameterSource

from unloader.cli.jobs.outputs import OutputReader
from unloader.cli.options import rules
from unloader.cli.options.command import ARGUMENTS
from unloader.cli.options.credentials import connect_to
from unloader.cli.options.origins import settings_of
from unloader.cli.options.parameter import given
from unloader.cli.options.request_of import request_of
from unloader.cli.options.source_argument import SourceArgument
from unloader.cli.options.tables import choice_of
from unloader.errors import UsageError
from unloader.model import Setting, SourceSpec, TablesOptions
from unloader.request.job.layers import SUBJECT, one_route_each, values_of
from unloader.request.job.model import JobFile, Mistake
from unloader.request.job.values import meaning
from unloader.request.options.option import of_command
from unloader.selection.asked import AskedTables, TablesRequest
from unloader.sources.options import every_option
from unloader.storage.kinds import destination_kind


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
        rules.validate(values, given(context))
    source = connect_to(argument.url, values, given(context))
    settings = settings_of(context, source.kind)
    if argument.job is None:
        entry = AskedTables(request=request_of(values, source, settings), choice=choice_of(values))
        return TablesRequest(entries=(entry,), options=_options(values, values["to"], settings))
    entries = _entries(context, argument.job, source)
    place = _common_place(argument.job, entries)
    common = tuple(each for each in settings if not _is_of_entry(context, each))
    return TablesRequest(entries=entries, options=_options(values, place, common))


def _is_of_entry(context: click.Context, setting: Setting) -> bool:
    """Return whether a setting stands in the first entry alone, and is not of the whole run."""
    key = setting.name.replace("-", "_")
    in_file = context.get_parameter_source(key) is ParameterSource.DEFAULT_MAP
    return in_file and bool(context.obj.job_values[key].entry)


def _options(
    values: Mapping[str, Any], places: tuple[str, ...], settings: tuple[Setting, ...]
) -> TablesOptions:
    return TablesOptions(
        destination=places[0] if places else "",
        overwrite=values["overwrite"],
        publish=values["publish"],
        on_failure=values["on_table_failure"],
        settings=settings,
    )


def _entries(context: click.Context, job: JobFile, source: SourceSpec) -> tuple[AskedTables, ...]:
    """Return the entries of a job file, each with what the command line says of all."""
    _check_subject(context, job)
    one_route_each(job)

    def first(mistake: Mistake) -> None:
        raise mistake.error

    reader = OutputReader(
        job=job,
        url=source.location,
        passwords={},
        report=first,
        command=str(context.command.name),
        arguments=context.meta[ARGUMENTS],
        source=source,
    )
    entries = tuple(output.asked() for output in reader.outputs())
    _check_places(entries)
    return entries


def _check_places(entries: tuple[AskedTables, ...]) -> None:
    """Refuse one directory for two entries, which needs no source to be known."""
    first: dict[str, str] = {}
    for entry in entries:
        output = entry.request.output
        if destination_kind(output.destinations) != "directories":
            continue
        for place in output.destinations:
            if "{table}" not in place and first.setdefault(place, entry.label) != entry.label:
                raise UsageError(
                    f"{first[place]} and {entry.label} go to one directory, {place}",
                    "write {table} into it, or give each entry its own to",
                )


def _check_subject(context: click.Context, job: JobFile) -> None:
    """Refuse to have the same tables in the place of those of each entry."""
    for key in SUBJECT:
        if context.get_parameter_source(key) in (
            ParameterSource.COMMANDLINE,
            ParameterSource.ENVIRONMENT,
        ):
            raise UsageError(
                f"--{key.replace('_', '-')} does not go with the {len(job.tables)} [[table]] "
                f"entries of {job.path}, which say what is unloaded",
                "leave it out; --exclude-table leaves out some of their tables",
            )


def _common_place(job: JobFile, entries: tuple[AskedTables, ...]) -> tuple[str, ...]:
    """Return what `--to` is for all entries; nothing where each says its own."""
    places = {entry.request.output.destinations for entry in entries}
    if len(places) == 1:
        return places.pop()
    top = values_of(job).get("to")
    option = next(each for each in of_command(every_option(), "run") if each.key == "to")
    return () if top is None else tuple(meaning(option, top.value))
