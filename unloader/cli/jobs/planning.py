"""`unloader plan` of several tables: a line for each, and the whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from unloader.cli.display import render
from unloader.cli.display.columns import subset_text
from unloader.cli.display.progress import display_for
from unloader.cli.jobs.tables import tables_request
from unloader.cli.options.source_argument import SourceArgument
from unloader.errors import UsageError

if TYPE_CHECKING:
    from unloader.api import PlannedRun
    from unloader.resolve.resolved import ResolvedRun

MOST_NOTES = 20
"""Columns whose note is shown; the others are counted."""


def plan_tables(context: click.Context, argument: SourceArgument, values: dict[str, Any]) -> None:
    """Show what a run over several tables would do."""
    if values["output"]:
        raise UsageError(
            "--output writes the plan of one table, and there are several tables",
            "leave it out, and give run the same options or job file: it plans in the same way",
        )
    asked = tables_request(context, argument, values)
    from unloader import api

    with display_for(values) as display:
        planned = api.plan(asked, observe=display)
    if values["json"]:
        render.emit_json(_document(planned))
    elif not values["quiet"]:
        render.emit(_text(planned))


def _document(planned: PlannedRun) -> dict[str, Any]:
    from unloader.selection.problems import script

    first = planned.runs[0]
    return {
        "source": first.extract.source.location,
        "server_version": first.server_version,
        "directory": planned.home or None,
        "workers": len(first.seating.seats),
        "units": planned.units,
        "rows": _total([_rows(run) for run in planned.runs]),
        "bytes": _total([_bytes(run) for run in planned.runs]),
        "tables": [_table(run) for run in planned.runs],
        "left_out": [
            {"table": each.table, "error": each.error.message} for each in planned.problems
        ],
        "script": script(planned.problems),
        "notices": list(first.seating.notices),
    }


def _table(run: ResolvedRun) -> dict[str, Any]:
    from unloader.resolve.resolved import routes_json
    from writers.codecs.choice import label

    table = run.extract.table
    return {
        "schema": table.schema,
        "name": table.name,
        "query": run.extract.query,
        "subset": subset_text(run) or None,
        "rows": _rows(run),
        "bytes": _bytes(run),
        "units": len(run.plan.units),
        "directories": list(filter(None, run.output.options.destinations)),
        "format": "parquet" if _is_parquet(run) else "csv",
        "compression": label(run.output.compression),
        "digest": run.plan.digest,
        "columns": [
            {
                "name": column.name,
                "source_type": column.source_type,
                "output_type": column.output_type,
                "lossless": column.lossless,
                "note": column.note,
            }
            for column in run.written.columns
        ],
        "routes": routes_json(run),
    }


def _is_parquet(run: ResolvedRun) -> bool:
    from writers.model import ParquetFormat

    return isinstance(run.output.format, ParquetFormat)


def _rows(run: ResolvedRun) -> int | None:
    return _total([unit.rows for unit in run.plan.units])


def _bytes(run: ResolvedRun) -> int | None:
    return _total([unit.bytes for unit in run.plan.units])


def _total(values: list[int | None]) -> int | None:
    return None if any(each is None for each in values) else sum(filter(None, values))


def _text(planned: PlannedRun) -> str:
    parts = [_tables(planned), "\n".join(_notes(planned)), _whole(planned)]
    left_out = [
        (render.name(each.table), f"is left out: {each.error.message}") for each in planned.problems
    ]
    parts.append(render.facts(left_out))
    return "\n\n".join(part for part in parts if part)


def _tables(planned: PlannedRun) -> str:
    """Return a line for each table; for each output where a table has several."""
    shown = [(run, *output) for run in planned.runs for output in _outputs(run)]
    parts = [subset_text(run) for run, _, _ in shown]
    some, routes = any(parts), any(name for _, name, _ in shown)
    heads = ("table", ">rows", ">bytes", ">units", ">columns", "format")
    return render.table(
        (
            *heads,
            *(("route",) if routes else ()),
            *(("subset",) if some else ()),
            *(("to",) if planned.home else ()),
        ),
        (
            (
                render.name(run.extract.table.label),
                render.count(_rows(run)),
                render.size(_bytes(run)),
                render.count(len(run.plan.units)),
                render.count(len(own.written.columns)),
                _form(own),
                *([name] if routes else []),
                *([part or "all"] if some else []),
                *([",".join(own.output.options.destinations)] if planned.home else []),
            )
            for (run, name, own), part in zip(shown, parts, strict=True)
        ),
    )


def _outputs(run: ResolvedRun) -> Iterator[tuple[str, ResolvedRun]]:
    """Yield each output's name, which is empty for the only one, with the run of it alone."""
    if run.request.routes is None:
        yield "", run
        return
    from unloader.resolve.resolved import of_output

    for number, route in enumerate(run.request.routes):
        yield route.name, of_output(run, number)


def _form(run: ResolvedRun) -> str:
    from writers.codecs.choice import label

    codec = label(run.output.compression)
    name = "parquet" if _is_parquet(run) else "csv"
    return name if codec == "none" else f"{name} {codec}"


def _notes(planned: PlannedRun) -> Iterator[str]:
    """Yield what becomes of columns that are not written as they are in the source."""
    notes = [
        f"{f'route {name}: ' if name else ''}{render.name(run.extract.table.label)}."
        f"{render.name(column.name)}: {column.note}"
        for run in planned.runs
        for name, own in _outputs(run)
        for column in own.written.columns
        if column.note
    ]
    yield from notes[:MOST_NOTES]
    if len(notes) > MOST_NOTES:
        yield f"... {render.count(len(notes) - MOST_NOTES)} more: --json shows all"


def _whole(planned: PlannedRun) -> str:
    first = planned.runs[0]
    rows, size = (_total([of(run) for run in planned.runs]) for of in (_rows, _bytes))
    return render.facts(
        (
            ("tables", render.count(len(planned.runs))),
            ("units", render.count(planned.units)),
            ("workers", render.count(len(first.seating.seats))),
            ("rows", render.about(render.count(rows), "estimate")),
            ("bytes", render.about(render.size(size), "in the source")),
            *((("directory", planned.home),) if planned.home else ()),
        )
    )
