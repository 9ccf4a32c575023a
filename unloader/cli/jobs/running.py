"""`unloader run` over several tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from unloader.cli.display import render
from unloader.cli.display.progress import display_for
from unloader.cli.jobs.tables import tables_request
from unloader.cli.options.source_argument import SourceArgument
from unloader.cli.signals import stop_on_signals
from unloader.cli.watching import watched, write_report
from unloader.events import Notice

if TYPE_CHECKING:
    from unloader.model import Request
    from unloader.selection.choice import TablesRequest


def is_skipped(asked: Request | TablesRequest, values: dict[str, Any]) -> bool:
    """Return whether a finished run of the job is left alone, and say so: see `--skip-finished`.

    Nothing else follows: no command of `--on-success`, which would load the same files again.
    """
    if not values["skip_finished"]:
        return False
    from unloader import api

    found = api.finished(asked)
    if found is None:
        return False
    with display_for(values) as display:
        display(Notice(text=f"run {found['run_id']} of this job is finished: nothing was done"))
    if values["json"]:
        render.emit_json({**found, "skipped": True})
    return True


def run_tables(
    context: click.Context, argument: SourceArgument, values: dict[str, Any]
) -> dict[str, Any] | None:
    """Unload several tables; return the manifest of the run, None if it was skipped."""
    asked = tables_request(context, argument, values)
    if is_skipped(asked, values):
        return None
    from unloader import api

    with (
        watched(values, _shown(asked), "several tables") as display,
        stop_on_signals(display.stopping) as stop,
    ):
        manifest = api.unload(asked, resume=values["resume_or_start"], observe=display, stop=stop)
        write_report(values, manifest)
    return manifest


def _shown(asked: TablesRequest) -> Request:
    """Return the request that stands for all in metrics and traces."""
    common, place = asked.common, asked.options.destination
    return replace(common, output=replace(common.output, destination=place or "several", others=()))
