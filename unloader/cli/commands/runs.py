"""`unloader runs`: the runs below a directory."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from unloader import api
from unloader.cli.display import pages, render
from unloader.cli.options.command import JobCommand, declared_options
from unloader.cli.options.source_argument import finished_directory
from unloader.storage.place_names import PlacePath


@click.command(
    "runs",
    cls=JobCommand,
    short_help="List the runs below a directory.",
    epilog="""\b
    Examples:
      unloader runs /extract
      unloader runs /extract --depth 1 --json
    """,
)
@click.argument("directory", metavar="DIR", callback=finished_directory)
@declared_options("runs")
def command(directory: PlacePath, depth: int, **values: Any) -> None:
    """List the active, interrupted and finished runs in DIR and below it.

    A run over several tables is listed once, by the directory that contains the directories of all
    tables.

    The command only reads the files of the runs, and changes nothing. It does not follow symbolic
    links and hidden directories. Rows and bytes of an unfinished run are the last figures that it
    reported.
    """

    found = api.runs(directory, depth=depth)
    if values["json"]:
        render.emit_json({"runs": found})
    elif not values["quiet"]:
        now = datetime.now(UTC)
        render.emit(pages.runs_page(found, now) if found else f"no runs in {directory}")
