"""`unloader preflight`: the ceilings of disk, source, encoder and connection before a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from unloader import api
from unloader.cli.display import render, tuning_pages
from unloader.cli.display.progress import display_for
from unloader.cli.options import rules
from unloader.cli.options.command import JobCommand, declared_options
from unloader.cli.options.parameter import given
from unloader.cli.options.request_of import connect_to, request_of
from unloader.cli.options.source_argument import SourceArgument, source_argument
from unloader.cli.signals import stop_on_signals
from unloader.model import SourceSpec
from unloader.tuning.ceilings import check_saveable, save_ceilings
from unloader.tuning.preflight_measuring import Budget

if TYPE_CHECKING:
    pass


@click.command(
    "preflight",
    cls=JobCommand,
    short_help="Measure the ceilings of disk, source, encoder and connection.",
    epilog="""\b
    Examples:
      unloader preflight oracle://scott@db01:1521/SALES --table ORDERS \\
          --to /disk1/x,/disk2/x --parallelism 32 --save ceilings.json
      unloader preflight --to /extract --disk-bytes 8GiB
      unloader preflight postgresql://etl@db01/sales --table public.orders \\
          --without disk --json
    """,
)
@source_argument(plans=False, required=False)
@declared_options("preflight")
@click.pass_context
def command(context: click.Context, /, argument: SourceArgument, **values: Any) -> None:
    """Measure the ceilings of a run before it starts.

    The disks are written with the buffers, checksum and sync of a run. Workers fetch rows of
    SOURCE and drop them. The encoder and each codec work on a sample of the rows. Small statements
    measure the round trip. All written files are removed. A figure that cannot be measured is left
    blank, with the reason. Without SOURCE, only the disks of --to are measured.

    The command takes the options of run. It reads and writes at full speed: do not run it beside
    other work.
    """
    rules.validate_measuring(values, given(context), argument.url)
    parts = rules.measured_parts(values)
    source = SourceSpec(kind="", location="")
    if argument.url:
        source = connect_to(argument.url, values, given(context))
    job = request_of(values, source)
    if not values["to"]:
        job = replace(job, output=replace(job.output, destination=""))
    budget = Budget(
        parts=parts,
        levels=tuple(sorted(values["levels"] or ())),
        disk_bytes=values["disk_bytes"],
        disk_seconds=values["disk_seconds"],
        disk_rounds=values["rounds"],
        source_seconds=values["source_seconds"],
        sample_bytes=values["sample"],
    )
    saved = None if values["save"] is None else Path(values["save"])
    if saved is not None:
        check_saveable(saved)
    with display_for(values) as display, stop_on_signals(display.stopping) as stop:
        found = api.preflight(job, budget, observe=display, stop=stop)
    if saved is not None:
        save_ceilings(saved, found)
    if values["json"]:
        render.emit_json(found)
    elif not values["quiet"]:
        render.emit(tuning_pages.preflight_page(found))
