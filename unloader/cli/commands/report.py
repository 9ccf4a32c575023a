"""`unloader report`: the page of a run or of a sweep."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from unloader.cli.display import render
from unloader.cli.options.command import JobCommand, declared_options
from unloader.cli.options.source_argument import finished_directory
from unloader.errors import UsageError
from unloader.storage.paths import PlacePath


@click.command(
    "report",
    cls=JobCommand,
    short_help="Write the page of a run or sweep: charts of what took how long.",
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
    """Write a page in HTML on the run in DEST: speed, timelines, stages, load and settings.

    DEST is the directory of a finished run, or of a broken one of which some work units are done.
    With the directory of a run over several tables, the page has a line for each table.
    It may also be a file: a manifest, or what unloader sweep --json wrote. The page of a sweep
    shows its curve with the fit, the knee and the ceilings, and what each point cost.

    The page is one file that needs no network. It is made from the manifest or the sweep's answer
    alone, so it holds no more than these, and no password. With --json the figures of the page are
    written to standard output.
    """
    from unloader import api

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
        render.emit_json(report.to_json())
    elif output is None:
        render.emit(api.report_page(report))
    elif not values["quiet"]:
        render.emit(f"report  {output}")
