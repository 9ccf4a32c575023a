"""`unloader run` and `unloader resume`: unload tables or a query, and resume a run."""

from __future__ import annotations

import os
from typing import Any

import click
from msgspec.structs import replace

from unloader import api
from unloader.cli.display import render
from unloader.cli.display.summary import show_result
from unloader.cli.options import rules
from unloader.cli.options.command import declared, on_command_line
from unloader.cli.options.request_of import (
    asked_request,
    given_keys,
    keys_at,
    secret_of,
    tables_request,
)
from unloader.cli.options.source_argument import SourceArgument, finished_directory, source_argument
from unloader.cli.signals import stop_on_signals
from unloader.cli.watching import check_report, display_for, watched, write_report
from unloader.errors import UsageError
from unloader.events import Notice
from unloader.model import ClusterOptions, Request
from unloader.request.settings import part_text
from unloader.selection.asked import TablesRequest
from unloader.storage.place_names import PlacePath


@declared(
    "run",
    "Unload tables or a query to files.",
    """
    unloader run duckdb:///data/sales.db --table ORDERS --to /extract/orders
    unloader run postgresql://etl@db01/sales --table public.orders \\
        --to /extract/orders --format parquet --parallelism 8
    unloader run oracle://etl@db01/SALES --table ORDERS --to /extract/orders
    unloader run oracle://etl@db01/SALES --table ORDERS --to /extract/orders \\
        --dialect sqlldr-var --parallelism 32
    unloader run duckdb:///data/sales.db --table ORDERS --to - --quiet \\
        | psql -c 'COPY orders FROM STDIN (FORMAT csv, HEADER)'
    unloader run oracle://etl@db01/SALES --table 'SALES.*' \\
        --exclude-table 'TMP_*' --to '/extract/{schema}.{table}'
    unloader run plan.json --to /extract/orders
    unloader run plan.json --part 3/16
    unloader run nightly.toml --to /extract/orders
    """,
)
@source_argument(plans=True, tables=True)
@click.pass_context
def run(context: click.Context, /, argument: SourceArgument, **values: Any) -> None:
    """Unload tables or a query to files.

    SOURCE is a URL such as oracle://user@host/service, postgresql://user@host/database or
    duckdb:///data/sales.db. It can also be a plan from `unloader plan --output`, or a job file in
    TOML. A URL before the file then replaces the source in the file.

    Several tables are read at one snapshot by one set of workers. Name them by patterns, or repeat
    --table. Each table has a separate directory and manifest, so --to contains {table}.

    Files are spread over several directories by size: --to /disk1/x,/disk2/x. The manifest is in
    the first directory. Output to standard output or a pipe has no manifest. An attempt that fails
    after its first byte is not retried, and only the exit status shows whether the output is
    valid.

    Each option is also a variable UNLOADER_<NAME> and a key of the job file. The command line
    takes precedence over the variable, and the variable over the job file.
    """
    if values["report"] is not None:
        check_report(values["report"])
    planned, label = None, ""
    shown: Request
    job: Request | TablesRequest
    if values["part"] is not None and argument.plan is None:
        raise UsageError(
            "--part needs a plan file, because all parts belong to one plan",
            "make one with unloader plan SOURCE --output plan.json, and run plan.json --part "
            f"{part_text(values['part'])}",
        )
    if argument.plan is None and (argument.job is not None or rules.is_of_several(values)):
        job = tables_request(context, argument.url, argument.job, values)
        # One request for metrics and traces of all tables.
        place, label = job.options.destination or "several", "several tables"
        output = replace(job.common.output, destination=place, others=())
        shown = replace(job.common, output=output)
    else:
        shown = job = asked_request(context, argument.url, values)
    if argument.plan is not None:
        rules.validate_planned(on_command_line(context), argument.plan_file)
        planned = api.planned_run(argument.plan)
        part, units = shown.selection.part, len(planned.plan.units)
        if part is not None and part.number > units:
            # Not a failure: a job array is submitted before the number of units is known.
            facts = {"number": part.number, "of": part.of, "units": 0, "of_units": units}
            if values["json"]:
                render.emit(render.json_text({"part": facts}))
            elif not values["quiet"]:
                text = f"part {part.number} of {part.of} has no work unit: the plan has {units}"
                render.print_aside(f"{text}. Nothing was read or written.")
            return
    if values["skip_finished"] and (found := api.finished(job)) is not None:
        # No command of `--on-success`: it would load the same files again.
        with display_for(values) as display:
            display(Notice(text=f"run {found['run_id']} of this job is finished: nothing was done"))
        if values["json"]:
            render.emit(render.json_text({**found, "skipped": True}))
        return
    with watched(values, shown, label) as display, stop_on_signals(display.stopping) as stop:
        manifest = api.unload(
            job, planned=planned, resume=values["resume_or_start"], observe=display, stop=stop
        )
        if values["report"] is not None:
            write_report(values["report"], manifest)
    show_result(manifest, values)


@declared(
    "resume",
    "Resume an interrupted run.",
    """
    unloader resume /extract/orders
    unloader resume /extract/orders --password-file ~/.secrets/db01
    unloader resume /extract/orders --parallelism 4
    unloader resume /extract/orders --new-snapshot
    unloader resume /extract/20260102
    """,
    by_hand=("parallelism",),
)
@click.argument("destination", metavar="DEST", callback=finished_directory)
@click.pass_context
def resume(context: click.Context, /, destination: PlacePath, **values: Any) -> None:
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
    if values["report"] is not None:
        check_report(values["report"])
    request = api.interrupted(destination)
    security = values["cluster_security"]
    cluster = ClusterOptions(
        address=values["cluster"], security=security and os.path.abspath(security)
    )
    # A variable may be set for all jobs of a machine, and the run may have had another number.
    by_hand = "parallelism" in on_command_line(context)
    with watched(values, request) as display, stop_on_signals(display.stopping) as stop:
        manifest = api.resume(
            destination,
            secret=secret_of(request.source, values) if request else None,
            session_sql=tuple(values["session_sql"] or ()),
            parallelism=values["parallelism"] if by_hand else None,
            cluster=cluster,
            new_snapshot=values["new_snapshot"],
            keys=keys_at(values),
            masking_keys=given_keys(values["mask_key"]) if values["mask_key"] else (),
            observe=display,
            stop=stop,
        )
        if values["report"] is not None:
            write_report(values["report"], manifest)
    show_result(manifest, values)
