"""`unloader run` over several tables: the call, and its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from unloader.cli.display import render
from unloader.cli.jobs.tables import tables_request
from unloader.cli.options.source_argument import SourceArgument
from unloader.cli.signals import stop_on_signals
from unloader.cli.watching import watched
from unloader.events import Event, Observer, RunStarted

if TYPE_CHECKING:
    from unloader.manifest.tables import TablesManifest
    from unloader.model import Request
    from unloader.selection.asked import TablesRequest


def run_tables(context: click.Context, argument: SourceArgument, values: dict[str, Any]) -> None:
    """Unload several tables, and show the manifest of the run."""
    asked = tables_request(context, argument, values)
    from unloader import api

    home: list[str] = []
    with (
        watched(values, _shown(asked), "several tables") as display,
        stop_on_signals(display.stopping) as stop,
    ):
        manifest = api.unload_tables(asked, observe=_noting(home, display), stop=stop)
    answer_tables(manifest, values, "".join(home))


def _shown(asked: TablesRequest) -> Request:
    """Return the request that stands for all in metrics and traces."""
    common, place = asked.common, asked.options.destination
    return replace(common, output=replace(common.output, destination=place or "several", others=()))


def _noting(home: list[str], observe: Observer) -> Observer:
    """Return an observer that notes the directory of the run, too, which fields may be part of."""

    def take(event: Event) -> None:
        if isinstance(event, RunStarted):
            home[:] = event.destinations
        observe(event)

    return take


def answer_tables(manifest: dict[str, Any], values: Mapping[str, Any], home: str) -> None:
    """Show the manifest of a run over several tables that is complete."""
    from unloader.manifest.tables import from_json

    done = f"the run is complete in {home}"
    if values["json"]:
        render.emit_json(manifest, done=done)
    elif not values["quiet"]:
        render.emit(_summary(from_json(manifest), home), done=done, asked=False)


def _summary(manifest: TablesManifest, home: str) -> str:
    totals = manifest.totals
    rates = max(totals.seconds, 1e-9)
    return render.facts(
        (
            ("tables", render.count(totals.tables)),
            ("rows", render.count(totals.rows)),
            ("bytes", f"{render.count(totals.bytes)} ({render.size(totals.bytes)})"),
            ("files", render.count(totals.files)),
            ("seconds", f"{totals.seconds:.2f}"),
            (
                "speed",
                f"{render.rows_per_second(totals.rows / rates)}, "
                f"{render.megabytes_per_second(totals.bytes / rates)}",
            ),
            ("CPU seconds", f"{totals.cpu_seconds:.2f}"),
            ("snapshot", _snapshot(manifest)),
            ("directory", home),
            ("manifest", f"{home.rstrip('/')}/_manifest.json"),
        )
    )


def _snapshot(manifest: TablesManifest) -> str:
    found = manifest.snapshot
    if found is None or found.kind == "none":
        return "none: each work unit was read at its own time"
    return f"{found.kind} {found.value}".strip()
