"""`unloader verify`: files against their manifest, and against the database."""

from __future__ import annotations

from typing import Any

import click

from unloader import api
from unloader.cli.display import render
from unloader.cli.display.progress import display_for
from unloader.cli.options.command import JobCommand, declared_options
from unloader.cli.options.credentials import connect_to
from unloader.cli.options.parameter import given
from unloader.cli.options.request_of import keys_at
from unloader.cli.options.source_argument import finished_directory
from unloader.errors import UsageError
from unloader.storage.place_names import PlacePath


@click.command(
    "verify",
    cls=JobCommand,
    short_help="Compare files with their manifest and with the database.",
    epilog="""\b
    Examples:
      unloader verify /extract/orders
      unloader verify /extract/orders duckdb:///data/sales.db
      unloader verify /extract/orders postgresql://etl@db01/sales --level source
      unloader verify /extract/orders oracle://scott@db01:1521/SALES
    """,
)
@click.argument("destination", metavar="DEST", callback=finished_directory)
@click.argument("source", required=False)
@declared_options("verify")
@click.pass_context
def command(
    context: click.Context,
    /,
    destination: PlacePath,
    source: str | None,
    strict: bool,
    **values: Any,
) -> None:
    """Compare the files in DEST with their manifest, and with SOURCE if it is given.

    If DEST is the directory of a run over several tables, the command checks each table and names
    all tables that differ.

    With SOURCE, it counts the rows in the database at the snapshot of the run. The exit status is
    8 if anything differs. Files in the directories of the run that are not in the manifest, and
    that a loader would read, are reported. With --strict they count as a difference. Names that
    begin with _ or . are ignored.
    """

    if source is None and values["password_prompt"]:
        raise UsageError(
            "--password-prompt needs SOURCE", "give SOURCE, or leave --password-prompt out"
        )
    spec = None if source is None else connect_to(source, values, given(context))

    with display_for(values) as display:
        result = api.verify(
            destination,
            spec,
            level=values["level"],
            strict=strict,
            parallelism=values["parallelism"] or 0,
            keys=keys_at(values),
            observe=display,
        )
    if values["json"]:
        render.emit_json(result)
    elif not values["quiet"]:
        render.emit(_shown(result), asked=False)


def _shown(result: dict[str, Any]) -> str:
    missing = (result.get("table_log") or {}).get("missing_files", ())
    asked = result["source_rows"] is not None
    checked = "" if asked else " of the files; no SOURCE was given"
    return render.facts(
        (
            ("result", f"{result['result']} ({result['level']}{checked})"),
            *((("tables", render.count(result["table_count"])),) if "tables" in result else ()),
            *(("selected by", text) for text in result["selected_by"]),
            *(("not compared", text) for text in result["not_compared"]),
            ("rows", render.count(result["rows"])),
            *render.left_out(result["filtered_rows"]),
            ("rows in the source", render.count(result["source_rows"]) if asked else "not counted"),
            ("bytes", f"{render.count(result['bytes'])} ({render.size(result['bytes'])})"),
            ("files", render.count(result["files"])),
            *(("missing", f"{name}, which the table does not use") for name in missing),
            *((("snapshot", str(result["snapshot"])),) if asked else ()),
            ("run", str(result["run_id"])),
            ("directory", str(result["destination"])),
        )
    )
