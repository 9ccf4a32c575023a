"""From the options of a job and of its routes to one request with several outputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import click
from msgspec.structs import replace

from unloader.cli.options import rules
from unloader.cli.options.parameter import given, on_command_line, settings_of, shown_value
from unloader.cli.options.request_of import connect_to, request_of
from unloader.errors import UnloaderError, UsageError
from unloader.model import Request, Route, Setting, SourceSpec
from unloader.request.job.documents import Place
from unloader.request.job.grammar import Entry, Given, meaning
from unloader.request.option import of_scope
from unloader.request.options import options_of
from unloader.storage.place_names import KEPT, destination_kind

_ON_COMMAND_LINE = Place(path="--route")


def asked_request(context: click.Context, url: str, values: Mapping[str, Any]) -> Request:
    """Return the request of the options and the routes, after the rules between them.

    Args:
        context: The call of the command.
        url: Of the source.
        values: Every option by its name with underscores.

    Raises:
        UnloaderError: Something contradicts, or is missing.
    """
    entries = _entries(context, values)
    if entries:
        request = _request_of_routes(context, url, values, entries)
    else:
        rules.validate(values, given(context))
        source = connect_to(url, values, given(context))
        request = request_of(values, source, settings_of(context, source.kind))
    if request.routes is not None and request.verify == "source":
        raise UsageError(
            "--verify source compares one output without a filter", "use --verify full"
        )
    return request


def _request_of_routes(
    context: click.Context, url: str, values: Mapping[str, Any], entries: Sequence[Entry]
) -> Request:
    names = [each.name or str(each.number) for each in entries]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two routes have the name {name}", "give each its own name")
    source: SourceSpec | None = None
    requests, routes = [], []
    for name, entry in zip(names, entries, strict=True):
        own, set_here = _values_of(context, values, entry)
        try:
            places: tuple[str, ...] = own.get("to") or ()
            if not places and "to" in own:
                raise UsageError("it has no destination", "set the key 'to'")
            if len(entries) > 1 and destination_kind(places) not in (*KEPT, "null"):
                raise UsageError(
                    f"it goes to {', '.join(places)}, and several routes need directories",
                    "give it a directory, or unload it in a separate run",
                )
            rules.validate(own, set_here)
            source = source or connect_to(url, values, given(context))
            asked = request_of(own, source, settings_of(context, source.kind))
        except UnloaderError as error:
            raise type(error)(f"route {name}: {error.message}", error.hint) from error
        (only,) = asked.of_outputs()
        requests.append(asked)
        routes.append(
            Route(
                name=name,
                output=asked.output,
                columns=only.selection.columns,
                exclude=only.selection.exclude,
                fixed=only.fixed,
                settings=_settings(entry, planned=context.obj.planned),
            )
        )
    first = requests[0]
    if any(each.selection.where != first.selection.where for each in requests):
        raise UsageError(
            "routes have different values of where, and the database evaluates where once for all",
            "write the condition of each route as its filter",
        )
    if len(routes) == 1 and first.output.filter is None:
        return first
    selection = replace(first.selection, columns=(), exclude=())
    return replace(first, selection=selection, routes=tuple(routes), fixed=None)


def _entries(context: click.Context, values: Mapping[str, Any]) -> Sequence[Entry]:
    """Return the routes of the command line, or else of the job file."""
    written = values.get("route")
    if not written:
        found: Sequence[Entry] = context.obj.routes
        return found
    if context.obj.planned:
        raise UsageError(
            f"--route cannot change the finished plan {context.obj.job_file}",
            "make a new plan with --route, or leave it out",
        )
    return _routes_at(_ON_COMMAND_LINE, written)


def kept_routes(context: click.Context, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the routes of a job as a plan file keeps them; see `routes_of_plan`."""
    return [
        {"name": each.name, "values": {pair.key: pair.value for pair in each.values}}
        for each in _entries(context, values)
    ]


def routes_of_plan(kept: Sequence[Mapping[str, Any]], path: str) -> list[Entry]:
    return _routes_at(Place(path=path), ((each["name"], each["values"].items()) for each in kept))


def _routes_at(
    place: Place, routes: Iterable[tuple[str, Iterable[tuple[str, Any]]]]
) -> list[Entry]:
    return [
        Entry(
            kind="route",
            number=number,
            name=name,
            place=place,
            values=tuple(Given(key=key, value=value, place=place) for key, value in pairs),
        )
        for number, (name, pairs) in enumerate(routes, 1)
    ]


def _values_of(
    context: click.Context, values: Mapping[str, Any], entry: Entry
) -> tuple[dict[str, Any], frozenset[str]]:
    """Return all options as they are for a route, and the names of the options that it sets.

    The keys above the routes are defaults for each route: they are ignored where they do not
    apply. The command line counts more than a route of a job file.
    """
    options = {each.key: each for each in of_scope(options_of("run"), "route")}
    for each in entry.values:
        if each.key not in options:
            name = each.key.replace("_", "-")
            near = get_close_matches(each.key, options, n=1, cutoff=0.5)
            raise UsageError(
                f"route {entry.name}: {name} is not an option of a route",
                f"did you mean {near[0].replace('_', '-')}?"
                if near
                else "give it outside of the route, as --" + name,
            )
    over = frozenset() if entry.place == _ON_COMMAND_LINE else on_command_line(context)
    own = {
        each.key: meaning(options[each.key], each) for each in entry.values if each.key not in over
    }
    none = {"columns": (), "exclude": ()} if "columns" in own or "exclude" in own else {}
    above = {key for key in given(context) if key not in options}
    return {**values, **none, **own}, frozenset({*own, *above})


def _settings(entry: Entry, *, planned: bool) -> tuple[Setting, ...]:
    """Return the settings of a route, for its manifest."""
    options = {each.key: each for each in of_scope(options_of("run"), "route")}
    file = f"{'plan' if planned else 'job'} file {entry.place.path}"
    where = "command line" if entry.place == _ON_COMMAND_LINE else file
    return tuple(
        Setting(
            name=option.name,
            value=shown_value(option, value),
            origin=f"route {entry.name or entry.number}, {where}",
            effect=option.effect,
        )
        for option, value in ((options[each.key], each.value) for each in entry.values)
        if option.effect != "unrecorded"
    )
