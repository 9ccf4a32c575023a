"""`unloader sweep`: how speed grows with the workers, where it bends, and what to use."""

from __future__ import annotations

from typing import Any

import click

from unloader.cli.options.command import JobCommand, declared_options
from unloader.cli.options.source_argument import SourceArgument, source_argument


@click.command(
    "sweep",
    cls=JobCommand,
    short_help="Measure how fast a table unloads at different settings.",
    epilog="""\b
    Examples:
      unloader sweep oracle://scott@db01:1521/SALES --table ORDERS --to /extract/sweep \\
          --parallelism 32..4:-4,3,2 --sample 5%
      unloader sweep postgresql://etl@db01/sales --table public.orders --to null: \\
          --parallelism 1,2,4,8 --compression none,lz4,zstd --seconds 30
    """,
)
@source_argument(plans=False)
@declared_options("sweep")
@click.pass_context
def command(context: click.Context, /, argument: SourceArgument, **values: Any) -> None:
    """Measure how fast SOURCE's rows unload at different settings.

    Each point is a run of its own, into a directory of its own that is removed.
    """
    from unloader.cli.sweeping import answer, live_sweep

    answer(live_sweep(context, argument, values), values)
