"""`unloader resume`: go on with a run that was broken off."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from unloader.cli.commands.run import answer
from unloader.cli.options.command import JobCommand, declared_options
from unloader.cli.options.parameter import on_command_line
from unloader.cli.options.source_argument import finished_directory
from unloader.cli.reporting import check_report, write_report
from unloader.cli.signals import stop_on_signals
from unloader.cli.watching import watched
from unloader.model import ClusterOptions
from unloader.storage.paths import PlacePath

if TYPE_CHECKING:
    from unloader.transforms.model import MaskingKey


@click.command(
    "resume",
    cls=JobCommand,
    short_help="Continue an interrupted run.",
    epilog="""\b
    Examples:
      unloader resume /extract/orders
      unloader resume /extract/orders --password-file ~/.secrets/db01
      unloader resume /extract/orders --parallelism 4
      unloader resume /extract/orders --new-snapshot
      unloader resume /extract/20260102
    """,
)
@click.argument("destination", metavar="DEST", callback=finished_directory)
@declared_options("resume", by_hand=("parallelism",))
@click.pass_context
def command(context: click.Context, /, destination: PlacePath, **values: Any) -> None:
    """Continue the run that was stopped, failed or killed in DEST.

    The run goes on with the options it was started with, apart from those that are given here, and
    reads at the same snapshot. Work units that were done are kept once their files have been read
    again and their checksums are right. The others are unloaded again. Files and manifest are then
    the same as those of a run that was never interrupted.

    Of a run over several tables DEST is the directory that those of all tables are in. Tables that
    are published stay as they are and are not read again.

    If the database can no longer read the snapshot, the command fails with exit status 4. Then
    --new-snapshot unloads everything again. Two snapshots never end up in one output.

    The password is looked for where the run had it, unless it is given here. If the run is finished
    already, the command shows its result.
    """
    from unloader import api
    from unloader.cli.options.credentials import secret_of
    from unloader.cli.options.encryption import keys_at

    check_report(values)
    request = api.interrupted(destination)
    secret = secret_of(request.source, values) if request else None
    # A variable may be set for all jobs of a machine, and the run may have had a number of its own.
    asked = "parallelism" in on_command_line(context)
    security = values["cluster_security"]
    cluster = ClusterOptions(
        address=values["cluster"], security=security and os.path.abspath(security)
    )
    with watched(values, request) as display, stop_on_signals(display.stopping) as stop:
        manifest = api.resume(
            destination,
            secret=secret,
            session_sql=tuple(values["session_sql"] or ()),
            parallelism=values["parallelism"] if asked else None,
            cluster=cluster,
            new_snapshot=values["new_snapshot"],
            keys=keys_at(values),
            masking_keys=_masking_keys(values),
            observe=display,
            stop=stop,
        )
        write_report(values, manifest)
    answer(manifest, values)


def _masking_keys(values: Mapping[str, Any]) -> tuple[MaskingKey, ...]:
    """Return where keys of masks are found now, if that is said."""
    if not values["mask_key"]:
        return ()
    from unloader.cli.options.transforming import given_keys

    return given_keys(values["mask_key"])
