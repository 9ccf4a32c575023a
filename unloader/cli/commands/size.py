"""`unloader size`: how much machine a night needs, with the arithmetic."""

from __future__ import annotations

from typing import Any

import click

from unloader import api
from unloader.cli.display import render, tuning_pages
from unloader.cli.options.command import JobCommand, declared_options
from unloader.errors import UsageError
from unloader.tuning.sizing import Question


@click.command(
    "size",
    cls=JobCommand,
    short_help="Calculate the machine that an unload needs.",
    epilog="""\b
    Examples:
      unloader size --rows 10G --row-bytes 165 --window 1h --from /extract/orders
      unloader size --rows 2G --window 6h --from sweep.csv --cpu-ratio 1.4 --json
      unloader size --rows 10G --row-bytes 165 --window 1h --cores 16 --like record
    """,
)
@declared_options("size")
def command(**values: Any) -> None:
    """Calculate workers, cores, disks, network and hours from measured figures.

    Give rows, their width and the time, or take them from a finished run. The speed of an unload
    comes from --from: a finished run, the points of a sweep, or ceilings. The answer shows each
    line of the arithmetic, so that you can check it with a calculator. Only these files are read.
    """
    if values["window"] is not None and not values["window"]:
        raise UsageError("--window is 0", "give the time in which the unload must end, such as 1h")
    if values["discount"] >= 1:
        raise UsageError("--discount leaves nothing", "give less than 100%")
    if not values["cpu_limit"]:
        raise UsageError("--cpu-limit leaves no CPU", "give more than 0%")
    if any(not each.strip() for each in values["from"]):
        raise UsageError("--from is empty", "give it a file, or leave it out")
    question = Question(
        rows=values["rows"],
        row_bytes=values["row_bytes"],
        window_seconds=values["window"],
        cores=values["cores"],
        disks=values["disks"],
        cpu_ratio=values["cpu_ratio"],
        discount=values["discount"],
        cpu_limit=values["cpu_limit"],
        disk_rate=values["disk_rate"],
        network_rate=values["network_rate"],
        measured_cores=values["measured_cores"],
    )
    found = api.size(question, files=values["from"], like_record=values["like"] == "record")
    if values["json"]:
        render.emit_json(found)
    elif not values["quiet"]:
        render.emit(tuning_pages.size_page(found))
