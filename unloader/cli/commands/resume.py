"""`unloader resume`: resume an interrupted run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from unloader import api
from unloader.cli.display.summary import show_result
from unloader.cli.options.command import JobCommand, declared_options
from unloader.cli.options.credentials import secret_of
from unloader.cli.options.parameter import on_command_line
from unloader.cli.options.request_of import given_keys, keys_at
from unloader.cli.options.source_argument import finished_directory
from unloader.cli.signals import stop_on_signals
from unloader.cli.watching import check_report, watched, write_report
from unloader.model import ClusterOptions
from unloader.storage.place_names import PlacePath

if TYPE_CHECKING:
    from unloader.transforms.model import MaskingKey


@click.command(
    "resume",
    cls=JobCommand,
    short_help="Resume an interrupted run.",
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
    """Resume the interrupted, failed or killed run in DEST.

    The run continues with its original options, unless you change them here. It reads at the same
    snapshot. The files of finished work units are read again. If their checksums are right, they
    are kept. All other units are unloaded again. Files and manifest are then the same as after a
    run without an interruption.

    For a run over several tables, DEST is the directory that contains the directories of all
    tables. Published tables stay and are not read again.

    If the database can no longer read the snapshot, the command fails with exit status 4. Then
    --new-snapshot unloads everything again. One output never mixes two snapshots.

    The password comes from the same place as for the run, unless you give another place here. If
    the run is already finished, the command shows its result.
    """

    check_report(values)
    request = api.interrupted(destination)
    secret = secret_of(request.source, values) if request else None
    # A variable may be set for all jobs of a machine, and the run may have had another number.
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
    show_result(manifest, values)


def _masking_keys(values: Mapping[str, Any]) -> tuple[MaskingKey, ...]:
    """Return the places of the keys of masks, if they are given."""
    if not values["mask_key"]:
        return ()

    return given_keys(values["mask_key"])
