"""Options on several outputs of one scan, and on the rows of each output."""

from __future__ import annotations

from typing import Any

from unloader.model import OutputOptions, Request
from unloader.request.options.kinds import Choice, Kind
from unloader.request.options.option import Option

ROUTES = "Routes"

_TWO_ROUTES = (
    "unloader run duckdb:///data/sales.db --table ORDERS \\\n"
    "    --route csv:to=/extract/csv --route lake:to=/lake/orders,format=parquet"
)


class RouteTexts(Kind):
    """Routes as they are written on the command line, one in each occurrence of the option."""

    takes = ()
    expected = "entries [[route]]"

    def read(self, value: Any) -> tuple[Any, ...]:
        """Return the given route as a tuple of one."""
        from unloader.request.job.route_texts import parse_route

        return (value if isinstance(value, tuple) else parse_route(value),)


def _unless_stop(policy: str) -> str | None:
    return None if policy == "stop" else policy


FILTER = Option(
    name="filter",
    scope="route",
    kind=Kind("SQL"),
    section="Selection",
    commands=("plan", "run"),
    effect="selects",
    field="output.filter",
    owner=OutputOptions,
    empty=False,
    planned=True,
    record="filter",
    help=(
        "Only the rows for which this condition is true, in the SQL of DuckDB. It sees the "
        "values as they were read from the source, and can name columns that are not written. "
        "If one condition serves all outputs, --where is faster: the database evaluates it."
    ),
    example="'AMOUNT > 100'",
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
        help=(
            "One of several outputs of one scan, with separate options, such as "
            "'lake:to=/lake/orders,format=parquet,columns=\"ID,NAME\"'. Put double quotes around a "
            'value with a comma; "" is a quote in it. Options that a route does not set are the '
            "same for all routes. Repeat the option for each output."
        ),
        example=_TWO_ROUTES,
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
        help=(
            "What to do with the other routes when the output of one route fails. stop ends the "
            "run. drop writes and publishes the other routes, and the exit status is 7."
        ),
        example=f"{_TWO_ROUTES} \\\n    --on-route-failure drop",
    ),
)
