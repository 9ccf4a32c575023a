"""Commands on finished and interrupted runs: verify, report, merge, clean and keepers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
from msgspec import convert

from unloader import api
from unloader.cli.display import render
from unloader.cli.options.command import declared, given
from unloader.cli.options.request_of import connect_to, keys_at
from unloader.cli.options.source_argument import finished_directories, finished_directory
from unloader.cli.watching import display_for
from unloader.errors import UsageError
from unloader.manifest.model import Manifest
from unloader.nouns import counted
from unloader.storage.place_names import PlacePath
from unloader.storage.storage_protocol import MANIFEST


@declared(
    "verify",
    "Compare files with their manifest and with the database.",
    """
    unloader verify /extract/orders
    unloader verify /extract/orders duckdb:///data/sales.db
    unloader verify /extract/orders postgresql://etl@db01/sales --level source
    unloader verify /extract/orders oracle://scott@db01:1521/SALES
    """,
)
@click.argument("destination", metavar="DEST", callback=finished_directory)
@click.argument("source", required=False)
@click.pass_context
def verify(
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
    missing = (result.get("table_log") or {}).get("missing_files", ())
    counted_there = result["source_rows"] is not None
    checked = "" if counted_there else " of the files; no SOURCE was given"
    text = render.facts(
        (
            ("result", f"{result['result']} ({result['level']}{checked})"),
            ("tables", result["table_count"] if "tables" in result else None),
            *(("selected by", text) for text in result["selected_by"]),
            *(("not compared", text) for text in result["not_compared"]),
            ("rows", result["rows"]),
            render.left_out(result["filtered_rows"]),
            ("rows in the source", result["source_rows"] if counted_there else "not counted"),
            ("bytes", render.exact_size(result["bytes"])),
            ("files", result["files"]),
            *(("missing", f"{name}, which the table does not use") for name in missing),
            ("snapshot", str(result["snapshot"]) if counted_there else None),
            ("run", str(result["run_id"])),
            ("directory", result["destination"]),
        )
    )
    render.answer(values, result, text, asked=False)


@declared(
    "report",
    "Write an HTML page on a run or a sweep, with charts.",
    """
    unloader report /extract/orders --output orders.html
    unloader report /extract/orders > orders.html
    unloader report /extract/orders --json
    unloader report sweep.json --ceilings ceilings.json --output sweep.html
    """,
)
@click.argument("destination", metavar="DEST", callback=finished_directory)
def report(destination: PlacePath, output: str | None, ceilings: str | None, **values: Any) -> None:
    """Write an HTML page on the run in DEST: speed, timelines, stages, load and settings.

    DEST is the directory of a finished run, or of an interrupted run with finished work units. For
    a run over several tables, the page has a line for each table. DEST can also be a file: a
    manifest, or the output of unloader sweep --json. The page of a sweep shows its curve with the
    fit, the knee and the ceilings, and the cost of each point.

    The page is one file that needs no network. All its contents come from the manifest or from the
    answer of the sweep, and it contains no password. With --json, the figures of the page go to
    standard output.
    """
    # Imported on use: only this command needs the pages.
    from unloader.tuning import report_page

    if output == "-":
        output = None
    if output is not None:
        report_page.check_page_file(Path(output))
    elif not values["json"] and sys.stdout.isatty():
        raise UsageError(
            "the page is HTML, and standard output is a terminal", "name a file with --output"
        )
    found = report_page.report_at(destination, None if ceilings is None else Path(ceilings))
    if output is not None:
        report_page.write_page_file(Path(output), report_page.page_of(found))
    if values["json"]:
        render.emit(render.json_text(found))
    elif output is None:
        render.emit(report_page.page_of(found))
    elif not values["quiet"]:
        render.emit(f"report  {output}")


@declared(
    "merge",
    "Combine the parts of a plan.",
    """
    unloader plan oracle://etl@db01:1521/SALES --table ORDERS \\
        --to /shared/orders --output plan.json
    unloader run plan.json --part 1/2          # on this machine
    unloader run plan.json --part 2/2          # on another machine
    unloader merge /shared/orders
    """,
)
@click.argument("destination", metavar="DEST", callback=finished_directory)
def merge(destination: PlacePath, **values: Any) -> None:
    """Write one manifest for all parts of a plan, when all of them are in DEST.

    DEST is the directory of the plan. Each part is in a separate directory there. All parts must
    be finished, from one plan and one snapshot, and written with the same options. Their files
    must exist with their recorded sizes. Files are not moved. The manifest is written last, so a
    program that finds the manifest finds all files.

    Afterwards, run `unloader verify DEST SOURCE`. It counts the rows of the whole table at the
    snapshot, independently of the plan. A second merge of the same parts changes nothing.
    """
    merged = api.merge(destination)
    manifest = convert(merged, Manifest)
    totals, verified = manifest.totals, manifest.verified
    parts = render.table(
        (">part", "directory", ">units", ">rows", ">bytes", ">seconds"),
        (
            (
                *(str(part.number), part.directory, part.units, part.rows, part.bytes),
                f"{part.seconds:.2f}",
            )
            for part in manifest.parts or ()
        ),
    )
    compared = "not counted"
    if verified.source_rows is not None:
        compared = f"{verified.result} ({counted(verified.source_rows, 'row')} in the source)"
    facts = render.facts(
        (
            ("rows", totals.rows),
            ("bytes", render.exact_size(totals.bytes)),
            ("files", totals.files),
            ("CPU seconds", f"{totals.cpu_seconds:.2f}"),
            ("verified", compared),
            ("manifest", destination / MANIFEST),
        )
    )
    done = f"the parts are merged in {destination}"
    render.answer(values, merged, f"{parts}\n\n{facts}", done=done)


@declared(
    "clean",
    "Remove unpublished files of interrupted runs.",
    """
    unloader clean /extract/orders --dry-run
    unloader clean /disk1/x /disk2/x
    """,
)
@click.argument(
    "directories", metavar="DEST...", nargs=-1, required=True, callback=finished_directories
)
def clean(directories: tuple[PlacePath, ...], **values: Any) -> None:
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
    lines = list(found["completed"])
    if found["removed"]:
        heads = ("directory", "run", ">finished units", ">staged files", ">bytes")
        rows = (
            (
                *(each["directory"], each["run_id"] or None),
                *(each[name] for name in ("units", "files", "bytes")),
            )
            for each in found["removed"]
        )
        lines.append(render.table(heads, rows))
        lines.append("nothing was removed (--dry-run)" if found["dry_run"] else "all of it removed")
    lines += [f"kept {path}, which no run has written" for path in found["kept"]]
    render.answer(values, found, "\n".join(lines) or "nothing to remove")


@declared(
    "keepers",
    "List or end the snapshots that are kept for interrupted runs.",
    """
    unloader keepers
    unloader keepers --end 20260102T030405Z-abcdef
    """,
)
def keepers(**values: Any) -> None:
    """List the keepers of this user, or end them.

    A keeper is a process that holds the snapshot of a run, so that the run can be resumed after it
    was killed (run --keep-snapshot). The keeper ends when its run is complete, when its time is
    over, or when the destination is removed or used by another run. Until then the server keeps
    old row versions for it. A keeper that an active run uses is not ended.
    """
    if values["end"] is not None and values["end_all"]:
        raise UsageError("--end and --end-all exclude each other", "leave one of them out")
    # Imported on use: it is a part of one source.
    from unloader.sources.postgres.keeping import ended, listed

    ends = values["end"] is not None or values["end_all"]
    found = ended(values["end"]) if ends else listed()
    lines = [f"ended the keeper of run {run_id}" for run_id in found["ended"]]
    if found["keepers"]:
        heads = ("run", "source", "kept until", "used", "host", ">process", ">server process")
        rows = (
            (
                *(each[name] for name in ("run_id", "source", "kept_until")),
                "by a run" if each["in_use"] else "no",
                *(str(each[name]) for name in ("host", "process", "server_process")),
            )
            for each in found["keepers"]
        )
        lines.append(render.table(heads, rows))
    render.answer(values, found, "\n".join(lines) or "no snapshot is kept")
