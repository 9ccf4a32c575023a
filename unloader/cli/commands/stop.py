"""`unloader stop`: end the run at a destination in good order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from unloader import api
from unloader.cli.display import pages, render
from unloader.cli.options.command import JobCommand, declared_options
from unloader.cli.options.source_argument import finished_directory
from unloader.cli.signals import stop_on_signals
from unloader.storage.place_names import PlacePath

if TYPE_CHECKING:
    from unloader.status.requests import StoppedRun


@click.command(
    "stop",
    cls=JobCommand,
    short_help="Stop an active run in an orderly way, from any shell.",
    epilog="""\b
    Examples:
      unloader stop /extract/orders
      unloader stop /extract/orders --timeout 30
    """,
)
@click.argument("destination", metavar="DEST", callback=finished_directory)
@declared_options("stop")
def command(destination: PlacePath, timeout: float, **values: Any) -> None:
    """Stop the run in DEST as Ctrl-C does, and wait for its end.

    The command writes a request into DEST/_run, so you need the right to write there. The run may
    belong to another user, or run on another machine. The run ends with exit status 130. Its
    finished work units are kept, and `unloader resume DEST` continues the run.

    The exit status is 6 without an active run, or if the run is still active after --timeout.
    """

    with stop_on_signals(lambda _: None) as stop:
        ended = api.stop(destination, timeout_seconds=timeout, stop=stop)
    if values["json"]:
        render.emit_json(ended)
    elif not values["quiet"]:
        render.emit(render.visible(_text(ended, destination)))


def _text(ended: StoppedRun, destination: PlacePath) -> str:
    run, took = f"run {ended.run_id}", render.seconds(ended.seconds)
    if ended.state == "running":
        return f"{run} was asked to stop. Next: unloader status {destination} --watch"
    if ended.state == "finished":
        return f"{run} was already finishing, and is complete in {destination}"
    if ended.state == "none":
        return f"{run} has ended after {took}. No work unit was finished, and no file remains"
    of_all = "" if ended.units is None else f" of {ended.units:,}"
    return (
        f"{run} has ended after {took} with {ended.units_done:,}{of_all} work units finished. "
        f"Next: {pages.next_step(ended.status)}"
    )
