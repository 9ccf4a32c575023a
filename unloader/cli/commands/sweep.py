"""`unloader sweep`: how speed grows with the workers, where it bends, and what to use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from msgspec import to_builtins
from msgspec.structs import replace

from unloader import api
from unloader.cli.display import render
from unloader.cli.display.tuning_pages import analysis_text
from unloader.cli.options.command import JobCommand, declared_options
from unloader.cli.options.parameter import JobOption, on_command_line
from unloader.cli.options.source_argument import SourceArgument, source_argument
from unloader.cli.sweeping import after_answer, answer, live_sweep, rules_of, write_page
from unloader.errors import ConfigError, UsageError
from unloader.request.options import AXES
from unloader.tuning.analysis import analyse
from unloader.tuning.points import read_points


@click.command(
    "sweep",
    cls=JobCommand,
    short_help="Measure several numbers of workers, and recommend one.",
    epilog="""\b
    Examples:
      unloader sweep oracle://scott@db01:1521/SALES --table ORDERS \\
          --to /extract/sweep --parallelism 32..4:-4,3,2 --sample 5%
      unloader sweep --replay points.csv
      unloader sweep postgresql://etl@db01/sales --table public.orders --to null: \\
          --parallelism 1,2,4,8 --compression none,lz4,zstd --seconds 30
      unloader sweep oracle://scott@db01:1521/SALES --table ORDERS \\
          --to /extract/sweep --sample 5% --report sweep.html --job orders.toml
      unloader sweep --replay points.csv --json
    """,
)
@source_argument(plans=False, required=False)
@declared_options("sweep")
@click.pass_context
def command(context: click.Context, /, argument: SourceArgument, **values: Any) -> None:
    """Find the parallelism beyond which speed stops growing, and recommend one.

    The points are measured on SOURCE, or read from the file of --replay. Each point is a separate
    run into a separate directory, which is removed. An option with several values makes a point of
    each value with each parallelism.

    The answer has the knee with its interval, and levels that are outliers. It shows the limits of
    the speed on both sides of the knee, and the recommended parallelism.
    """
    if values["replay"] is None:
        if not argument.url:
            raise UsageError(
                "sweep has no points to analyse", "give a source, or a file of points with --replay"
            )
        answer(context, argument.url, live_sweep(context, argument, values))
        return
    if argument.url:
        raise UsageError("--replay takes its points from a file, and a source is given, too",
                         "leave one of the two out")  # fmt: skip
    for option in context.command.params:
        if not isinstance(option, JobOption) or option.name not in on_command_line(context):
            continue
        if option.group not in ("Analysis", "Display"):
            raise UsageError(
                f"{option.opts[0]} is for measuring, and --replay takes its points from a file",
                "leave one of the two out",
            )
    if values["replay"] == "":
        raise UsageError("--replay is empty", "name a file of points")
    if values["report"] is not None:
        api.check_report(Path(values["report"]))
    file = read_points(Path(values["replay"]))
    for name in AXES:
        # A knee of several curves together means nothing.
        settings = dict.fromkeys(each[name] for each in file.others if each.get(name))
        if len(settings) > 1:
            raise ConfigError(
                f"{values['replay']} has points of several curves: {name} is {', '.join(settings)}",
                "keep the lines of one curve in each file",
            )
    found = analyse(file.points, rules_of(values))
    found = replace(found, notices=(*file.notices, *found.notices))
    if values["json"]:
        render.emit_json(to_builtins(found))
    elif not values["quiet"]:
        render.emit(analysis_text(found))
    for notice in () if values["quiet"] else found.notices:
        click.echo(f"unloader: notice: {render.visible(notice)}", err=True)
    with after_answer(json=values["json"]):
        write_page(values, found)
