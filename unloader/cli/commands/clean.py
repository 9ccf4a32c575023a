"""`unloader clean`: remove what runs that died have left unpublished."""

from __future__ import annotations

from typing import Any

import click

from unloader import api
from unloader.cli.display import render
from unloader.cli.options.command import JobCommand, declared_options
from unloader.cli.options.source_argument import finished_directories
from unloader.storage.place_names import PlacePath


@click.command(
    "clean",
    cls=JobCommand,
    short_help="Remove unpublished files of interrupted runs.",
    epilog="""\b
    Examples:
      unloader clean /extract/orders --dry-run
      unloader clean /disk1/x /disk2/x
    """,
)
@click.argument(
    "directories", metavar="DEST...", nargs=-1, required=True, callback=finished_directories
)
@declared_options("clean")
@click.pass_context
def command(context: click.Context, /, directories: tuple[PlacePath, ...], **values: Any) -> None:
    """Remove the unpublished files of interrupted, failed or killed runs in DEST.

    The command removes the directory _run with its staged files. Files with final names and the
    manifest stay. If a run is writing to a directory, the command fails. Files in _run that were
    not written by a run are kept and listed. The next run into DEST removes the same files. This
    command frees the space without a run.

    If DEST is the directory of a run over several tables, each unpublished table is cleaned.
    Published tables stay.

    A run that was interrupted while it was published is complete. Its files get their final names
    first.
    """

    found = api.clean(directories, dry_run=values["dry_run"])
    if values["json"]:
        render.emit_json(found)
    elif not values["quiet"]:
        render.emit(_shown(found))


def _shown(found: dict[str, Any]) -> str:
    lines = list(found["completed"])
    if found["removed"]:
        heads = ("directory", "run", ">finished units", ">staged files", ">bytes")
        rows = (
            (
                each["directory"],
                each["run_id"] or render.UNKNOWN,
                render.count(each["units"]),
                render.count(each["files"]),
                render.count(each["bytes"]),
            )
            for each in found["removed"]
        )
        lines.append(render.table(heads, rows))
        lines.append("nothing was removed (--dry-run)" if found["dry_run"] else "all of it removed")
    lines += [f"kept {path}, which no run has written" for path in found["kept"]]
    return "\n".join(lines) or "nothing to remove"
