"""The result of a complete run, in words or as JSON: one table, several outputs, several tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import convert

from unloader.cli.display import render
from unloader.manifest.model import (
    ROUTES,
    Manifest,
    RoutesTotals,
    TablesManifest,
    TablesTotals,
    TotalsRecord,
    totals_of,
)
from unloader.model import Setting, Snapshot
from unloader.nouns import counted
from unloader.placement.evidence import NodeRecord, WorkerRecord
from unloader.storage.place_names import KEPT, destination_kind
from unloader.storage.storage_protocol import MANIFEST
from writers.objects.location import below

FEW_WORKERS = 8
"""With more workers than these, only the manifest has a line for each."""

Facts = Iterator[tuple[str, str]]


def show_result(document: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Show the document that `unload` or `resume` returned."""
    if values["quiet"] and not values["json"]:
        return
    place = ""
    if "tables" in document:
        run = convert(document, TablesManifest)
        place, text = run.options.directory, render.facts(_of_tables(run))
        done = f"the run is complete in {place}"
    elif ROUTES in document:
        routes = convert(document[ROUTES], list[Manifest])
        totals = totals_of(routes)
        read = (("routes", render.count(len(routes))), ("rows read", render.count(totals.rows)))
        shown = [
            f"route {each.route.name if each.route else ''}\n{_table_text(each)}" for each in routes
        ]
        done = f"the run is complete: {len(routes)} routes"
        text = "\n\n".join((render.facts((*read, *_totals(totals))), *shown))
    else:
        manifest = convert(document, Manifest)
        place, text = ",".join(manifest.places), _table_text(manifest)
        done = f"the run is complete in {place}"
    if values["json"]:
        render.emit_json(document, done=done)
    elif place and destination_kind((place,)) == "stdout":
        # The data is on stdout, so the result goes to the log. A log in JSON has it already.
        if values["log_format"] == "text":
            render.print_aside(text)
    else:
        render.emit(text, done=done, asked=False)


def _of_tables(run: TablesManifest) -> Facts:
    yield "tables", render.count(run.totals.tables)
    yield "rows", render.count(run.totals.rows) + _not_all(run.settings)
    yield from selection(run.settings)
    yield from render.left_out(run.totals.filtered_rows)
    yield from _totals(run.totals)
    yield "snapshot", _snapshot(run.snapshot)
    yield "verified", ", ".join(sorted({each.verified or "not complete" for each in run.tables}))
    yield from _places((run.options.directory,))


def _table_text(manifest: Manifest) -> str:
    known = render.facts(_of_table(manifest))
    whereabouts = placement_tables(manifest.nodes, manifest.workers)
    return f"{known}\n\n{whereabouts}" if whereabouts else known


def _of_table(manifest: Manifest) -> Facts:
    totals, verified = manifest.totals, manifest.verified
    yield "rows", render.count(totals.rows) + _not_all(manifest.settings)
    yield from selection(manifest.settings)
    yield from render.left_out(verified.filtered_rows)
    # A run too short to measure has no rates.
    rows, size, speed = totals.rows_per_second, totals.bytes_per_second, render.UNKNOWN
    if rows is not None and size is not None:
        speed = f"{render.rows_per_second(rows)}, {render.megabytes_per_second(size)}"
    after = [("speed", speed)]
    for part in manifest.efficiency.parts if manifest.efficiency else ():
        rates = (
            f"{render.rows_per_second(part.rate)} of {render.rows_per_second(part.ceiling)}"
            if part.unit == "rows/s"
            else f"{part.rate / 1e6:,.1f} of {render.megabytes_per_second(part.ceiling)}"
        )
        which = "this disk" if part.what == "disk" else f"the {part.what}"
        after.append(("efficiency", f"{part.share * 100:.0f} % of {which} ({rates}, {part.basis})"))
    yield from _totals(totals, *after)
    yield "snapshot", _snapshot(manifest.snapshot)
    masked = [each.name for each in manifest.columns if each.masked is not None]
    if masked:
        yield "masked", ", ".join(map(render.name, masked))
    for each in manifest.columns:
        if each.clear_values_of:
            names = ", ".join(map(render.name, each.clear_values_of))
            yield "not masked", f"{render.name(each.name)}, which has unmasked values of {names}"
    how: str = verified.level
    if how == "none":
        yield "verified", "no (--verify none)"
    else:
        if verified.source_rows is not None:
            how += f", {counted(verified.source_rows, 'row')}"
            selected = {each.name for each in manifest.settings if each.effect == "selects"}
            if selected - {"filter"}:
                how += " of the same selection"
            how += " in the source"
            if verified.filtered_rows is not None:
                how += ", with the rows that the filter left out"
        yield "verified", f"{verified.result} ({how})"
    yield from _places(manifest.places, manifest)


