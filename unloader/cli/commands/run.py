"""`unloader run`: unload tables, or a query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from unloader import api
from unloader.cli.display import render
from unloader.cli.display.summary import show_result
from unloader.cli.options import rules
from unloader.cli.options.command import JobCommand, declared_options
from unloader.cli.options.parameter import on_command_line
from unloader.cli.options.routes import asked_request
from unloader.cli.options.source_argument import SourceArgument, source_argument
from unloader.cli.options.tables import is_of_several
from unloader.cli.signals import stop_on_signals
from unloader.cli.watching import check_report, watched, write_report
from unloader.errors import UsageError
from unloader.request.settings import part_text

if TYPE_CHECKING:
    from unloader.model import Part, Request
    from unloader.resolve.resolved import ResolvedTable


@click.command(
    "run",
    cls=JobCommand,
    short_help="Unload tables or a query to files.",
    epilog="""\b
    Examples:
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
@declared_options("run")
@click.pass_context
def command(context: click.Context, /, argument: SourceArgument, **values: Any) -> None:
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
    check_report(values)
    _check_part(argument, values)
    if argument.plan is None and (argument.job is not None or is_of_several(values)):
        # Imported on use: most runs are of one table.
        from unloader.cli.jobs.tables import run_tables

        done = run_tables(context, argument, values)
        if done is not None:
            show_result(done, values)
        return
    job, planned = _job(context, argument, values)
    if planned is not None and job.selection.part is not None:
        units = len(planned.plan.units)
        if job.selection.part.number > units:
            # A job array is submitted before the number of units is known.
            _answer_empty(job.selection.part, units, values)
            return
    if values["skip_finished"]:
        from unloader.cli.jobs.tables import is_skipped

        if is_skipped(job, values):
            return

    with watched(values, job) as display, stop_on_signals(display.stopping) as stop:
        manifest = api.unload(
            job, planned=planned, resume=values["resume_or_start"], observe=display, stop=stop
        )
        write_report(values, manifest)
    show_result(manifest, values)


def _check_part(argument: SourceArgument, values: dict[str, Any]) -> None:
    if values["part"] is not None and argument.plan is None:
        raise UsageError(
            "--part needs a plan file, because all parts belong to one plan",
            "make one with unloader plan SOURCE --output plan.json, and run plan.json --part "
            f"{part_text(values['part'])}",
        )


def _answer_empty(part: Part, units: int, values: dict[str, Any]) -> None:
    """Show that a part has nothing to read, which is not a failure."""
    if values["json"]:
        shown = {"number": part.number, "of": part.of, "units": 0, "of_units": units}
        render.emit_json({"part": shown})
    elif not values["quiet"]:
        text = f"part {part.number} of {part.of} has no work unit: the plan has {units}"
        render.print_aside(f"{text}. Nothing was read or written.")


def _job(
    context: click.Context, argument: SourceArgument, values: dict[str, Any]
) -> tuple[Request, ResolvedTable | None]:

    job = asked_request(context, argument.url, values)
    if argument.plan is None:
        return job, None
    rules.validate_planned(on_command_line(context), argument.plan_file)

    return job, api.planned_run(argument.plan)
