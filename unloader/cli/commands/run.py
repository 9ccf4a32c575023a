"""`unloader run`: unload tables, or a query."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click
from msgspec import convert

from unloader.cli.display import render
from unloader.cli.display.placement import tables
from unloader.cli.options import rules
from unloader.cli.options.command import JobCommand, declared_options
from unloader.cli.options.origins import selected_by
from unloader.cli.options.parameter import on_command_line
from unloader.cli.options.source_argument import SourceArgument, source_argument
from unloader.cli.options.tables import is_of_several
from unloader.cli.reporting import check_report, write_report
from unloader.cli.signals import stop_on_signals
from unloader.cli.watching import watched
from unloader.errors import UsageError
from unloader.nouns import counted
from unloader.request.parts import part_text
from unloader.storage.kinds import KEPT, destination_kind
from unloader.storage.model import MANIFEST
from writers.objects.location import below

if TYPE_CHECKING:
    from unloader.manifest.model import Manifest, RoutesTotals, TotalsRecord, VerifiedRecord
    from unloader.model import Part, Request, Setting, Snapshot
    from unloader.resolve.resolved import ResolvedRun


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
        from unloader.cli.jobs.running import run_tables

        done = run_tables(context, argument, values)
        if done is not None:
            answer(done, values)
        return
    job, planned = _job(context, argument, values)
    if planned is not None and job.selection.part is not None:
        units = len(planned.plan.units)
        if job.selection.part.number > units:
            # A job array is submitted before the number of units is known.
            _answer_empty(job.selection.part, units, values)
            return
    if values["skip_finished"]:
        from unloader.cli.jobs.running import is_skipped

        if is_skipped(job, values):
            return
    from unloader import api

    with watched(values, job) as display, stop_on_signals(display.stopping) as stop:
        manifest = api.unload(
            job, planned=planned, resume=values["resume_or_start"], observe=display, stop=stop
        )
        write_report(values, manifest)
    answer(manifest, values)


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


def answer(manifest: dict[str, Any], values: dict[str, Any]) -> None:
    """Show the manifest of a run that is complete."""
    from unloader.manifest.model import ROUTES, Manifest

    if "tables" in manifest:
        _answer_of_tables(manifest, values)
        return
    if ROUTES in manifest:
        _answer_routes(manifest, values)
        return
    to = manifest["options"]["to"]
    places = (to,) if isinstance(to, str) else tuple(to)
    done = f"the run is complete in {','.join(places)}"
    if values["json"]:
        render.emit_json(manifest, done=done)
    elif values["quiet"]:
        return
    elif destination_kind(places) == "stdout":
        # Where the data itself is on stdout, the result is for those who watch. A log in JSON has
        # it already.
        if values["log_format"] == "text":
            render.print_aside(_summary(convert(manifest, Manifest), places))
    else:
        render.emit(_summary(convert(manifest, Manifest), places), done=done, asked=False)


def _answer_routes(document: dict[str, Any], values: dict[str, Any]) -> None:
    """Show the manifests of a run with several routes."""
    from unloader.manifest.model import ROUTES, Manifest, totals_of

    manifests = convert(document[ROUTES], list[Manifest])
    done = f"the run is complete: {len(manifests)} routes"
    if values["json"]:
        render.emit_json(document, done=done)
    elif not values["quiet"]:
        shown = [_totals_of_routes(totals_of(manifests), len(manifests))]
        for manifest in manifests:
            to = manifest.options.to
            places = (to,) if isinstance(to, str) else tuple(to)
            name = manifest.route.name if manifest.route else ""
            shown.append(f"route {name}\n{_summary(manifest, places)}")
        render.emit("\n\n".join(shown), done=done, asked=False)


def _totals_of_routes(totals: RoutesTotals, routes: int) -> str:
    return render.facts(
        (
            ("routes", render.count(routes)),
            ("rows read", render.count(totals.rows)),
            ("bytes", f"{render.count(totals.bytes)} ({render.size(totals.bytes)})"),
            ("files", render.count(totals.files)),
            ("seconds", f"{totals.seconds:.2f}"),
            ("CPU seconds", f"{totals.cpu_seconds:.2f}"),
        )
    )


def _answer_of_tables(manifest: dict[str, Any], values: dict[str, Any]) -> None:
    from unloader.cli.display.several_tables import summary
    from unloader.manifest.model import TablesManifest

    done = f"the run is complete in {manifest['options']['directory']}"
    if values["json"]:
        render.emit_json(manifest, done=done)
    elif not values["quiet"]:
        render.emit(summary(convert(manifest, TablesManifest)), done=done, asked=False)


def _job(
    context: click.Context, argument: SourceArgument, values: dict[str, Any]
) -> tuple[Request, ResolvedRun | None]:
    from unloader.cli.options.routes import asked_request

    job = asked_request(context, argument.url, values)
    if argument.plan is None:
        return job, None
    rules.validate_planned(on_command_line(context), argument.plan_file)
    from unloader import api

    return job, api.planned_run(argument.plan)


def _summary(manifest: Manifest, places: tuple[str, ...]) -> str:
    selected = selected_by(manifest.settings)
    totals = manifest.totals
    verified = manifest.verified
    known = render.facts(
        (
            ("rows", render.count(totals.rows) + (_not_all(selected) if selected else "")),
            *(("selected by", each.text) for each in selected),
            ("bytes", f"{render.count(totals.bytes)} ({render.size(totals.bytes)})"),
            ("files", render.count(totals.files)),
            ("seconds", f"{totals.seconds:.2f}"),
            ("speed", _speed(totals)),
            *_efficiency(manifest),
            ("CPU seconds", f"{totals.cpu_seconds:.2f}"),
            ("snapshot", _snapshot(manifest.snapshot)),
            *_filtered(verified),
            *_masked(manifest),
            ("verified", _verification(verified, selected)),
            *_places(manifest, places),
        )
    )
    whereabouts = tables(manifest.nodes, manifest.workers)
    return f"{known}\n\n{whereabouts}" if whereabouts else known


def _filtered(verified: VerifiedRecord) -> Iterator[tuple[str, str]]:
    if verified.filtered_rows is not None:
        yield "left out", f"{counted(verified.filtered_rows, 'row')}, by the filter"


def _masked(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """Yield the masked columns, and the columns that have unmasked values of them."""
    masked = [each.name for each in manifest.columns if each.masked is not None]
    if masked:
        yield "masked", ", ".join(map(render.name, masked))
    for each in manifest.columns:
        if each.clear_values_of:
            names = ", ".join(map(render.name, each.clear_values_of))
            yield "not masked", f"{render.name(each.name)}, which has unmasked values of {names}"


def _not_all(selected: tuple[Setting, ...]) -> str:
    names = [each.name for each in selected]
    if "query" in names:
        return " (the rows of the query)"
    if not {"where", "partition", "sample", "limit-rows", "part", "session-sql"} & set(names):
        return ""
    return " (only the selected rows)"


def _places(manifest: Manifest, places: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    kind, first = destination_kind(places), places[0]
    if kind not in KEPT:
        dropped = kind == "null"
        yield "dropped" if dropped else "sent to", "standard output" if kind == "stdout" else first
        return
    if len(places) == 1:
        yield "directory", first
    for each in manifest.directories or ():
        held = f"{counted(each.bytes, 'byte')} in {counted(each.files, 'file')}"
        yield "directory", f"{each.path} ({held})"
    yield "manifest", below(first, MANIFEST)


def _speed(totals: TotalsRecord) -> str:
    # A run too short to measure has no rates.
    rows, size = totals.rows_per_second, totals.bytes_per_second
    if rows is None or size is None:
        return render.UNKNOWN
    return f"{render.rows_per_second(rows)}, {render.megabytes_per_second(size)}"


def _efficiency(manifest: Manifest) -> Iterator[tuple[str, str]]:
    if manifest.efficiency is None:
        return
    for part in manifest.efficiency.parts:
        rates = (
            f"{render.rows_per_second(part.rate)} of {render.rows_per_second(part.ceiling)}"
            if part.unit == "rows/s"
            else f"{part.rate / 1e6:,.1f} of {render.megabytes_per_second(part.ceiling)}"
        )
        which = {"disk": "this disk", "source": "the source", "encoder": "the encoder"}[part.what]
        yield "efficiency", f"{part.share * 100:.0f} % of {which} ({rates}, {part.basis})"


def _snapshot(snapshot: Snapshot | None) -> str:
    if snapshot is None or snapshot.kind == "none":
        return "none: each work unit was read at its own time"
    return f"{snapshot.kind} {snapshot.value}".strip()


def _verification(verified: VerifiedRecord, selected: tuple[Setting, ...]) -> str:
    if verified.level == "none":
        return "no (--verify none)"
    rows = verified.source_rows
    which = " of the same selection" if selected else ""
    in_source = "" if rows is None else f", {counted(rows, 'row')}{which} in the source"
    return f"{verified.result} ({verified.level}{in_source})"