def _totals(totals: TotalsRecord | RoutesTotals | TablesTotals, *after: tuple[str, str]) -> Facts:
    """Yield what all runs have; `after` comes after the seconds."""
    yield "bytes", render.exact_size(totals.bytes)
    yield "files", render.count(totals.files)
    yield "seconds", f"{totals.seconds:.2f}"
    yield from after
    yield "CPU seconds", f"{totals.cpu_seconds:.2f}"


def selection(settings: Sequence[Setting]) -> Facts:
    """Yield the lines on the settings that select rows or columns."""
    for each in settings:
        if each.effect == "selects":
            yield "selected by", each.text


def _not_all(settings: Sequence[Setting]) -> str:
    names = {each.name for each in settings if each.effect == "selects"}
    if "query" in names:
        return " (the rows of the query)"
    if not {"where", "partition", "sample", "limit-rows", "part", "session-sql"} & names:
        return ""
    return " (only the selected rows)"


def _places(places: Sequence[str], manifest: Manifest | None = None) -> Facts:
    kind, first = destination_kind(tuple(places)), places[0]
    if kind not in KEPT:
        dropped = kind == "null"
        yield "dropped" if dropped else "sent to", "standard output" if kind == "stdout" else first
        return
    if len(places) == 1:
        yield "directory", first
    for each in (manifest.directories if manifest else None) or ():
        held = f"{counted(each.bytes, 'byte')} in {counted(each.files, 'file')}"
        yield "directory", f"{each.path} ({held})"
    yield "manifest", below(first, MANIFEST)


def _snapshot(snapshot: Snapshot | None) -> str:
    if snapshot is None or snapshot.kind == "none":
        return "none: each work unit was read at its own time"
    return f"{snapshot.kind} {snapshot.value}".strip()


def placement_tables(nodes: Sequence[NodeRecord], workers: Sequence[WorkerRecord]) -> str:
    """Return a table of the nodes, and one of the workers if they are few; "" on one node."""
    if len(nodes) < 2:
        return ""
    rows: list[tuple[str, ...]] = []
    for node in nodes:
        mine = [each for each in workers if each.seat.node == node.node]
        shares = [each.local_share for each in mine if each.local_share is not None]
        speed = node.bytes_per_second
        rows.append(
            (
                str(node.node),
                str(node.workers),
                render.count(node.rows_per_second),
                render.UNKNOWN if speed is None else f"{speed / 1e6:,.1f}",
                _percent(min(shares, default=None)),
            )
        )
    by_node = render.table((">node", ">workers", ">rows/s", ">MB/s", ">least local memory"), rows)
    if len(workers) > FEW_WORKERS:
        return by_node
    heads = (">worker", ">node", "seat's CPUs", "ran on CPUs", ">local memory")
    rows = [
        (
            str(each.worker),
            str(each.seat.node),
            render.ranges(each.seat.cpus) or render.UNKNOWN,
            render.ranges(each.ran_on) or render.UNKNOWN,
            _percent(each.local_share),
            render.count(each.rows),
            str(each.restarts),
        )
        for each in workers
    ]
    return f"{by_node}\n\n{render.table((*heads, '>rows', '>restarts'), rows)}"


def _percent(share: float | None) -> str:
    # Rounded down: only a share of 1 is shown as 100.0 %.
    return render.UNKNOWN if share is None else f"{int(share * 1000) / 10:.1f} %"
