"""`unloader run` over several tables."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from unloader.cli.jobs.tables import tables_request
from unloader.cli.options.source_argument import SourceArgument
from unloader.cli.reporting import write_report
from unloader.cli.signals import stop_on_signals
from unloader.cli.watching import watched

if TYPE_CHECKING:
    from unloader.model import Request
    from unloader.selection.asked import TablesRequest


def run_tables(
    context: click.Context, argument: SourceArgument, values: dict[str, Any]
) -> dict[str, Any]:
    """Unload several tables; return the manifest of the run."""
    asked = tables_request(context, argument, values)
    from unloader import api

    with (
        watched(values, _shown(asked), "several tables") as display,
        stop_on_signals(display.stopping) as stop,
    ):
        manifest = api.unload_tables(
            asked, resume=values["resume_or_start"], observe=display, stop=stop
        )
        write_report(values, manifest)
    return manifest


def _shown(asked: TablesRequest) -> Request:
    """Return the request that stands for all in metrics and traces."""
    common, place = asked.common, asked.options.destination
    return replace(common, output=replace(common.output, destination=place or "several", others=()))
