"""`unloader keepers`: the snapshots that are kept for runs that died, and how to let them go."""

from __future__ import annotations

from typing import Any

import click

from unloader import api
from unloader.cli.display import render
from unloader.cli.options.command import JobCommand, declared_options
from unloader.errors import UsageError


@click.command(
    "keepers",
    cls=JobCommand,
    short_help="List or end the snapshots that are kept for interrupted runs.",
    epilog="""\b
    Examples:
      unloader keepers
      unloader keepers --end 20260102T030405Z-abcdef
    """,
)
@declared_options("keepers")
def command(**values: Any) -> None:
    """List the keepers of this user, or end them.

    A keeper is a process that holds the snapshot of a run, so that the run can be resumed after it
    was killed (run --keep-snapshot). The keeper ends when its run is complete, when its time is
    over, or when the destination is removed or used by another run. Until then the server keeps
    old row versions for it. A keeper that an active run uses is not ended.
    """

    if values["end"] is not None and values["end_all"]:
        raise UsageError("--end and --end-all exclude each other", "leave one of them out")
    if values["end"] is not None or values["end_all"]:
        found = api.end_keepers(values["end"])
    else:
        found = api.keepers()
    if values["json"]:
        render.emit_json(found)
    elif not values["quiet"]:
        render.emit(_shown(found))


def _shown(found: dict[str, Any]) -> str:
    lines = [f"ended the keeper of run {run_id}" for run_id in found["ended"]]
    if found["keepers"]:
        heads = ("run", "source", "kept until", "used", "host", ">process", ">server process")
        rows = (
            (
                each["run_id"],
                each["source"],
                each["kept_until"],
                "by a run" if each["in_use"] else "no",
                each["host"],
                str(each["process"]),
                str(each["server_process"]),
            )
            for each in found["keepers"]
        )
        lines.append(render.table(heads, rows))
    return "\n".join(lines) or "no snapshot is kept"
