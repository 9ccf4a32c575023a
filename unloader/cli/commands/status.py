"""`unloader status`: how far the run at a destination is."""

from __future__ import annotations

import json
import shutil
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
from msgspec import to_builtins

from unloader import api
from unloader.cli.display import pages, render
from unloader.cli.options.command import JobCommand, declared_options
from unloader.cli.options.source_argument import finished_directory
from unloader.errors import Interrupted, OutputFailed, PartialUnload
from unloader.storage.place_names import PlacePath

if TYPE_CHECKING:
    from unloader.status.reading import RunStatus


_MOST_NAMED = 4
"""An error names at most this number of directories with runs."""


@click.command(
    "status",
    cls=JobCommand,
    short_help="Show the progress of a run, from any shell.",
    epilog="""\b
    Examples:
      unloader status /extract/orders
      unloader status /extract/orders --watch
      unloader status /extract/orders --json
    """,
)
@click.argument("destination", metavar="DEST", callback=finished_directory)
@declared_options("status")
@click.pass_context
def command(
    context: click.Context, /, destination: PlacePath, watch: bool, interval: float, **values: Any
) -> None:
    """Show the progress of the run in DEST, or how it ended.

    The command reads only the files of the run in DEST. So it works from another shell, as another
    user who may read DEST, and for a run on another machine. It changes nothing.

    For a run over several tables, DEST is the directory that contains the directories of all
    tables.

    The exit status is 0 for an active or finished run, 7 for an interrupted run that can be
    resumed, and 6 without a run. With --watch, it is the status at the end. With --watch
    --json, each page is one JSON object on a separate line.
    """
    found = _look(destination)
    try:
        while watch and found.state == "running":
            _show(found, values, more=True)
            time.sleep(max(interval, 0.1))
            found = _again(found, destination)
    except KeyboardInterrupt:
        raise Interrupted(
            f"stopped watching run {found.run_id}, which continues",
            f"end it with: unloader stop {destination}",
        ) from None
    _show(found, values, more=watch, last=True)
    if found.state == "interrupted":
        context.exit(PartialUnload.exit_code)


def _width() -> int | None:
    """Return the columns of the terminal, None where the page goes elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _that_fits(page: str) -> str:
    """Return as much as the terminal has room for.

    Of more lines the first ones would be out of sight, and a line that is broken would be two.
    """
    size = shutil.get_terminal_size()
    lines, height = [line[: size.columns] for line in page.splitlines()], size.lines - 1
    if len(lines) <= height:
        return page
    kept = max(height - 1, 1)
    return "\n".join([*lines[:kept], f"and {len(lines) - kept} more lines"])


def _again(before: RunStatus, destination: PlacePath) -> RunStatus:
    try:
        return _look(destination)
    except OutputFailed as error:
        raise OutputFailed(
            f"run {before.run_id} has ended without files: {error.message}",
            "see its own log for why it ended",
        ) from error


def _look(destination: PlacePath) -> RunStatus:

    found = api.status(destination)
    if found.state == "none":
        below = [each.destination for each in api.runs(destination, depth=1)]
        if below:
            more = len(below) - _MOST_NAMED
            raise OutputFailed(
                f"{destination} has no run, but its directories have runs: "
                f"{', '.join(below[:_MOST_NAMED])}{f' and {more} more' if more > 0 else ''}",
                f"give one of these directories, or see all with: unloader runs {destination}",
            )
        raise OutputFailed(
            f"{destination} has no finished, active or interrupted run",
            "give the directory of --to. A run appears there when its plan is complete",
        )
    return found


def _show(found: RunStatus, values: dict[str, Any], *, more: bool, last: bool = False) -> None:
    """Write the whole status, or with `--watch` the part that fits the terminal."""
    if values["json"]:
        render.emit(json.dumps(to_builtins(found))) if more else render.emit_json(found)
    elif values["quiet"]:
        return
    elif last or not more:
        render.emit(pages.status_page(found, datetime.now(UTC), _width()))
    elif sys.stdout.isatty():
        # The cursor goes home and the screen below it is cleared.
        page = pages.status_page(found, datetime.now(UTC), _width())
        render.emit(f"\x1b[H\x1b[J{_that_fits(page)}")
    else:
        render.emit(pages.status_line(found))
