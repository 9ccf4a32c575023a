"""`unloader sweep`: how speed grows with the workers, where it bends, and what to use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from unloader.cli.display import render
from unloader.cli.options.command import JobCommand, declared_options
from unloader.errors import UsageError


@click.command(
    "sweep",
    cls=JobCommand,
    short_help="Find the knee and the parallelism to use from measured points.",
    epilog="""\b
    Examples:
      unloader sweep --replay points.csv
      unloader sweep --replay points.csv --predict 48,64 --json
    """,
)
@declared_options("sweep")
def command(**values: Any) -> None:
    """Say where speed stops growing with the workers, and which parallelism to use.

    The answer has the knee with its interval, levels that are outliers, what limits the speed on
    each side of the knee, the recommended parallelism, and the predicted seconds of others.
    """
    if values["replay"] is None:
        raise UsageError("sweep has no points to analyse", "give a file of them with --replay")
    _replay(values)


def _replay(values: dict[str, Any]) -> None:
    """Answer from the points of a file."""
    from unloader.tuning.analysis import analyse
    from unloader.tuning.points_file import read_points
    from unloader.tuning.validity import Rules

    if values["replay"] == "":
        raise UsageError("--replay is empty", "name a file of points")
    file = read_points(Path(values["replay"]))
    rules = Rules(
        spread=values["spread"],
        queue_seconds=values["queue_limit"],
        cpu_limit=values["cpu_limit"],
        discount=values["discount"],
    )
    found = analyse(file.points, rules, values["predict"] or ())
    notices = (*file.notices, *found.notices)
    if values["json"]:
        render.emit_json({**found.to_json(), "notices": list(notices)})
    elif not values["quiet"]:
        from unloader.cli.display.sweeps.answer import shown

        render.emit(shown(found))
    for notice in () if values["quiet"] else notices:
        click.echo(f"unloader: notice: {render.visible(notice)}", err=True)
