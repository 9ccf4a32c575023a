"""`unloader report`: the page of a run or of a sweep."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
from msgspec import to_builtins

from unloader import api
from unloader.cli.display import render
from unloader.cli.options.command import JobCommand, declared_options
from unloader.cli.options.source_argument import finished_directory
from unloader.errors import UsageError
from unloader.storage.place_names import PlacePath


@click.command(
    "report",
    cls=JobCommand,
    short_help="Write an HTML page on a run or a sweep, with charts.",
    epilog="""\b
    Examples:
      unloader report /extract/orders --output orders.html
      unloader report /extract/orders > orders.html
      unloader report /extract/orders --json
      unloader report sweep.json --ceilings ceilings.json --output sweep.html
    """,
)
@click.argument("destination", metavar="DEST", callback=finished_directory)
@declared_options("report")
def command(
    destination: PlacePath, output: str | None, ceilings: str | None, **values: Any
) -> None:
    """Write an HTML page on the run in DEST: speed, timelines, stages, load and settings.

    DEST is the directory of a finished run, or of an interrupted run with finished work units. For
    a run over several tables, the page has a line for each table. DEST can also be a file: a
    manifest, or the output of unloader sweep --json. The page of a sweep shows its curve with the
    fit, the knee and the ceilings, and the cost of each point.

    The page is one file that needs no network. All its contents come from the manifest or from the
    answer of the sweep, and it contains no password. With --json, the figures of the page go to
    standard output.
    """

    if output is not None:
        api.check_report(Path(output))
    elif not values["json"] and sys.stdout.isatty():
        raise UsageError(
            "the page is HTML, and standard output is a terminal", "name a file with --output"
        )
    report = api.report(destination, ceilings=None if ceilings is None else Path(ceilings))
    if output is not None:
        api.write_report(Path(output), report)
    if values["json"]:
        render.emit_json(to_builtins(report))
    elif output is None:
        render.emit(api.report_page(report))
    elif not values["quiet"]:
        render.emit(f"report  {output}")
