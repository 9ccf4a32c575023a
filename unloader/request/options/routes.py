"""Options on several outputs of one scan, and on the rows that an output takes of it."""

from __future__ import annotations

from typing import Any

from unloader.model import OutputOptions, Request
from unloader.request.options.kinds import Choice, Kind
from unloader.request.options.option import Option

ROUTES = "Routes"


class RouteTexts(Kind):
    """Routes as they stand on the command line, one each time the option is given."""

    takes = ()
    expected = "entries [[route]]"

    def read(self, value: Any) -> tuple[Any, ...]:
        """Return the one that is given, as one of all."""
        from unloader.request.job.route_texts import parse_route

        return (value if isinstance(value, tuple) else parse_route(value),)


def _unless_stop(policy: str) -> str | None:
    return None if policy == "stop" else policy


FILTER = Option(
    name="filter",
    scope="route",
    kind=Kind("SQL"),
    section="What to unload",
    commands=("plan", "run"),
    effect="selects",
    field="output.filter",
    owner=OutputOptions,
    empty=False,
    planned=True,
    record="filter",
    help="Only the rows for which this condition in DuckDB's SQL is true. It looks at the values "
    "as they were read from the source, and may name columns that are not written. --where is "
    "faster where one condition serves all outputs: the database evaluates it.",
)

OPTIONS = (
    Option(
        name="route",
        kind=RouteTexts("NAME:KEY=VALUE,..."),
        multiple=True,
        in_files=False,
        section=ROUTES,
        commands=("plan", "run"),
        effect="changes",
        kept=False,
        help="One of several outputs of one scan, with options of its own, such as "
        "'lake:to=/lake/orders,format=parquet,columns=\"ID,NAME\"'. A value with a comma stands in "
        'double quotes, in which "" is a quote. What a route does not say is as for the others. '
        "Repeated.",
    ),
    Option(
        name="on-route-failure",
        kind=Choice("stop", "drop"),
        section=ROUTES,
        commands=("plan", "run"),
        effect="changes",
        field="on_route_failure",
        owner=Request,
        shape=_unless_stop,
        default="stop",
        help="What becomes of the other routes when the output of one fails. stop: the run ends. "
        "drop: the others are written and published, and the run ends with exit status 7.",
    ),
)
