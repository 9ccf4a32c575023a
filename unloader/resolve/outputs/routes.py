"""Several outputs of one scan: the columns of each, its filter, and its place beside the others."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from unloader.errors import UsageError
from unloader.model import OutputOptions, Projection, Request
from unloader.request.names import Folding, choose_columns
from unloader.sources.projection import OutputNeeds
from unloader.storage.place_names import (
    KEPT,
    absolute,
    comparable,
    destination_kind,
    is_kept,
    overlapping,
)
from unloader.storage.storage_protocol import RUN

if TYPE_CHECKING:
    from partition_planner.model import TableInfo

FILTER = "the filter"


def with_columns(
    asked: Sequence[Request], needs: Sequence[OutputNeeds], table: TableInfo, folding: Folding
) -> tuple[OutputNeeds, ...]:
    """Return the needs of outputs with the columns that each takes and that its filter looks at.

    Raises:
        UsageError: A name means no column, or a filter is not understood.
    """
    names = [column.name for column in table.columns]
    found = []
    for request, need in zip(asked, needs, strict=True):
        chosen = request.selection
        taken = None
        if chosen.columns or chosen.exclude:
            taken = tuple(choose_columns(names, chosen.columns, chosen.exclude, folding))
        found.append(replace(need, columns=taken, filter_columns=_looked_at(request.output, names)))
    return tuple(found)


def check_filters(asked: Sequence[Request], projection: Projection) -> None:
    """Check the filters against the types of the columns.

    Raises:
        UsageError: One does not suit them, or is no condition.
    """
    if projection.filters is None:
        return
    from contextlib import closing

    from unloader.transforms.sql_expressions import checked, open_session
    from unloader.transforms.sql_steps import check_condition
    from writers.schema import read_schema, selected

    schema = read_schema(projection.schema)
    for request, columns in zip(asked, projection.filters, strict=True):
        condition = request.output.filter
        if condition is None:
            continue
        typed = selected(schema, columns)
        with closing(open_session()) as session:
            expression = checked(session, condition, typed.names, FILTER)
            check_condition(session, expression, typed, FILTER)


def check_places(request: Request, outputs: Sequence[OutputOptions]) -> None:
    """Check that no two outputs of a run have one directory, or one inside the other's.

    Args:
        request: Names the routes.
        outputs: With real directories.

    Raises:
        UsageError: Two do, or one goes to where several cannot.
    """
    routes = request.routes or ()
    if len(routes) < 2:
        return
    places: list[tuple[str, str]] = []
    for route, output in zip(routes, outputs, strict=True):
        kind = destination_kind(output.destinations)
        if output.destination and kind not in (*KEPT, "null"):
            raise UsageError(
                f"route {route.name} writes to {output.destination}, but a run of several routes "
                "writes to directories",
                "give it a directory, or run it separately",
            )
        if kind in KEPT:
            places += ((route.name, each) for each in output.destinations if each)
    paths = [comparable(each) for _, each in places]
    for (name, place), path in zip(places, paths, strict=True):
        if RUN in path.parts:
            raise UsageError(
                f"route {name} writes to {place}, which is inside a directory {RUN}: that "
                "directory is removed when a run ends",
                "choose another directory",
            )
    _check_links(request, outputs)
    if pair := overlapping(paths):
        (first, one), (second, other) = (places[at] for at in pair)
        raise UsageError(
            f"routes {first} and {second} would write to {one} and {other}, which are the same "
            "directory"
            if paths[pair[0]] == paths[pair[1]]
            else f"routes {first} and {second} would write to {one} and {other}, and one is "
            "inside the other",
            "give each route a separate directory",
        )


def _check_links(request: Request, outputs: Sequence[OutputOptions]) -> None:
    """Check that no two routes switch one link."""
    seen: dict[str, str] = {}
    for route, output in zip(request.routes or (), outputs, strict=True):
        if output.latest_link is None or not output.destination:
            continue
        parent = os.path.realpath(os.path.dirname(output.destination.rstrip("/")) or ".")
        link = os.path.join(parent, output.latest_link)
        other = seen.setdefault(link, route.name)
        if other != route.name:
            raise UsageError(
                f"routes {other} and {route.name} have the same --latest-link, {link}",
                "give each route a different link",
            )


def at_absolute_places(output: OutputOptions) -> OutputOptions:
    """Return an output with its directories as they are found from anywhere.

    Whoever resumes a run by the directory of one route must find those of the others.
    """
    if not output.destination or not is_kept(output.destinations):
        return output
    first, *others = (absolute(each) for each in output.destinations)
    return replace(output, destination=first, others=tuple(others))


def _looked_at(output: OutputOptions, names: Sequence[str]) -> tuple[str, ...] | None:
    """Return the columns that a filter looks at; None where there is no filter."""
    if output.filter is None:
        return None
    from contextlib import closing

    from unloader.transforms.sql_expressions import checked, open_session

    with closing(open_session()) as session:
        expression = checked(session, output.filter, names, FILTER)
    return tuple(dict.fromkeys(names[index] for index in expression.columns))
