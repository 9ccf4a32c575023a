"""`unloader merge`: one manifest over the parts of a plan that several machines have read."""

from __future__ import annotations

from typing import Any

import click
from msgspec import convert

from unloader import api
from unloader.cli.display import render
from unloader.cli.options.command import JobCommand, declared_options
from unloader.cli.options.source_argument import finished_directory
from unloader.manifest.model import Manifest
from unloader.nouns import counted
from unloader.storage.place_names import PlacePath
from unloader.storage.storage_protocol import MANIFEST


@click.command(
    "merge",
    cls=JobCommand,
    short_help="Combine the parts of a plan.",
    epilog="""\b
    Examples:
      unloader plan oracle://etl@db01:1521/SALES --table ORDERS \\
          --to /shared/orders --output plan.json
      unloader run plan.json --part 1/2          # on this machine
      unloader run plan.json --part 2/2          # on another machine
      unloader merge /shared/orders
    """,
)
@click.argument("destination", metavar="DEST", callback=finished_directory)
@declared_options("merge")
@click.pass_context
def command(context: click.Context, /, destination: PlacePath, **values: Any) -> None:
    """Write one manifest for all parts of a plan, when all of them are in DEST.

    DEST is the directory of the plan. Each part is in a separate directory there. All parts must
    be finished, from one plan and one snapshot, and written with the same options. Their files
    must exist with their recorded sizes. Files are not moved. The manifest is written last, so a
    program that finds the manifest finds all files.

    Afterwards, run `unloader verify DEST SOURCE`. It counts the rows of the whole table at the
    snapshot, independently of the plan. A second merge of the same parts changes nothing.
    """

    merged = api.merge(destination)
    if values["json"]:
        render.emit_json(merged, done=f"the parts are merged in {destination}")
    elif not values["quiet"]:
        render.emit(_summary(convert(merged, Manifest), destination))


def _summary(manifest: Manifest, destination: PlacePath) -> str:
    totals, verified = manifest.totals, manifest.verified
    heads = (">part", "directory", ">units", ">rows", ">bytes", ">seconds")
    rows = [
        (
            str(part.number),
            part.directory,
            render.count(part.units),
            render.count(part.rows),
            render.count(part.bytes),
            f"{part.seconds:.2f}",
        )
        for part in manifest.parts or ()
    ]
    compared = "not counted"
    if verified.source_rows is not None:
        compared = f"{verified.result} ({counted(verified.source_rows, 'row')} in the source)"
    facts = render.facts(
        (
            ("rows", render.count(totals.rows)),
            ("bytes", f"{render.count(totals.bytes)} ({render.size(totals.bytes)})"),
            ("files", render.count(totals.files)),
            ("CPU seconds", f"{totals.cpu_seconds:.2f}"),
            ("verified", compared),
            ("manifest", str(destination / MANIFEST)),
        )
    )
    return f"{render.table(heads, rows)}\n\n{facts}"
